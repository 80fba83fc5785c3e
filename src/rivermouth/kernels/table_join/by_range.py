"""Pairs by range: a value in the event's range, or the newest at or before it.

==============  =====================================================  =====================
index           is                                                     kept as
==============  =====================================================  =====================
sorted          runs of values, searched by halving: the default       arrays, memory-mapped
skiplist        paper A's skip list, heights drawn; only if asked for  arrays, memory-mapped
ideal_skiplist  paper A's skip list, heights by position; the same     arrays, memory-mapped
==============  =====================================================  =====================
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pyarrow as pa

from rivermouth.errors import PlanError
from rivermouth.kernels.arrays import Bytes, Codes, Ints
from rivermouth.kernels.keys.key_index import NONE, KeyIndex
from rivermouth.kernels.keys.values import decoded, missing
from rivermouth.kernels.papers import skip_lists
from rivermouth.kernels.papers.skip_lists import SkipList
from rivermouth.kernels.ranges import sorted_index
from rivermouth.kernels.ranges.range_keys import RangeEncoder
from rivermouth.kernels.ranges.sorted_index import SortedIndex
from rivermouth.kernels.table_join.pairs import Arrays, Columns, Pairs, without
from rivermouth.spec.conditions import Between, Range

INDEXES = ("sorted", "skiplist", "ideal_skiplist")


def prepare(
    span: Range, columns: Columns, known: KeyIndex | None, *, where: str, index: str | None = None
) -> tuple[str, Arrays]:
    """The kind and the arrays of the index for `span`, within each of the `known` keys."""
    kind = index or INDEXES[0]
    if kind not in INDEXES:
        raise PlanError(
            where,
            f"index={index!r} cannot serve this condition and table",
            there=f"{span}",
            todo=f"Leave index out, or use one of {list(INDEXES)}.",
        )
    column = columns[span.right]
    encoder, keys = RangeEncoder.fit(column)
    group = np.zeros(len(column), np.int32) if known is None else known.group
    rows = group, 1 if known is None else known.count, keys, ~missing([column])
    made: SortedIndex | SkipList
    if kind == "sorted":
        made = sorted_index.build(*rows)
    else:
        made = skip_lists.build(*rows, ideal=kind == "ideal_skiplist")
    return kind, made.arrays() | {"distinct": encoder.distinct}


class RangeMatcher:
    """A range over one table, to be probed batch by batch.

    Parameters
    ----------
    span
        The condition's range.
    column
        The table's column that it names.
    kind, arrays
        What `prepare` made.
    """

    def __init__(self, span: Range, column: pa.Array, kind: str, arrays: Arrays) -> None:
        own = dict(arrays)
        self._span = span
        distinct: Ints = own.pop("distinct")  # type: ignore[assignment]
        self._encoder = RangeEncoder(decoded(column[:0]).type, distinct)
        self._index = (SortedIndex if kind == "sorted" else SkipList).of(own)

    def match(self, left: Columns, group: Codes | None, gone: Bytes | None = None) -> Pairs:
        """The pairs of equal `group`, if there are any, by left row, then value.

        Table rows in the set `gone` are not there. Skip lists cannot pass them over for `asof`.
        """
        column = left[self._span.left]
        if group is None:
            group = np.zeros(len(column), np.int32)
        low, high, exists = self._encoder.limits(self._span, column)
        group = np.where(exists, group, np.int32(NONE))
        if isinstance(self._span, Between):
            pairs = without(Pairs(*self._index.between(group, low, high)), gone)
        elif gone is None:
            pairs = Pairs(*self._index.asof(group, high))
        else:
            assert isinstance(self._index, SortedIndex)
            pairs = Pairs(*self._index.asof(group, high, gone))
        return replace(pairs, reject_counts=reject_counts(self._span, left))


def reject_counts(span: Range, left: Columns) -> dict[str, int]:
    """How many records have a value that is null or NaN, and so in no range."""
    count = int(np.count_nonzero(missing([left[span.left]])))
    return {"null_value": count} if count else {}
