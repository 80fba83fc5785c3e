"""What is asked of two streams, in the words of the kernels: a value that travels to workers."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Literal

import pyarrow as pa

from rivermouth.kernels.stream_join.times import Interval, Windows
from rivermouth.spec.conditions import INVERSE, DWithin, Geometry, Keys, Nearest, Spatial, Topology

LEFT, RIGHT = 0, 1

KIND, SIDE = "kind", "side"
STARTS, ENDS = "window_start", "window_end"
#: what a routed row has besides its own columns: 0 at home, 1 and more for its copies elsewhere,
#: less than 0 (`routing.LONE`) for a left row that nothing can match
COPY = "_copy"


@dataclass(frozen=True)
class Party:
    """One side of a meeting: the columns that the condition names there."""

    time: str
    place: Geometry | None
    keys: tuple[str, ...]


@dataclass(frozen=True)
class Meeting:
    """A join of two streams.

    Parameters
    ----------
    equal, place
        The parts of the condition, at least one of them.
    time
        The name of each side's time column.
    when
        Which times may meet: an interval, or windows.
    how
        "inner" or "left".
    columns
        What is brought from the right side: (name in the result, name there).
    output
        The result's schema.
    lateness
        How much older than the newest row of its side a row may be, in microseconds.
    bin
        The length of the pieces of time in which rows are held, in microseconds.
    srid
        The reference system of both sides, 0 where it is not known.
    idle
        How long a side may be silent before it holds up the other no longer, in microseconds.
    late_rows
        Whether late and rejected rows are part of the result.
    """

    equal: Keys | None
    place: Spatial | None
    time: tuple[str, str]
    when: Interval | Windows
    how: Literal["inner", "left"]
    columns: tuple[tuple[str, str], ...]
    output: pa.Schema
    lateness: tuple[int, int]
    bin: int
    srid: int = 0
    idle: int | None = None
    late_rows: bool = False

    @cached_property
    def parties(self) -> tuple[Party, Party]:
        """Both sides as the condition names them."""
        pairs = self.equal.pairs if self.equal is not None else ()
        left, right = (
            (self.place.left, self.place.right) if self.place is not None else (None, None)
        )
        return (
            Party(self.time[LEFT], left, tuple(one for one, _ in pairs)),
            Party(self.time[RIGHT], right, tuple(other for _, other in pairs)),
        )

    @property
    def is_nearest(self) -> bool:
        """Whether the answer to a row needs all rows that it could meet."""
        return isinstance(self.place, Nearest)

    @property
    def waits(self) -> bool:
        """Whether pairs are told only when the time of a left row's partners has passed."""
        if isinstance(self.when, Windows):
            return not self.when.early
        return self.is_nearest

    @property
    def keeps(self) -> tuple[int, int]:
        """For how long after its own time a row of either side may still be asked for."""
        return self.when.keeps(self.waits)

    @property
    def keeps_found(self) -> bool:
        """Whether it must be remembered which left rows have met others."""
        return self.how == "left" and isinstance(self.when, Interval) and not self.waits

    def asked_by(self, side: int) -> tuple[Keys | None, Spatial | None]:
        """The condition as rows of `side` ask it of the other's."""
        if side == LEFT:
            return self.equal, self.place
        equal = Keys(tuple((b, a) for a, b in self.equal.pairs)) if self.equal is not None else None
        return equal, None if self.place is None else turned(self.place)


def result_schema(
    left: pa.Schema,
    right: pa.Schema,
    columns: tuple[tuple[str, str], ...],
    *,
    distance: str | None = None,
    window: pa.DataType | None = None,
    late_rows: bool = False,
) -> pa.Schema:
    """The schema of a result: the left columns, those brought, and what the join adds.

    `window` is the type of the window's start and end, where there are such.
    """
    told = [(KIND, pa.string()), (SIDE, pa.string())] if late_rows else []
    bounds = [(STARTS, window), (ENDS, window)] if window is not None else []
    return pa.schema(
        [
            *told,
            *left,
            *(right.field(old).with_name(new) for new, old in columns),
            *([(distance, pa.float64())] if distance is not None else []),
            *bounds,
        ]
    )


def turned(place: Spatial) -> Spatial:
    """The place that says the same with the sides changed."""
    match place:
        case Topology("relate", left, right, pattern):
            assert pattern is not None
            across = "".join(pattern[3 * (n % 3) + n // 3] for n in range(9))
            return Topology("relate", right, left, across)
        case Topology(predicate, left, right):
            return Topology(INVERSE[predicate], right, left)
        case DWithin(left, right, limit, metric):
            return DWithin(right, left, limit, metric)
    raise AssertionError(place)  # the nearest of one side are not those of the other
