"""What a join with a table is expected to cost by each plan, from a benchmark.

A batch costs a start, a byte of the table where a plan reads it in each batch, and for each row
something of its own and something for each column. ``python -m benchmarks plans`` measures it, and
`benchmarks.suites.table_join.plan_fit` makes the figures of that; a test compares them.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from rivermouth.spec.plans import Plan

Kind = Literal["stream", "batch"]
Condition = Literal["keys", "range"]

#: what another plan must be expected to save, for it has fewer metrics
_WORTH = 0.9


@dataclass(frozen=True)
class Cost:
    """CPU time in microseconds: of a batch, a byte of the table, a row, and a row's column."""

    stream: float
    batch: float
    byte: float
    row: float
    column: float

    def of(self, kind: Kind, *, rows: int, columns: int, table_bytes: int) -> float:
        """CPU microseconds of one batch."""
        start = self.stream if kind == "stream" else self.batch
        return start + table_bytes * self.byte + rows * (self.row + columns * self.column)


COSTS: dict[Condition, dict[Plan, Cost]] = {
    "keys": {
        "workers": Cost(stream=227_000, batch=75_800, byte=0, row=0, column=0.292),
        "udf": Cost(stream=235_000, batch=128_000, byte=0, row=0.349, column=0.269),
        "native": Cost(stream=270_000, batch=150_000, byte=0.0726, row=0, column=0.0939),
    },
    "range": {
        "workers": Cost(stream=206_000, batch=64_800, byte=0, row=0, column=0.322),
        "udf": Cost(stream=249_000, batch=101_000, byte=0, row=0.405, column=0.274),
        "native": Cost(stream=309_000, batch=517_000, byte=0, row=0.162, column=0.247),
    },
}


def cheapest_plan(
    condition: Condition, kind: Kind, *, rows: int, columns: int, table_bytes: int
) -> Plan:
    """The plan that is expected to take the least CPU time, `workers` unless it is well ahead.

    Parameters
    ----------
    condition
        What is compared: equal keys, or ranges (`between`, `asof`).
    kind
        Whether the events are a stream or a batch frame.
    rows
        Of a batch.
    columns
        Of the events.
    table_bytes
        What the table's files take.
    """
    costs = {
        plan: cost.of(kind, rows=rows, columns=columns, table_bytes=table_bytes)
        for plan, cost in COSTS[condition].items()
    }
    best = min(costs, key=lambda plan: costs[plan])
    return best if costs[best] < _WORTH * costs["workers"] else "workers"
