"""The rows of a stream join's result, gathered into few and large tables."""

from __future__ import annotations

from collections.abc import Iterator

import pyarrow as pa

from rivermouth.kernels.arrays import Floats, Ints
from rivermouth.kernels.state.pair_encoding import encoded
from rivermouth.kernels.stream_join.query import ENDS, KIND, LEFT, SIDE, STARTS, StreamJoin
from rivermouth.kernels.stream_join.row_block import RowBlock
from rivermouth.kernels.stream_join.times import Windows
from rivermouth.spec.conditions import Nearest

_ENOUGH = 1 << 16  # rows that make a table
_REPEATS = 2  # pairs per input row from which on pairs are dictionary-encoded
SIDES = ("left", "right")


class OutputBuffer:
    """Gathers the rows of a result.

    Attributes
    ----------
    rows
        How many rows were added so far.
    """

    def __init__(self, join: StreamJoin) -> None:
        self._join, self._schema = join, join.output
        self._batches: list[pa.RecordBatch] = []
        self._count = 0
        self.rows = 0

    def pairs(
        self,
        left: RowBlock,
        li: Ints,
        right: RowBlock,
        ri: Ints,
        *,
        distance: Floats | None = None,
        starts: Ints | None = None,
    ) -> Iterator[pa.Table]:
        """Joined rows, with their distance and the start of their window, where there are such."""
        if not len(li):
            return
        added = self._added(len(li), starts)
        if distance is not None:
            assert isinstance(self._join.spatial, Nearest)
            added[self._join.spatial.name] = pa.array(distance)
        if len(li) < _REPEATS * (len(left) + len(right)):
            index = pa.array(ri)
            brought = {new: right.rows.column(old).take(index) for new, old in self._join.columns}
            yield from self._add(_taken(left, li) | brought | added, len(li))
            return
        self.rows += len(li)
        columns = {SIDES[0]: encoded(left.rows, li), **added}
        if names := dict(self._join.columns):
            rows = right.rows.select(list(names.values())).rename_columns(list(names))
            columns[SIDES[1]] = encoded(rows, ri)
        yield pa.table(columns)

    def alone(
        self, block: RowBlock, rows: Ints, *, starts: Ints | None = None
    ) -> Iterator[pa.Table]:
        """Rows of one side alone; the other's columns are null."""
        index = pa.array(rows)
        names = self._names(block.side, block.rows)
        columns = {new: block.rows.column(old).take(index) for new, old in names.items()}
        yield from self._add(columns | self._added(len(rows), starts), len(rows))

    def rejected(
        self, rows: pa.RecordBatch, side: int, kinds: str | pa.Array
    ) -> Iterator[pa.Table]:
        """Rows of one side that were not joined, if they are part of the result."""
        if not self._join.late_rows:
            return
        names = self._names(side, rows)
        columns = {new: rows.column(old) for new, old in names.items() if new in self._schema.names}
        columns[SIDE] = pa.repeat(SIDES[side], rows.num_rows)
        columns[KIND] = pa.repeat(kinds, rows.num_rows) if isinstance(kinds, str) else kinds
        yield from self._add(columns, rows.num_rows)

    def flush(self) -> Iterator[pa.Table]:
        """The rows that were not given out yet."""
        if self._batches:
            yield pa.Table.from_batches(self._batches)
        self._batches, self._count = [], 0

    def _names(self, side: int, rows: pa.RecordBatch) -> dict[str, str]:
        """The result's names of the columns of one side, and their names there."""
        if side == LEFT:
            return dict(zip(rows.schema.names, rows.schema.names, strict=True))
        return dict(self._join.columns)

    def _add(self, columns: dict[str, pa.Array], count: int) -> Iterator[pa.Table]:
        if not count:
            return
        arrays = [
            columns[field.name] if field.name in columns else pa.nulls(count, field.type)
            for field in self._schema
        ]
        self._batches.append(pa.RecordBatch.from_arrays(arrays, schema=self._schema))
        self._count += count
        self.rows += count
        if self._count >= _ENOUGH:
            yield from self.flush()

    def _added(self, count: int, starts: Ints | None) -> dict[str, pa.Array]:
        """The columns that the join adds: the window's bounds, and the kind of row."""
        added: dict[str, pa.Array] = {}
        if starts is not None:
            assert isinstance(self._join.when, Windows)
            added[STARTS] = pa.array(starts, self._schema.field(STARTS).type)
            added[ENDS] = pa.array(starts + self._join.when.size, added[STARTS].type)
        if self._join.late_rows:
            added[KIND] = pa.repeat("row", count)
        return added


def _taken(left: RowBlock, li: Ints) -> dict[str, pa.Array]:
    index = pa.array(li)
    return {name: left.rows.column(name).take(index) for name in left.rows.schema.names}
