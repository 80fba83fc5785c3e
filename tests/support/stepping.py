"""A summary stepped through without Spark: batches in, answers out."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np
import pyarrow as pa

from rivermouth.kernels.aggregation.output import Output
from rivermouth.kernels.aggregation.partials import Book
from rivermouth.kernels.aggregation.processor import AggregateStepper
from rivermouth.kernels.state.bucketing import Arrivals
from rivermouth.spec.slack import Quality, Slack
from rivermouth.spec.summaries import Summary


@dataclass
class Stepped:
    """What came out, batch by batch, and what the steps counted."""

    rows: list[pa.Table] = field(default_factory=list)
    late: list[pa.Table] = field(default_factory=list)
    counts: Counter[str] = field(default_factory=Counter)
    gauges: list[dict[str, object]] = field(default_factory=list)

    def answers(self) -> pa.Table:
        return pa.concat_tables(self.rows)


def stepped(
    batches: Sequence[pa.Table],
    summary: Summary,
    slack: Slack,
    *,
    last: bool = False,
    forgetful: bool = False,
) -> Stepped:
    """All batches through the steps of one bucket; a forgetful worker has no hints."""
    kinds = {name: batches[0].schema.field(name).type for name in summary.columns}
    book = Book(summary, kinds, isinstance(slack, Quality))
    output = Output.of(book, pa.struct(list(kinds.items())))
    store, hint, found = {}, {}, Stepped()
    for number, batch in enumerate(batches):
        times = book.times(batch)
        newest = int(times.max()) if len(times) else None
        stepper = AggregateStepper(book, slack, output)
        side = (batch,) if batch.num_rows else ()
        arrivals = Arrivals((side,), (newest,), number, (), last and batch is batches[-1])
        tables = list(stepper.process(store, arrivals, {} if forgetful else hint))
        whole = pa.concat_tables([output.schema.empty_table(), *tables])
        kind = np.asarray(whole.column("kind").to_pylist(), dtype=object)
        found.rows.append(whole.filter(pa.array(kind == "row")))
        found.late.append(whole.filter(pa.array(kind == "late")))
        report = stepper.report()
        found.counts.update(report["counts"])
        found.gauges.append(report)
        assert all(len(value) <= 1 << 20 for value in store.values())
    return found
