"""A step of a join of two streams in one bucket: rows arrive, pairs leave, old rows are let go.

Rows are judged by the clock as it stood before the step: what is older is late. Then the clock
moves to where the new rows bring it, and what it has passed is answered and let go. A row is
forgotten once no row that can still come may ask for it.
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
from rivermouth.kernels.skew.salting import Learning, Watch
from rivermouth.kernels.state import watermark
from rivermouth.kernels.state.bucketing import REASON, Arrivals
from rivermouth.kernels.state.watermark import Watermarks
from rivermouth.kernels.stream_join.output_buffer import Output
from rivermouth.kernels.stream_join.pair_emitter import Answers, Fresh
from rivermouth.kernels.stream_join.query import COPY, LEFT, RIGHT, Meeting
from rivermouth.kernels.stream_join.routing import FUTURE, LONE, Routing, asking, spots
from rivermouth.kernels.stream_join.row_block import Run
from rivermouth.kernels.stream_join.side_state import Shelf, Store
from rivermouth.kernels.stream_join.times import BEGIN, END, Windows

#: raised when what a step keeps in the state changes its meaning
FORMAT = 1
_META = "meta"
_CACHED = "stream_join"
_SIDES = ("left", "right")


@dataclass
class Held:
    """What a bucket holds between steps.

    Parameters
    ----------
    clock
        How far each side has come, less its lateness.
    reached
        The time before which everything is late.
    shelves
        The rows of either side.
    newest
        The newest time of any row that was sent to a bucket, whatever the lateness was.
    watch
        What is known of crowded spots; None where nothing was ever learned.
    """

    clock: Watermarks
    reached: int
    shelves: tuple[Shelf, Shelf]
    newest: int = BEGIN
    watch: Watch | None = None


class MeetingStepper:
    """The step of one micro-batch in one bucket.

    Parameters
    ----------
    meeting, routing
        What is asked, and how rows came here.
    bucket
        The number of the bucket.
    learning
        How crowded spots are made known, None where they are not looked for.
    """

    def __init__(
        self, meeting: Meeting, routing: Routing, bucket: int, learning: Learning | None = None
    ) -> None:
        self._meeting, self._routing, self._bucket = meeting, routing, bucket
        self._learning = learning
        self._out = Output(meeting)
        self._counts: Counter[str] = Counter(rows_in=0, late=0, future=0)
        self._aside: Counter[str] = Counter()
        self._state: dict[str, Any] = {}

    def process(
        self, store: Store, arrivals: Arrivals, cache: dict[str, Any]
    ) -> Iterator[pa.Table]:
        """Take in what has arrived and give what can be said now."""
        held: Held = cache.pop(_CACHED, None) or self._opened(store)
        self._check_dealt(held, arrivals)
        yield from self._rejected(arrivals)
        left = yield from self._admitted(arrivals.sides[LEFT], LEFT, held.reached)
        right = yield from self._admitted(arrivals.sides[RIGHT], RIGHT, held.reached)
        before, now = held.reached, self._moved(held, arrivals)
        answers = Answers(
            self._meeting, self._routing, self._bucket, store, held.shelves, self._out, self._counts
        )
        yield from answers.given((left, right), before, now)
        yield from self._out.rest()
        if self._learning is not None:
            self._learn(held, (left, right), arrivals, self._learning, before)
        self._let_go(store, held, now)
        if not arrivals.last:
            self._save(store, held)
            cache[_CACHED] = held

    def report(self) -> dict[str, Any]:
        """The step's numbers, in the words of `rm.metrics`."""
        return {
            "bucket": self._bucket,
            "counts": {**self._counts, "rows_out": self._out.rows},
            "rejected": dict(self._aside),
            **self._state,
        }

    # -- what comes in

    def _rejected(self, arrivals: Arrivals) -> Iterator[pa.Table]:
        for side, table in arrivals.rejected:
            rows = table.combine_chunks().to_batches()[0]
            self._counts["rows_in"] += len(rows)
            is_future = pc.equal(rows.column(REASON), FUTURE)
            self._counts["future"] += pc.sum(is_future).as_py()
            self._aside.update(rows.filter(pc.invert(is_future)).column(REASON).to_pylist())
            yield from self._out.apart(rows, side, pc.if_else(is_future, "future", "rejected"))

    def _admitted(
        self, tables: tuple[pa.Table, ...], side: int, reached: int
    ) -> Generator[pa.Table, None, Run | None]:
        """The rows that take part; those that are late or surely meet nothing leave at once."""
        if not tables:
            return None
        rows = pa.concat_tables(tables).combine_chunks().to_batches()[0]
        copy = rows.column(COPY).to_numpy()
        run = Run(self._meeting, side, rows.drop_columns([COPY]))
        home = copy <= 0
        self._counts.update(rows_in=int(home.sum()), replicated_rows=int((~home).sum()))
        late = run.times < reached
        lone = (copy < 0) & ~late
        if late.any():
            once = run.take(np.flatnonzero(late & home))
            self._counts["late"] += len(once)
            yield from self._out.apart(once.rows, side, "late")
        if lone.any():
            reasons = {number: why for why, number in LONE.items()}
            self._aside.update(reasons[number] for number in copy[lone].tolist())
            yield from self._lone(run.take(np.flatnonzero(lone)))
        return run.take(np.flatnonzero(~late & ~lone)) if (late | lone).any() else run

    def _lone(self, left: Run) -> Iterator[pa.Table]:
        """Left rows without a place or a key: that they meet nothing is known from the start."""
        rows, starts = np.arange(len(left)), None
        if isinstance(self._meeting.when, Windows):
            rows, starts = self._meeting.when.shared(left.times, left.times)
        self._counts["left_unmatched"] += len(rows)
        yield from self._out.left_unmatched(left, rows, starts=starts)

    # -- crowded spots

    def _check_dealt(self, held: Held, arrivals: Arrivals) -> None:
        """Whether rows were dealt as this state expects."""
        if self._learning is not None:
            held.watch = held.watch or self._watch()
            held.watch.check(arrivals.notes, self._learning, held.reached)
        elif held.watch is not None and held.watch.steps.steps and not arrivals.last:
            raise StateError(
                "join",
                "this checkpoint's state was written by a join that learns crowded places",
                there="rows are dealt by rules that this query does not know",
                todo="Give the same rm.grid(learn=...), or start with a new checkpoint folder.",
            )

    def _watch(self) -> Watch:
        span = asking(self._meeting, self._routing)
        return Watch(self._bucket, self._routing.grid.buckets, span)

    def _learn(
        self, held: Held, fresh: Fresh, arrivals: Arrivals, learning: Learning, before: int
    ) -> None:
        assert held.watch is not None
        assert self._routing.single is not None
        stays, other = fresh[self._routing.single], fresh[1 - self._routing.single]
        nothing = np.zeros(0, np.int64)
        held.watch.count(
            nothing if stays is None else spots(self._routing, stays),
            nothing if stays is None else stays.times,
            arrivals.notes,
            0 if other is None else len(other),
            self._counts["pairs"],
        )
        held.watch.decide(learning, held.newest, before)

    # -- the clock and the state

    def _moved(self, held: Held, arrivals: Arrivals) -> int:
        """The time up to which all is known after this step."""
        lateness = self._meeting.lateness
        newest = [
            None if time is None else time - late
            for time, late in zip(arrivals.newest, lateness, strict=True)
        ]
        held.clock = held.clock.advance(newest, now=arrivals.now)
        held.newest = max([held.newest, *(time for time in arrivals.newest if time is not None)])
        time = held.clock.lowest(idle_timeout=self._meeting.idle, now=arrivals.now)
        if arrivals.last or time == watermark.END:
            # nobody is waited for; what may come yet must not be older than what was answered
            held.reached = max([held.reached, *self._newest(held.clock)])
            return END
        held.reached = max(held.reached, BEGIN if time is None else time)
        return held.reached

    def _newest(self, clock: Watermarks) -> list[int]:
        """The newest time of each side that has begun."""
        return [
            time + late
            for time, late in zip(clock.times, self._meeting.lateness, strict=True)
            if time is not None
        ]

    def _let_go(self, store: Store, held: Held, now: int) -> None:
        for shelf, keep in zip(held.shelves, self._meeting.keeps, strict=True):
            shelf.forget(store, now - keep)

    def _opened(self, store: Store) -> Held:
        meta = json.loads(store[_META]) if _META in store else {"bins": [{}, {}]}
        left, right = (Shelf(self._meeting, side, book) for side, book in enumerate(meta["bins"]))
        begun = "newest" in meta
        past = (
            Watermarks(tuple(meta["newest"]), tuple(meta["heard"])) if begun else Watermarks.of(2)
        )
        watch = self._watch().restore(meta["watch"]) if "watch" in meta else None
        newest = meta.get("seen", max([BEGIN, *self._newest(past)]))
        return Held(past, meta.get("reached", BEGIN), (left, right), newest, watch)

    def _save(self, store: Store, held: Held) -> None:
        for shelf in held.shelves:
            shelf.save(store)
        meta = {
            "newest": held.clock.times,
            "heard": held.clock.active,
            "reached": held.reached,
            "seen": held.newest,
            "bins": [shelf.book() for shelf in held.shelves],
            **({} if held.watch is None else {"watch": held.watch.book()}),
        }
        store[_META] = json.dumps(meta).encode()
        oldest = [shelf.oldest for shelf in held.shelves if shelf.bins]
        self._state = {
            "clock": None if held.reached == BEGIN else held.reached,
            "state": {
                f"{side}_{what}": getattr(shelf, what)
                for side, shelf in zip(_SIDES, held.shelves, strict=True)
                for what in ("rows", "bytes", "bins")
            },
            **({"oldest_bin": min(oldest)} if oldest else {}),
        }
        if held.watch is not None:
            self._state["state"]["salted_cells"] = held.watch.salted_cells
