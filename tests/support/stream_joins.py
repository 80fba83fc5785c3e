"""Joins of two streams without Spark: routers, messages and steps as the door runs them."""

from __future__ import annotations

import datetime as dt

import numpy as np
import pyarrow as pa

from rivermouth.kernels.skew.salting import Crowds, Learning
from rivermouth.kernels.state.bucketing import Packer, Routed, arrivals
from rivermouth.kernels.state.pair_encoding import unpacked
from rivermouth.kernels.stream_join.processor import MeetingStepper
from rivermouth.kernels.stream_join.query import Meeting, result_schema
from rivermouth.kernels.stream_join.routing import MeetingRouter, routing
from rivermouth.kernels.stream_join.times import Interval, Windows
from rivermouth.spec.conditions import Nearest, split
from rivermouth.spec.durations import microseconds

NOW = 10**18
SECOND = 1_000_000
TIME = pa.timestamp("us", "UTC")


def interval(lower, upper):
    return Interval(*(microseconds(end, where="between") for end in (lower, upper)))


def windows(window, *, early=False):
    return Windows(window.size_us, window.every_us, early)


def at(seconds):
    """So many seconds after 1970."""
    return dt.datetime(1970, 1, 1, tzinfo=dt.UTC) + dt.timedelta(seconds=seconds)


def meeting(
    on, when, left, right, *, how="inner", columns, lateness=0, width=None, late_rows=False
):
    equal, place, _ = split(on)
    brought = tuple(columns.items())
    window = TIME if isinstance(when, Windows) else None
    output = result_schema(
        left, right, brought, distance=place.name if isinstance(place, Nearest) else None,
        window=window, late_rows=late_rows,
    )  # fmt: skip
    late = microseconds(lateness, where="test") if isinstance(lateness, str) else lateness
    return Meeting(
        equal, place, ("t", "u"), when, how, brought, output, (late, late),
        width or when.bin, late_rows=late_rows,
    )  # fmt: skip


class Buckets:
    """The buckets of a join, fed batch by batch."""

    def __init__(self, asked, buckets=1, *, cell=None, spread=None, future=0, learn=None):
        self.asked, self.count = asked, buckets
        self.routing = routing(asked, buckets, cell=cell, spread=spread)
        self.future = future
        self.stores = [{} for _ in range(buckets)]
        self.hints = [{} for _ in range(buckets)]
        self.reports = []
        self.learn, self.batch, self.folder = learn, 0, {}

    @property
    def crowds(self):
        """The steps that the next micro-batch knows."""
        return Crowds.known(self.folder, self.count, self.batch)

    def routed(self, side, batch, now=NOW):
        return self._router(side, batch).route(batch, now)

    def _router(self, side, batch):
        crowds = None if self.learn is None else self.crowds
        return MeetingRouter(self.asked, side, self.routing, self.future, batch.schema, crowds)

    def feed(self, *batches, last=False, forget=False, newest=None, now=NOW):
        """A micro-batch of one record batch a side; `forget` drops what workers remember."""
        inbox = [[] for _ in range(self.count)]
        for side, batch in enumerate(batches):
            packer = Packer(side, self.count, 0)
            router = self._router(side, batch)
            routed = router.route(batch, now)
            if newest is not None:
                routed = Routed(routed.rows, routed.bucket, newest, routed.rejected)
            for bucket, message in (*packer.add(routed), *packer.end(router.note())):
                inbox[bucket].append(message)
        rows = []
        for bucket, messages in enumerate(inbox):
            learning = None
            if self.learn is not None:
                learning = Learning(self.batch, self.folder.__setitem__, enough=self.learn)
            stepper = MeetingStepper(self.asked, self.routing, bucket, learning)
            found = arrivals(messages, sides=2, now=now, last=last)
            hint = {} if forget else self.hints[bucket]
            for table in stepper.process(self.stores[bucket], found, hint):
                for batch in unpacked(table, self.asked.output):
                    assert batch.schema == self.asked.output
                    rows += batch.to_pylist()
            self.hints[bucket] = hint
            self.reports.append(stepper.report())
        self.batch += 1
        return rows

    @property
    def held(self):
        """How many values the stores have, besides their books."""
        return sum(len(store.keys() - {"meta"}) for store in self.stores)


def in_disorder(rng, batch, time, lateness):
    """The rows in an order of arrival in which none is late."""
    seconds = batch.column(time).cast(pa.int64()).fill_null(0).to_numpy() / SECOND
    delay = rng.integers(0, lateness + 1, len(seconds)) if lateness else np.zeros(len(seconds))
    return batch.take(pa.array(np.argsort(seconds + delay, kind="stable")))


def run(buckets, left, right, rng, *, lateness, batches):
    """Both sides in disorder, cut into batches, then the clock beyond everything."""
    sides = [in_disorder(rng, left, "t", lateness), in_disorder(rng, right, "u", lateness)]
    cuts = [np.sort(rng.integers(0, len(side) + 1, batches - 1)) for side in sides]
    ends = [[0, *cut.tolist(), len(side)] for cut, side in zip(cuts, sides, strict=True)]
    rows = []
    for number in range(batches):
        parts = [
            side.slice(end[number], end[number + 1] - end[number])
            for side, end in zip(sides, ends, strict=True)
        ]
        rows += buckets.feed(*parts, forget=bool(rng.integers(2)))
    rows += buckets.feed(left.slice(0, 0), right.slice(0, 0), newest=10**15)
    return rows
