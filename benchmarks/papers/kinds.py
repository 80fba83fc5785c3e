"""Kinds of disorder: streams made from a seed, each late for another reason.

500 records a second for ten minutes, values gamma distributed with mean 5. Where links
fail there are ten; what one has made meanwhile arrives together once it is up again. The rule for K
was chosen on the seeds 100 to 104; nothing was chosen on `SEEDS`.
"""

from __future__ import annotations

import gzip
import io
from collections.abc import Callable
from functools import cache

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from benchmarks.harness.experiment import data
from rivermouth.testing.disorder import EPOCH_US

Doubles = npt.NDArray[np.float64]
Random = np.random.Generator

SEEDS, TUNED_ON = tuple(range(1, 11)), tuple(range(100, 105))
RATE, LENGTH_S, LINKS = 500.0, 600.0, 10
FLEET_RATE, FLEET_LENGTH_S = 20.0, 4 * 3600.0


def _jitter(at: Doubles, random: Random) -> Doubles:
    """Every record by itself: log-normal, half of them 0.15 s or more."""
    return random.lognormal(np.log(0.15), 1.0, len(at))


def _bursts(at: Doubles, random: Random) -> Doubles:
    """Each link fails every 20 s, mostly for less than a second, at most for 15."""
    return _down(at, random.exponential(0.01, len(at)), random, every=20, least=0.4, tail=2.0)


def _outages(at: Doubles, random: Random) -> Doubles:
    """Some link fails about once a minute, for 3 s to 20 s."""
    jitter = random.exponential(0.02, len(at))
    return _down(at, jitter, random, every=600, least=3.0, tail=1.5, longest=20.0)


def _rarer_outages(at: Doubles, random: Random) -> Doubles:
    """Some link fails about every four minutes, for 5 s to a minute: two or three times in all."""
    jitter = random.exponential(0.02, len(at))
    return _down(at, jitter, random, every=2400, least=5.0, tail=1.2, longest=60.0)


def _drift(at: Doubles, random: Random) -> Doubles:
    """Delays grow eightfold from beginning to end."""
    return 0.1 * 8 ** (at / LENGTH_S) * random.lognormal(0, 0.8, len(at))


def _two_populations(at: Doubles, random: Random) -> Doubles:
    """A fifth of the records takes about 3 s, the others 30 ms."""
    slow = random.random(len(at)) < 0.2
    return np.where(slow, random.gamma(6.0, 0.5, len(at)), random.exponential(0.03, len(at)))


def _bursts_stop(at: Doubles, random: Random) -> Doubles:
    """Links fail often and then, from the middle on, no more."""
    jitter = random.exponential(0.01, len(at))
    return _down(at, jitter, random, every=15, least=0.5, tail=1.8, until=LENGTH_S / 2)


def _bursts_begin(at: Doubles, random: Random) -> Doubles:
    """Links begin to fail in the middle."""
    jitter = random.exponential(0.01, len(at))
    return _down(at, jitter, random, every=15, least=0.5, tail=1.8, since=LENGTH_S / 2)


def _waves(at: Doubles, random: Random) -> Doubles:
    """Delays grow elevenfold and fall again, every five minutes."""
    return 0.1 * np.exp(1.2 * np.sin(2 * np.pi * at / 300)) * random.lognormal(0, 0.8, len(at))


def _down(
    at: Doubles, delay: Doubles, random: Random, *, every: float, least: float, tail: float,
    longest: float = 15.0, since: float = 0.0, until: float = LENGTH_S,
) -> Doubles:  # fmt: skip
    """The delays through links that fail every so often, for a Pareto time of at least `least`."""
    link, arrival = random.integers(0, LINKS, len(at)), at + delay
    for number in range(LINKS):
        mine = np.flatnonzero(link == number)
        begin = since + random.exponential(every)
        while begin < until:
            end = begin + min(least * random.random() ** (-1 / tail), longest)
            held = mine[(arrival[mine] >= begin) & (arrival[mine] < end)]
            arrival[held] = end
            begin = end + random.exponential(every)
    return arrival - at


def _fleet_drawn(at: Doubles, random: Random) -> Doubles:
    """Delays drawn from those of an industrial fleet: a minute in the mean, up to hours."""
    return random.choice(_fleet_delays(), len(at))


def _fleet_recorded(at: Doubles, random: Random) -> Doubles:
    """The fleet's delays in the order of the file, in which long ones follow each other.

    They begin anywhere in it; it is not twice as long as a stream, so that streams share delays.
    """
    return np.resize(np.roll(_fleet_delays(), -random.integers(len(_fleet_delays()))), len(at))


@cache
def _fleet_delays() -> Doubles:
    with gzip.open(data("iot_delays_ms.txt.gz")) as file:
        return np.asarray(np.loadtxt(io.BytesIO(file.read())) / 1e3)


#: each as delays of records that were made at these times
KINDS: dict[str, Callable[[Doubles, Random], Doubles]] = {
    "jitter": _jitter,
    "bursts": _bursts,
    "rare long outages": _outages,
    "drifting delay": _drift,
    "two populations": _two_populations,
    "bursts that stop": _bursts_stop,
    "bursts that begin": _bursts_begin,
    "waves": _waves,
    "fleet, drawn": _fleet_drawn,
    "fleet, as recorded": _fleet_recorded,
    "rarer, longer outages": _rarer_outages,
}


def is_fleet(kind: str) -> bool:
    """Whether a kind has the fleet's delays, which are minutes; its streams last hours."""
    return kind.startswith("fleet")


def stream(kind: str, seed: int) -> pa.Table:
    """A stream in the order of its arrival: ``at``, ``value``, ``arrival``."""
    random = np.random.default_rng([seed, list(KINDS).index(kind)])
    length, rate = (FLEET_LENGTH_S, FLEET_RATE) if is_fleet(kind) else (LENGTH_S, RATE)
    at = np.sort(random.uniform(0, length, round(rate * length)))
    value = random.gamma(4.0, 1.25, len(at))
    arrival = at + KINDS[kind](at, random)
    order = np.argsort(arrival, kind="stable")
    utc = pa.timestamp("us", "UTC")

    def stamps(seconds: Doubles) -> pa.Array:
        return pa.array(EPOCH_US + np.round(seconds[order] * 1e6).astype(np.int64)).cast(utc)

    return pa.table({"at": stamps(at), "value": value[order], "arrival": stamps(arrival)})
