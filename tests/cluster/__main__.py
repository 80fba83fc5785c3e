"""``python -m tests.cluster``: a shell on the driver's host of a cluster made of this machine."""

from __future__ import annotations

import argparse
import os
import sys

from tests.cluster import hosts
from tests.cluster.lab import MASTER, SHARED, WORKERS, lab
from tests.cluster.page import shell_environment


def main() -> int:
    """Open a lab, and a shell in it; the shell's exit code."""
    parser = argparse.ArgumentParser(prog="python -m tests.cluster", description=__doc__)
    parser.add_argument("-c", "--command", help="run this there instead of a shell")
    command = parser.parse_args().command
    if (reason := hosts.why_not()) is not None:
        print(f"no cluster here: {reason}", file=sys.stderr)
        return 1
    print(f"starting a master and {len(WORKERS)} workers ...", file=sys.stderr, flush=True)
    with lab() as opened:
        found = shell_environment(opened)
        print(f"{MASTER} has {', '.join(WORKERS)}; all hosts share {SHARED}, "
              "where app.py and what it reads are", file=sys.stderr)  # fmt: skip
        if command is None:
            print("this is the driver's host; `exit` ends all of it", file=sys.stderr)
        shell = ["bash", "--norc", *(["-i"] if command is None else ["-euc", command])]
        terminal = {"PS1": "driver$ ", "TERM": os.environ.get("TERM", "dumb")}
        process = opened.host("driver").spawn(shell, env=found | terminal, stdin=None)
        return process.wait()


if __name__ == "__main__":
    sys.exit(main())
