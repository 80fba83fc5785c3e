"""Space cut into buckets that hold about as many bytes each, and who belongs to which.

A cut is a k-d tree of a given number of leaves, the buckets. A node sends what lies below its value
on one axis to its lower half, and what lies at or above it to the upper one: every point has one
bucket, however far outside it lies. A box is in each bucket that holds a point of it.

The tree's shape follows from the number of buckets (a node of n leaves has n // 2 of them in its
lower half), so that only axis and value of each node are kept, in preorder.

Of two boxes that meet, the low corner of their intersection lies in both. So exactly one bucket has
both boxes and that point: it owns the pair (the reference-point rule).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from rivermouth.kernels.arrays import Bools, Floats, Ints

_SAMPLE = 1 << 15  # rows that a cut is made from: 64 and more for a bucket
_BETTER = 0.9  # a narrower axis is taken where it leaves buckets so much smaller


@dataclass(frozen=True)
class SpaceCut:
    """A cut of space: of each node the axis and the value that divides it, in preorder."""

    axis: Ints
    value: Floats

    @property
    def buckets(self) -> int:
        """How many buckets there are."""
        return len(self.axis) + 1

    def parts(self, boxes: Floats) -> Iterator[tuple[int, Ints]]:
        """The rows whose boxes meet each bucket, in order; buckets that none meets are left out.

        One bucket at a time, so that boxes which meet all of them cost no memory for each. NaN
        lies above everything.
        """
        boxes = np.where(np.isnan(boxes), np.inf, boxes)
        axes = boxes.shape[1] // 2
        waiting = [(0, 0, self.buckets, np.arange(len(boxes)))]
        while waiting:
            node, bucket, count, rows = waiting.pop()
            if not len(rows):
                continue
            if count == 1:
                yield bucket, rows
                continue
            axis, value, lower = self.axis[node], self.value[node], count // 2
            above = rows[boxes[rows, axes + axis] >= value]
            waiting.append((node + lower, bucket + lower, count - lower, above))
            waiting.append((node + 1, bucket, lower, rows[boxes[rows, axis] < value]))

    def home(self, boxes: Floats) -> npt.NDArray[np.int32]:
        """The bucket of each box's low corner."""
        low, home = boxes[:, : boxes.shape[1] // 2], np.zeros(len(boxes), np.int32)
        for bucket, rows in self.parts(np.hstack([low, low])):
            home[rows] = bucket
        return home

    def alone(self, boxes: Floats) -> tuple[list[tuple[int, Ints]], Ints]:
        """The rows whose boxes meet one bucket only, by bucket, and the other rows."""
        parts, times = list(self.parts(boxes)), np.zeros(len(boxes), np.int64)
        for _, rows in parts:
            times[rows] += 1
        single = [(bucket, rows[times[rows] == 1]) for bucket, rows in parts]
        return [(bucket, rows) for bucket, rows in single if len(rows)], np.flatnonzero(times > 1)

    def owns(self, bucket: int, boxes: Floats, others: Floats) -> Bools:
        """Whether a bucket owns each pair of boxes that meet."""
        axes = boxes.shape[1] // 2
        corner = np.maximum(boxes[:, :axes], others[:, :axes])
        return np.asarray(self.home(np.hstack([corner, corner])) == bucket)

    def described(self) -> dict[str, Any]:
        """The cut as JSON has it, to the last bit."""
        return {"axis": self.axis.tolist(), "value": self.value.tolist()}

    @classmethod
    def of(cls, described: Mapping[str, Any]) -> SpaceCut:
        """The cut that was described."""
        return cls(np.array(described["axis"], np.int64), np.array(described["value"], np.float64))


class ByteSample:
    """Boxes with their bytes, of which a bounded number is kept: enough to cut space by.

    Priority sampling (Duffield, Lund, Thorup, "Priority sampling for estimation of arbitrary subset
    sums", 2007): a row of w bytes has the priority w / u, u drawn evenly from (0, 1]; the rows of
    the highest priorities stay, and each stands for its bytes or for the first priority that is
    left out, whichever is more. So few rows with most of the bytes are seen for certain. The draws
    are seeded: the same rows give the same cut.
    """

    def __init__(self, size: int = _SAMPLE) -> None:
        self._size, self._random, self._bound = size, np.random.default_rng(19), 0.0
        self._boxes, self._bytes, self._priority = np.empty((0, 0)), np.empty(0), np.empty(0)

    def __len__(self) -> int:
        return len(self._bytes)

    def add(self, boxes: Floats, sizes: Floats) -> None:
        """Take these rows into account."""
        drawn = sizes / (1.0 - self._random.random(len(sizes)))
        kept = self._boxes if len(self) else boxes[:0]
        boxes, sizes = np.concatenate([kept, boxes]), np.concatenate([self._bytes, sizes])
        priority = np.concatenate([self._priority, drawn])
        if len(sizes) > self._size:
            order = np.argsort(-priority, kind="stable")
            self._bound = max(self._bound, float(priority[order[self._size]]))
            stay = order[: self._size]
            boxes, sizes, priority = boxes[stay], sizes[stay], priority[stay]
        self._boxes, self._bytes, self._priority = boxes, sizes, priority

    def cut(self, buckets: int) -> SpaceCut:
        """Space in so many buckets, each with about as many bytes of the rows seen."""
        return fit(self._boxes, np.maximum(self._bytes, self._bound), buckets)


def fit(boxes: Floats, sizes: Floats, buckets: int) -> SpaceCut:
    """The cut in which the fullest bucket, of rows with these boxes and sizes, is about smallest.

    A row counts in each bucket that its box meets. Where rows cannot be told apart buckets stay
    empty.
    """
    axis, value = np.zeros(buckets - 1, np.int64), np.zeros(buckets - 1)
    axes = boxes.shape[1] // 2
    waiting = [(0, buckets, np.arange(len(boxes)))]
    while waiting:
        node, count, rows = waiting.pop()
        if count == 1 or not len(rows):
            continue
        low, high, lower = boxes[rows, :axes], boxes[rows, axes:], count // 2
        best, axis[node], value[node] = np.inf, 0, 0.0
        with np.errstate(invalid="ignore", over="ignore"):  # boxes may be without end
            widest_first = np.argsort(-np.ptp(low, axis=0), kind="stable")
        for one in widest_first:
            fullest, at = _divide(low[:, one], high[:, one], sizes[rows], lower, count - lower)
            if fullest < best * (_BETTER if np.isfinite(best) else 1.0):
                best, axis[node], value[node] = fullest, one, at
        is_below, is_above = low[:, axis[node]] < value[node], high[:, axis[node]] >= value[node]
        waiting.append((node + 1, lower, rows[is_below]))
        waiting.append((node + lower, count - lower, rows[is_above]))
    return SpaceCut(axis, value)


def _divide(
    low: Floats, high: Floats, sizes: Floats, below: int, above: int
) -> tuple[float, float]:
    """Where to divide an axis between so many buckets below and above, and the bytes of a bucket.

    What lies on either side changes at the low ends, and just beyond the high ends.
    """
    at = np.concatenate([low, np.nextafter(high, np.inf)])
    in_low, in_high = np.argsort(low), np.argsort(high)
    sums = np.concatenate([[0.0], np.cumsum(sizes[in_low])])
    gone = np.concatenate([[0.0], np.cumsum(sizes[in_high])])
    lower = sums[np.searchsorted(low[in_low], at)]
    upper = gone[-1] - gone[np.searchsorted(high[in_high], at)]
    fullest = np.maximum(lower / below, upper / above)
    best = int(np.argmin(fullest))
    return float(fullest[best]), float(at[best])
