"""Fence events of a million objects, without Spark: state and time per micro-batch over 500.

A thousand boxes, half of the plane; every micro-batch moves 20,000 objects chosen by chance, late
by up to a minute. The first micro-batches bring all objects into the state. Time is CPU time of
routers and processors, worker caches warm, as in a stream that keeps its workers.
"""

from __future__ import annotations

import statistics
import time
from typing import Any

import numpy as np
import pyarrow as pa
import shapely

from benchmarks.harness.experiment import SEED, arguments, progress, save
from rivermouth.kernels.fences.fold import FenceFold
from rivermouth.kernels.fences.query import INSIDE, VERSION, FenceQuery, fence_column
from rivermouth.kernels.fences.table import FenceTable
from rivermouth.kernels.state.bucketing import Packer, arrivals
from rivermouth.kernels.table_join.matching import Matcher, prepare
from rivermouth.kernels.trajectory.processor import TrajectoryProcessor
from rivermouth.kernels.trajectory.query import Trajectory
from rivermouth.kernels.trajectory.routing import PositionRouter
from rivermouth.spec.conditions import point, split, within

OBJECTS, MOVED, BATCHES, BUCKETS = 1_000_000, 20_000, 500, 4
LATENESS = 60_000_000
TIME = pa.timestamp("us", "UTC")
HERE = point("x", "y")
INPUT = pa.schema({"id": pa.int64(), "t": TIME, "x": pa.float64(), "y": pa.float64()})


def boxes() -> FenceTable:
    """A thousand boxes of side 0.7 on a grid of 1."""
    _, spatial, _ = split(within(HERE, "shape"))
    assert spatial is not None
    x, y = (axis.ravel() for axis in np.meshgrid(np.arange(40.0), np.arange(25.0)))
    shapes = shapely.box(x, y, x + 0.7, y + 0.7)
    columns = {"shape": pa.array(shapely.to_wkb(shapes).tolist(), pa.binary())}
    index = prepare(spatial, columns, where="boxes")
    fences = pa.table({fence_column(0): [f"box {n}" for n in range(len(shapes))]})
    return FenceTable(None, spatial, columns, fences, Matcher(None, spatial, columns, index), 1)


def asked() -> FenceQuery:
    """Enter and exit, with a hysteresis of two positions."""
    own = [(fence_column(0), pa.string()), (INSIDE, pa.bool_()), (VERSION, pa.int64())]
    state = pa.schema(
        [("id", pa.int64()), ("t", pa.int64()), ("x", pa.float64()), ("y", pa.float64()), *own]
    )
    output = pa.schema(
        [*INPUT, ("fence", pa.string()), ("event", pa.string()), ("entered", TIME),
         ("seconds_inside", pa.float64()), ("reason", pa.string())]
    )  # fmt: skip
    trajectory = Trajectory(("id",), "t", state, ("x", "y"), LATENESS, output)
    return FenceQuery(trajectory, ("x", "y"), ("fence",), frozenset({"enter", "exit"}))


class Stream:
    """The buckets, fed one micro-batch after the other."""

    def __init__(self) -> None:
        self._query, self._table = asked(), boxes()
        self.stores: list[dict[str, bytes]] = [{} for _ in range(BUCKETS)]
        self._caches: list[dict[str, Any]] = [{} for _ in range(BUCKETS)]
        self.objects = 0

    def feed(self, batch: pa.RecordBatch) -> int:
        """Process a micro-batch; how many events it gave."""
        inbox: list[list[bytes]] = [[] for _ in range(BUCKETS)]
        router = PositionRouter(
            ("id",), "t", HERE, INPUT, BUCKETS, 0,
            enrich=lambda rows: self._table.locate(rows, ["x", "y"]),
        )  # fmt: skip
        packer = Packer(0, BUCKETS, 0)
        for bucket, message in (*packer.add(router.route(batch, 1 << 60)), *packer.end()):
            inbox[bucket].append(message)
        events = self.objects = 0
        for bucket, messages in enumerate(inbox):
            fold = FenceFold(self._query, HERE, (), lambda: self._table)
            processor = TrajectoryProcessor(self._query.trajectory, fold, bucket)
            found = arrivals(messages, sides=1, now=0, last=False)
            tables = processor.process(self.stores[bucket], found, self._caches[bucket])
            events += sum(table.num_rows for table in tables)
            self.objects += processor.report()["state"]["objects"]
        return events


def moved(random: np.random.Generator, who: np.ndarray, second: int) -> pa.RecordBatch:
    """A position for each of these objects, late by up to the lateness."""
    times = second * 1_000_000 - random.integers(0, LATENESS, len(who))
    place = random.uniform(0, 1, (2, len(who))) * [[40.0], [25.0]]
    columns = [pa.array(who), pa.array(times).cast(TIME), pa.array(place[0]), pa.array(place[1])]
    return pa.RecordBatch.from_arrays(columns, schema=INPUT)


def main() -> None:
    """Run it and leave ``fence_state.json``."""
    given = arguments(__doc__)
    objects, batches = (20_000, 40) if given.quick else (OBJECTS, BATCHES)
    size = min(MOVED, objects // 10)
    random, stream = np.random.default_rng(SEED), Stream()
    rows: list[dict[str, Any]] = []
    with progress("a million objects", objects // size + batches) as step:
        for number in range(objects // size):
            step("objects come")
            stream.feed(moved(random, np.arange(number * size, (number + 1) * size), 100 * number))
        began = 100 * (objects // size)
        for number in range(batches):
            step("objects move")
            who = random.choice(objects, size, replace=False)
            batch = moved(random, who, began + 100 * number)
            start = time.process_time()
            events = stream.feed(batch)
            spent = time.process_time() - start
            bytes_ = sum(len(value) for store in stream.stores for value in store.values())
            rows.append({"cpu_ms": spent * 1000, "events": events, "state_mb": bytes_ / 1e6})
    parts = np.array_split(np.arange(batches), 5)
    summary = [
        {
            "case": f"{part[0] + 1}-{part[-1] + 1}",
            "objects": stream.objects,
            "moved": size,
            "cpu_ms": statistics.median(rows[n]["cpu_ms"] for n in part),
            "cpu_ms_most": max(rows[n]["cpu_ms"] for n in part),
            "events": statistics.mean(rows[n]["events"] for n in part),
            "state_mb": max(rows[n]["state_mb"] for n in part),
        }
        for part in parts
    ]
    print(save("fence_state", summary, quick=given.quick, data="made here", seed=SEED))


if __name__ == "__main__":
    main()
