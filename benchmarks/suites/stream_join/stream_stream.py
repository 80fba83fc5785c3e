"""T-Drive joined with itself in space and time: ours beside Spark's own join on a cell key.

*sparse*: 100 m and a minute, ten hours; *dense*, paper C's own: 1 km and five minutes, one hour.
All run once, after a part of the same that does not count, and must give the same number of pairs.
Spark's own join has state format 4 and the best of four widths of cells. Flink's interval join on
the same cells stands beside them, a `mapInArrow` that gives as many rows of as many columns and
does nothing else, and one that takes the rows and gives nothing: no join that is done in Python
workers can cost less than the first and, for its second input, the second.

Then paper C's Figures 12 to 15 (cores, length of the interval, cells, bins, bins with the paper's
own BinR-tree), the cost of small batches, a nested loop and topological predicates, and what a
place costs that has most of the rows; shapes on a lattice of buckets and in cells; and where the
CPU time of the sparse join goes.
Latency is measured by `stream_latency`.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from typing import Any

from benchmarks.harness import daytime, session, stacks, streams
from benchmarks.harness.daytime import Daytime
from benchmarks.harness.experiment import SEED, Case, data, interleave, progress, save
from benchmarks.harness.runner import Runner
from benchmarks.harness.tdrive import TDRIVE
from benchmarks.peers import flink
from benchmarks.peers.environment import PeerUnavailable

PARTS = ("beside", "growth", "crowd", "lattice", "where")
FLINK = "flink_cells"
CONF = {"spark.sql.streaming.join.stateFormatVersion": "4"}
SPARSE, DENSE = {"meters": 100.0, "seconds": 60}, {"meters": 1000.0, "seconds": 300}
TEN_HOURS = Daytime(6)
#: parts of it, where every row has many pairs or the case is slow
TWO_HOURS, ONE_HOUR = Daytime(6, 120, 14), Daytime(6, 60, 14)
HALF_AN_HOUR, TEN_MINUTES = Daytime(3, 30, 14), Daytime(2, 10, 14)
QUICK = Daytime(3, 3)
SIDE = 0.002  #: degrees of the boxes that meet
#: what is asked, the files that count, and those before
WORKLOADS = {
    "sparse": (SPARSE, TEN_HOURS, HALF_AN_HOUR),
    "dense": (DENSE, ONE_HOUR, TEN_MINUTES),
}
#: parts of the join's own Python by the files that they are in
PYTHON_PARTS = {
    "kernels/stream_join/routing.py": "buckets of rows",
    "kernels/state/bucketing.py": "messages of buckets",
    "kernels/stream_join/side_state.py": "state",
    "kernels/stream_join/band_join.py": "search",
    "kernels/stream_join/pairing.py": "search",
    "kernels/stream_join/times.py": "search",
    "kernels/stream_join/pair_emitter.py": "pairs",
    "kernels/stream_join/output_buffer.py": "pairs",
    "kernels/stream_join/": "the rest of the join",
    "spark/engines/": "our engine, and what it waits for",
}
WARM = 5  #: runs of ours before it counts
CELLS = (1.0, 2.0, 3.0, 4.0)  #: widths of the cells of Spark's own, in distances


@dataclass(frozen=True)
class Line:
    """One line of a table: what is run on how many cores, and how the line is told apart."""

    case: str
    runner: Runner
    cores: int
    taxis: Daytime
    options: Mapping[str, Any]
    about: Mapping[str, Any] = field(default_factory=dict)

    @property
    def name(self) -> str:
        """Tells it from the others of the run."""
        return f"{self.case} {self.cores} {self.taxis} {dict(self.options)} {dict(self.about)}"

    def measure(self) -> dict[str, float]:
        """Run once."""
        if self.case == FLINK:
            found = flink.meet(
                self.runner, self.taxis.folder(), cores=self.cores, **dict(self.options)
            )
        else:
            found = self.runner.measure(
                case=self.case,
                folder=str(self.taxis.folder()),
                files=self.taxis.files,
                options=dict(self.options),
            )
        return {
            "rows": found["rows_in"],
            "pairs": found["rows_out"],
            "rows_per_cpu_s": found["rows_in"] / found["cpu_s"],
            "pairs_per_cpu_s": found["rows_out"] / found["cpu_s"],
            "rows_per_s": found["rows_in"] / found["wall_s"],
            "wall_s": found["wall_s"],
            "memory_gb": found["memory_gb"],
            **({"batch_ms": found["batch_ms"]} if "batch_ms" in found else {}),
        }


def measured(title: str, lines: Sequence[Line], *, runs: int, warmup: int) -> list[dict[str, Any]]:
    """The lines take turns; one row each."""
    cases: dict[str, Case] = {line.name: line.measure for line in lines}
    with progress(title, len(lines) * (runs + warmup)) as step:
        rows = interleave(cases, runs=runs, warmup=warmup, step=step)
    return [
        row | {"case": line.case, "cores": line.cores, **line.options, **line.about}
        for line, row in zip(lines, rows, strict=True)
    ]


def beside_others(
    two: Runner, other: Runner | None, workload: str, *, quick: bool
) -> list[dict[str, Any]]:
    """One workload, ours, Spark's own and Flink's: the same pairs of the same files."""
    options, much, little = WORKLOADS[workload]
    much, little = (QUICK, QUICK) if quick else (much, little)
    about = {"workload": workload}
    tried = [
        Line("native_cells", two, 2, little, {**options, "cells": cells}, about) for cells in CELLS
    ]
    rows = measured(f"{workload}, cells of Spark's own", tried, runs=1, warmup=0)
    best = max(rows, key=lambda row: row["pairs_per_cpu_s"])["cells"]
    for before in range(0 if quick else WARM):  # the last as long: the JVM compiles all the while
        part = much if before == WARM - 1 else little
        Line("join_interval", two, 2, part, options, {"before": before}).measure()
    lines = [
        Line("join_interval", two, 2, much, options, about),
        Line("native_cells", two, 2, much, {**options, "cells": best}, about),
    ]
    if other is not None:
        Line(FLINK, other, 2, little, {**options, "cells": best}).measure()
        lines.append(Line(FLINK, other, 2, much, {**options, "cells": best}, about))
    rows = measured(f"{workload}, side by side", lines, runs=1, warmup=0)
    if len(pairs := {row["pairs"] for row in rows}) > 1:
        raise AssertionError(f"{workload}: {pairs} pairs")
    each = round(2 * rows[0]["pairs"] / rows[0]["rows"])
    floors = [
        Line("rows_out", two, 2, much, {"each": each}, about),
        Line("rows_in", two, 2, much, {}, about),
    ]
    return rows + measured(f"{workload}, nothing but rows", floors, runs=1, warmup=1)


@contextmanager
def flink_if_there() -> Iterator[Runner | None]:
    """Flink, or nothing where it cannot be had."""
    try:
        runner = flink.interval()
    except PeerUnavailable as why:
        print(f"without Flink: {why}", file=sys.stderr)
        yield None
        return
    with runner:
        yield runner


def growth(one: Runner, two: Runner, *, quick: bool) -> list[dict[str, Any]]:
    """Paper C's Figures 12 to 15, and the cost of small batches: one axis at a time."""
    taxis, hour = (QUICK, QUICK) if quick else (TWO_HOURS, Daytime(2, 60, 14))
    lines = [
        Line(case, runner, cores, taxis, options, {"axis": "cores", "value": cores})
        for cores, runner in ((1, one), (2, two))
        for case, options in (
            ("join_interval", SPARSE),
            ("join_window", {"meters": 100.0, "seconds": 120}),
        )
    ]

    def add(axis: str, value: Any, taxis: Daytime, options: dict[str, Any],
            case: str = "join_interval") -> None:  # fmt: skip
        lines.append(Line(case, two, 2, taxis, options, {"axis": axis, "value": value}))

    for seconds in (60,) if quick else (15, 30, 60, 120, 300, 600):
        add("length", 2 * seconds, taxis, {**SPARSE, "seconds": seconds})
        add("length", 2 * seconds, taxis, {**SPARSE, "seconds": 2 * seconds}, "join_window")
    for cell in (800,) if quick else (200, 400, 800, 1600, 3200, 6400, 25_600):
        add("cell", cell, taxis, {**SPARSE, "cell": cell, "buckets": 4})
    for seconds in (30,) if quick else (2, 5, 15, 30, 60, 120, 600):
        add("bin", seconds, hour, {**SPARSE, "bin": f"{seconds} seconds"})
    for seconds in (30,) if quick else (15, 30, 60, 120, 600):
        add("binrtree", seconds, hour,
            {**SPARSE, "bin": f"{seconds} seconds", "index": "binrtree"})  # fmt: skip
    for files in (3,) if quick else (2, 6, 20, 60):
        add("batch", files, Daytime(files, 60, 14), SPARSE)
    rows = measured("growth", lines + methods(two, quick=quick), runs=1, warmup=0)
    if len(pairs := {row["pairs"] for row in rows if row["axis"] == "method"}) > 1:
        raise AssertionError(f"by the methods: {pairs} pairs")
    return rows


