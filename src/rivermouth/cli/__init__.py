"""The command ``rivermouth``."""

from rivermouth.cli.main import main

__all__ = ["main"]
