"""Routing: the buckets in which rows may be joined.

A row of the home side (`CellRouting.home_side`) lives in one bucket: that of its point's cell. The
other side's rows are replicated to all buckets that their boxes, grown by the distance,
overlap. Where there is no home side, because both may hold shapes, both are sent to all buckets
that their boxes overlap, and a pair is emitted by the bucket that owns its reference point: the
lower left corner of the boxes' intersection (paper C's rule, for both sides).

Without a distance nothing says how wide a cell should be, and a row's own size says nothing of
those that it may meet: one that covers the country may come later. Two columns of shapes are then
joined on a *lattice* of buckets: a left row goes to all buckets of one row of it, a right row to
all of one column, both drawn by a hash, so that every pair meets in exactly one bucket (Okcan and
Riedewald's 1-Bucket-Theta). Each row has about the square root of the number of buckets as
replicas, and no bucket has more than another, however shapes are distributed.

A left row without a partner must be known to have none, and the nearest must be chosen among all:
for those joins the left side is the home side, for a right join the right one. In a full join rows
of both sides have a home and are replicated to wherever their partners may be at home: a row's home
decides whether it has one, and a left row's home emits its pairs. Where nothing bounds how far away
partners are, or the home side may hold shapes, the other side's rows are sent to every bucket.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from rivermouth.kernels.arrays import Ints
from rivermouth.kernels.keys.dictionaries import hash_ints
from rivermouth.kernels.keys.values import missing
from rivermouth.kernels.spatial.boxes import grown
from rivermouth.kernels.spatial.distance import chord
from rivermouth.kernels.spatial.sphere import RADIUS
from rivermouth.kernels.state.bucketing import BAD_GEOMETRY, FUTURE, NO_KEY, NO_TIME, REASON, Routed
from rivermouth.kernels.stream_join.grid import Buckets, CellGrid
from rivermouth.kernels.stream_join.query import LEFT, REPLICA, RIGHT, StreamJoin
from rivermouth.kernels.stream_join.row_block import RowBlock
from rivermouth.kernels.stream_join.salting import SaltSchedule
from rivermouth.kernels.stream_join.times import TimeBounds
from rivermouth.spec.conditions import DWithin, Nearest, Point, is_on_sphere

#: cells are so many times as wide as the distance
_CELLS = 8

#: the replica numbers of rows that nothing can match, by reason
UNMATCHABLE = {BAD_GEOMETRY: -1, NO_KEY: -2}


@dataclass(frozen=True)
class CellRouting:
    """How the rows of a join are assigned to buckets.

    Parameters
    ----------
    grid
        The cells, in the unit of `RowBlock.boxes`.
    home_side
        The side whose rows live in one bucket each, None where neither's do.
    reach
        By how much boxes of the other side (of the right one, without a home side) are grown.
    lattice
        Rows and columns of the buckets' lattice, None where cells or keys divide the rows.
    both_home
        Whether rows of both sides have a home among the buckets that they are sent to.
    """

    grid: CellGrid
    home_side: int | None
    reach: float
    lattice: tuple[int, int] | None = None
    both_home: bool = False


def plan_routing(
    join: StreamJoin, buckets: int, *, cell: float | None = None, salts: int | None = None
) -> CellRouting:
    """The routing of a join.

    Parameters
    ----------
    cell
        The side of a cell, in the coordinates' unit or in metres. None: eight times the distance,
        and one cell for everything where there is none.
    salts
        Over how many buckets the rows of one cell are spread. None: one, or all where there are
        neither cells nor keys to tell rows apart by; between two columns of shapes a lattice.
    """
    spatial = join.spatial
    limit = spatial.limit if isinstance(spatial, (DWithin, Nearest)) else None
    on_sphere = is_on_sphere(spatial)
    at_home = (LEFT,) if join.is_nearest else join.decided_sides
    points = [isinstance(side.geometry, Point) for side in join.sides]
    unbounded = spatial is None or (isinstance(spatial, Nearest) and limit is None)
    if unbounded or not all(points[side] for side in at_home):
        cell = None
    elif cell is None and limit is not None:
        cell = _CELLS * limit or None
    if on_sphere and cell is not None:
        cell = cell / RADIUS
    reach = 0.0 if limit is None else chord(limit, 3 if on_sphere else 2)
    is_divided = cell is not None or join.keys is not None or salts is not None
    if not (at_home or any(points) or unbounded or is_divided):
        rows = math.isqrt(buckets)
        return CellRouting(CellGrid(buckets, None), None, reach, (rows, buckets // rows))
    if salts is None:
        salts = buckets if cell is None and join.keys is None else 1
    cells = CellGrid(buckets, cell, min(salts, buckets))
    if len(at_home) == 2:
        return CellRouting(cells, None, reach, both_home=True)
    home_side: int | None = at_home[0] if at_home else LEFT
    if not (at_home or points[LEFT] or spatial is None):
        home_side = RIGHT if points[RIGHT] else LEFT if cell is None else None
    return CellRouting(cells, home_side, reach)


def replica_bounds(join: StreamJoin, routing: CellRouting) -> TimeBounds:
    """The times of home rows that a row of the other side may be joined with."""
    return join.bounds(LEFT if routing.home_side == RIGHT else RIGHT)


def cell_keys(routing: CellRouting, block: RowBlock) -> Ints:
    """A hash of each row's key code and cell, by the low corner of its box."""
    corner = np.ascontiguousarray(block.boxes[:, : block.boxes.shape[1] // 2])
    return routing.grid.cell_keys(block.codes, corner)


def owners(routing: CellRouting, left: RowBlock, li: Ints, right: RowBlock, ri: Ints) -> Buckets:
    """The bucket that emits each pair, by its reference point."""
    axes = left.boxes.shape[1] // 2
    corner = np.maximum(left.boxes[li, :axes], grown(right.boxes, routing.reach)[ri, :axes])
    cells = routing.grid.cell_keys(left.codes[li], corner)
    return routing.grid.assigned(cells, _row_salts(left)[li])


def _row_salts(block: RowBlock) -> Ints:
    """A number that spreads the rows of one cell: the same wherever and whenever computed."""
    mixed = block.times
    for axis in range(block.boxes.shape[1] // 2):
        bits = np.ascontiguousarray(block.boxes[:, axis]).view(np.int64)
        mixed = hash_ints(mixed ^ bits).view(np.int64)
    return np.asarray(mixed.view(np.uint64) >> np.uint64(34)).astype(np.int64)


def _on_lattice(lattice: tuple[int, int], side: int, salts: Ints) -> tuple[Ints, Buckets, Ints]:
    """Row, bucket and number of the replica: a left row's row of buckets, a right one's column."""
    rows, columns = lattice
    many = columns if side == LEFT else rows
    replica = np.tile(np.arange(many), len(salts))
    own = np.repeat(salts % lattice[side], many)
    bucket = own * columns + replica if side == LEFT else replica * columns + own
    return np.repeat(np.arange(len(salts)), many), bucket.astype(np.int32), replica


class StreamJoinRouter:
    """Assigns the rows of one side to buckets.

    Parameters
    ----------
    join, side
        The join, and whose rows come.
    routing
        How rows are assigned.
    max_future
        How far ahead of the wall clock a time may be, in microseconds.
    schema
        The columns as they are in state: the same whatever the session's time zone is.
    schedule
        The salting that is known when the micro-batch begins; None where skew is not tracked.
    """

    def __init__(
        self,
        join: StreamJoin,
        side: int,
        routing: CellRouting,
        max_future: int,
        schema: pa.Schema,
        schedule: SaltSchedule | None = None,
    ) -> None:
        self._join, self._side, self._routing, self._max_future = join, side, routing, max_future
        self._schema, self._schedule = schema, schedule
        self._bounds, self._home_rows = replica_bounds(join, routing), 0
        self._keeps_unmatchable = side in join.unmatched_sides

    def route(self, batch: pa.RecordBatch, now: int) -> Routed:
        """The rows with their buckets, and those that are rejected."""
        if not batch.schema.equals(self._schema, check_metadata=True):
            batch = batch.cast(self._schema)
        block = RowBlock(self._join, self._side, batch)
        reasons, times = self._reject_reasons(block, now), block.times
        is_alone = np.isin(reasons, list(UNMATCHABLE)) & self._keeps_unmatchable
        usable, alone = np.flatnonzero(reasons == ""), np.flatnonzero(is_alone)
        rejected = np.flatnonzero((reasons != "") & ~is_alone)
        rows, bucket, replica = self._assigned(
            block if len(usable) == len(block) else block.take(usable)
        )
        rows = np.concatenate([usable[rows], alone])
        bucket = np.concatenate([bucket, times[alone] % self._routing.grid.buckets])
        unmatchable = np.array([UNMATCHABLE[why] for why in reasons[alone].tolist()], np.int64)
        replica = np.concatenate([replica, unmatchable])
        is_whole = len(rows) == len(block) and (np.diff(rows) == 1).all()
        sent = batch if is_whole else batch.take(pa.array(rows))
        admitted = times[(reasons != NO_TIME) & (reasons != FUTURE)]
        reason = pa.array(reasons[rejected].astype(object), pa.string())
        return Routed(
            _with(sent, REPLICA, pa.array(replica, pa.int16())),
            bucket.astype(np.int32),
            int(admitted.max()) if len(admitted) else None,
            _with(batch.take(pa.array(rejected)), REASON, reason) if len(rejected) else None,
        )

    def note(self) -> dict[str, Any] | None:
        """The salting changes that rows were assigned by, and how many home rows there were."""
        if self._schedule is None:
            return None
        return {"changes": self._schedule.changes, "rows": self._home_rows}

    def _reject_reasons(self, block: RowBlock, now: int) -> npt.NDArray[np.str_]:
        """Why each row cannot be joined, "" where it can."""
        side = self._join.sides[self._side]
        reasons = np.full(len(block), "", dtype="U16")
        if block.keys:
            reasons[missing(block.keys)] = NO_KEY
        if side.geometry is not None:
            reasons[~block.geometries.valid] = BAD_GEOMETRY
        reasons[block.times > now + self._max_future] = FUTURE
        reasons[block.rows.column(side.time).is_null().to_numpy(zero_copy_only=False)] = NO_TIME
        return reasons

    def _assigned(self, block: RowBlock) -> tuple[Ints, Buckets, Ints]:
        """Row, bucket and number of the replica, for all buckets that rows are sent to."""
        routing, schedule = self._routing, self._schedule or SaltSchedule()
        if routing.lattice is not None:
            return _on_lattice(routing.lattice, self._side, _row_salts(block))
        if routing.home_side == self._side:
            cells, count = cell_keys(routing, block), len(block)
            salts = schedule.salts(cells, block.times)
            self._home_rows += count
            home = routing.grid.assigned(cells, _row_salts(block), salts)
            return np.arange(count), home, np.zeros(count, np.int64)
        grows = routing.home_side is not None or routing.both_home or self._side == RIGHT
        rows, bucket = routing.grid.replicas(
            block.codes, grown(block.boxes, routing.reach) if grows else block.boxes, schedule,
            block.times + self._bounds.lower, block.times + self._bounds.upper,
        )  # fmt: skip
        if routing.both_home:
            home = routing.grid.assigned(cell_keys(routing, block), _row_salts(block))
            return rows, bucket, (bucket != home[rows]).astype(np.int64)
        return rows, bucket, np.arange(len(rows)) - np.searchsorted(rows, rows)


def _with(batch: pa.RecordBatch, name: str, column: pa.Array) -> pa.RecordBatch:
    return pa.RecordBatch.from_arrays([*batch.columns, column], [*batch.schema.names, name])
