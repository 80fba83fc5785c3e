"""The rows that the native plan broadcasts: the table by its keys, as Arrow.

For keys alone there is one per row of the table: its keys, then its projected columns. With a
spatial condition or a range there is one per key (one in all where the condition has no keys), with
that key's index and its rows in arrays: see `index_rows` and `ranges`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Self

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import SparkSession

from rivermouth.errors import TableInvalid
from rivermouth.kernels.arrays import Floats, Ints
from rivermouth.kernels.keys import key_index
from rivermouth.kernels.spatial import sql_grid
from rivermouth.kernels.table_join.matching import Columns, Index
from rivermouth.spark import types
from rivermouth.spark.validation.join_table import WHERE, Join
from rivermouth.spec.conditions import Keys, key_pairs, right_columns

ROWS = "rows"

#: what an index may take in the JVM, and which part of the driver's heap
_MOST_BYTES, _OF_HEAP = 1 << 30, 1 / 5
#: what a row may take: Spark's hash table for keys that fit a long has none of 256 MiB
_MOST_ROW_BYTES = 240 << 20
#: bytes of a text or shape that nobody has read yet
_TEXT = 100


def non_null(name: str, dtype: pa.DataType) -> pa.Field:
    """A field that is never null: Spark's code is half as long for it."""
    return pa.field(name, dtype, nullable=False)


def list_of(dtype: pa.DataType) -> pa.DataType:
    """A list in which nothing is null."""
    return pa.list_(non_null("element", dtype))


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

    def parts(self, group: Ints, numbers: Sequence[Ints]) -> Groups:
        """These rows, by their numbers in the group that each part is of."""
        rows = [self.rows[self.start[g] + own] for g, own in zip(group, numbers, strict=True)]
        return Groups(np.concatenate(rows), np.cumsum([0, *map(len, rows)]))


def groups_of(table: Columns, keys: Keys | None) -> Groups:
    """The groups of a table; rows whose key is null or NaN are in none."""
    if keys is None:
        count = len(next(iter(table.values())))
        return Groups(np.arange(count), np.array([0, count] if count else [0]))
    made = key_index.build([table[right] for _, right in keys.pairs])
    return Groups(made.rows.astype(np.int64), made.start.astype(np.int64))


def broadcast_limit(spark: SparkSession, *, doubling: bool) -> int:
    """How many bytes an index may take, so that Spark can broadcast it query after query.

    A broadcast stays in Spark's storage, which takes 0.6 of the heap, until the driver's garbage
    collector finds its plan gone. So the next index has to be built in the rest: its rows as they
    are collected, compressed, and the hash table.

    Parameters
    ----------
    doubling
        Whether the hash table or the writer of a row copies all of it into an array of twice the
        size as it grows. The table for keys that fit a long does, and the writer of a row that is
        not split.
    """
    heap = _bytes(spark.conf.get("spark.driver.memory", "1g") or "1g")
    return min(_MOST_BYTES, int(heap * _OF_HEAP)) // (2 if doubling else 1)


def expected_bytes(join: Join, rows: int) -> float:
    """About what so many rows of the table take in Spark, before anyone has read them."""
    names = {old for _, old in join.columns} | set(right_columns(join.on))
    return rows * (16.0 + sum(_expected(join.table.field(name).type) for name in names))


def _expected(kind: pa.DataType) -> float:
    if pa.types.is_dictionary(kind):
        kind = kind.value_type
    try:
        return 8 + float(kind.bit_width) / 8
    except ValueError:  # of any length
        return 16 + _TEXT


def auto_broadcast_bytes(spark: SparkSession) -> int:
    """How large a table may be on disk for Spark to broadcast it; negative: it never does."""
    name = "spark.sql.autoBroadcastJoinThreshold"
    return _bytes(spark.conf.get(name, "10MB") or "10MB", unit=0)


def _bytes(memory: str, *, unit: int = 20) -> int:
    """A size as Spark writes it, in MiB (two to the power of `unit`) where it has no unit."""
    number = memory.strip().lower().removesuffix("b")
    if number[-1:] in _UNITS:
        number, unit = number[:-1], _UNITS[number[-1]]
    return int(number) << unit


_UNITS = {"k": 10, "m": 20, "g": 30, "t": 40, "p": 50}


