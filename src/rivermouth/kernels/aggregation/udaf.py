"""Aggregates of a user's own: states of numpy arrays, combined many at a time."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa

from rivermouth.kernels.aggregation.accumulators import Ints, Kept, run_sums, there
from rivermouth.kernels.aggregation.groups import plain
from rivermouth.spec.aggregates import Aggregator, State


@dataclass(frozen=True)
class Own:
    """The states of a user's own aggregate, and how many values each is made of."""

    name: str
    how: Aggregator

    def lift(self, column: pa.Array, place: Ints, size: int) -> dict[str, pa.Array]:
        """See `Track`."""
        values, place = there(column, place)
        order = np.argsort(place, kind="stable")
        count = np.bincount(place, minlength=size).astype(np.int64)
        high = np.cumsum(count)
        state = self.how.lift(values.to_numpy(zero_copy_only=False)[order])
        return self._columns(_runs_of(self.how, state, high - count, high), count)

    def fold(self, kept: Kept, low: Ints, high: Ints) -> dict[str, pa.Array]:
        """See `Track`."""
        count = plain(kept[f"{self.name}.n"]).to_numpy()
        full = np.flatnonzero(count)  # the others have no state
        state = tuple(part[full] for part in self.state(kept))
        rank = np.searchsorted(full, np.arange(len(count) + 1))
        found = _runs_of(self.how, state, rank[low], rank[high])
        return self._columns(found, run_sums(count, low, high))

    def state(self, kept: Kept) -> State:
        """The states that are kept; of a cell without values any."""
        prefix = f"{self.name}.s"
        names = [name for name in kept if name.startswith(prefix)]
        return tuple(
            plain(kept[f"{prefix}{k}"]).to_numpy(zero_copy_only=False) for k in range(len(names))
        )

    def _columns(self, state: State, count: Ints) -> dict[str, pa.Array]:
        parts = {f"{self.name}.s{k}": pa.array(part) for k, part in enumerate(state)}
        return {f"{self.name}.n": pa.array(count), **parts}


def _runs_of(how: Aggregator, state: State, low: Ints, high: Ints) -> State:
    """The combined state of each run [low, high); of an empty one, that of any entry."""
    if not len(state[0]):
        return tuple(np.zeros(len(low), part.dtype) for part in state)
    if hasattr(how, "invert"):
        return _runs_by_inverse(how, state, low, high)
    return _runs_by_doubling(how, state, low, high)


def _runs_by_inverse(how: Any, state: State, low: Ints, high: Ints) -> State:
    """Runs as differences of what is combined from the start: one step for each entry and run."""
    ahead = _scanned(how, state)
    whole = _taken(ahead, np.maximum(high - 1, 0))
    cut = np.flatnonzero((low > 0) & (low < high))
    parts = how.invert(_taken(whole, cut), _taken(ahead, low[cut] - 1))
    return _put(whole, cut, parts)


def _scanned(how: Aggregator, state: State) -> State:
    """Each entry combined with all before it, pairs first."""
    count = len(state[0])
    if count == 1:
        return state
    pairs = how.combine(
        tuple(part[0 : count - 1 : 2] for part in state), tuple(part[1::2] for part in state)
    )
    halves = _scanned(how, pairs)
    result = tuple(np.array(part) for part in state)
    result = _put(result, np.arange(1, count, 2), halves)
    even = np.arange(2, count, 2)
    more = how.combine(_taken(halves, even // 2 - 1), _taken(state, even))
    return _put(result, even, more)


def _runs_by_doubling(how: Aggregator, state: State, low: Ints, high: Ints) -> State:
    """Runs put together from runs of 1, 2, 4, ... entries, of which each level is made once."""
    result = _taken(state, np.minimum(low, len(state[0]) - 1))
    at, left = low.copy(), high - low
    begun = np.zeros(len(low), bool)
    step = 1
    while True:
        now = np.flatnonzero(left & step)
        fresh, rest = now[~begun[now]], now[begun[now]]
        result = _put(result, fresh, _taken(state, at[fresh]))
        if len(rest):
            result = _put(result, rest, how.combine(_taken(result, rest), _taken(state, at[rest])))
        begun[now] = True
        at[now] += step
        if not len(left) or 2 * step > left.max():
            return result
        state = how.combine(
            tuple(part[:-step] for part in state), tuple(part[step:] for part in state)
        )
        step *= 2


def _taken(state: State, rows: Ints) -> State:
    return tuple(part[rows] for part in state)


def _put(state: State, rows: Ints, values: State) -> State:
    put = tuple(np.array(part) for part in state)
    for part, value in zip(put, values, strict=True):
        part[rows] = value
    return put
