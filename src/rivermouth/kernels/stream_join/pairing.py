"""Which rows of two runs meet: the condition by an index, the times pair by pair.

Points within a distance go through `strips`, which tests times on the way; everything else
through the indexes that tables have (see `matching`), and the times afterwards. `nearest` is
answered in `nearest`, for it needs to know the times before it chooses.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import numpy.typing as npt

from rivermouth.kernels.keys.row_hash import same
from rivermouth.kernels.stream_join import band_join
from rivermouth.kernels.stream_join.row_block import Run
from rivermouth.kernels.stream_join.times import Span
from rivermouth.spec.conditions import DWithin

Ints = npt.NDArray[np.int64]
#: rows that ask, the rows held that they meet, and how many pairs were looked at
Met = tuple[Ints, Ints, int]

_AT_ONCE = 1 << 14  # rows that ask an index at a time: what it proposes must fit in memory


def pairs(asking: Run, held: Run, span: Span) -> Iterator[Met]:
    """The pairs of two runs that satisfy the condition and whose times may meet."""
    if not may_meet(asking, held, span):
        return
    place = asking.meeting.place
    if isinstance(place, DWithin) and asking.places.are_points and held.places.are_points:
        found = band_join.meet(asking.strips, held.strips, place.limit, span)
        yield from _equal(asking, held, found)
    else:
        yield from _by_index(asking, held, span)


def may_meet(asking: Run, held: Run, span: Span) -> bool:
    """Whether any of their times could."""
    if not len(asking) or not len(held):
        return False
    first = max(asking.first + span.lower, span.first)
    last = min(asking.last + span.upper, span.last)
    return held.first <= last and first <= held.last


def _equal(asking: Run, held: Run, found: Iterator[Met]) -> Iterator[Met]:
    """Those of equal codes whose keys are equal indeed."""
    if not asking.keys:
        yield from found
        return
    for rows, others, seen in found:
        equal = same(asking.keys, rows, held.keys, others)
        yield rows[equal], others[equal], seen


def _by_index(asking: Run, held: Run, span: Span) -> Iterator[Met]:
    columns = asking.columns
    for begin in range(0, len(asking), _AT_ONCE):
        part = {name: column.slice(begin, _AT_ONCE) for name, column in columns.items()}
        proposed = held.matcher.match(part)
        rows = proposed.left + begin
        keep = span.allows(asking.times[rows], held.times[proposed.right])
        yield rows[keep], proposed.right[keep], len(rows)
