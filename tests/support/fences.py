"""Fence events without Spark: a table of boxes, its versions, and the operator's buckets."""

from __future__ import annotations

import pyarrow as pa
import shapely
from tests.support.trajectories import SCHEMA, TIME, Buckets

import rivermouth as rm
from rivermouth.kernels.fences.fold import FenceFold
from rivermouth.kernels.fences.query import INSIDE, VERSION, FenceQuery, fence_column
from rivermouth.kernels.fences.table import FenceTable
from rivermouth.kernels.table_join.matching import Matcher, prepare
from rivermouth.kernels.trajectory.query import Trajectory
from rivermouth.kernels.trajectory.routing import PositionRouter
from rivermouth.spec.conditions import is_on_sphere, key_pairs, split
from rivermouth.testing.fences import fence_events

HERE = rm.point("x", "y")
WITHIN = rm.within(HERE, "shape")
ALL = frozenset({"enter", "exit", "dwell", "cross", "lost"})
FENCE = fence_column(0)
OUTPUT = pa.schema(
    {
        "id": pa.int64(), "name": pa.string(), "t": TIME, "x": pa.float64(), "y": pa.float64(),
        "zone": pa.string(), "event": pa.string(), "entered": TIME,
        "seconds_inside": pa.float64(), "reason": pa.string(),
    }
)  # fmt: skip


CHANGELOG = pa.schema([("change", pa.string()), *OUTPUT, ("revision", pa.int64())])
IDENTITY = ("id", "name", "t", "x", "y", "zone", "event")


def query(*, lateness=3, events=ALL, keys=(), early=False, **asked):
    positions = pa.schema(
        [
            *(("id", pa.int64()), ("name", pa.string()), ("t", pa.int64())),
            *(("x", pa.float64()), ("y", pa.float64()), *((name, pa.string()) for name in keys)),
            *((FENCE, pa.string()), (INSIDE, pa.bool_()), (VERSION, pa.int64())),
        ]
    )
    trajectory = Trajectory(
        ("id", "name"), "t", positions, ("x", "y"), round(lateness * 1e6),
        CHANGELOG if early else OUTPUT, identity=IDENTITY if early else (),
    )  # fmt: skip
    return FenceQuery(trajectory, ("x", "y"), ("zone",), events, **asked)


def fence_table(shapes, *, on=WITHIN, version=1, city=None):
    """Shapes by name; points as two columns where the condition is one of distance."""
    keys, spatial, _ = split(on)
    names = [name for name, parts in shapes.items() for _ in _parts(parts)]
    geometries = [part for parts in shapes.values() for part in _parts(parts)]
    columns = {"shape": pa.array(shapely.to_wkb(geometries).tolist(), pa.binary())}
    if city is not None:
        columns["city"] = pa.array(city, pa.string())
    index = prepare(spatial, columns, where="fences", keys=keys)
    matcher = Matcher(keys, spatial, columns, index)
    fences = pa.table({FENCE: pa.array(names, pa.string())})
    return FenceTable(keys, spatial, columns, fences, matcher, version)


def _parts(parts):
    return parts if isinstance(parts, list) else [parts]


class FenceBuckets(Buckets):
    """The buckets of `fence_events` over a table that can be replaced."""

    def __init__(self, asked, table, buckets=1, *, on=WITHIN, schema=SCHEMA):
        self.table = table
        keys, spatial, _ = split(on)
        left = [one for one, _ in key_pairs(keys)]

        def router():
            return PositionRouter(
                ("id", "name"), "t", HERE, schema, buckets, 0, on_sphere=is_on_sphere(spatial),
                enrich=lambda batch: self.table.locate(batch, ["x", "y", *left]),
            )  # fmt: skip

        super().__init__(
            asked.trajectory, lambda: FenceFold(asked, HERE, left, lambda: self.table), buckets,
            router=router,
        )  # fmt: skip


def plain(rows):
    """Results as the oracle gives them, times in seconds."""
    seconds = lambda time: None if time is None else time.timestamp()  # noqa: E731
    return sorted(
        (
            (
                (row["id"], row["name"]), row["zone"], row["event"], seconds(row["t"]),
                (row["x"], row["y"]), seconds(row["entered"]), row["seconds_inside"],
                row["reason"],
            )
            for row in rows
        ),
        key=repr,
    )  # fmt: skip


def expected(found, shapes, asked, *, inside=None, meets=None):
    """The oracle's events of rows (id, name, seconds, x, y)."""
    unit = lambda length: None if length is None else length / 1e6  # noqa: E731
    events = fence_events(
        [((one, name), float(t), (x, y)) for one, name, t, x, y in found],
        shapes,
        inside or (lambda place, shape: _any(shape, lambda s: s.contains(shapely.Point(place)))),
        meets=meets or (
            lambda a, b, shape: a != b and _any(
                shape, lambda s: shapely.relate_pattern(shapely.LineString([a, b]), s, "T********")
            )
        ),
        dwell=unit(asked.dwell),
        min_inside=(asked.min_inside.count, asked.min_inside.length / 1e6),
        min_outside=(asked.min_outside.count, asked.min_outside.length / 1e6),
        gap=unit(asked.gap),
        first_inside=asked.first_inside,
    )  # fmt: skip
    wanted = [event for event in events if event.event in asked.events]
    return sorted(map(tuple, wanted), key=repr)


def _any(shape, holds):
    return any(holds(part) for part in _parts(shape))


def flushed(buckets):
    """What is emitted when nothing more is waited for."""
    return buckets.feed(SCHEMA_EMPTY, last=True)


SCHEMA_EMPTY = pa.RecordBatch.from_arrays(
    [pa.array([], field.type) for field in SCHEMA], schema=SCHEMA
)
