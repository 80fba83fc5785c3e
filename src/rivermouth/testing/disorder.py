"""Streams out of order, made from a seed: jitter on every record, and links that fail in bursts."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import pyarrow as pa

from rivermouth.kernels.arrays import Floats, Ints

EPOCH_US = 1_700_000_000_000_000  # when the made streams begin


@dataclass(frozen=True)
class Disorder:
    """How records come to be late.

    Records are made at `rate` a second, each by one of `sensors`. A share `jittered` of them takes
    an exponential time of mean `jitter_ms` to arrive, the others none. A sensor's link fails now
    and then: after an exponential time of mean `up_s` it is down for a Pareto time of `down_ms`
    or more (tail index `tail`, cut at `longest_s`), and what it has made meanwhile arrives together
    once it is up again. One failure of the longest kind is always there, a third into the stream.
    Values are gamma distributed, of shape 4 and mean 5: their coefficient of variation is 0.5.
    """

    records: int
    rate: float
    sensors: int
    jittered: float
    jitter_ms: float
    up_s: float
    down_ms: float
    tail: float
    longest_s: float


#: as disordered as the two football games of the paper on out-of-order aggregation (its Table 1)
GAMES = {
    1: Disorder(544_223, 1000.0, 20, 0.80, 7.0, 11.0, 280.0, 2.5, 14.2),
    2: Disorder(559_211, 1000.0, 20, 0.90, 10.0, 8.0, 390.0, 2.5, 17.1),
}


class Measured(NamedTuple):
    """How disordered a stream is: a record is late if a newer one came before it."""

    records: int
    late: float
    mean_delay_ms: float
    max_delay_s: float


def disordered(how: Disorder | int, *, seed: int = 2) -> pa.Table:
    """A stream in the order of its arrival: ``at``, ``sensor``, ``value``, ``arrival``.

    Parameters
    ----------
    how
        A `Disorder`, or 1 or 2 for one like Game 1 or Game 2.
    seed
        The same seed gives the same stream. With the default the two games are as disordered as
        the paper says of its own.

    Examples
    --------
    >>> stream = disordered(Disorder(1000, 1000.0, 5, 0.7, 2.0, 9.0, 60.0, 1.5, 2.0), seed=7)
    >>> stream.column_names, stream.num_rows
    (['at', 'sensor', 'value', 'arrival'], 1000)
    """
    how = GAMES[how] if isinstance(how, int) else how
    random = np.random.default_rng(seed)
    made = np.sort(random.uniform(0, how.records / how.rate, how.records))
    sensor = random.integers(0, how.sensors, how.records)
    jitter = random.exponential(how.jitter_ms / 1000, how.records)
    arrival = made + np.where(random.random(how.records) < how.jittered, jitter, 0.0)
    for number in range(how.sensors):
        mine = np.flatnonzero(sensor == number)
        down, up = _failures(how, random, is_longest=number == 0)
        arrival[mine] = _held(arrival[mine], down, up)
    order = np.argsort(arrival, kind="stable")
    times = {"at": made, "arrival": arrival}
    stamps = {
        name: EPOCH_US + np.round(t[order] * 1e6).astype(np.int64) for name, t in times.items()
    }
    utc = pa.timestamp("us", "UTC")
    return pa.table(
        {
            "at": pa.array(stamps["at"]).cast(utc),
            "sensor": pa.array(sensor[order]),
            "value": random.gamma(4.0, 1.25, how.records)[order],
            "arrival": pa.array(stamps["arrival"]).cast(utc),
        }
    )


def _failures(
    how: Disorder, random: np.random.Generator, *, is_longest: bool
) -> tuple[Floats, Floats]:
    """When a link goes down and up again, in order and apart from each other."""
    length = how.records / how.rate
    many = int(3 * length / how.up_s) + 8
    lasts = np.minimum(how.down_ms / 1000 * random.random(many) ** (-1 / how.tail), how.longest_s)
    gaps = random.exponential(how.up_s, many)
    down = np.cumsum(gaps + np.concatenate([[0.0], lasts[:-1]]))
    up = down + lasts
    if is_longest:
        begin = length / 3
        apart = (up < begin) | (down > begin + how.longest_s)
        down, up = np.append(down[apart], begin), np.append(up[apart], begin + how.longest_s)
        order = np.argsort(down)
        down, up = down[order], up[order]
    return down, up


def _held(arrival: Floats, down: Floats, up: Floats) -> Floats:
    """Arrivals through a link that is down in these spans of time."""
    failure = np.searchsorted(down, arrival, side="right") - 1
    inside = (failure >= 0) & (arrival < up[np.maximum(failure, 0)])
    return np.where(inside, up[np.maximum(failure, 0)], arrival)


def measure(at: Ints) -> Measured:
    """How disordered times in microseconds are, in the order in which they arrive."""
    newest = np.maximum.accumulate(at)
    delay = newest - at
    return Measured(
        len(at), float((delay > 0).mean()), float(delay.mean() / 1e3), float(delay.max() / 1e6)
    )
