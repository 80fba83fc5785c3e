"""A join of two streams as the kernels see it: a value that is sent to workers."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Literal

import pyarrow as pa

from rivermouth.kernels.stream_join.times import Interval, TimeBounds, Windows
from rivermouth.spec.conditions import INVERSE, DWithin, Geometry, Keys, Nearest, Spatial, Topology
from rivermouth.spec.grids import StreamIndexName

LEFT, RIGHT = 0, 1
How = Literal["inner", "left", "right", "full", "semi", "anti"]
#: the sides whose rows a join knows to be matched or not
_DECIDED: dict[str, tuple[int, ...]] = {"inner": (), "right": (RIGHT,), "full": (LEFT, RIGHT)}

#: a column of routed rows: 0 in the home bucket, 1 and more for replicas elsewhere, less than 0
#: (`routing.UNMATCHABLE`) for a row that nothing can match
REPLICA = "_replica"
KIND, SIDE = "kind", "side"
STARTS, ENDS = "window_start", "window_end"


@dataclass(frozen=True)
class Side:
    """One side of a join: the columns that the condition names there."""

    time: str
    geometry: Geometry | None
    keys: tuple[str, ...]


@dataclass(frozen=True)
class StreamJoin:
    """A join of two streams.

    Parameters
    ----------
    keys, spatial
        The parts of the condition, at least one of them.
    time
        The name of each side's time column.
    when
        Which times may be joined: an interval, or windows.
    how
        "inner": pairs; "left", "right", "full": also rows of that side, or of both, without a
        partner; "semi", "anti": left rows that have one, or have none.
    columns
        What is brought from the right side: (name in the result, name there).
    output
        The result's schema.
    lateness
        How much older than the newest row of its side a row may be, in microseconds.
    bin
        The length of the time bins of the state, in microseconds.
    srid
        The SRID of both sides, 0 where it is not known.
    idle_timeout
        How long a side may have no input before it stops holding back the watermark, in
        microseconds.
    late_rows
        Whether late and rejected rows are part of the result.
    index
        How points within a distance are found, None for the fastest.
    """

    keys: Keys | None
    spatial: Spatial | None
    time: tuple[str, str]
    when: Interval | Windows
    how: How
    columns: tuple[tuple[str, str], ...]
    output: pa.Schema
    lateness: tuple[int, int]
    bin: int
    srid: int = 0
    idle_timeout: int | None = None
    late_rows: bool = False
    index: StreamIndexName | None = None

    @cached_property
    def sides(self) -> tuple[Side, Side]:
        """Both sides as the condition names them."""
        pairs = self.keys.pairs if self.keys is not None else ()
        left, right = (
            (None, None) if self.spatial is None else (self.spatial.left, self.spatial.right)
        )
        return (
            Side(self.time[LEFT], left, tuple(one for one, _ in pairs)),
            Side(self.time[RIGHT], right, tuple(other for _, other in pairs)),
        )

    @property
    def is_nearest(self) -> bool:
        """Whether the result of a left row depends on all right rows in its interval or window."""
        return isinstance(self.spatial, Nearest)

    @property
    def waits(self) -> bool:
        """Whether pairs are emitted only when a left row's interval or window has closed."""
        return not self.when.early if isinstance(self.when, Windows) else self.is_nearest

    @property
    def retention(self) -> tuple[int, int]:
        """For how long after its own time a left and a right row stay in state."""
        left, right = self.when.retention(self.waits)
        return left, max(right, 0) if RIGHT in self.unmatched_sides else right

    @property
    def emits_pairs(self) -> bool:
        """Whether pairs are part of the result."""
        return self.how not in ("semi", "anti")

    @property
    def decided_sides(self) -> tuple[int, ...]:
        """The sides of whose rows it must be known whether they have a partner."""
        return _DECIDED.get(self.how, (LEFT,))

    @property
    def unmatched_sides(self) -> tuple[int, ...]:
        """The sides whose rows without a partner are part of the result."""
        return () if self.how == "semi" else self.decided_sides

    @property
    def tracked_sides(self) -> tuple[int, ...]:
        """The sides for which the state must hold which rows have been matched."""
        return self.decided_sides if isinstance(self.when, Interval) and not self.waits else ()

    def bounds(self, probe: int) -> TimeBounds:
        """The times of the other side's rows that a row of side `probe` may be joined with."""
        return self.when.left_bounds if probe == LEFT else self.when.right_bounds

    def condition(self, probe: int) -> tuple[Keys | None, Spatial | None]:
        """The condition with side `probe` on its left."""
        if probe == LEFT:
            return self.keys, self.spatial
        keys = Keys(tuple((b, a) for a, b in self.keys.pairs)) if self.keys is not None else None
        return keys, None if self.spatial is None else _swapped(self.spatial)


def _swapped(spatial: Spatial) -> Spatial:
    """The same condition with its sides swapped."""
    match spatial:
        case Topology("relate", left, right, pattern):
            assert pattern is not None
            transposed = "".join(pattern[3 * (n % 3) + n // 3] for n in range(9))
            return Topology("relate", right, left, transposed)
        case Topology(predicate, left, right):
            return Topology(INVERSE[predicate], right, left)
        case DWithin(left, right, limit, metric):
            return DWithin(right, left, limit, metric)
    raise AssertionError(spatial)  # the nearest of one side are not those of the other
