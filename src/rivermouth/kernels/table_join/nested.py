"""What each left row found, as one Arrow value per left row, in their order."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import pyarrow as pa

from rivermouth.kernels.arrays import Bools, Ints
from rivermouth.kernels.table_join.assemble import NONE, take_or_null


def matched(left: Ints, count: int) -> Bools:
    """Whether each of `count` left rows is among `left`."""
    found = np.zeros(count, dtype=bool)
    found[left] = True
    return found


def lists(left: Ints, count: int, found: Mapping[str, pa.Array]) -> pa.Array:
    """For each of `count` left rows the list of what it found, empty where that is nothing.

    Parameters
    ----------
    left
        The left row of each pair, in any order; a list has its pairs in the order given.
    count
        How many left rows there are.
    found
        At least one column, a value per pair.
    """
    offsets = np.zeros(count + 1, dtype=np.int32)
    np.cumsum(np.bincount(left, minlength=count), out=offsets[1:])
    values = list(found.values())
    if len(left) > 1 and (np.diff(left) < 0).any():
        values = take_or_null(values, np.argsort(left, kind="stable"))
    return pa.ListArray.from_arrays(offsets, pa.StructArray.from_arrays(values, list(found)))


def structs(left: Ints, count: int, found: Mapping[str, pa.Array]) -> pa.Array:
    """For each of `count` left rows what it found, null where that is nothing.

    As `lists`, but each left row is at most once in `left`.
    """
    pair = np.full(count, NONE)
    pair[left] = np.arange(len(left))
    none = pair == NONE
    return pa.StructArray.from_arrays(
        take_or_null(list(found.values()), pair), list(found), mask=pa.array(none)
    )
