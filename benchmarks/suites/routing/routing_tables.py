"""The tables about routing: a result -> cells."""

from __future__ import annotations

import statistics
from collections.abc import Mapping, Sequence
from typing import Any

from benchmarks.harness.formatting import Cells, Document, number, only, spread

LABELS = {
    "none": "`routing=None`: no shuffle",
    "hash": "`rm.by_hash()`",
    "algorithm2": "paper A's Algorithm 2 (`split=False`)",
    "ours": "`rm.by_hotspot()`",
    "cost": '`rm.by_hotspot(weight="cost")`',
}
BEFORE = 5  #: micro-batches before hot keys move, at most, whose median is what stands


def partitions(result: Document) -> Cells:
    """Load CV, rows cached and hits by skew and way, a cache for each simulated partition."""
    head = ["simulated, six partitions", "z", "load CV", "its worst", "rows cached", "hit ratio"]
    return [
        head,
        *(
            [
                LABELS[row["case"]],
                f"{row['z']:.2f}",
                f"{row['load_cv']:.3f}",
                f"{row['worst_load_cv']:.3f}",
                f"{row['cached_rows']:,}",
                f"{row['hit_ratio']:.3f}",
            ]
            for row in result["rows"]
        ),
    ]


def in_spark(result: Document) -> Cells:
    """Load CV, load, throughput and time of a batch, by skew and way."""
    head = [
        "six partitions, two cores", "z", "load CV", "largest load", "CPU-s per million rows",
        "to hash", "rows per second", "s per 100,000",
    ]  # fmt: skip
    lines = [head]
    for row in result["rows"]:
        same = [one for one in result["rows"] if one["z"] == row["z"]]
        by_hash, cpu = only(same, case="hash"), "cpu_s_per_million"
        is_routed = row["case"] != "none"
        lines.append(
            [
                LABELS[row["case"]],
                f"{row['z']:.2f}",
                f"{row['load_cv']:.3f}" if is_routed else "",
                f"{row['largest_load']:.0%}" if is_routed else "",
                f"{row[cpu]:.2f} {spread(row, cpu)}",
                number(row[cpu] / by_hash[cpu]),
                number(row["rows_per_s"]),
                f"{row['wall_s_per_million'] / 10:.2f}",
            ]
        )
    return lines


def cost(result: Document) -> Cells:
    """What routing costs on even keys, by the size of micro-batches."""
    cpu = "cpu_s_per_million"
    head = ["even keys", "rows a batch", "CPU-s per million rows", "to hash", "ms a batch"]
    lines = [head]
    for row in result["rows"]:
        by_hash = only(result["rows"], case="hash", batch=row["batch"])
        lines.append(
            [
                LABELS[row["case"]],
                f"{row['batch']:,}",
                f"{row[cpu]:.2f} {spread(row, cpu)}",
                number(row[cpu] / by_hash[cpu]),
                f"{row['batch_ms']:.0f}",
            ]
        )
    return lines


def over_time(result: Document) -> Cells:
    """Load CV before the first move and after all, by way."""
    lines = [
        ["Load CV, median of micro-batches", "standing", "at a move", "one cycle later", "two"]
    ]
    for case in ("hash", "algorithm2", "ours"):
        rows = [row for row in result["rows"] if row["case"] == case]
        moves = [row["batch"] for row in rows if row["moved"]]
        after = [
            statistics.median(rows[move + later]["load_cv"] for move in moves)
            for later in (0, 1, 2)
        ]
        before = standing(rows, moves[0], "load_cv")
        lines.append([LABELS[case], *(f"{cv:.3f}" for cv in (before, *after))])
    return lines


def standing(series: Sequence[Mapping[str, Any]], moved: int, key: str) -> float:
    """A measure before the micro-batch with the number `moved`: the median of up to `BEFORE`."""
    return statistics.median(one[key] for one in series[max(0, moved - BEFORE) : moved])


def weighed(result: Document) -> Cells:
    """Load CV of counts and of time, by what is balanced."""
    head = [
        "incremental cache, z 1.10",
        "load CV of records",
        "load CV of seconds",
        "rows per second",
        "hit ratio",
    ]
    return [
        head,
        *(
            [
                LABELS[row["case"]],
                f"{row['load_cv']:.3f}",
                f"{row['load_cv_of_seconds']:.3f}",
                number(row["rows_per_s"]),
                f"{row['hit_ratio']:.3f}",
            ]
            for row in result["rows"]
        ),
    ]


def shared(result: Document) -> Cells:
    """Hit ratios of two workers with a cache each and with one for both."""
    lines = [["hit ratio, two workers, 1 % of the keys held", "z", "one each", "one for both"]]
    for row in result["rows"]:
        if row["caches"] == "one each":
            both = only(result["rows"], z=row["z"], case=row["case"], caches="one for both")
            ratios = (f"{one['hit_ratio']:.3f}" for one in (row, both))
            lines.append([LABELS[row["case"]], f"{row['z']:.2f}", *ratios])
    return lines
