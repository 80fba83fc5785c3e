"""A summary over micro-batches without Spark: batches in, results out."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np
import pyarrow as pa

from rivermouth.kernels.aggregation.plan import AggPlan
from rivermouth.kernels.aggregation.routing import AggregateRouter, PartialsRouter
from rivermouth.kernels.aggregation.session_processor import processor_of
from rivermouth.kernels.aggregation.sessions import plan_of
from rivermouth.kernels.state.bucketing import Combiner, Packer, arrivals
from rivermouth.spec.slack import Quality, Slack
from rivermouth.spec.summaries import Summary

FOREVER = 1 << 62  # no time is in the future


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
    late: str = "rows",
    buckets: int = 1,
    tasks: int = 1,
    gathered: int = 1 << 20,
) -> Processed:
    """All batches through routers and processors; without a cache as if by new workers each time.

    Each batch is read by so many tasks, in pieces of a few rows, of which so many are `gathered`
    before they are sent. With ``late="count"`` partials are sent.
    """
    types = {name: batches[0].schema.field(name).type for name in summary.columns}
    plan = plan_of(summary, types, isinstance(slack, Quality))
    schema = plan.schema(pa.struct(list(types.items())) if late == "rows" else None)
    found, stores, caches = Processed(), *([{} for _ in range(buckets)] for _ in range(2))
    for number, batch in enumerate(batches):
        messages = _messages(batch, plan, late, buckets, tasks, gathered)
        tables, reports = [schema.empty_table()], []
        for bucket, store in enumerate(stores):
            here = [message for to, message in messages if to == bucket]
            is_last = last and batch is batches[-1]
            came = arrivals(reversed(here), sides=1, now=number, last=is_last)
            processor = processor_of(plan, slack, schema)
            cache = caches[bucket] if with_cache else {}
            tables.extend(processor.process(store, came, cache))
            reports.append(processor.report())
            assert all(len(value) <= 1 << 20 for value in store.values())
        whole = pa.concat_tables(tables)
        kinds = whole.column("kind").to_pylist() if late == "rows" else ["row"] * whole.num_rows
        kind = np.asarray(kinds, dtype=object)
        found.rows.append(whole.filter(pa.array(kind == "row", pa.bool_())))
        found.late.append(whole.filter(pa.array(kind == "late", pa.bool_())))
        for report in reports:
            found.counts.update(report["counts"])
        found.reports.append(reports[0])
    return found


def _messages(
    batch: pa.Table, plan: AggPlan, late: str, buckets: int, tasks: int, gathered: int
) -> list[tuple[int, bytes]]:
    """What the tasks that read a batch send, each message with its bucket."""
    sent: list[tuple[int, bytes]] = []
    columns = tuple(plan.types)
    for task in range(tasks):
        router = PartialsRouter(plan, buckets, 0)
        if late == "rows":
            router = AggregateRouter(plan.summary, columns, buckets, 0)
        combiner = router if isinstance(router, Combiner) else None
        packer = Packer(0, buckets, task, gathered, combiner)
        begin, end = (batch.num_rows * at // tasks for at in (task, task + 1))
        part = batch.select(columns).slice(begin, end - begin)
        for piece in part.to_batches(max_chunksize=7):
            sent.extend(packer.add(router.route(piece, FOREVER)))
        sent.extend(packer.end(router.note()))
    return sent
