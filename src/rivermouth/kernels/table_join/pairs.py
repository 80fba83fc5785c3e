"""What goes into a match and what comes out of it: columns and an index, and pairs of rows."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from rivermouth.kernels.arrays import Bools, Bytes, Floats, Ints, has_bit

Arrays = Mapping[str, npt.NDArray[np.generic]]
Columns = Mapping[str, pa.Array]


@dataclass(frozen=True)
class Pairs:
    """Matched rows: left row numbers in order, table row numbers, distances for `nearest`.

    `reject_counts` counts the left rows that cannot match, by reason.
    """

    left: Ints
    right: Ints
    distance: Floats | None = None
    reject_counts: dict[str, int] = field(default_factory=dict)


@dataclass(frozen=True)
class Index:
    """An index as it is kept: its kind, and the arrays of its parts.

    An array is called after its part ("keys", "spatial" or "range") and its name there, with a
    point between.
    """

    kind: str
    arrays: Arrays

    def part(self, name: str) -> dict[str, npt.NDArray[np.generic]]:
        """The arrays of one part, by their names there; none where it keeps none."""
        return {
            key.removeprefix(f"{name}."): array
            for key, array in self.arrays.items()
            if key.startswith(f"{name}.")
        }


def part(name: str, arrays: Arrays) -> dict[str, npt.NDArray[np.generic]]:
    """The arrays of a part as an `Index` names them."""
    return {f"{name}.{key}": array for key, array in arrays.items()}


def of_rows(pairs: Pairs, rows: Ints) -> Pairs:
    """Pairs numbered within `rows`, numbered as the batch is."""
    return replace(pairs, left=rows[pairs.left])


def selected(pairs: Pairs, keep: Bools | Ints) -> Pairs:
    """These of the pairs."""
    distance = None if pairs.distance is None else pairs.distance[keep]
    return replace(pairs, left=pairs.left[keep], right=pairs.right[keep], distance=distance)


def without(pairs: Pairs, gone: Bytes | None) -> Pairs:
    """The pairs whose table rows are not in the set `gone`; None: all."""
    return pairs if gone is None else selected(pairs, ~has_bit(gone, pairs.right))


def merged(*parts: Pairs) -> Pairs:
    """All pairs in the order of the left rows; for one of them in the order of the parts."""
    left = np.concatenate([part.left for part in parts])
    order = np.argsort(left, kind="stable")
    distances = [part.distance for part in parts if part.distance is not None]
    return Pairs(
        left[order],
        np.concatenate([part.right for part in parts])[order],
        np.concatenate(distances)[order] if distances else None,
    )
