"""What a join with a table is expected to cost by each plan, from a benchmark.

A batch costs a start, which in a batch frame depends on how many columns Spark compiles, a byte of
the table where a plan reads it in each batch, and for each row something of its own and something
for each column. ``python -m benchmarks plans`` measures it, and
`benchmarks.suites.table_join.plan_fit` makes the figures of that; a test compares them.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from typing import Literal

from rivermouth.spec.plans import Plan

Kind = Literal["stream", "batch"]
Condition = Literal["keys", "range", "place"]

#: what another plan must be expected to save, for it has fewer metrics
_WORTH = 0.9


@dataclass(frozen=True)
class Cost:
    """CPU time in microseconds.

    Of a micro-batch, of a batch frame and each column in it, of a byte of the table, of a row, and
    of a row's column.
    """

    stream: float
    batch: float
    batch_column: float
    byte: float
    row: float
    column: float

    def of(self, kind: Kind, *, rows: int, columns: int, table_bytes: int) -> float:
        """CPU microseconds of one batch."""
        start = self.stream if kind == "stream" else self.batch + columns * self.batch_column
        return start + table_bytes * self.byte + rows * (self.row + columns * self.column)


COSTS: dict[Condition, dict[Plan, Cost]] = {
    "keys": {
        "workers": Cost(
            stream=229_000, batch=35_500, batch_column=8_690, byte=0, row=0.0652, column=0.276,
        ),
        "udf": Cost(stream=235_000, batch=128_000, batch_column=0, byte=0, row=0.349, column=0.269),
        "native": Cost(
            stream=274_000, batch=75_800, batch_column=13_200, byte=0.071, row=0, column=0.0894,
        ),
    },
    "range": {
        "workers": Cost(
            stream=208_000, batch=19_300, batch_column=11_100, byte=0, row=0, column=0.31,
        ),
        "udf": Cost(stream=249_000, batch=101_000, batch_column=0, byte=0, row=0.405, column=0.274),
        "native": Cost(
            stream=309_000, batch=449_000, batch_column=9_100, byte=0, row=0.232, column=0.236,
        ),
    },
    "place": {
        "workers": Cost(
            stream=236_000, batch=198_000, batch_column=5_900, byte=0, row=0.0936, column=0.287,
        ),
        "udf": Cost(stream=244_000, batch=236_000, batch_column=0, byte=0, row=0.475, column=0.268),
    },
}  # fmt: skip


def cheapest_plan(
    condition: Condition,
    kind: Kind,
    plans: Collection[Plan],
    *,
    rows: int,
    columns: int,
    table_bytes: int,
) -> Plan:
    """The plan that is expected to take the least CPU time, `workers` unless it is well ahead.

    Parameters
    ----------
    condition
        What is compared: equal keys, ranges (`between`, `asof`), or places.
    kind
        Whether the events are a stream or a batch frame.
    plans
        Those that can do it.
    rows
        Of a batch.
    columns
        Of the events.
    table_bytes
        What the table's files take, where they are read in each batch.
    """
    costs = {
        plan: cost.of(kind, rows=rows, columns=columns, table_bytes=table_bytes)
        for plan, cost in COSTS[condition].items()
    }
    best = min(plans, key=lambda plan: costs[plan])
    return best if costs[best] < _WORTH * costs["workers"] else "workers"
