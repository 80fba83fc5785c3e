"""Process 1 of a host: makes the host's network and mounts, says ``ready``, then reaps orphans.

Started by `hosts.Host` in fresh namespaces, with a `Layout` as JSON; standard library only, as it
may hide the environment that it was started from.
"""

from __future__ import annotations

import json
import signal
import socket
import subprocess
import sys
from pathlib import Path
from typing import TypedDict


class Layout(TypedDict):
    """What a host looks like from inside.

    Parameters
    ----------
    name
        The host's name.
    address
        Its address, with the length of the prefix.
    hosts
        The file to be its ``/etc/hosts``.
    private
        Folders that are empty at the start and the host's own: tmpfs.
    binds
        Pairs of a folder outside and where the host sees it, also below a private one.
    hidden
        Folders that the host does not see.
    stage
        An empty folder, for the time of mounting.
    """

    name: str
    address: str
    hosts: str
    private: list[str]
    binds: list[tuple[str, str]]
    hidden: list[str]
    stage: str


def main(layout: Layout) -> None:
    """Make the host, and keep it until it is killed."""
    sys.stdin.readline()  # by now the other end of the cable is plugged in
    _run("ip", "link", "set", "lo", "up")
    _run("ip", "address", "add", layout["address"], "dev", "eth0")
    _run("ip", "link", "set", "eth0", "up")
    socket.sethostname(layout["name"])
    _mount(layout)
    # pid 1 inherits the orphans of the host; ignoring their end lets the kernel reap them
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)
    sys.stdout.write("ready\n")
    sys.stdout.flush()
    while True:
        signal.pause()


def _mount(layout: Layout) -> None:
    staged = []
    for number, (source, target) in enumerate(layout["binds"]):
        place = Path(layout["stage"], str(number))
        place.mkdir()
        _run("mount", "--bind", source, place)  # before a private folder covers the source
        staged.append((place, target))
    for folder in layout["private"]:
        _run("mount", "-t", "tmpfs", "-o", "mode=1777", "tmpfs", folder)
    for place, target in staged:
        Path(target).mkdir(parents=True, exist_ok=True)
        _run("mount", "--move", place, target)
    for folder in layout["hidden"]:
        _run("mount", "-t", "tmpfs", "-o", "ro", "tmpfs", folder)
    _run("mount", "--bind", layout["hosts"], "/etc/hosts")


def _run(*command: str | Path) -> None:
    subprocess.run(command, check=True)


if __name__ == "__main__":
    main(json.loads(sys.argv[1]))
