"""Which rows belong together: a condition, a table's columns and an index give pairs of rows.

An index is made once (`prepare`), kept as named arrays, and opened by each worker (`Matcher`).
It has a part for the condition's keys (see `key_index`) and one for its spatial condition or range
(see `by_geometry` and `by_range`); its kind is the latter's, or "keys" where there is neither.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from rivermouth.errors import PlanError
from rivermouth.kernels.arrays import Bytes
from rivermouth.kernels.keys import key_index
from rivermouth.kernels.table_join import by_geometry, by_range
from rivermouth.kernels.table_join.by_geometry import SpatialMatcher
from rivermouth.kernels.table_join.by_range import RangeMatcher
from rivermouth.kernels.table_join.pairs import Columns, Index, Pairs, part, without
from rivermouth.spec.conditions import Keys, Range, Spatial

__all__ = ["Columns", "Index", "Matcher", "Pairs", "prepare", "reject_counts"]


def prepare(
    spatial: Spatial | None,
    columns: Columns,
    *,
    where: str,
    index: str | None = None,
    keys: Keys | None = None,
    span: Range | None = None,
) -> Index:
    """Make the index of a condition over the table's `columns`.

    Parameters
    ----------
    spatial, keys, span
        The parts of the condition: at least one, and not both a spatial one and a range.
    columns
        The table's columns that the condition names.
    where
        The table's name, for messages.
    index
        The index for the spatial part or the range, where the choice is not left to the table.
    """
    known = key_index.build([columns[name] for _, name in keys.pairs]) if keys is not None else None
    kept = part("keys", known.arrays()) if known else {}
    if spatial is not None:
        kind, arrays = by_geometry.prepare(spatial, columns, where=where, index=index)
        return Index(kind, kept | part("spatial", arrays))
    if span is not None:
        kind, arrays = by_range.prepare(span, columns, known, where=where, index=index)
        return Index(kind, kept | part("range", arrays))
    if index not in (None, "keys"):
        raise PlanError(
            where,
            f"index={index!r} cannot serve this condition and table",
            there=f"{keys}",
            todo="Leave index out.",
        )
    return Index("keys", kept)


class Matcher:
    """A condition over one table, to be probed batch by batch.

    Parameters
    ----------
    keys, spatial, span
        The parts of the condition: at least one, and not both a spatial one and a range.
    table
        The table's columns that the condition names.
    index
        What `prepare` made.
    srid
        The table's reference system, 0 where it is not known.
    """

    def __init__(
        self,
        keys: Keys | None,
        spatial: Spatial | None,
        table: Columns,
        index: Index,
        *,
        span: Range | None = None,
        srid: int = 0,
    ) -> None:
        self._on_keys = keys
        self._keys: key_index.KeyIndex | None = None
        self._search: SpatialMatcher | RangeMatcher | None = None
        if keys is not None:
            kinds = [table[name].type for _, name in keys.pairs]
            self._keys = key_index.from_arrays(index.part("keys"), kinds)
        if spatial is not None:
            self._search = SpatialMatcher(
                spatial, table, index.kind, index.part("spatial"), keys=self._keys, srid=srid
            )
        elif span is not None:
            self._search = RangeMatcher(span, table[span.right], index.kind, index.part("range"))

    def match(self, left: Columns, gone: Bytes | None = None) -> Pairs:
        """The pairs that satisfy the condition, by left row; for one row as its part orders them.

        Places and keys come by table row, `nearest` by distance, ranges by value. Table rows in
        the set `gone` are not there.
        """
        with np.errstate(over="ignore", invalid="ignore"):  # far, however far
            return self._match(left, gone)

    def _match(self, left: Columns, gone: Bytes | None) -> Pairs:
        if self._on_keys is None:
            assert self._search is not None
            return self._search.match(left, None, gone)
        assert self._keys is not None
        group = self._keys.lookup([left[name] for name, _ in self._on_keys.pairs])
        rejected = _null_keys(left, self._on_keys)
        if self._search is None:
            return without(Pairs(*self._keys.expand(group), reject_counts=rejected), gone)
        pairs = self._search.match(left, group, gone)
        return replace(pairs, reject_counts=rejected | pairs.reject_counts)


def reject_counts(
    keys: Keys | None,
    spatial: Spatial | None,
    left: Columns,
    *,
    srid: int,
    span: Range | None = None,
) -> dict[str, int]:
    """How many records cannot match, by reason, for joins that have no `Matcher`."""
    rejected = _null_keys(left, keys) if keys is not None else {}
    if spatial is not None:
        rejected |= by_geometry.geometries_for(spatial, left, spatial.left, srid).reject_counts
    if span is not None:
        rejected |= by_range.reject_counts(span, left)
    return rejected


def _null_keys(left: Columns, keys: Keys) -> dict[str, int]:
    """How many records have a key that is null or NaN."""
    count = int(np.count_nonzero(key_index.missing([left[name] for name, _ in keys.pairs])))
    return {"null_key": count} if count else {}