@dataclass(frozen=True)
class KeyedRows:
    """What the rows are made for; a value that is sent to a worker.

    As it is, for keys alone; with a spatial condition or a range, one of its subclasses.

    Parameters
    ----------
    table
        The table's name, for messages.
    keys
        Which columns must be equal.
    key_types
        The types of the keys.
    projected
        The columns of the result: (name in the table, type).
    most_bytes
        What all rows of an index may take in the JVM, see `broadcast_limit`.
    """

    table: str
    keys: Keys | None
    key_types: tuple[pa.DataType, ...]
    projected: tuple[tuple[str, pa.DataType], ...]
    most_bytes: int

    @classmethod
    def of(cls, join: Join, most_bytes: int, **more: Any) -> Self:
        """What `join` needs."""
        return cls(
            table=join.source.name,
            keys=join.keys,
            key_types=tuple(_type(join, right) for _, right in key_pairs(join.keys))
            or (pa.bool_(),),  # not a number: Spark's hash table for those is one array
            projected=tuple((old, _type(join, old)) for _, old in join.columns),
            most_bytes=most_bytes,
            **more,
        )

    @property
    def schema(self) -> pa.Schema:
        """The columns."""
        return pa.schema([*self.key_fields, *self._projected_fields])

    @property
    def key_fields(self) -> list[pa.Field]:
        """The columns of the keys."""
        return [pa.field(f"key{i}", dtype) for i, dtype in enumerate(self.key_types)]

    @property
    def row_fields(self) -> list[pa.Field]:
        """The column of the rows that an index refers to, if columns are projected."""
        fields = self._projected_fields
        return [non_null(ROWS, list_of(pa.struct(fields)))] if fields else []

    @property
    def _projected_fields(self) -> list[pa.Field]:
        return [pa.field(f"c{i}", dtype) for i, (_, dtype) in enumerate(self.projected)]

    def make(self, table: Columns, index: Index | None = None) -> pa.RecordBatch:
        """The rows, from the table's columns and the index that was stored with them.

        Raises
        ------
        TableInvalid
            Where the table holds what this plan has no form for.
        """
        rows = groups_of(table, self.keys).rows
        columns = [*self.keys_of(table, rows), *self._projected_of(table, rows)]
        return pa.RecordBatch.from_arrays(columns, schema=self.schema)

    def keys_of(self, table: Columns, rows: Ints) -> list[pa.Array]:
        """The keys of these rows; without keys the constant that every event equals."""
        if self.keys is None:
            return [pa.array(np.ones(len(rows), np.bool_))]
        taken = [table[right].take(pa.array(rows)) for _, right in self.keys.pairs]
        return [_cast(key, dtype) for key, dtype in zip(taken, self.key_types, strict=True)]

    def rows_of(self, table: Columns, groups: Groups) -> list[pa.Array]:
        """For each group its rows, if columns are projected."""
        if not self.projected:
            return []
        columns = self._projected_of(table, groups.rows)
        rows = pa.StructArray.from_arrays(columns, fields=self._projected_fields)
        return [list_array(groups.start, rows)]

    def row_bytes(self, table: Columns, groups: Groups) -> Floats:
        """About how much the projected columns of each group take in Spark."""
        size = np.full(len(next(iter(table.values()))), 16.0 if self.projected else 0.0)
        for old, _ in self.projected:
            column = table[old]
            if pa.types.is_binary(column.type) or pa.types.is_string(column.type):
                size += 16 + pc.fill_null(pc.binary_length(column), 0).to_numpy()
            else:
                size += 8 + column.nbytes / max(1, len(column))
        return np.diff(np.concatenate([[0.0], np.cumsum(size[groups.rows])])[groups.start])

    def check_size(self, sizes: Floats) -> None:
        """Refuse an index whose rows, of about these sizes, are more than Spark can broadcast."""
        total, largest = int(sizes.sum()), int(sizes.max(initial=0))
        if total > self.most_bytes:
            what = f"its index would take about {total >> 20} MiB in the JVM"
            most = f"{self.most_bytes >> 20} MiB with this spark.driver.memory"
        elif largest > _MOST_ROW_BYTES:
            what = f"a row of its index would take about {largest >> 20} MiB in the JVM"
            most = f"{_MOST_ROW_BYTES >> 20} MiB in a row"
        else:
            return
        raise TableInvalid(
            self.table,
            what,
            there=f"plan='native' broadcasts at most {most}",
            todo="Use plan='workers', whose index is stored on disk and shared.",
        )

    def _projected_of(self, table: Columns, rows: Ints) -> list[pa.Array]:
        return [_cast(table[old].take(pa.array(rows)), dtype) for old, dtype in self.projected]


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
    dtype = types.to_spark(join.table.field(column).type, where=WHERE, column=column)
    return types.to_arrow(dtype, where=WHERE, column=column)


def _cast(column: pa.Array, dtype: pa.DataType) -> pa.Array:
    return column if column.type == dtype else column.cast(dtype, safe=False)
