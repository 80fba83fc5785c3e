"""A user's own aggregates: states of numpy arrays, combined many at a time."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa

from rivermouth.kernels.aggregation.accumulators import Partials, non_null, range_sums
from rivermouth.kernels.arrays import Ints
from rivermouth.kernels.state.groups import normalized
from rivermouth.spec.aggregates import Aggregator, State


@dataclass(frozen=True)
class Udaf:
    """The states of a user's own aggregate, and how many values each is made of."""

    name: str
    aggregator: Aggregator

    def lift(self, column: pa.Array, index: Ints, size: int) -> dict[str, pa.Array]:
        """See `Accumulator`."""
        values, index = non_null(column, index)
        order = np.argsort(index, kind="stable")
        count = np.bincount(index, minlength=size).astype(np.int64)
        high = np.cumsum(count)
        state = self.aggregator.lift(values.to_numpy(zero_copy_only=False)[order])
        return self._columns(_combined(self.aggregator, state, high - count, high), count)

    def merge(self, partials: Partials, low: Ints, high: Ints) -> dict[str, pa.Array]:
        """See `Accumulator`."""
        count = normalized(partials[f"{self.name}.n"]).to_numpy()
        non_empty = np.flatnonzero(count)  # the others have no state
        rank = np.searchsorted(non_empty, np.arange(len(count) + 1))
        state = _taken(self.state(partials), non_empty)
        merged = _combined(self.aggregator, state, rank[low], rank[high])
        return self._columns(merged, range_sums(count, low, high))

    def state(self, partials: Partials) -> State:
        """The states that are kept; of a partial without values any."""
        prefix = f"{self.name}.s"
        parts = sum(name.startswith(prefix) for name in partials)
        return tuple(
            normalized(partials[f"{prefix}{k}"]).to_numpy(zero_copy_only=False)
            for k in range(parts)
        )

    def _columns(self, state: State, count: Ints) -> dict[str, pa.Array]:
        parts = {f"{self.name}.s{k}": pa.array(part) for k, part in enumerate(state)}
        return {f"{self.name}.n": pa.array(count), **parts}


def _combined(how: Aggregator, state: State, low: Ints, high: Ints) -> State:
    """The combined state of each range [low, high); of an empty one, any state."""
    if not len(state[0]):
        return tuple(np.zeros(len(low), part.dtype) for part in state)
    if hasattr(how, "invert"):
        return _by_inverse(how, state, low, high)
    return _by_doubling(how, state, low, high)


def _by_inverse(how: Any, state: State, low: Ints, high: Ints) -> State:
    """Ranges as differences of prefixes: one step for each state and range."""
    prefixes = _scanned(how, state)
    whole = _taken(prefixes, np.maximum(high - 1, 0))
    cut = np.flatnonzero((low > 0) & (low < high))
    return _put(whole, cut, how.invert(_taken(whole, cut), _taken(prefixes, low[cut] - 1)))


def _scanned(how: Aggregator, state: State) -> State:
    """Each state combined with all before it, pairs first (a parallel prefix scan)."""
    count = len(state[0])
    if count == 1:
        return state
    pairs = how.combine(_taken(state, np.s_[: count - 1 : 2]), _taken(state, np.s_[1::2]))
    halves = _scanned(how, pairs)
    result = _put(state, np.arange(1, count, 2), halves)
    even = np.arange(2, count, 2)
    return _put(result, even, how.combine(_taken(halves, even // 2 - 1), _taken(state, even)))


def _by_doubling(how: Aggregator, state: State, low: Ints, high: Ints) -> State:
    """Ranges combined from ranges of 1, 2, 4, ... states, of which each level is made once."""
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
        state = how.combine(_taken(state, np.s_[:-step]), _taken(state, np.s_[step:]))
        step *= 2


def _taken(state: State, rows: Ints | slice) -> State:
    return tuple(part[rows] for part in state)


def _put(state: State, rows: Ints, values: State) -> State:
    put = tuple(np.array(part) for part in state)
    for part, value in zip(put, values, strict=True):
        part[rows] = value
    return put
