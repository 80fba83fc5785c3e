"""What a subcommand is."""

from __future__ import annotations

from argparse import ArgumentParser, Namespace
from collections.abc import Callable
from dataclasses import dataclass


@dataclass(frozen=True)
class Command:
    """A subcommand of ``rivermouth``.

    Parameters
    ----------
    name
        What the user types.
    summary
        One line of help, without a full stop.
    add_arguments
        Adds the command's own arguments to its parser.
    run
        Does the work and gives the exit code. What is heavy to import is imported in here.
    """

    name: str
    summary: str
    add_arguments: Callable[[ArgumentParser], None]
    run: Callable[[Namespace], int]
