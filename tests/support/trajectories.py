"""Operators on trajectories without Spark: routers, messages, processors as the engine has them."""

from __future__ import annotations

import datetime as dt
import itertools
import json
from collections import Counter

import numpy as np
import pyarrow as pa

import rivermouth as rm
from rivermouth.kernels.state.bucketing import Packer, arrivals
from rivermouth.kernels.trajectory.processor import TrajectoryProcessor
from rivermouth.kernels.trajectory.routing import PositionRouter

NOW = 10**18
TIME = pa.timestamp("us", "UTC")
SCHEMA = pa.schema(
    {"id": pa.int64(), "name": pa.string(), "t": TIME, "x": pa.float64(), "y": pa.float64()}
)


def at(seconds):
    """So many seconds after 1970."""
    return dt.datetime(1970, 1, 1, tzinfo=dt.UTC) + dt.timedelta(seconds=seconds)


def positions(rows):
    """Rows of (id, name, seconds, x, y)."""
    columns = list(zip(*rows, strict=True)) if rows else [()] * 5
    times = [None if t is None else at(t) for t in columns[2]]
    arrays = [pa.array(values, field.type) for values, field in zip(
        (columns[0], columns[1], times, columns[3], columns[4]), SCHEMA, strict=True
    )]  # fmt: skip
    return pa.RecordBatch.from_arrays(arrays, schema=SCHEMA)


def in_disorder(random, batch, lateness):
    """The rows in an order of arrival in which none is late; `lateness` in microseconds."""
    times = batch.column("t").cast(pa.int64()).to_numpy()
    delay = random.integers(0, lateness + 1, len(times))
    return batch.take(pa.array(np.argsort(times + delay, kind="stable")))


def cut(random, batch, parts):
    """The rows in so many parts, some of them perhaps empty."""
    ends = [0, *np.sort(random.integers(0, len(batch) + 1, parts - 1)).tolist(), len(batch)]
    return [batch.slice(a, b - a) for a, b in itertools.pairwise(ends)]


class Buckets:
    """The buckets of an operator, fed batch by batch."""

    def __init__(
        self, query, fold, buckets=1, *, now=NOW, max_future=0, router=None, log=None, early=False
    ):
        self.query, self.fold, self.count, self.now = query, fold, buckets, now
        self.log = log
        self.router = router or (
            lambda: PositionRouter(
                query.by, query.time, rm.point("x", "y"), SCHEMA, buckets, max_future
            )
        )
        self.stores = [{} for _ in range(buckets)]
        self.caches = [{} for _ in range(buckets)]
        self.counts, self.rejected, self.reports = Counter(), Counter(), []

    def feed(self, batch, *, last=False, forget=False, input_came=True):
        """A micro-batch; `forget` drops what workers have cached."""
        inbox = [[] for _ in range(self.count)]
        if input_came:
            router, packer = self.router(), Packer(0, self.count, 0)
            routed = router.route(batch, self.now)
            for bucket, message in (*packer.add(routed), *packer.end(router.note())):
                inbox[bucket].append(message)
        rows = []
        for bucket, messages in enumerate(inbox):
            early = self.fold() if self.query.identity else None
            processor = TrajectoryProcessor(self.query, self.fold(), bucket, self.log, early=early)
            found = arrivals(messages, sides=1, now=self.now, last=last)
            cache = {} if forget else self.caches[bucket]
            for table in processor.process(self.stores[bucket], found, cache):
                assert table.schema == self.query.output
                rows += table.to_pylist()
            self.caches[bucket] = cache
            report = json.loads(json.dumps(processor.report()))
            self.reports.append(report)
            self.counts.update({k: n for k, n in report["counts"].items() if k in _COUNTED})
            self.rejected.update(report["rejected"])
        return rows

    def stored_values(self):
        """How many values the stores have, besides their manifests."""
        return sum(len(store.keys() - {"meta"}) for store in self.stores)


def compacted(log, identity):
    """What a changelog amounts to; every change must follow from the one before it."""
    newest = {}
    for row in log:
        key = tuple(row[name] for name in identity)
        before = newest.get(key)
        assert row["revision"] == (0 if before is None else before["revision"] + 1)
        is_there = before is not None and before["change"] != "delete"
        assert (row["change"] == "insert") != is_there
        if row["change"] == "update":
            assert {**row, "revision": 0, "change": ""} != {**before, "revision": 0, "change": ""}
        newest[key] = row
    return [row for row in newest.values() if row["change"] != "delete"]


_COUNTED = ("rows_in", "rows_out", "late", "future", "inserts", "updates", "deletes")
