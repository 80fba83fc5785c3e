"""The skip lists of paper A (section 5.3), in flat arrays, with their comparisons counted.

One list holds all rows in the order of `SortedIndex`: by group, then by range key, then by row. A
node is a position in that order; its tower of links starts at ``tower[node]``, the lowest link
first, and a link that leads nowhere leads to the end. Heights are drawn (half of the nodes have
one link, a quarter two, and so on) or taken from the position, by the paper's formula 4:
1, 2, 1, 3, 1, 2, 1, 4, ...

A search starts at the top of the head. It follows a link while the node there lies before what is
sought, and goes down one where it does not. Paper A counts comparisons (Figure 13: a quarter fewer
with ideal heights) without saying of which kind; there are three (`Comparisons`). Without repeated
looks the ideal list needs 25 to 27 % fewer from 2^14 to 2^20 rows; of all looks it needs 20 %
fewer there, and a quarter in the limit (1.5 log2 n to 2 log2 n). The ideal list is the same each
time it is built, so that nothing varies between builds.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

import numba
import numpy as np
import numpy.typing as npt

from rivermouth.kernels.arrays import Bools, Codes, Ints
from rivermouth.kernels.ranges.range_keys import RangeKeys
from rivermouth.kernels.ranges.sorted_index import expand_spans, ordered, pairs_of

_TALLEST = 48
_SEED = 20080203


@dataclass(frozen=True)
class SkipList:
    """The list's arrays; all of them can be memory-mapped.

    Parameters
    ----------
    group, keys, row
        The group, the range key and the table row of each node.
    tower
        Where the links of each node start, the head's last: one more than there are nodes.
    link
        The nodes that links lead to; as many as there are nodes where they lead nowhere.
    """

    group: Codes
    keys: RangeKeys
    row: Codes
    tower: Ints
    link: Codes

    def arrays(self) -> dict[str, npt.NDArray[np.generic]]:
        """The index as the arrays that are kept, by name."""
        own = vars(self).copy()
        return {"place": own.pop("keys"), **own}

    @classmethod
    def of(cls, arrays: Mapping[str, Any]) -> SkipList:
        """The index that `arrays` was taken from."""
        own = dict(arrays)
        return cls(keys=own.pop("place"), **own)

    def between(self, group: Codes, low: RangeKeys, high: RangeKeys) -> tuple[Ints, Ints]:
        """Pairs (position, table row) of the group's rows in [low, high], by position then key.

        A negative group has no rows.
        """
        first, last = _spans(group, low, high, self.group, self.keys, self.tower, self.link)
        return expand_spans(first, last, self.row)

    def asof(self, group: Codes, high: RangeKeys) -> tuple[Ints, Ints]:
        """Pairs (position, table row) of the group's last row at or before `high`."""
        found = _last(group, high, self.group, self.keys, self.tower, self.link)
        return pairs_of(found, self.row)

    def comparisons(self, group: Codes, low: RangeKeys) -> Comparisons:
        """How many nodes are looked at to find the first row at or after each (group, low)."""
        counts = _comparisons(group, low, self.group, self.keys, self.tower, self.link)
        return Comparisons(*counts.T)


class Comparisons(NamedTuple):
    """The comparisons of each search, counted in three ways.

    Parameters
    ----------
    looks
        Every look at a node's key: what a plain search does.
    fresh
        Without looks at the node that the level above has refused just before.
    until_equal
        Every look up to the first at an equal key, as in the paper's Figure 8: a search that
        compares in three ways can end there.
    """

    looks: Ints
    fresh: Ints
    until_equal: Ints


def build(
    group: Codes, count: int, keys: RangeKeys, usable: Bools, *, ideal: bool, seed: int = _SEED
) -> SkipList:
    """The list of the table's usable rows; heights ideal, or drawn from `seed`."""
    row, _ = ordered(group, count, keys, usable)
    heights = ideal_heights(len(row)) if ideal else random_heights(len(row), seed)
    tower, link = _linked(heights)
    return SkipList(group[row], keys[row], row.astype(np.int32), tower, link)


