"""A summary over micro-batches without Spark: batches in, results out."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np
import pyarrow as pa

from rivermouth.kernels.aggregation.plan import AggPlan
from rivermouth.kernels.aggregation.processor import AggregateProcessor
from rivermouth.kernels.state.bucketing import Arrivals
from rivermouth.spec.slack import Quality, Slack
from rivermouth.spec.summaries import Summary


@dataclass
class Processed:
    """What came out, batch by batch, and what was counted."""

    rows: list[pa.Table] = field(default_factory=list)
    late: list[pa.Table] = field(default_factory=list)
    counts: Counter[str] = field(default_factory=Counter)
    reports: list[dict[str, object]] = field(default_factory=list)

    def results(self) -> pa.Table:
        return pa.concat_tables(self.rows)


def processed(
    batches: Sequence[pa.Table],
    summary: Summary,
    slack: Slack,
    *,
    last: bool = False,
    with_cache: bool = True,
) -> Processed:
    """All batches through one bucket's processor; without a cache as if by a new worker each."""
    types = {name: batches[0].schema.field(name).type for name in summary.columns}
    plan = AggPlan(summary, types, isinstance(slack, Quality))
    schema = plan.schema(pa.struct(list(types.items())))
    store, cache, found = {}, {}, Processed()
    for number, batch in enumerate(batches):
        times = plan.times(batch)
        newest = int(times.max()) if len(times) else None
        processor = AggregateProcessor(plan, slack, schema)
        side = (batch,) if batch.num_rows else ()
        arrivals = Arrivals((side,), (newest,), number, (), last and batch is batches[-1])
        tables = list(processor.process(store, arrivals, cache if with_cache else {}))
        whole = pa.concat_tables([schema.empty_table(), *tables])
        kind = np.asarray(whole.column("kind").to_pylist(), dtype=object)
        found.rows.append(whole.filter(pa.array(kind == "row")))
        found.late.append(whole.filter(pa.array(kind == "late")))
        report = processor.report()
        found.counts.update(report["counts"])
        found.reports.append(report)
        assert all(len(value) <= 1 << 20 for value in store.values())
    return found
