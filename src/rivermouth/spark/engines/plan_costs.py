"""What a join with a table is expected to cost by each plan, from a benchmark.

A batch costs a start, which grows with the columns of a batch frame, a byte of the table where a
plan reads it in each batch, and for each row something of its own and something for each column.
``python -m benchmarks plans`` measures it, and `benchmarks.suites.table_join.plan_fit` makes the
figures of one of its runs; a test compares them.
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
            stream=232_000, batch=32_500, batch_column=10_200, byte=0, row=0.106, column=0.257,
        ),
        "udf": Cost(stream=237_000, batch=133_000, batch_column=0, byte=0, row=0.352, column=0.26),
        "native": Cost(
            stream=275_000, batch=66_300, batch_column=12_900, byte=0.0708, row=0, column=0.0972,
        ),
    },
    "range": {
        "workers": Cost(
            stream=210_000, batch=15_200, batch_column=13_300, byte=0, row=0.0544, column=0.286,
        ),
        "udf": Cost(stream=253_000, batch=113_000, batch_column=0, byte=0, row=0.41, column=0.253),
        "native": Cost(
            stream=312_000, batch=447_000, batch_column=9_490, byte=0, row=0.238, column=0.227,
        ),
    },
    "place": {
        "workers": Cost(
            stream=236_000, batch=198_000, batch_column=6_420, byte=0, row=0.104, column=0.282,
        ),
        "udf": Cost(stream=244_000, batch=234_000, batch_column=0, byte=0, row=0.475, column=0.269),
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
