"""The promise P(error >= eps) <= delta: how often it was missed, and the wait that keeps it.

Windows that follow one another miss together: they share records, and links fail for a while. So
windows are counted in blocks, and what differs from block to block says how much a share can be
off, whatever the reason for which neighbours are alike.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import Literal, NamedTuple

import numpy as np

from rivermouth.kernels.arrays import Floats, Ints

_BLOCKS = 40  # of the running share; then two become one
_FEW_BLOCKS = 10  # below which nothing is known of how blocks differ
_Z = 1.645  # each bound holds with 95 %

# Of the rule for the wait. Chosen on streams from the seeds 100 to 104 of benchmarks/papers/kinds.
_SCALES = (1.5, 5.0, 15.0, 30.0)  # windows that are looked at, to those of which one may miss
_SIGMAS = 2.0  # by which a share of waits is taken to be larger than it was
_MARGIN = 1.1  # to the wait that was enough
_RAISED = 0.5  # the most that misses raise it by
_CALM = 0.6  # of delta: the share missed from which on they do
LONGEST = 1.5  #: K is at most so many times the largest delay remembered
_MOST_ROWS = 50_000  # waits that are kept


class Bounds(NamedTuple):
    """Between which shares the true one lies, each bound with 95 % certainty."""

    low: float
    high: float


def share_bounds(results: Ints, missed: Ints, apart: float) -> Bounds | None:
    """The bounds of the share missed, from counts in blocks of neighbouring windows.

    Wilson's interval, for as many independent results as blocks that differ so much stand for.
    Where nothing was missed these are the windows that share no record, of which there are `apart`.
    None: there are too few blocks to tell.

    Examples
    --------
    >>> share_bounds(np.full(20, 50), np.array([50] + [0] * 19), 1000)  # one outage
    Bounds(low=0.0108..., high=0.2013...)
    >>> share_bounds(np.full(20, 50), np.array([2, 3] * 10), 1000)
    Bounds(low=0.0398..., high=0.0626...)
    """
    blocks, total = len(results), float(results.sum())
    if blocks < _FEW_BLOCKS or not total:
        return None
    share = float(missed.sum()) / total
    count = min(total, apart)
    if 0 < share < 1:
        between = float(((missed - share * results) ** 2).sum()) * blocks / (blocks - 1)
        count = min(total, total**2 * share * (1 - share) / between) if between else total
    middle = (share + _Z**2 / (2 * count)) / (1 + _Z**2 / count)
    spread = math.sqrt(share * (1 - share) / count + _Z**2 / (4 * count**2))
    off = _Z * spread / (1 + _Z**2 / count)
    return Bounds(max(0.0, middle - off), min(1.0, middle + off))


def verdict(bounds: Bounds | None, delta: float) -> Literal["kept", "missed", "open"]:
    """Whether a share of at most `delta` was kept, as far as its bounds tell.

    Examples
    --------
    >>> verdict(Bounds(0.01, 0.04), 0.05), verdict(Bounds(0.04, 0.06), 0.05), verdict(None, 0.05)
    ('kept', 'open', 'open')
    """
    if bounds is None or bounds.low <= delta < bounds.high:
        return "open"
    return "kept" if bounds.high <= delta else "missed"


@dataclass
class RunningShare:
    """Results and misses so far, in blocks of `length` windows; its fields are names in the state.

    When there are `_BLOCKS` of them two become one, so that its size does not grow.
    """

    length: int
    windows: int = 0
    results: list[int] = field(default_factory=list)
    missed: list[int] = field(default_factory=list)
    overlap: int = 1

    def add(self, results: int, missed: int) -> None:
        """Count the results of the next window."""
        if self.windows % self.length == 0:
            if len(self.results) == _BLOCKS:
                self.results, self.missed = (
                    [a + b for a, b in zip(each[::2], each[1::2], strict=True)]
                    for each in (self.results, self.missed)
                )
                self.length *= 2
            self.results.append(0)
            self.missed.append(0)
        self.windows += 1
        self.results[-1] += results
        self.missed[-1] += missed

    def revise(self, windows: float) -> int:
        """Count so many windows more as missed; how many results that are."""
        more = round(windows * sum(self.results) / max(1, self.windows))
        more = min(more, sum(self.results) - sum(self.missed))
        if more > 0:
            self.missed[-1] += more
        return max(0, more)

    @property
    def share(self) -> float:
        """The share of results that were missed."""
        return sum(self.missed) / max(1, sum(self.results))

    @property
    def bounds(self) -> Bounds | None:
        """As `share_bounds`."""
        apart = self.windows / self.overlap
        return share_bounds(np.array(self.results), np.array(self.missed), apart)


def windows_needed(delta: float, overlap: int) -> int:
    """The windows that have to settle before waits are learned: one may miss, of those apart."""
    return math.ceil(overlap / delta)


def first_kept(windows: Ints, delta: float, overlap: int) -> int:
    """The first window whose needed waits are kept; rows are in the order of windows."""
    each = np.unique(windows)
    most = math.ceil(_SCALES[-1] * overlap / delta)
    return int(max(each[-min(len(each), most)], windows[-min(len(windows), _MOST_ROWS)]))


def learned_wait(
    windows: Ints, waits: Ints, missed: Floats, delta: float, overlap: int
) -> int | None:
    """The wait that keeps the promise, by the needed waits of windows that have settled.

    Rows are in the order of windows, of which one may have several, and `overlap` share a record.
    It is the longest that the last few, the last many and all of them ask for, with a margin that
    grows with the share of results that were missed. None: too few windows have settled.
    """
    each = np.unique(windows)
    if len(each) < windows_needed(delta, overlap):
        return None
    enough = 0
    for scale in _SCALES:
        first = each[-min(len(each), math.ceil(scale * overlap / delta))]
        enough = max(enough, enough_wait(waits[np.searchsorted(windows, first) :], delta, overlap))
    raised = min(1.0, max(0.0, float(missed.mean()) / delta - _CALM))
    return math.ceil(_MARGIN * (1 + _RAISED * raised) * enough)


def enough_wait(waits: Ints, delta: float, overlap: int) -> int:
    """The shortest of these waits of which it is likely that at most `delta` of all are longer.

    They are cut into about 1 / delta blocks, so that what may miss at once fits into one; how
    much the number of longer waits differs between blocks says how uncertain their share is.

    Examples
    --------
    >>> waits = np.arange(1000)
    >>> enough_wait(waits[::-1], 0.05, 1), enough_wait(waits * 507 % 1000, 0.05, 1)
    (984, 965)
    """
    count, blocks = len(waits), max(2, min(len(waits), round(1 / delta)))
    ordered, best = np.sort(waits), int(waits.max())
    block = np.arange(count) * blocks // count
    for tenth in range(1, 11):
        wait = ordered[count - 1 - int(tenth / 10 * delta * count)]
        longer = np.bincount(block[waits > wait], minlength=blocks)
        total = int(longer.sum())
        between = float(((longer - total / blocks) ** 2).sum()) * blocks / (blocks - 1)
        if total + _SIGMAS * math.sqrt(max(between, total * overlap)) > delta * count:
            break
        best = int(wait)
    return best