def ideal_heights(count: int) -> Ints:
    """The paper's formula 4: the number at that position in 1, 2, 1, 3, 1, 2, 1, 4, ...

    Examples
    --------
    >>> ideal_heights(8)
    array([1, 2, 1, 3, 1, 2, 1, 4])
    """
    position = np.arange(1, count + 1)
    # the lowest bit that is set, whose logarithm is exact
    heights: Ints = np.log2(position & -position).astype(np.int64) + 1
    return heights


def random_heights(count: int, seed: int) -> Ints:
    """Heights of which each is reached by half of those that reach the one below."""
    heights: Ints = np.random.default_rng(seed).geometric(0.5, count).clip(max=_TALLEST)
    return heights


def _linked(heights: Ints) -> tuple[Ints, Codes]:
    """The towers of nodes of these heights, and the head's, which is as high as the highest."""
    count, tallest = len(heights), int(heights.max(initial=1))
    tower = np.concatenate([[0], np.cumsum(heights)])
    link = np.full(tower[-1] + tallest, count, np.int32)
    for level in range(tallest):
        nodes = np.flatnonzero(heights > level)
        link[np.concatenate([tower[-1:], tower[nodes]])[: len(nodes)] + level] = nodes
    return tower, link


@numba.njit(cache=True, inline="always")
def _is_before(
    node: int, run: int, bound: float, also_equal: bool, group: Codes, keys: RangeKeys
) -> Any:
    if group[node] != run:
        return group[node] < run
    return keys[node] < bound or (also_equal and keys[node] == bound)


@numba.njit(cache=True)
def _seek(
    run: int,
    bound: float,
    also_equal: bool,
    group: Codes,
    keys: RangeKeys,
    tower: Ints,
    link: Codes,
) -> Any:
    """The first node that does not lie before (run, bound); equal ones do where `also_equal`."""
    node = end = len(keys)
    level = len(link) - tower[end] - 1  # the head's tower is the last
    while level >= 0:
        after = link[tower[node] + level]
        if after < end and _is_before(after, run, bound, also_equal, group, keys):
            node = after
        else:
            level -= 1
    return link[tower[node]]


@numba.njit(cache=True)
def _spans(
    probe: Codes,
    low: RangeKeys,
    high: RangeKeys,
    group: Codes,
    keys: RangeKeys,
    tower: Ints,
    link: Codes,
) -> tuple[Ints, Ints]:
    """Find the lower bound, walk to the upper (Algorithm 5)."""
    first, last = np.zeros(len(probe), np.int64), np.zeros(len(probe), np.int64)
    for k in range(len(probe)):
        if probe[k] < 0 or not low[k] <= high[k]:
            continue
        node = _seek(probe[k], low[k], False, group, keys, tower, link)
        first[k] = node
        while node < len(keys) and group[node] == probe[k] and keys[node] <= high[k]:
            node = link[tower[node]]
        last[k] = node
    return first, last


@numba.njit(cache=True)
def _last(
    probe: Codes, bound: RangeKeys, group: Codes, keys: RangeKeys, tower: Ints, link: Codes
) -> Ints:
    """The last node of the key at or before each bound, -1 where there is none."""
    found = np.full(len(probe), -1, np.int64)
    for k in range(len(probe)):
        if probe[k] < 0:
            continue
        after = _seek(probe[k], bound[k], True, group, keys, tower, link)
        if after > 0 and group[after - 1] == probe[k]:
            found[k] = after - 1
    return found


@numba.njit(cache=True)
def _comparisons(
    probe: Codes, low: RangeKeys, group: Codes, keys: RangeKeys, tower: Ints, link: Codes
) -> Ints:
    """The walk of `_seek`, counted: a line a search, see `Comparisons`."""
    counts = np.zeros((len(probe), 3), np.int64)
    end = len(keys)
    for k in range(len(probe)):
        node, level, refused, is_found = end, len(link) - tower[end] - 1, end, False
        while level >= 0:
            after = link[tower[node] + level]
            if after < end:
                counts[k, 0] += 1
                counts[k, 1] += after != refused
                counts[k, 2] += not is_found
                is_found |= group[after] == probe[k] and keys[after] == low[k]
            if after < end and _is_before(after, probe[k], low[k], False, group, keys):
                node = after
            else:
                level, refused = level - 1, after
    return counts