def methods(two: Runner, *, quick: bool) -> list[Line]:
    """The same pairs by ways that know more and more of space, and other predicates."""
    taxis = QUICK if quick else TEN_MINUTES
    ways: dict[str, tuple[str, dict[str, Any]]] = {
        "nested loop": ("nested_loop", {}),
        "cells": ("native_cells", {"cells": 2.0}),
        "BinR-tree": ("join_interval", {"index": "binrtree"}),
        "bands": ("join_interval", {}),
    }
    lines = [
        Line(case, two, 2, taxis, {**SPARSE, **more}, {"axis": "method", "value": way})
        for way, (case, more) in ways.items()
    ]
    boxes = replace(taxis, side=SIDE)
    options = {"seconds": SPARSE["seconds"]}
    return lines + [
        Line("topological", two, 2, boxes, {**options, "predicate": predicate},
             {"axis": "predicate", "value": predicate})
        for predicate in ("within", "intersects", "overlaps")
    ]  # fmt: skip


def warm(runner: Runner, taxis: Daytime) -> None:
    """Let a new session run what is measured: the first micro-batches of a JVM cost several."""
    for case, options in (("join_interval", SPARSE), ("join_window", SPARSE)):
        Line(case, runner, 2, taxis, options).measure()


def crowd(two: Runner, *, quick: bool) -> list[dict[str, Any]]:
    """One place that has half of the rows, or nine in ten."""
    taxis = QUICK if quick else Daytime(12, 60, 14)
    lines = [
        Line("crowded", two, 2, taxis, {"share": share, "way": way})
        for share in (0.5, 0.9)
        for way in ("one bucket", "spread", "learned")
    ]
    rows = measured("a crowded place", lines, runs=1 if quick else 2, warmup=1)
    for share in {row["share"] for row in rows}:
        if len(pairs := {row["pairs"] for row in rows if row["share"] == share}) > 1:
            raise AssertionError(f"{share} in one place: {pairs} pairs")
    return rows


