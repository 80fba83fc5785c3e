"""Stream joins without Spark: routers, messages and processors as the engine runs them."""

from __future__ import annotations

import datetime as dt

import numpy as np
import pyarrow as pa

import rivermouth as rm
from rivermouth.kernels.state.bucketing import Packer, Routed, arrivals
from rivermouth.kernels.state.pair_encoding import unpacked
from rivermouth.kernels.stream_join.processor import StreamJoinProcessor
from rivermouth.kernels.stream_join.query import StreamJoin
from rivermouth.kernels.stream_join.routing import StreamJoinRouter, plan_routing
from rivermouth.kernels.stream_join.salting import SaltingContext, SaltSchedule
from rivermouth.kernels.stream_join.times import Interval, Windows
from rivermouth.spec.conditions import Nearest, split
from rivermouth.spec.durations import microseconds

NOW = 10**18
SECOND = 1_000_000
TIME = pa.timestamp("us", "UTC")


def interval(lower, upper):
    return Interval(*(microseconds(end, where="between") for end in (lower, upper)))


def windows(window, *, early=False):
    return Windows(window.size_us, window.every_us, early, window.start_us)


def at(seconds):
    """So many seconds after 1970."""
    return dt.datetime(1970, 1, 1, tzinfo=dt.UTC) + dt.timedelta(seconds=seconds)


def stream_join(
    on,
    when,
    left,
    right,
    *,
    how="inner",
    columns,
    lateness=0,
    width=None,
    late_rows=False,
    index=None,
):
    keys, spatial, _ = split(on)
    has_distance = isinstance(spatial, Nearest) and how in ("inner", "left")
    bounds = [("window_start", TIME), ("window_end", TIME)] if isinstance(when, Windows) else []
    output = pa.schema(
        [
            *([("kind", pa.string()), ("side", pa.string())] if late_rows else []),
            *left,
            *(right.field(old).with_name(new) for new, old in columns.items()),
            *([(spatial.name, pa.float64())] if has_distance else []),
            *bounds,
        ]
    )
    late = microseconds(lateness, where="test") if isinstance(lateness, str) else lateness
    return StreamJoin(
        keys, spatial, ("t", "u"), when, how, tuple(columns.items()), output, (late, late),
        width or when.bin, late_rows=late_rows, index=index,
    )  # fmt: skip


class Buckets:
    """The buckets of a join, fed batch by batch; `enough` rows a bucket and salting is decided."""

    def __init__(self, join, buckets=1, *, cell=None, salts=None, max_future=0, enough=None):
        self.join, self.count = join, buckets
        self.routing = plan_routing(join, buckets, cell=cell, salts=salts)
        self.max_future = max_future
        self.stores = [{} for _ in range(buckets)]
        self.caches = [{} for _ in range(buckets)]
        self.reports = []
        self.enough, self.batch, self.published = enough, 0, {}

    @property
    def schedule(self):
        """The salting that the next micro-batch knows."""
        return SaltSchedule.merged(self.published, self.count, self.batch)

    def routed(self, side, batch, now=NOW):
        return self._router(side, batch).route(batch, now)

    def _router(self, side, batch):
        schedule = None if self.enough is None else self.schedule
        return StreamJoinRouter(
            self.join, side, self.routing, self.max_future, batch.schema, schedule
        )

    def feed(self, *batches, last=False, forget=False, newest=None, now=NOW):
        """A micro-batch of one record batch a side; `forget` drops what workers have cached."""
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
            salting = None
            if self.enough is not None:
                publish = self.published.__setitem__
                salting = SaltingContext(self.batch, publish, enough=self.enough)
            processor = StreamJoinProcessor(self.join, self.routing, bucket, salting)
            found = arrivals(messages, sides=2, now=now, last=last)
            cache = {} if forget else self.caches[bucket]
            for table in processor.process(self.stores[bucket], found, cache):
                for batch in unpacked(table, self.join.output):
                    assert batch.schema == self.join.output
                    rows += batch.to_pylist()
            self.caches[bucket] = cache
            self.reports.append(processor.report())
        self.batch += 1
        return rows

    @property
    def values(self):
        """How many values the stores have, besides their manifests."""
        return sum(len(store.keys() - {"meta"}) for store in self.stores)


def points(names, rows):
    """Rows of (id, seconds, x, y)."""
    ids, times, x, y = zip(*rows, strict=True) if rows else ((), (), (), ())
    return pa.RecordBatch.from_arrays(
        [
            pa.array(ids, pa.int64()),
            pa.array([None if t is None else at(t) for t in times], TIME),
            pa.array(x, pa.float64()),
            pa.array(y, pa.float64()),
        ],
        names,
    )


def left(*rows):
    return points(["l", "t", "x", "y"], rows)


def right(*rows):
    return points(["r", "u", "v", "w"], rows)


NEAR = rm.dwithin(rm.point("x", "y"), rm.point("v", "w"), distance=1)


def near(when=None, *, buckets=1, on=NEAR, **asked):
    """The buckets of a join of `left` and `right` points at most 1 and 5 seconds apart."""
    when = interval("-5 seconds", "5 seconds") if when is None else when
    routed = {
        name: asked.pop(name) for name in ("cell", "salts", "max_future", "enough") if name in asked
    }
    join = stream_join(on, when, left().schema, right().schema, columns={"r": "r"}, **asked)
    return Buckets(join, buckets, **routed)


def in_disorder(rng, batch, time, lateness):
    """The rows in an order of arrival in which none is late."""
    seconds = batch.column(time).cast(pa.int64()).fill_null(0).to_numpy() / SECOND
    delay = rng.integers(0, lateness + 1, len(seconds)) if lateness else np.zeros(len(seconds))
    return batch.take(pa.array(np.argsort(seconds + delay, kind="stable")))


def run(buckets, left, right, rng, *, lateness, batches):
    """Both sides in disorder, cut into batches, then a watermark beyond everything."""
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
