"""Routing rules of others for skewed keys: partial key grouping and W-Choices.

Both give a key a few partitions to choose from, and a record goes to the one that has least of
this task's records so far. *Partial key grouping* (Nasir et al., ICDE 2015): every key has two.
*W-Choices* (Nasir et al., ICDE 2016): a key of the head, which has at least 1 / (5 partitions) of
the records, may go to any. The head is found by SpaceSaving (Metwally et al., 2005).

A task starts with no load and an empty sketch, so that it sends its records where they went when
Spark runs it again. That costs the rule some hundred records of every task.
"""

from __future__ import annotations

from typing import Any

import numba
import numpy as np
import numpy.typing as npt

Ints = npt.NDArray[np.int64]

HEAD = 5  #: a key of the head has one in so many of a partition's even share
SKETCH = 25  #: keys that the sketch counts, for each partition: five for each of the head, at most
_FIRST, _SECOND = 0x9E3779B97F4A7C15, 0xC2B2AE3D27D4EB4F  # odd: what tells two hashes apart


class Choices:
    """A task's rule: which of `partitions` each record goes to.

    Parameters
    ----------
    partitions
        How many there are.
    head
        Whether keys of the head may go to any of them: W-Choices.
    """

    def __init__(self, partitions: int, *, head: bool) -> None:
        slots = SKETCH * partitions if head else 0
        self.loads = np.zeros(partitions, np.int64)  #: records sent to each so far
        self._keys, self._counts = np.zeros(slots, np.int64), np.zeros(slots, np.int64)

    def route(self, keys: Ints) -> Ints:
        """The partitions of some more records, in the order in which they come."""
        partitions = len(self.loads)
        first, second = (_hashed(keys, odd) % np.uint64(partitions) for odd in (_FIRST, _SECOND))
        routes: Ints = _routed(
            keys, first.view(np.int64), second.view(np.int64), self.loads, self._keys, self._counts
        )
        return routes


def _hashed(keys: Ints, odd: int) -> Any:
    """A hash of each key, another for each odd number."""
    mixed = (keys.view(np.uint64) ^ np.uint64(odd)) * np.uint64(odd)
    mixed = (mixed ^ (mixed >> np.uint64(29))) * np.uint64(0xBF58476D1CE4E5B9)
    return mixed ^ (mixed >> np.uint64(32))


@numba.njit(cache=True)
def _routed(
    keys: Ints, first: Ints, second: Ints, loads: Ints, known: Ints, counts: Ints
) -> Ints:  # pragma: no cover - compiled
    """Send each record on, and count it; a sketch without slots has no head."""
    routes = np.empty(len(keys), np.int64)
    seen = loads.sum()
    for at in range(len(keys)):
        seen += 1
        to = first[at] if loads[first[at]] <= loads[second[at]] else second[at]
        if len(counts) and _counted(keys[at], known, counts) * HEAD * len(loads) >= seen:
            to = np.argmin(loads)
        loads[to] += 1
        routes[at] = to
    return routes


@numba.njit(cache=True)
def _counted(key: int, known: Ints, counts: Ints) -> int:  # pragma: no cover - compiled
    """How often a key has come at least, this time included, by SpaceSaving.

    One that has no slot takes that of the rarest, and its count as what it may have had.
    """
    least = 0
    for slot in range(len(counts)):
        if counts[slot] and known[slot] == key:
            counts[slot] += 1
            return int(counts[slot])
        if counts[slot] < counts[least]:
            least = slot
    known[least] = key
    counts[least] += 1
    return 1