def lattice(two: Runner, *, quick: bool) -> list[dict[str, Any]]:
    """Small shapes joined by predicates, their buckets a lattice, or cells ten times as wide."""
    boxes = replace(QUICK if quick else Daytime(4, 30, 14), side=SIDE)
    ways: dict[str, dict[str, float]] = {"lattice": {}, "cells": {"cell": 10 * SIDE}}
    lines = [
        Line("topological", two, 2, boxes,
             {"predicate": predicate, "seconds": SPARSE["seconds"], "buckets": buckets, **options},
             {"way": way})
        for predicate in ("intersects", "within")
        for buckets in (4, 16)
        for way, options in ways.items()
    ]  # fmt: skip
    rows = measured("shapes", lines, runs=1 if quick else 3, warmup=1)
    for predicate in ("intersects", "within"):
        if len(pairs := {row["pairs"] for row in rows if row["predicate"] == predicate}) > 1:
            raise AssertionError(f"{predicate}: {pairs} pairs")
    return rows


def where(two: Runner, *, quick: bool) -> list[dict[str, Any]]:
    """The CPU seconds of the sparse join by program, beside rows without a join, and by part."""
    taxis = QUICK if quick else TEN_HOURS
    join = Line("join_interval", two, 2, taxis, SPARSE)
    for _ in range(0 if quick else WARM):
        found = join.measure()
    each = 1 if quick else round(2 * found["pairs"] / found["rows"])
    lines = [
        join,
        Line("rows_out", two, 2, taxis, {"each": each}),
        Line("rows_in", two, 2, taxis, {}),
    ]
    rows = []
    for line in lines:
        line.measure()
        before = [look(two.pid) for look in (stacks.by_program, stacks.by_thread)]
        found = line.measure()
        programs, threads = (
            {name: seconds - then[name] for name, seconds in look(two.pid).items()}
            for look, then in zip((stacks.by_program, stacks.by_thread), before, strict=True)
        )
        jvm = programs.pop("java")
        row = {"case": line.case, "rows": found["rows"], "pairs": found["pairs"]}
        used = {"jvm_s": jvm, "threads": threads, "python_s": sum(programs.values())}
        rows.append(row | used)
    found, seen = stacks.sampled(two.pid, join.measure)
    workers = {stack: count for stack, count in seen.items() if "pyspark.daemon" in stack}
    shares = stacks.by_part(workers, PYTHON_PARTS, "PySpark's own")
    return [*rows, {"case": "python", "looks": sum(workers.values()), "shares": shares}]


def main() -> None:
    """Leave ``stream_stream`` and those of the other parts, or of the parts that are named."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("parts", nargs="*", choices=[[], *PARTS], default=[])
    parser.add_argument("--quick", action="store_true", help="small inputs, one run: a smoke test")
    given = parser.parse_args()
    parts = given.parts or PARTS
    data(TDRIVE)
    about = {
        "quick": given.quick,
        "seed": SEED,
        "data": f"{TDRIVE}, {daytime.START} and {daytime.HOURS} hours on, inside {daytime.BOX}",
        "conf": streams.CONF | CONF,
    }
    with session.start(cores=2, conf=CONF) as two:
        warm(two, QUICK if given.quick else Daytime(12, 60, 14))
        if "beside" in parts:
            with flink_if_there() as other:
                rows: list[dict[str, Any]] = []
                for workload in WORKLOADS:  # saved one by one: each is minutes of work
                    rows += beside_others(two, other, workload, quick=given.quick)
                    print(save("stream_stream", rows, **about), flush=True)
        if "growth" in parts:
            with session.start(cores=1, conf=CONF) as one:
                warm(one, QUICK if given.quick else Daytime(12, 60, 14))
                grown = growth(one, two, quick=given.quick)
            print(save("stream_stream_growth", grown, **about), flush=True)
        if "lattice" in parts:
            rows = lattice(two, quick=given.quick)
            print(save("stream_stream_lattice", rows, **about), flush=True)
        if "where" in parts:
            print(save("stream_stream_where", where(two, quick=given.quick), **about), flush=True)
        if "crowd" in parts:
            print(save("stream_stream_crowd", crowd(two, quick=given.quick), **about))


if __name__ == "__main__":
    main()
