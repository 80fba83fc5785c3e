"""The entry point: parses arguments, runs the command, prints its errors."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence

import rivermouth
from rivermouth.cli import demo, doctor, run, watch
from rivermouth.errors import RivermouthError

COMMANDS = {"demo": demo, "run": run, "watch": watch, "doctor": doctor}


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command that `arguments` (the process's own, if None) name; gives the exit code."""
    chosen = _parser().parse_args(arguments)
    try:
        return int(chosen.command.run(chosen))
    except RivermouthError as error:
        print(error, file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        return 130  # what a shell gives for an interrupt


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="rivermouth",
        description="Where streams meet tables, on Apache Spark.",
        epilog="rivermouth COMMAND --help says more about a command.",
    )
    parser.add_argument(
        "--version", action="version", version=f"rivermouth {rivermouth.__version__}"
    )
    commands = parser.add_subparsers(title="commands", metavar="COMMAND", required=True)
    for name, command in COMMANDS.items():
        own = commands.add_parser(name, help=command.SUMMARY, description=f"{command.SUMMARY}.")
        command.add_arguments(own)
        own.set_defaults(command=command)
    return parser
