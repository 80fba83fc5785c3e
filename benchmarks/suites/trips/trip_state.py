"""A million objects: time per micro-batch, bytes written and state of `trips`, over 500 batches.

Kernels alone, on one core: one bucket of 32, which has 31,250 of the objects. Each reports every
ten seconds (one position in twenty is lost) and moves and waits by turns; none is late.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from typing import Any

import numpy as np
import pyarrow as pa

import rivermouth as rm
from benchmarks.harness.experiment import SEED, arguments, progress, save
from rivermouth.kernels.state.bucketing import Packer, arrivals
from rivermouth.kernels.trajectory.processor import TrajectoryProcessor
from rivermouth.kernels.trajectory.query import Trajectory
from rivermouth.kernels.trajectory.routing import PositionRouter
from rivermouth.kernels.trips.fold import Coordinates, TripFold, Trips, X, Y
from rivermouth.kernels.trips.segmentation import Segmentation
from rivermouth.kernels.trips.track_log import TrackLog

OBJECTS, BUCKETS, BATCHES, SHOWN = 1_000_000, 32, 500, 50
SECOND = 1_000_000
TIME = pa.timestamp("us", "UTC")
SCHEMA = pa.schema([("id", pa.int64()), ("at", TIME), ("x", pa.float64()), ("y", pa.float64())])
TRIPS = Trips(
    ("id",), "at", Segmentation(gap=120 * SECOND, radius=50.0, duration=60 * SECOND), 0.0, TIME
)
QUERY = Trajectory(
    TRIPS.by,
    TRIPS.time,
    pa.schema([("id", pa.int64()), ("at", pa.int64()), (X, pa.float64()), (Y, pa.float64())]),
    (X, Y),
    10 * SECOND,
    pa.schema([("id", pa.int64()), *TRIPS.fields()]),
    closes=True,
)
POINT = rm.point("x", "y")


class Store(dict[str, bytes]):
    """A store that counts the bytes written to it."""

    written = 0

    def __setitem__(self, key: str, value: bytes) -> None:
        self.written += len(value)
        super().__setitem__(key, value)


def batches(objects: int, count: int) -> Iterator[pa.RecordBatch]:
    """The objects' positions, ten seconds at a time."""
    rng = np.random.default_rng(SEED)
    place = rng.uniform(0, 10_000, (objects, 2))
    waits = rng.random(objects) < 0.3
    for number in range(count):
        waits ^= rng.random(objects) < 0.02
        place[~waits] += rng.normal(0, 100, (int((~waits).sum()), 2))
        seen = np.flatnonzero(rng.random(objects) < 0.95)
        at = (number * 10 * SECOND + rng.integers(0, 10 * SECOND, len(seen))).astype(np.int64)
        x, y = (place[seen] + rng.normal(0, 5, (len(seen), 2))).T
        columns = [pa.array(seen), pa.array(at).cast(TIME), pa.array(x), pa.array(y)]
        yield pa.RecordBatch.from_arrays(columns, schema=SCHEMA)


def messages(batch: pa.RecordBatch) -> list[bytes]:
    """What the bucket gets of a batch."""
    router = PositionRouter(
        TRIPS.by, TRIPS.time, POINT, SCHEMA, 1, 0, only_points=True,
        enrich=Coordinates(POINT, ("id", "at"), 0, on_sphere=False),
    )  # fmt: skip
    packer = Packer(0, 1, 0)
    packed = (*packer.add(router.route(batch, 1 << 62)), *packer.end(router.note()))
    return [message for _, message in packed]


def run(objects: int, count: int, shown: int) -> Iterator[dict[str, Any]]:
    """A row for each `shown` batches."""
    store, cache = Store(), {}  # type: ignore[var-annotated]
    seconds, emitted, written = [], 0, 0
    for number, batch in enumerate(batches(objects, count), start=1):
        found = arrivals(messages(batch), sides=1, now=0, last=False)
        processor = TrajectoryProcessor(QUERY, TripFold(TRIPS), 0, TrackLog)
        began = time.process_time()
        emitted += sum(table.num_rows for table in processor.process(store, found, cache))
        seconds.append(time.process_time() - began)
        if number % shown == 0:
            yield {
                "batches": number,
                "positions_per_batch": len(batch),
                "cpu_ms_per_batch": 1000 * float(np.mean(seconds)),
                "slowest_ms": 1000 * max(seconds),
                "written_mb_per_batch": (store.written - written) / shown / 1e6,
                "state_mb": sum(map(len, store.values())) / 1e6,
                "rows_out": emitted,
                **processor.report()["state"],
            }
            seconds, emitted, written = [], 0, store.written


def main() -> None:
    """Leave ``trip_state``."""
    given = arguments(__doc__)
    objects, count = OBJECTS // BUCKETS, BATCHES
    if given.quick:
        objects, count = 500, 20
    shown = min(SHOWN, count // 2)
    rows = []
    with progress("trip_state", count // shown) as step:
        for row in run(objects, count, shown):
            step(f"{row['batches']} batches")
            rows.append(row)
    about = {"data": f"seeded, {objects} objects in one bucket", "seed": SEED}
    print(save("trip_state", rows, quick=given.quick, **about))


if __name__ == "__main__":
    main()
