"""Equality of one or several columns: every distinct key of the table gets a group number."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pandas as pd
import pyarrow as pa
import pyarrow.compute as pc

from rivermouth.kernels.geometry import Bools

Ints = npt.NDArray[np.int64]

NONE = -1


@dataclass(frozen=True)
class KeyIndex:
    """The groups of a table's keys.

    Parameters
    ----------
    group
        The group of each table row, `NONE` where a key is null or NaN.
    rows, start
        The rows of each group, in the table's order, and where each group starts in them.
    """

    group: Ints
    rows: Ints
    start: Ints
    _values: tuple[pd.Index, ...]
    _steps: tuple[pd.Index, ...]

    @property
    def count(self) -> int:
        """How many distinct keys there are."""
        return len(self.start) - 1

    def lookup(self, columns: Sequence[pa.Array]) -> Ints:
        """The group of each row of `columns`, `NONE` where no table row has that key."""
        codes = [
            values.get_indexer(_comparable(column))
            for values, column in zip(self._values, columns, strict=True)
        ]
        group: Ints = codes[0].astype(np.int64)
        for code, values, step in zip(codes[1:], self._values[1:], self._steps, strict=True):
            group = step.get_indexer(_combine(group, code, len(values)))
        group[missing(columns)] = NONE
        return group

    def expand(self, group: Ints) -> tuple[Ints, Ints]:
        """All pairs (position in `group`, table row) of the same key, by position then row."""
        known = np.flatnonzero(group >= 0)
        first, counts = self.start[group[known]], np.diff(self.start)[group[known]]
        left = np.repeat(known, counts)
        offset = np.arange(len(left)) - np.repeat(np.cumsum(counts) - counts, counts)
        return left, self.rows[np.repeat(first, counts) + offset]


def build(columns: Sequence[pa.Array]) -> KeyIndex:
    """The groups of these key columns, row by row."""
    there = np.flatnonzero(~missing(columns))
    values, steps = [], []
    code = np.zeros(len(there), np.int64)
    for number, column in enumerate(columns):
        one, unique = pd.factorize(_comparable(column.take(pa.array(there))))
        values.append(pd.Index(unique))
        if number == 0:
            code = one.astype(np.int64)
            continue
        code, unique = pd.factorize(_combine(code, one, len(unique)))
        steps.append(pd.Index(unique))
    group = np.full(len(columns[0]), NONE, np.int64)
    group[there] = code
    rows = np.argsort(group, kind="stable")
    rows = rows[np.searchsorted(group[rows], 0) :]
    count = int(group.max(initial=NONE)) + 1
    start = np.searchsorted(group[rows], np.arange(count + 1))
    return KeyIndex(group, rows, start, tuple(values), tuple(steps))


def _combine(group: Ints, code: npt.NDArray[np.intp], count: int) -> Ints:
    """One number for a pair of codes; groups are compressed at each step, so it cannot overflow."""
    both = group * (count + 1) + code
    both[(group < 0) | (code < 0)] = NONE
    return both


def _comparable(column: pa.Array) -> npt.NDArray[np.generic]:
    """Values that are equal where the column's are: numbers as they are, times as integers."""
    kind = column.type
    if pa.types.is_dictionary(kind):
        return _comparable(column.dictionary_decode())
    if pa.types.is_timestamp(kind):
        column = column.cast(pa.timestamp("us", kind.tz), safe=False).cast(pa.int64())
    elif pa.types.is_date32(kind):
        column = column.cast(pa.int32()).cast(pa.int64())
    elif pa.types.is_date64(kind):
        column = column.cast(pa.date32()).cast(pa.int32()).cast(pa.int64())
    elif pa.types.is_integer(kind):
        column = column.cast(pa.int64())
    elif pa.types.is_floating(kind):
        column = column.cast(pa.float64())
    elif pa.types.is_boolean(kind):
        column = column.cast(pa.int8()).cast(pa.int64())
    if column.null_count and pa.types.is_int64(column.type):
        column = column.fill_null(0)  # told apart by `missing`
    values: npt.NDArray[np.generic] = column.to_numpy(zero_copy_only=False)
    return values


def missing(columns: Sequence[pa.Array]) -> Bools:
    """Rows in which a key is null or NaN, so that they equal nothing."""
    found = np.zeros(len(columns[0]), dtype=bool)
    for column in columns:
        if column.null_count or pa.types.is_floating(column.type):
            found |= pc.is_null(column, nan_is_null=True).to_numpy(zero_copy_only=False)
    return found
