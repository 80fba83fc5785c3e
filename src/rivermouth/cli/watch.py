"""``rivermouth watch``: the live page of runs whose history was recorded by `rm.watch`."""

from __future__ import annotations

import threading
import webbrowser
from argparse import ArgumentParser, Namespace
from pathlib import Path

from rivermouth.errors import DefinitionError

SUMMARY = "Show running and finished queries on a live page"


def add_arguments(parser: ArgumentParser) -> None:
    """The arguments of watch."""
    parser.add_argument(
        "path",
        type=Path,
        nargs="?",
        help="a history file, or a folder of them (default: where rm.watch writes them)",
    )
    parser.add_argument(
        "--port", type=int, default=0, help="port to listen on (default: a free one)"
    )
    parser.add_argument(
        "--host",
        default="127.0.0.1",
        help="address to listen on; the default is reachable from this machine only "
        "(default: 127.0.0.1)",
    )
    parser.add_argument("--open", action="store_true", help="open the page in a browser")


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
        history.Reader(place)  # raises if it is no history
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
