"""The rows that the native plan broadcasts: the table by its keys, as Arrow.

For `equal` alone there is one per row of the table: its keys, then what is brought. With a place
or a range there is one per key (one in all where the condition has no `equal`), which holds that
key's index and its rows in arrays: see `place_rows` and `ranges`.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Self

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from rivermouth.errors import TableInvalid
from rivermouth.kernels.arrays import Ints
from rivermouth.kernels.keys import key_index
from rivermouth.kernels.spatial import sql_grid
from rivermouth.kernels.table_join.matching import Columns, Index
from rivermouth.spark import types
from rivermouth.spark.validation.join_table import WHERE, Join
from rivermouth.spec.conditions import Keys

ROWS = "rows"

#: what an index may take in the JVM, where a row must stay below 2 GiB
_MOST_BYTES = 3 << 29


def sure(name: str, kind: pa.DataType) -> pa.Field:
    """A field that is never null: Spark's code is half as long for it."""
    return pa.field(name, kind, nullable=False)


def list_of(kind: pa.DataType) -> pa.DataType:
    """A list in which nothing is null."""
    return pa.list_(sure("element", kind))


@dataclass(frozen=True)
class KeyedRows:
    """What the rows are made for; a value that travels to a worker.

    As it stands, for `equal` alone; with a place or a range, one of those made of it.

    Parameters
    ----------
    table
        The table's name, for messages.
    equal
        Which columns must be equal.
    keys
        The types of the keys.
    brought
        What is brought: (name in the table, type).
    """

    table: str
    equal: Keys | None
    keys: tuple[pa.DataType, ...]
    brought: tuple[tuple[str, pa.DataType], ...]

    @classmethod
    def of(cls, join: Join, **more: Any) -> Self:
        """What `join` needs."""
        pairs = join.keys.pairs if join.keys is not None else ()
        return cls(
            table=join.source.name,
            equal=join.keys,
            keys=tuple(_type(join, right) for _, right in pairs) or (pa.int64(),),
            brought=tuple((old, _type(join, old)) for _, old in join.columns),
            **more,
        )

    @property
    def schema(self) -> pa.Schema:
        """The columns."""
        return pa.schema([*self.key_fields, *self._brought_fields])

    @property
    def key_fields(self) -> list[pa.Field]:
        """The columns of the keys."""
        return [pa.field(f"key{i}", kind) for i, kind in enumerate(self.keys)]

    @property
    def row_fields(self) -> list[pa.Field]:
        """The column of the rows that an index speaks of, if anything is brought."""
        fields = self._brought_fields
        return [sure(ROWS, list_of(pa.struct(fields)))] if fields else []

    @property
    def _brought_fields(self) -> list[pa.Field]:
        return [pa.field(f"c{i}", kind) for i, (_, kind) in enumerate(self.brought)]

    def make(self, table: Columns, index: Index | None = None) -> pa.RecordBatch:
        """The rows, of the table's columns and of the index they were kept with.

        Raises
        ------
        TableInvalid
            Where the table holds what this plan has no form for.
        """
        rows = groups_of(table, self.equal).rows
        columns = [*self.keys_of(table, rows), *self._brought_of(table, rows)]
        return pa.RecordBatch.from_arrays(columns, schema=self.schema)

    def keys_of(self, table: Columns, rows: Ints) -> list[pa.Array]:
        """The keys of these rows; without keys the constant that every event equals."""
        if self.equal is None:
            return [pa.array(np.zeros(len(rows), np.int64))]
        taken = [table[right].take(pa.array(rows)) for _, right in self.equal.pairs]
        return [_cast(key, kind) for key, kind in zip(taken, self.keys, strict=True)]

    def rows_of(self, table: Columns, groups: Groups) -> list[pa.Array]:
        """For each group its rows, if anything is brought."""
        if not self.brought:
            return []
        rows = pa.StructArray.from_arrays(
            self._brought_of(table, groups.rows), fields=self._brought_fields
        )
        return [list_array(groups.start, rows)]

    def check_size(self, table: Columns, size: int) -> None:
        """Refuse an index of about `size` bytes, and what is brought, if Spark would."""
        size += 2 * sum(table[old].nbytes for old, _ in self.brought)
        if size > _MOST_BYTES:
            raise TableInvalid(
                self.table,
                f"its index would be a row of about {size >> 20} MiB",
                there="Spark broadcasts it in each batch, and a row can have 2 GiB",
                todo="Use plan='workers', whose index is kept on disk and shared.",
            )

    def _brought_of(self, table: Columns, rows: Ints) -> list[pa.Array]:
        return [_cast(table[old].take(pa.array(rows)), kind) for old, kind in self.brought]


@dataclass(frozen=True)
class Groups:
    """The rows of each key: in `rows` from one `start` to the next; all rows where no key is."""

    rows: Ints
    start: Ints

    @property
    def count(self) -> int:
        """How many groups there are."""
        return len(self.start) - 1

    def of_rows(self, count: int) -> tuple[Ints, Ints]:
        """For each of the table's `count` rows its group, NONE without, and its number in it."""
        group, number = np.full(count, sql_grid.NONE), np.zeros(count, np.int64)
        sizes = np.diff(self.start)
        group[self.rows] = np.repeat(np.arange(len(sizes)), sizes)
        number[self.rows] = np.arange(len(self.rows)) - np.repeat(self.start[:-1], sizes)
        return group, number


def groups_of(table: Columns, equal: Keys | None) -> Groups:
    """The groups of a table; rows whose key is null or NaN are in none."""
    if equal is None:
        count = len(next(iter(table.values())))
        return Groups(np.arange(count), np.array([0, count] if count else [0]))
    made = key_index.build([table[right] for _, right in equal.pairs])
    return Groups(made.rows.astype(np.int64), made.start.astype(np.int64))


def list_array(
    start: Ints, values: pa.Array, mask: npt.NDArray[np.bool_] | None = None
) -> pa.Array:
    """Lists that start in `values` where `start` says."""
    return pa.ListArray.from_arrays(
        pa.array(start.astype(np.int32)),
        values,
        type=list_of(values.type),
        mask=None if mask is None else pa.array(mask),
    )


def _type(join: Join, column: str) -> pa.DataType:
    """The type in which Spark expects a column of the table."""
    kind = types.to_spark(join.table.field(column).type, where=WHERE, column=column)
    return types.to_arrow(kind, where=WHERE, column=column)


def _cast(column: pa.Array, kind: pa.DataType) -> pa.Array:
    return column if column.type == kind else column.cast(kind, safe=False)
