"""Ordered indexes for ranges: halving beside paper A's skip lists, and the paper's Figure 13.

Kernels alone, on one core: a table of 2^18 to 2^23 rows, each probe meeting about four of them,
with a key (32 rows each) and without; then the comparisons of one search, counted in three ways, as
means over searches and as variance over builds.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import numpy as np
import pyarrow as pa

import rivermouth as rm
from benchmarks.harness.experiment import SEED, arguments, interleave, progress, save
from rivermouth.kernels.papers import skip_lists
from rivermouth.kernels.table_join.matching import Matcher, prepare
from rivermouth.spec.conditions import split

RUNS = 3
#: of which the variance is taken; an ideal list is the same each time, as two of them show
BUILDS = {"skiplist": 10, "ideal_skiplist": 2}
BATCH, PROBES = 10_000, 200_000
POWERS = (18, 19, 20, 21, 22, 23)
INDEXES = ("sorted", "skiplist", "ideal_skiplist")
APART = 1000  #: between neighbouring values, in the mean


def throughput(power: int, by: str | None, probes: int, runs: int) -> list[dict[str, Any]]:
    """Probes a second of each index over a table of 2^power rows."""
    rows = 1 << power
    random = np.random.default_rng((SEED, power))
    count = rows // 32 if by else 1
    table = {
        "w": pa.array(random.integers(0, rows // count * APART, rows)),
        "k": pa.array(random.integers(0, count, rows)),
    }
    left = {
        "v": pa.array(random.integers(0, rows // count * APART, probes)),
        "k": pa.array(random.integers(0, count, probes)),
    }
    on = rm.between("v", "w", lower=-2 * APART, upper=2 * APART, by=by)
    equal, place, span = split(on)
    cases, built, pairs = {}, {}, set()
    for name in INDEXES:
        start = time.process_time()
        made = prepare(place, table, where="bench", index=name, keys=equal, span=span)
        built[name] = time.process_time() - start
        matcher = Matcher(equal, place, table, made, span=span)
        pairs.add(len(matcher.match(left).left))
        cases[name] = _case(matcher, left, probes)
    if len(pairs) > 1:
        raise AssertionError(f"2^{power} rows: the indexes find {sorted(pairs)} pairs")
    about = {"rows": rows, "by_key": by is not None, "pairs_per_probe": pairs.pop() / probes}
    return [about | {"build_s": built[row["case"]]} | row for row in interleave(cases, runs=runs)]


def _case(
    matcher: Matcher, left: dict[str, pa.Array], probes: int
) -> Callable[[], dict[str, float]]:
    def once() -> dict[str, float]:
        cpu = time.process_time()
        for start in range(0, probes, BATCH):
            matcher.match({name: column[start : start + BATCH] for name, column in left.items()})
        return {"probes_per_cpu_s": probes / (time.process_time() - cpu)}

    return once


def figure13(power: int, probes: int) -> list[dict[str, Any]]:
    """Comparisons of one search, mean over searches and variance over builds."""
    rows = 1 << power
    place = np.arange(rows)
    group, usable = np.zeros(rows, np.int32), np.ones(rows, dtype=bool)
    asked = np.random.default_rng(SEED).integers(0, rows, probes)
    found = []
    for case, builds in BUILDS.items():
        counts = []
        for seed in range(builds):
            ideal = case == "ideal_skiplist"
            made = skip_lists.build(group, 1, place, usable, ideal=ideal, seed=seed)
            counts.append(made.comparisons(group[:1].repeat(probes), asked))
        for way in counts[0]._fields:
            means = [getattr(count, way).mean() for count in counts]
            row = {"mean": float(np.mean(means)), "variance": float(np.var(means, ddof=1))}
            found.append({"rows": rows, "case": case, "counting": way} | row)
    return found


def main() -> None:
    """Leave ``ordered`` and ``figure13``."""
    given = arguments(__doc__)
    powers = (12, 14) if given.quick else POWERS
    probes = 20_000 if given.quick else PROBES
    runs = given.runs or (1 if given.quick else RUNS)
    about = {"quick": given.quick, "seed": SEED, "data": "seeded"}
    speed: list[dict[str, Any]] = []
    counted: list[dict[str, Any]] = []
    with progress("ordered", 2 * len(powers)) as step:
        for power in powers:
            step(f"2^{power} rows")
            for by in (None, "k"):
                speed += throughput(power, by, probes, runs)
            step(f"2^{power} rows, comparisons")
            counted += figure13(power, min(probes, 20_000))
    print(save("ordered", speed, **about))
    print(save("figure13", counted, **about))


if __name__ == "__main__":
    main()
