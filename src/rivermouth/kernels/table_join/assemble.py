"""The last step of a table join in workers: columns of the result from two index arrays."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
import pyarrow as pa

from rivermouth.kernels.arrays import Ints
from rivermouth.kernels.table_join.pairs import Pairs

NONE = -1


def chosen(pairs: Pairs, count: int, how: str) -> tuple[Ints, Ints | None, Ints | None]:
    """Which left rows come out, with which table rows and at which position among the pairs.

    `NONE` stands for a left row that found nothing; semi and anti joins have no table rows.
    """
    if how in ("semi", "anti"):
        found = np.zeros(count, dtype=bool)
        found[pairs.left] = True
        return np.flatnonzero(found if how == "semi" else ~found), None, None
    positions = np.arange(len(pairs.left))
    if how == "inner":
        return pairs.left, pairs.right, positions
    found = np.zeros(count, dtype=bool)
    found[pairs.left] = True
    if found.all():
        return pairs.left, pairs.right, positions
    unmatched = np.flatnonzero(~found)
    none = np.full(len(unmatched), NONE)
    left = np.concatenate([pairs.left, unmatched])
    order = np.argsort(left, kind="stable")
    right = np.concatenate([pairs.right, none])[order]
    return left[order], right, np.concatenate([positions, none])[order]


def take(columns: Sequence[pa.Array], rows: Ints, count: int) -> list[pa.Array]:
    """These rows of each column; the columns themselves where that is all of them in order."""
    if len(rows) == count and (not count or (rows[0] == 0 and (np.diff(rows) == 1).all())):
        return list(columns)
    index = pa.array(rows)
    return [column.take(index) for column in columns]


def take_or_null(columns: Sequence[pa.Array], rows: Ints) -> list[pa.Array]:
    """These rows of each column, null where the row is `NONE`."""
    none = rows == NONE
    index = pa.array(rows, mask=none) if none.any() else pa.array(rows)
    return [column.take(index) for column in columns]


def assemble(
    batch: pa.RecordBatch,
    pairs: Pairs,
    how: str,
    table: Mapping[str, pa.Array],
    columns: Sequence[tuple[str, str]],
    *,
    distance: str | None = None,
) -> dict[str, pa.Array]:
    """The result's columns: the batch's, then those brought, then the distances if asked for."""
    left, right, positions = chosen(pairs, batch.num_rows, how)
    result = dict(zip(batch.schema.names, take(batch.columns, left, batch.num_rows), strict=True))
    if right is not None:
        brought = take_or_null([table[old] for _, old in columns], right)
        result.update(zip((new for new, _ in columns), brought, strict=True))
    if distance is not None and positions is not None:
        (result[distance],) = take_or_null([pa.array(pairs.distance)], positions)
    return result
