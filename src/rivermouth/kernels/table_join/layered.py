"""A table in layers: the rows as they were loaded, and above them those that changed since.

Each layer has an index of its own, and a set of its rows that are gone because a later layer has
them anew, or nobody has. Rows are numbered through all layers, the lowest first: that is their
order where a condition breaks ties by it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
import pyarrow as pa

from rivermouth.kernels.arrays import Bools, Bytes, Ints
from rivermouth.kernels.ranges.range_keys import RangeEncoder
from rivermouth.kernels.spatial.strtree import nearest_of
from rivermouth.kernels.table_join.matching import Matcher
from rivermouth.kernels.table_join.pairs import Columns, Pairs, merged, selected
from rivermouth.spec.conditions import AsOf, Nearest, Range, Spatial


@dataclass(frozen=True)
class Layer:
    """Rows of a table with their index.

    Parameters
    ----------
    matcher
        The condition over these rows.
    columns
        Their columns.
    gone
        The set of those that are not there any more, one bit a row; None: all are there.
    hidden
        Which of them say that there is no row from their value on: an `asof` that finds one has
        found nothing. None: no row does.
    """

    matcher: Matcher
    columns: Columns
    gone: Bytes | None = None
    hidden: Bools | None = None

    def __len__(self) -> int:
        return len(next(iter(self.columns.values())))


class LayeredMatcher:
    """A condition over all layers of a table, to be probed batch by batch.

    Parameters
    ----------
    layers
        The layers, the lowest first; at least one.
    spatial, span
        The parts of the condition besides its keys.
    """

    def __init__(
        self, layers: Sequence[Layer], *, spatial: Spatial | None = None, span: Range | None = None
    ) -> None:
        self._layers, self._spatial, self._span = layers, spatial, span
        sizes = [len(layer) for layer in layers]
        self._first: Ints = np.concatenate([[0], np.cumsum(sizes, dtype=np.int64)])

    def match(self, left: Columns) -> Pairs:
        """The pairs that satisfy the condition, by left row; table rows as numbered in all layers.

        `nearest` comes by distance, then row. All others come layer by layer, and in each as
        `Matcher.match` orders them.
        """
        found = []
        for layer, first in zip(self._layers, self._first, strict=False):
            pairs = layer.matcher.match(left, layer.gone)
            found.append(replace(pairs, right=pairs.right + first))
        pairs = found[0] if len(found) == 1 else merged(*found)
        if len(found) > 1 and isinstance(self._spatial, Nearest):
            assert pairs.distance is not None
            spatial = self._spatial
            keep, _ = nearest_of(pairs.left, pairs.right, pairs.distance, spatial.k, spatial.limit)
            pairs = selected(pairs, keep)
        if isinstance(self._span, AsOf):
            pairs = self._shown(self._newest(pairs) if len(found) > 1 else pairs)
        return replace(pairs, reject_counts=found[0].reject_counts)

    def take(self, names: Sequence[str], rows: Ints) -> dict[str, pa.Array]:
        """These rows of these columns, as numbered in all layers."""
        of = np.searchsorted(self._first, rows, side="right") - 1
        parts, places = [], []
        for number in np.unique(of) if len(rows) else [0]:
            place = np.flatnonzero(of == number)
            index = pa.array(rows[place] - self._first[number])
            columns = self._layers[number].columns
            parts.append([columns[name].take(index) for name in names])
            places.append(place)
        if len(parts) == 1:
            return dict(zip(names, parts[0], strict=True))
        order = np.empty(len(rows), np.int64)
        order[np.concatenate(places)] = np.arange(len(rows))
        back = pa.array(order)
        return {
            name: pa.concat_arrays([part[number] for part in parts]).take(back)
            for number, name in enumerate(names)
        }

    def _newest(self, pairs: Pairs) -> Pairs:
        """Of each left row's pairs the one with the largest value, of equal ones the last row's."""
        assert self._span is not None
        values = self.take([self._span.right], pairs.right)[self._span.right]
        _, keys = RangeEncoder.fit(values)
        order = np.lexsort((pairs.right, keys, pairs.left))
        is_last = np.append(np.diff(pairs.left[order]) != 0, True)[: len(order)]
        return selected(pairs, order[is_last])

    def _shown(self, pairs: Pairs) -> Pairs:
        """The pairs whose row is there; a left row whose newest row is hidden has none."""
        if all(layer.hidden is None for layer in self._layers):
            return pairs
        hidden = np.concatenate(
            [
                np.zeros(len(layer), dtype=bool) if layer.hidden is None else layer.hidden
                for layer in self._layers
            ]
        )
        return selected(pairs, ~hidden[pairs.right])
