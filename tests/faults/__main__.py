"""``python -m tests.faults``: break every workload so often, and say what came of it."""

from __future__ import annotations

import argparse
import json
import sys
import time
from typing import Any

from benchmarks.harness.experiment import RESULTS, save
from tests.cluster import hosts
from tests.cluster.lab import Lab, lab
from tests.faults.campaign import Campaign, History
from tests.faults.nemesis import OWN

KEPT = hosts.ROOT / ".cache" / "faults"


def main() -> int:
    """Run campaigns; 1 if a row was wrong, or a query did not go on."""
    options = _arguments()
    if (reason := hosts.why_not()) is not None:
        print(f"no faults here: {reason}")
        return 0
    failed = False
    with lab() as opened:
        for name in options.workload or [*OWN]:
            history = _campaign(opened, name, options)
            failed |= bool(history.violations)
            row = history.summary()
            print({name: row[name] for name in ("workload", "faults", "rows", "violations")})
            if options.save:
                _save(row)
    return int(failed)


def _save(row: dict[str, Any]) -> None:
    """Keep a campaign beside those of other workloads and seeds."""
    path = RESULTS / "faults.json"
    kept = json.loads(path.read_text())["rows"] if path.exists() else []
    others = [
        each for each in kept if (each["workload"], each["seed"]) != (row["workload"], row["seed"])
    ]
    save("faults", [*others, row])


def _campaign(opened: Lab, workload: str, options: argparse.Namespace) -> History:
    def say(line: str) -> None:
        print(time.strftime("%H:%M:%S"), line, flush=True)

    campaign = Campaign(opened, workload, options.seed, say)
    place = KEPT / f"{workload}-{options.seed}"
    try:
        history = campaign.run(options.faults, options.longest)
    except BaseException:
        campaign.keep(place)
        say(f"{workload} broke off; what it left, and its history: {place}")
        raise
    for violation in history.violations[:20]:
        say(f"VIOLATION {workload}: {violation}")
    if history.violations:
        campaign.keep(place)
        say(f"seed {options.seed}; what it left, and its history: {place}")
    return history


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m tests.faults", description=__doc__)
    parser.add_argument("--workload", action="append", choices=[*OWN], help="default: all")
    parser.add_argument("--faults", type=int, default=20, help="of each workload")
    parser.add_argument("--seed", type=int, default=1, help="of records and faults")
    parser.add_argument("--longest", type=float, default=60, help="seconds that a fault lasts")
    parser.add_argument("--save", action="store_true", help="write benchmarks/results/faults.json")
    return parser.parse_args()


if __name__ == "__main__":
    sys.exit(main())
