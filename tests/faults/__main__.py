"""``python -m tests.faults``: break queries so often, and say what came of it."""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Sequence

from benchmarks.harness.experiment import save
from tests.cluster import hosts
from tests.cluster.lab import Lab, lab
from tests.faults.campaign import Campaign, History
from tests.faults.nemesis import WORKLOADS

KEPT = hosts.ROOT / ".cache" / "faults"


def main() -> int:
    """Run a campaign; 1 if a row was wrong, or a query did not go on."""
    options = _arguments()
    if (reason := hosts.why_not()) is not None:
        print(f"no faults here: {reason}")
        return 0
    with lab() as opened:
        history = _campaign(opened, options.workload or WORKLOADS, options)
    rows = [history.summary(workload) for workload in history.workloads]
    for row in rows:
        print({name: row[name] for name in ("workload", "faults", "rows", "violations")})
    if options.save:
        save("faults", rows, beside=("workload", "seed"))
    return int(any(row["violations"] for row in rows))


def _campaign(opened: Lab, workloads: Sequence[str], options: argparse.Namespace) -> History:
    def say(line: str) -> None:
        print(time.strftime("%H:%M:%S"), line, flush=True)

    campaign = Campaign(opened, workloads, options.seed, say)
    place = KEPT / str(options.seed)
    try:
        history = campaign.run(options.faults, options.longest)
    except BaseException:
        campaign.keep(place)
        say(f"broke off; what was left, and the history: {place}")
        raise
    for workload, result in history.results.items():
        for violation in result.violations[:20]:
            say(f"VIOLATION {workload}: {violation}")
    if any(result.violations for result in history.results.values()):
        campaign.keep(place)
        say(f"seed {options.seed}; what was left, and the history: {place}")
    return history


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m tests.faults", description=__doc__)
    parser.add_argument("--workload", action="append", choices=WORKLOADS, help="default: all")
    parser.add_argument("--faults", type=int, default=20, help="one after the other")
    parser.add_argument("--seed", type=int, default=1, help="of records and faults")
    parser.add_argument("--longest", type=float, default=60, help="seconds that a fault lasts")
    parser.add_argument("--save", action="store_true", help="write benchmarks/results/faults.json")
    return parser.parse_args()


if __name__ == "__main__":
    sys.exit(main())
