"""Streams as disordered as the paper's two games, and the exact answers to its query."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt
import pyarrow as pa

import rivermouth as rm
from rivermouth.testing import disorder

Doubles = npt.NDArray[np.float64]
Ints = npt.NDArray[np.int64]

EPS = DELTA = 0.05
SIZE_US, EVERY_US = 500_000, 100_000
SUMMARY = rm.summary(
    time="at",
    window=rm.sliding("500 milliseconds", every="100 milliseconds"),
    total=rm.sum("value"),
)
SEED = 2
#: the streams of `rivermouth.testing.disorder`, moved a little closer to Table 1 at this seed
GAMES = {
    1: replace(disorder.GAMES[1], jittered=0.779, down_ms=272.5),
    2: replace(disorder.GAMES[2], jittered=0.8985, down_ms=382.5),
}
#: the paper's Table 1
TABLE1 = {
    1: disorder.Measured(544_223, 0.5758, 34.0, 14.2),
    2: disorder.Measured(559_211, 0.6682, 64.0, 17.1),
}


def records(game: int, begin: float = 0.0, seconds: float = math.inf) -> pa.Table:
    """A game in the order of its arrival; or what arrived from `begin` on, for so many seconds."""
    table = disorder.disordered(GAMES[game], seed=SEED)
    arrival = microseconds(table, "arrival")
    first, last = np.searchsorted(arrival, arrival[0] + np.array([begin, begin + seconds]) * 1e6)
    return table.slice(int(first), int(last - first))


def outage(game: int) -> float:
    """When the longest outage of a game begins, in seconds: a third into it."""
    how = GAMES[game]
    return how.records / how.rate / 3


def measured(table: pa.Table) -> disorder.Measured:
    """How disordered the records are."""
    return disorder.measure(microseconds(table, "at"))


def microseconds(table: pa.Table, name: str) -> Ints:
    """A column of times as microseconds since 1970."""
    return np.asarray(table.column(name).cast(pa.int64()).to_numpy())


@dataclass(frozen=True)
class Truth:
    """Every window of a stream, by all of its records: the start, the sum, their number.

    ``made`` is when the window's records were made, in the mean; times in microseconds since 1970.
    """

    start: Ints
    total: Doubles
    records: Ints
    made: Doubles


def truth(table: pa.Table) -> Truth:
    """The answers from all records at once; sums are rounded once (`math.fsum`)."""
    at = microseconds(table, "at")
    order = np.argsort(at, kind="stable")
    at, values = at[order], table.column("value").to_numpy()[order]
    first = (at[0] - SIZE_US) // EVERY_US + 1
    start = np.arange(first, at[-1] // EVERY_US + 1) * EVERY_US
    low, high = (np.searchsorted(at, start + shift) for shift in (0, SIZE_US))
    start, low, high = (part[high > low] for part in (start, low, high))
    total = [math.fsum(values[a:b]) for a, b in zip(low.tolist(), high.tolist(), strict=True)]
    since = np.concatenate([[0], np.cumsum(at - at[0])])
    made = at[0] + (since[high] - since[low]) / (high - low)
    return Truth(start, np.array(total), high - low, made)
