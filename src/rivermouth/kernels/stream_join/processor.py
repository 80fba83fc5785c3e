"""One micro-batch of a stream join in one bucket: rows arrive, pairs leave, old rows are dropped.

A row is late if it is older than the watermark before the micro-batch. Then the watermark advances
to where the new rows bring it, and what it has passed is emitted. A row is dropped once no row that
can still come may be joined with it.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Generator, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from rivermouth.errors import StateError
from rivermouth.kernels.arrays import one_batch
from rivermouth.kernels.state import watermark
from rivermouth.kernels.state.bucketing import FUTURE, REASON, Arrivals
from rivermouth.kernels.state.watermark import Watermarks
from rivermouth.kernels.stream_join.output_buffer import SIDES, OutputBuffer
from rivermouth.kernels.stream_join.pair_emitter import NewRows, PairEmitter
from rivermouth.kernels.stream_join.query import LEFT, REPLICA, RIGHT, StreamJoin
from rivermouth.kernels.stream_join.routing import (
    UNMATCHABLE,
    CellRouting,
    cell_keys,
    replica_bounds,
)
from rivermouth.kernels.stream_join.row_block import RowBlock
from rivermouth.kernels.stream_join.salting import SaltingContext, SkewTracker
from rivermouth.kernels.stream_join.side_state import SideState, Store
from rivermouth.kernels.stream_join.times import BEGIN, END, Windows

#: raised when what is kept in the state changes its meaning
FORMAT = 1
_META = "meta"
_CACHED = "stream_join"


@dataclass
class BucketState:
    """What a bucket keeps between micro-batches.

    Parameters
    ----------
    watermarks
        The watermark of each side: its newest time less its lateness.
    watermark
        The time before which all rows are late.
    sides
        The rows of either side.
    newest
        The newest time of any row in any bucket, whatever the lateness was.
    skew
        What is known of skewed cells; None where skew was never tracked.
    """

    watermarks: Watermarks
    watermark: int
    sides: tuple[SideState, SideState]
    newest: int = BEGIN
    skew: SkewTracker | None = None


class StreamJoinProcessor:
    """Processes one micro-batch in one bucket.

    Parameters
    ----------
    join, routing
        The join, and how rows were assigned to buckets.
    bucket
        The number of the bucket.
    salting
        How the salting of skewed cells is decided, None where skew is not tracked.
    """

    def __init__(
        self,
        join: StreamJoin,
        routing: CellRouting,
        bucket: int,
        salting: SaltingContext | None = None,
    ) -> None:
        self._join, self._routing, self._bucket, self._salting = join, routing, bucket, salting
        self._out = OutputBuffer(join)
        self._counts: Counter[str] = Counter(rows_in=0, late=0, future=0)
        self._reasons: Counter[str] = Counter()
        self._gauges: dict[str, Any] = {}

    def process(
        self, store: Store, arrivals: Arrivals, cache: dict[str, Any]
    ) -> Iterator[pa.Table]:
        """Process what has arrived and emit results."""
        state: BucketState = cache.pop(_CACHED, None) or self._restored(store)
        self._check_salting(state, arrivals)
        yield from self._rejected(arrivals)
        left = yield from self._admitted(arrivals.sides[LEFT], LEFT, state.watermark)
        right = yield from self._admitted(arrivals.sides[RIGHT], RIGHT, state.watermark)
        previous, complete_to = state.watermark, self._advanced(state, arrivals)
        emitter = PairEmitter(
            self._join, self._routing, self._bucket, store, state.sides, self._out, self._counts
        )
        yield from emitter.emit((left, right), previous, complete_to)
        yield from self._out.flush()
        if self._salting is not None:
            self._track_skew(state, (left, right), arrivals, self._salting, previous)
        for side, retention in zip(state.sides, self._join.retention, strict=True):
            side.drop_before(store, complete_to - retention)
        if not arrivals.last:
            self._save(store, state)
            cache[_CACHED] = state

    def report(self) -> dict[str, Any]:
        """The metrics of this micro-batch, by the names of `rm.metrics`."""
        return {
            "bucket": self._bucket,
            "counts": {**self._counts, "rows_out": self._out.rows},
            "rejected": dict(self._reasons),
            **self._gauges,
        }

    # -- input

    def _rejected(self, arrivals: Arrivals) -> Iterator[pa.Table]:
        for side, table in arrivals.rejected:
            rows = one_batch(table)
            self._counts["rows_in"] += len(rows)
            is_future = pc.equal(rows.column(REASON), FUTURE)
            self._counts["future"] += pc.sum(is_future).as_py()
            self._reasons.update(rows.filter(pc.invert(is_future)).column(REASON).to_pylist())
            yield from self._out.rejected(rows, side, pc.if_else(is_future, "future", "rejected"))

    def _admitted(
        self, tables: tuple[pa.Table, ...], side: int, watermark: int
    ) -> Generator[pa.Table, None, RowBlock | None]:
        """The rows to join; those that are late or that nothing can match are emitted at once."""
        if not tables:
            return None
        rows = one_batch(pa.concat_tables(tables))
        replica = rows.column(REPLICA).to_numpy()
        if not self._routing.both_home:  # else the state must hold which rows are at home
            rows = rows.drop_columns([REPLICA])
        block = RowBlock(self._join, side, rows)
        home = replica <= 0
        self._counts.update(rows_in=int(home.sum()), replicated_rows=int((~home).sum()))
        late = block.times < watermark
        alone = (replica < 0) & ~late
        if late.any():
            once = block.take(np.flatnonzero(late & home))
            self._counts["late"] += len(once)
            yield from self._out.rejected(once.rows, side, "late")
        if alone.any():
            reasons = {number: why for why, number in UNMATCHABLE.items()}
            self._reasons.update(reasons[number] for number in replica[alone].tolist())
            yield from self._unmatchable(block.take(np.flatnonzero(alone)))
        return block.take(np.flatnonzero(~late & ~alone)) if (late | alone).any() else block

    def _unmatchable(self, block: RowBlock) -> Iterator[pa.Table]:
        """Rows without a geometry or a key, which nothing can match."""
        rows, starts = np.arange(len(block)), None
        if isinstance(self._join.when, Windows):
            rows, starts = self._join.when.shared(block.times, block.times)
        self._counts[f"{SIDES[block.side]}_unmatched"] += len(rows)
        yield from self._out.alone(block, rows, starts=starts)

    # -- skewed cells

    def _check_salting(self, state: BucketState, arrivals: Arrivals) -> None:
        """Whether rows were assigned by the salting that this state was written with."""
        if self._salting is not None:
            state.skew = state.skew or self._new_tracker()
            state.skew.check(arrivals.notes, self._salting, state.watermark)
        elif state.skew is not None and state.skew.schedule.changes and not arrivals.last:
            raise StateError(
                "join",
                "this checkpoint's state was written by a join that salts skewed cells",
                there="this query does not know which",
                todo="Give the same rm.grid(skew_path=...), or start with a new checkpoint folder.",
            )

    def _new_tracker(self) -> SkewTracker:
        bounds = replica_bounds(self._join, self._routing)
        return SkewTracker(self._bucket, self._routing.grid.buckets, bounds)

    def _track_skew(
        self,
        state: BucketState,
        new: NewRows,
        arrivals: Arrivals,
        salting: SaltingContext,
        previous: int,
    ) -> None:
        assert state.skew is not None
        assert self._routing.home_side is not None
        home, other = new[self._routing.home_side], new[1 - self._routing.home_side]
        nothing = np.zeros(0, np.int64)
        state.skew.count(
            nothing if home is None else cell_keys(self._routing, home),
            nothing if home is None else home.times,
            arrivals.notes,
            0 if other is None else len(other),
            self._counts["pairs"],
        )
        state.skew.decide(salting, state.newest, previous)

    # -- the watermark and the state

    def _advanced(self, state: BucketState, arrivals: Arrivals) -> int:
        """Advance the state's watermark; the time up to which results are complete now."""
        lateness = zip(arrivals.newest, self._join.lateness, strict=True)
        times = [None if time is None else time - late for time, late in lateness]
        state.watermarks = state.watermarks.advance(times, now=arrivals.now)
        state.newest = max([state.newest, *(time for time in arrivals.newest if time is not None)])
        time = state.watermarks.lowest(idle_timeout=self._join.idle_timeout, now=arrivals.now)
        if arrivals.last or time == watermark.NO_MORE_INPUT:
            # no side is waited for; a row that comes yet must not be older than what was emitted
            state.watermark = max([state.watermark, *self._newest(state.watermarks)])
            return END
        state.watermark = max(state.watermark, BEGIN if time is None else time)
        return state.watermark

    def _newest(self, watermarks: Watermarks) -> list[int]:
        """The newest time of each side that has had input."""
        lateness = zip(watermarks.times, self._join.lateness, strict=True)
        return [time + late for time, late in lateness if time is not None]

    # the state's JSON keeps the field names of its first version

    def _restored(self, store: Store) -> BucketState:
        meta = json.loads(store[_META]) if _META in store else {"bins": [{}, {}]}
        left, right = (SideState(self._join, side, bins) for side, bins in enumerate(meta["bins"]))
        marks = Watermarks.of(2)
        if "newest" in meta:
            marks = Watermarks(tuple(meta["newest"]), tuple(meta["heard"]))
        skew = self._new_tracker().restored(meta["watch"]) if "watch" in meta else None
        newest = meta.get("seen", max([BEGIN, *self._newest(marks)]))
        return BucketState(marks, meta.get("reached", BEGIN), (left, right), newest, skew)

    def _save(self, store: Store, state: BucketState) -> None:
        for side in state.sides:
            side.save(store)
        meta = {
            "newest": state.watermarks.times,
            "heard": state.watermarks.active,
            "reached": state.watermark,
            "seen": state.newest,
            "bins": [side.manifest() for side in state.sides],
            **({} if state.skew is None else {"watch": state.skew.manifest()}),
        }
        store[_META] = json.dumps(meta).encode()
        bins = [begin for side in state.sides for begin, _ in side.time_ranges()[:1]]
        self._gauges = {
            "watermark": None if state.watermark == BEGIN else state.watermark,
            "state": {
                f"{name}_{what}": size
                for name, side in zip(SIDES, state.sides, strict=True)
                for what, size in side.sizes.items()
            },
            **({"oldest_bin": min(bins)} if bins else {}),
        }
        if state.skew is not None:
            self._gauges["state"]["salted_cells"] = state.skew.salted_cells
