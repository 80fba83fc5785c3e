"""Rows of one side that are held together, and what was made of them on the way."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import cached_property

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import shapely

from rivermouth.kernels.keys import row_hash
from rivermouth.kernels.keys.values import whole
from rivermouth.kernels.spatial import kdtree
from rivermouth.kernels.spatial.geometry import Bools, Floats, Places
from rivermouth.kernels.spatial.sphere import unit_vectors
from rivermouth.kernels.stream_join import band_join
from rivermouth.kernels.stream_join.query import LEFT, RIGHT, Meeting
from rivermouth.kernels.table_join import by_place
from rivermouth.kernels.table_join.matching import Matcher, prepare
from rivermouth.spec.conditions import DWithin, Nearest, named

Ints = npt.NDArray[np.int64]


class Run:
    """Rows of one side, all of which have a time, a place and keys.

    What is made of them (coordinates, indexes) is made when it is first asked for and stays as
    long as the run does.

    Parameters
    ----------
    meeting
        What is asked of the rows.
    side
        Whose they are.
    rows
        The rows.
    found
        Which of them have met a row of the other side; `is_news` where that has changed.
    """

    def __init__(
        self, meeting: Meeting, side: int, rows: pa.RecordBatch, found: Bools | None = None
    ) -> None:
        self.meeting, self.side, self.rows = meeting, side, rows
        self.found = np.zeros(rows.num_rows, dtype=bool) if found is None else found
        self.is_news = False
        self._party = meeting.parties[side]

    def __len__(self) -> int:
        return int(self.rows.num_rows)

    @cached_property
    def times(self) -> Ints:
        """The rows' times in microseconds since 1970."""
        return whole(self.rows.column(self._party.time))

    @cached_property
    def first(self) -> int:
        """The oldest time."""
        return int(self.times.min())

    @cached_property
    def last(self) -> int:
        """The newest time."""
        return int(self.times.max())

    @cached_property
    def places(self) -> Places:
        """The rows' places."""
        return places_of(self.meeting, self.side, self.rows)

    @cached_property
    def boxes(self) -> Floats:
        """The rows' boxes: low corner, then high corner."""
        return boxes_of(self.meeting, self.places)

    @cached_property
    def keys(self) -> list[pa.Array]:
        """The rows' key columns."""
        return [self.rows.column(name) for name in self._party.keys]

    @cached_property
    def codes(self) -> Ints:
        """A code of each row's keys, the same for all where there are none."""
        return row_hash.codes(self.keys) if self.keys else np.zeros(len(self), np.int64)

    @cached_property
    def strips(self) -> band_join.Strips:
        """The rows' points, sorted for a join by distance."""
        place = self.meeting.place
        assert isinstance(place, DWithin)
        return band_join.build(
            *self.places.xy, self.times, self.codes, limit=place.limit,
            sphere=place.metric == "sphere", width=self.meeting.when.slot,
        )  # fmt: skip

    @cached_property
    def kd(self) -> kdtree.KdTree:
        """The rows' points in a tree, for the nearest of them."""
        place = self.meeting.place
        assert isinstance(place, Nearest)
        return kdtree.build(*self.places.xy, np.arange(len(self)), sphere=place.metric == "sphere")

    @cached_property
    def matcher(self) -> Matcher:
        """The rows as a table that the other side's rows ask."""
        meeting = self.meeting
        equal, place = meeting.asked_by(LEFT if self.side == RIGHT else RIGHT)
        columns = self.columns
        index = "tree" if place is not None else None
        made = prepare(place, columns, where="stream", keys=equal, index=index)
        return Matcher(equal, place, columns, made, srid=meeting.srid)

    @property
    def columns(self) -> dict[str, pa.Array]:
        """The columns that the condition names."""
        place = self._party.place
        names = (*(() if place is None else named(place)), *self._party.keys)
        return {name: self.rows.column(name) for name in dict.fromkeys(names)}

    def met(self, rows: Ints) -> None:
        """Note that these rows have met others."""
        self.is_news |= not self.found[rows].all()
        self.found[rows] = True

    def take(self, rows: Ints) -> Run:
        """These rows as a run of their own."""
        return Run(self.meeting, self.side, self.rows.take(pa.array(rows)), self.found[rows])

    def pieces(self, most: int) -> Iterator[Run]:
        """The run in pieces of at most `most` rows, itself where it is no longer."""
        if len(self) <= most:
            yield self
            return
        for begin in range(0, len(self), max(1, most)):
            yield self.take(np.arange(begin, min(begin + max(1, most), len(self))))

    def between(self, first: int, last: int) -> Run:
        """The rows whose time lies in [first, last]: the run itself where all do."""
        if not len(self) or (first <= self.first and self.last <= last):
            return self
        return self.take(np.flatnonzero((self.times >= first) & (self.times <= last)))


def joined(runs: Sequence[Run]) -> Run:
    """Runs of one side as one, in this order."""
    rows = pa.Table.from_batches([run.rows for run in runs]).combine_chunks().to_batches()[0]
    return Run(runs[0].meeting, runs[0].side, rows, np.concatenate([run.found for run in runs]))


def places_of(meeting: Meeting, side: int, rows: pa.RecordBatch) -> Places:
    """The places of one side's rows as the condition needs them."""
    geometry = meeting.parties[side].place
    assert meeting.place is not None
    assert geometry is not None
    columns = {name: rows.column(name) for name in named(geometry)}
    return by_place.needed(meeting.place, columns, geometry, meeting.srid)


def boxes_of(meeting: Meeting, places: Places) -> Floats:
    """The boxes of places, low corner then high corner; on the sphere those of unit vectors."""
    if isinstance(meeting.place, (DWithin, Nearest)) and meeting.place.metric == "sphere":
        corner = unit_vectors(*places.xy)
        return np.column_stack([corner, corner])
    if places.are_points:
        return np.column_stack([*places.xy, *places.xy])
    return np.asarray(shapely.bounds(places.as_shapes))
