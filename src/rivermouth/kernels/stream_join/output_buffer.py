"""The rows of the result: what the step says, put together column by column or folded."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from rivermouth.kernels.spatial.geometry import Floats
from rivermouth.kernels.state.pair_encoding import encoded
from rivermouth.kernels.stream_join.query import (
    ENDS,
    KIND,
    LEFT,
    RIGHT,
    SIDE,
    STARTS,
    Meeting,
)
from rivermouth.kernels.stream_join.row_block import Run
from rivermouth.kernels.stream_join.times import Windows
from rivermouth.spec.conditions import Nearest

Ints = npt.NDArray[np.int64]

_ENOUGH = 1 << 16  # rows that are worth a message of their own
_REPEATS = 2  # times that rows must come on average for them to be sent once
_SIDES = ("left", "right")


class Output:
    """Gathers the rows of a result, so that few and large tables leave.

    Parameters
    ----------
    meeting
        Whose result it is.

    Attributes
    ----------
    rows
        How many rows were gathered so far.
    """

    def __init__(self, meeting: Meeting) -> None:
        self._meeting, self._schema = meeting, meeting.output
        self._held: list[pa.RecordBatch] = []
        self._count = 0
        self.rows = 0

    def pairs(
        self,
        left: Run,
        li: Ints,
        right: Run,
        ri: Ints,
        *,
        distance: Floats | None = None,
        starts: Ints | None = None,
    ) -> Iterator[pa.Table]:
        """Joined rows; of each, the distance and the start of the window, where there are such."""
        if not len(li):
            return
        place = self._meeting.place
        besides = {place.name: pa.array(distance)} if isinstance(place, Nearest) else {}
        if len(li) >= _REPEATS * (len(left) + len(right)):
            yield self._folded(left, li, right, ri, besides | self._told(len(li), starts))
            return
        index = pa.array(ri)
        brought = {new: right.rows.column(old).take(index) for new, old in self._meeting.columns}
        yield from self._add(self._left(left, li) | brought | besides, len(li), starts)

    def _folded(
        self, left: Run, li: Ints, right: Run, ri: Ints, besides: dict[str, pa.Array]
    ) -> pa.Table:
        """Joined rows that repeat those of the sides many times: see `folding`."""
        self.rows += len(li)
        columns = {_SIDES[LEFT]: encoded(left.rows, li), **besides}
        if brought := dict(self._meeting.columns):
            rows = right.rows.select(list(brought.values())).rename_columns(list(brought))
            columns[_SIDES[RIGHT]] = encoded(rows, ri)
        return pa.table(columns)

    def left_unmatched(
        self, left: Run, li: Ints, *, starts: Ints | None = None
    ) -> Iterator[pa.Table]:
        """Left rows that met nothing."""
        yield from self._add(self._left(left, li), len(li), starts)

    def apart(self, rows: pa.RecordBatch, side: int, kinds: str | pa.Array) -> Iterator[pa.Table]:
        """Rows of one side that took no part, if they are asked for."""
        if not self._meeting.late_rows or not rows.num_rows:
            return
        names = (
            {name: name for name in rows.schema.names}
            if side == LEFT
            else dict(self._meeting.columns)
        )
        columns = {new: rows.column(old) for new, old in names.items() if new in self._schema.names}
        columns[SIDE] = pa.array([_SIDES[side]] * rows.num_rows)
        columns[KIND] = pa.array([kinds] * rows.num_rows) if isinstance(kinds, str) else kinds
        yield from self._add(columns, rows.num_rows)

    def rest(self) -> Iterator[pa.Table]:
        """What has not left yet."""
        if self._held:
            yield pa.Table.from_batches(self._held)
        self._held, self._count = [], 0

    def _left(self, left: Run, li: Ints) -> dict[str, pa.Array]:
        index = pa.array(li)
        names = left.rows.schema.names
        return {name: left.rows.column(name).take(index) for name in names}

    def _add(
        self, columns: dict[str, pa.Array], count: int, starts: Ints | None = None
    ) -> Iterator[pa.Table]:
        if not count:
            return
        columns = self._told(count, starts) | columns
        arrays = [self._column(columns, field, count) for field in self._schema]
        self._held.append(pa.RecordBatch.from_arrays(arrays, schema=self._schema))
        self._count += count
        self.rows += count
        if self._count >= _ENOUGH:
            yield from self.rest()

    def _told(self, count: int, starts: Ints | None) -> dict[str, pa.Array]:
        """What the join itself says of rows."""
        told: dict[str, pa.Array] = {}
        if starts is not None:
            assert isinstance(self._meeting.when, Windows)
            told[STARTS] = pa.array(starts, self._schema.field(STARTS).type)
            told[ENDS] = pa.array(starts + self._meeting.when.size, told[STARTS].type)
        if self._meeting.late_rows:
            told[KIND] = pa.repeat("row", count)
        return told

    def _column(self, columns: dict[str, pa.Array], field: pa.Field, count: int) -> pa.Array:
        column = columns.get(field.name)
        return pa.nulls(count, field.type) if column is None else column
