"""Which rows belong together: a condition, a table's columns and an index give pairs of rows.

An index is made once (`prepare`), kept as named arrays, and opened by each worker (`Matcher`).
It has a part for the condition's `equal` (see `keys`) and one for its place or its range (see
`by_place` and `by_range`); its kind is the latter's, or "keys" where there is neither.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from rivermouth.errors import PlanError
from rivermouth.kernels.keys import key_index
from rivermouth.kernels.table_join import by_place, by_range
from rivermouth.kernels.table_join.by_place import PlaceMatcher
from rivermouth.kernels.table_join.by_range import RangeMatcher
from rivermouth.kernels.table_join.pairs import Columns, Index, Pairs, part
from rivermouth.spec.conditions import Keys, Place, Range

__all__ = ["Columns", "Index", "Matcher", "Pairs", "prepare", "reject_counts"]


def prepare(
    place: Place | None,
    columns: Columns,
    *,
    where: str,
    index: str | None = None,
    equal: Keys | None = None,
    span: Range | None = None,
) -> Index:
    """Make the index of a condition over the table's `columns`.

    Parameters
    ----------
    place, equal, span
        The parts of the condition: at least one, and not both a place and a range.
    columns
        The table's columns that the condition names.
    where
        The table's name, for messages.
    index
        The index for the place or range, where the choice is not left to the table.
    """
    known = (
        key_index.build([columns[name] for _, name in equal.pairs]) if equal is not None else None
    )
    kept = part("keys", known.arrays()) if known else {}
    if place is not None:
        kind, arrays = by_place.prepare(place, columns, where=where, index=index)
        return Index(kind, kept | part("place", arrays))
    if span is not None:
        kind, arrays = by_range.prepare(span, columns, known, where=where, index=index)
        return Index(kind, kept | part("range", arrays))
    if index not in (None, "keys"):
        raise PlanError(
            where,
            f"index={index!r} cannot serve this condition and table",
            there=f"{equal}",
            todo="Leave index out.",
        )
    return Index("keys", kept)


class Matcher:
    """A condition over one table, ready to be asked batch by batch.

    Parameters
    ----------
    equal, place, span
        The parts of the condition: at least one, and not both a place and a range.
    table
        The table's columns that the condition names.
    index
        What `prepare` made.
    srid
        The table's reference system, 0 where it is not known.
    """

    def __init__(
        self,
        equal: Keys | None,
        place: Place | None,
        table: Columns,
        index: Index,
        *,
        span: Range | None = None,
        srid: int = 0,
    ) -> None:
        self._equal = equal
        self._keys: key_index.KeyIndex | None = None
        self._search: PlaceMatcher | RangeMatcher | None = None
        if equal is not None:
            kinds = [table[name].type for _, name in equal.pairs]
            self._keys = key_index.from_arrays(index.part("keys"), kinds)
        if place is not None:
            self._search = PlaceMatcher(
                place, table, index.kind, index.part("place"), known=self._keys, srid=srid
            )
        elif span is not None:
            self._search = RangeMatcher(span, table[span.right], index.kind, index.part("range"))

    def match(self, left: Columns) -> Pairs:
        """The pairs that satisfy the condition, by left row; for one row as its part orders them.

        Places and keys come by table row, `nearest` by distance, ranges by value.
        """
        with np.errstate(over="ignore", invalid="ignore"):  # far, however far
            return self._match(left)

    def _match(self, left: Columns) -> Pairs:
        if self._equal is None:
            assert self._search is not None
            return self._search.match(left, None)
        assert self._keys is not None
        group = self._keys.lookup([left[name] for name, _ in self._equal.pairs])
        troubles = _null_keys(left, self._equal)
        if self._search is None:
            return Pairs(*self._keys.expand(group), troubles=troubles)
        pairs = self._search.match(left, group)
        return replace(pairs, troubles=troubles | pairs.troubles)


def reject_counts(
    equal: Keys | None,
    place: Place | None,
    left: Columns,
    *,
    srid: int,
    span: Range | None = None,
) -> dict[str, int]:
    """How many records cannot match, by reason, where another than a `Matcher` answers."""
    troubles = _null_keys(left, equal) if equal is not None else {}
    if place is not None:
        troubles |= by_place.asked(place, left, srid).troubles
    if span is not None:
        troubles |= by_range.troubles(span, left)
    return troubles


def _null_keys(left: Columns, equal: Keys) -> dict[str, int]:
    """How many records have a key that is null or NaN."""
    count = int(np.count_nonzero(key_index.missing([left[name] for name, _ in equal.pairs])))
    return {"null_key": count} if count else {}
