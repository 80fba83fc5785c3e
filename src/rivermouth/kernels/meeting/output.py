"""The rows of the result: what the step says, put together column by column."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from rivermouth.kernels.geometry import Floats
from rivermouth.kernels.meeting.asked import DISTANCE, ENDS, KIND, LEFT, SIDE, STARTS, Meeting
from rivermouth.kernels.meeting.runs import Run
from rivermouth.kernels.meeting.times import Windows

Ints = npt.NDArray[np.int64]

_ENOUGH = 1 << 16  # rows that are worth a message of their own
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
        columns = self._left(left, li)
        index = pa.array(ri)
        for new, old in self._meeting.columns:
            columns[new] = right.rows.column(old).take(index)
        if distance is not None:
            columns[DISTANCE] = pa.array(distance)
        yield from self._add(columns, len(li), starts)

    def lonely(self, left: Run, li: Ints, *, starts: Ints | None = None) -> Iterator[pa.Table]:
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
        if starts is not None:
            assert isinstance(self._meeting.when, Windows)
            columns[STARTS] = pa.array(starts)
            columns[ENDS] = pa.array(starts + self._meeting.when.size)
        if KIND in self._schema.names and KIND not in columns:
            columns[KIND] = pa.array(["row"] * count)
        arrays = [self._column(columns, field, count) for field in self._schema]
        self._held.append(pa.RecordBatch.from_arrays(arrays, schema=self._schema))
        self._count += count
        self.rows += count
        if self._count >= _ENOUGH:
            yield from self.rest()

    def _column(self, columns: dict[str, pa.Array], field: pa.Field, count: int) -> pa.Array:
        if field.name not in columns:
            return pa.nulls(count, field.type)
        column = columns[field.name]
        return column if column.type == field.type else column.cast(field.type)
