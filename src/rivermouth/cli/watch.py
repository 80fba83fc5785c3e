"""``rivermouth watch``: the page of runs that another process, or an earlier one, wrote down."""

from __future__ import annotations

import threading
import webbrowser
from argparse import ArgumentParser, Namespace
from pathlib import Path

from rivermouth.cli.command import Command
from rivermouth.errors import DefinitionError


def add_arguments(parser: ArgumentParser) -> None:
    """The arguments of watch."""
    parser.add_argument(
        "path",
        type=Path,
        nargs="?",
        help="a history, or a folder of histories (default: where rm.watch writes them)",
    )
    parser.add_argument("--port", type=int, default=0, help="default: a free one")
    parser.add_argument(
        "--host",
        default="127.0.0.1",
        help="who may look: only this machine, unless told (default: 127.0.0.1)",
    )
    parser.add_argument("--open", action="store_true", help="show the page in a browser, too")


def run(arguments: Namespace) -> int:
    """Serve the page until the process is interrupted."""
    from rivermouth.observe import history
    from rivermouth.observe.server import Server

    place = arguments.path or history.folder()
    if not place.exists():
        raise DefinitionError(
            "watch",
            f"there is no {place}",
            todo="Run a query with rm.watch(query), or name the file or folder that it wrote.",
        )
    if place.is_file():
        history.Reader(place)  # says at once what is wrong with it
    server = Server(place, host=arguments.host, port=arguments.port)
    count = len(history.files(place))
    runs = f"{count} run{'' if count == 1 else 's'}" if count else "no runs yet"
    print(f"{server.url}  ({runs} in {place}; Ctrl+C ends)", flush=True)
    if arguments.open:
        webbrowser.open(server.url)
    try:
        threading.Event().wait()
    finally:
        server.stop()
    return 0


COMMAND = Command("watch", "Show running and finished queries on a live page", add_arguments, run)
