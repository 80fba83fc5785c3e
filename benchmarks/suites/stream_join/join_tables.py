"""The tables and plots of joins of two streams."""

from __future__ import annotations

from typing import Any

from benchmarks.harness.formatting import Cells, Document, number, only

LABELS = {
    "join_interval": "**rivermouth**, `join_interval`",
    "join_window": "**rivermouth**, `join_window`",
    "native_cells": "Spark's own join on a cell key",
    "flink_cells": "Flink's interval join on a cell key",
    "nested_loop": "Spark's own join on bins of time",
    "topological": "**rivermouth**, `join_interval`",
    "rows_out": "as many rows out of a `mapInArrow`, no join",
    "rows_in": "one input into a `mapInArrow`, nothing out",
}
WAYS = {
    "one bucket": "one bucket",
    "spread": "all four, `salt=4`",
    "learned": "as many as are worth it, `skew_path=folder`",
}
#: the axes of paper C's Figures 12 to 15, and the size of batches
AXES = {
    "cores": "cores",
    "length": "seconds of the interval or window",
    "cell": "metres of a cell's side",
    "bin": "seconds of a bin",
    "batch": "micro-batches for one hour",
}
#: measured beside one of these, and not drawn
BESIDE = {
    "binrtree": "seconds of a bin, paper C's BinR-tree",
    "method": "ten minutes by",
    "predicate": "ten minutes, boxes of 0.002 degrees that are joined by",
}


def stream_stream(result: Document) -> Cells:
    """Input rows and pairs per CPU second, and how many times Spark's own that is."""
    return [
        ["T-Drive with itself", "input rows", "pairs", "rows/CPU-s", "pairs/CPU-s", "to Spark's"],
        *(
            [
                f"*{row['workload']}*, {LABELS[row['case']]}",
                number(row["rows"]),
                *(["", number(row["rows_per_cpu_s"]), "", ""] if row["case"] == "rows_in" else [
                    number(row["pairs"]),
                    number(row["rows_per_cpu_s"]),
                    number(row["pairs_per_cpu_s"]),
                    _times(row, result),
                ]),
            ]
            for row in result["rows"]
        ),
    ]  # fmt: skip


def _times(row: dict[str, Any], result: Document) -> str:
    """Against Spark's own join."""
    (native,) = (
        other
        for other in result["rows"]
        if other["case"] == "native_cells" and other["workload"] == row["workload"]
    )
    return f"{row['pairs_per_cpu_s'] / native['pairs_per_cpu_s']:.1f}"


def stream_stream_growth(result: Document) -> Cells:
    """Input rows per second, and a micro-batch's time, against one axis at a time."""
    return [
        ["axis", "value", "join", "rows/s", "rows/CPU-s", "ms a micro-batch", "pairs"],
        *(
            [
                (AXES | BESIDE)[row["axis"]],
                row["value"] if isinstance(row["value"], str) else f"{row['value']:,}",
                LABELS[row["case"]].rpartition(", ")[2],
                number(row["rows_per_s"]),
                number(row["rows_per_cpu_s"]),
                number(row["batch_ms"]) if "batch_ms" in row else "",
                number(row["pairs"]),
            ]
            for row in result["rows"]
        ),
    ]


def stream_stream_crowd(result: Document) -> Cells:
    """What a place costs that has most of the rows, by how it is dealt to buckets."""
    return [
        ["rows in one place", "dealt to", "pairs", "seconds", "rows/s", "rows/CPU-s"],
        *(
            [
                f"{100 * row['share']:.0f} %",
                WAYS[row["way"]],
                number(row["pairs"]),
                f"{row['wall_s']:.1f}",
                number(row["rows_per_s"]),
                number(row["rows_per_cpu_s"]),
            ]
            for row in result["rows"]
        ),
    ]


def stream_stream_lattice(result: Document) -> Cells:
    """Shapes of two streams by the buckets that they go to."""
    ways = {"lattice": "a lattice", "cells": "cells ten times as wide as the shapes"}
    return [
        ["predicate, buckets", "where rows go", "pairs", "rows/s", "rows/CPU-s"],
        *(
            [
                f"`{row['predicate']}`, {row['buckets']}",
                ways[row["way"]],
                number(row["pairs"]),
                number(row["rows_per_s"]),
                number(row["rows_per_cpu_s"]),
            ]
            for row in result["rows"]
        ),
    ]


def stream_stream_where(result: Document) -> Cells:
    """CPU seconds by program, beside rows without a join, then those of Python by part."""
    rows = result["rows"]
    join = only(rows, case="join_interval")
    shares = only(rows, case="python")["shares"]
    parts = sorted(shares.items(), key=lambda part: -part[1])
    return [
        ["CPU-seconds of the *sparse* join", "the JVM", "Python"],
        *(
            [LABELS[row["case"]], f"{row['jvm_s']:.1f}", f"{row['python_s']:.1f}"]
            for row in rows
            if "jvm_s" in row
        ),
        *(
            [f"of the join's Python: {part}", "", f"{share * join['python_s']:.1f}"]
            for part, share in parts
        ),
    ]


def stream_stream_latency(result: Document) -> Cells:
    """Milliseconds from the later row of a pair to the end of the batch that told it."""
    return [
        ["1,000 rows/s a side", "median", "99th percentile", "pairs"],
        *(
            [
                row["title"],
                f"{row['median_ms']:,.0f} ms",
                f"{row['p99_ms']:,.0f} ms",
                number(row["pairs"]),
            ]
            for row in result["rows"]
        ),
    ]


def growth_plot(result: Document) -> Any:
    """One panel an axis: input rows per second."""
    import matplotlib.pyplot as plt

    figure, panels = plt.subplots(1, 5, figsize=(13, 2.9), sharey=True, layout="constrained")
    lines = {
        "join_interval": ("join_interval", "o-", "#0b7a75"),
        "join_window": ("join_window", "s--", "#d9822b"),
        "binrtree": ("join_interval, BinR-tree", "^:", "#4c63b6"),
    }
    for axes, (axis, label) in zip(panels, AXES.items(), strict=True):
        for case, (name, style, colour) in lines.items():
            of_it = ("binrtree", "join_interval") if case == "binrtree" else (axis, case)
            if case == "binrtree" and axis != "bin":
                continue
            rows = [r for r in result["rows"] if (r["axis"], r["case"]) == of_it]
            if rows:
                points = sorted((row["value"], row["rows_per_s"]) for row in rows)
                axes.plot(*zip(*points, strict=True), style, color=colour, label=name)
        ticks = sorted({row["value"] for row in result["rows"] if row["axis"] == axis})
        if axis != "cores":
            axes.set_xscale("log")
        axes.set_xticks(ticks, [f"{tick:,}" for tick in ticks], fontsize=7, rotation=45)
        axes.minorticks_off()
        axes.set_xlabel(label)
    panels[3].legend(frameon=False, fontsize=8)
    panels[0].set_ylabel("input rows per second")
    panels[0].set_ylim(bottom=0)
    panels[1].legend(frameon=False, fontsize=8)
    return figure
