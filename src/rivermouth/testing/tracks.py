"""Positions of objects that drive, stop, fall silent and flap at borders, made from a seed.

An object drives straight to a destination, waits there, and drives on. Every position has noise.
Some destinations lie exactly on a border, a line x = a multiple of `border`: an object that waits
there is reported now on one side of it and now on the other. Some waits end in silence.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pyarrow as pa

Floats = npt.NDArray[np.float64]

SCHEMA = pa.schema(
    [
        ("object", pa.int32()),
        ("at", pa.timestamp("us", tz="UTC")),
        ("x", pa.float64()),
        ("y", pa.float64()),
    ]
)

_START = 1_767_268_800_000_000  # noon of the first of January 2026, UTC, in microseconds


@dataclass(frozen=True)
class Fleet:
    """How objects move: lengths in one unit, say metres, and times in seconds.

    Parameters
    ----------
    size
        The side of the square they drive in.
    border
        How far apart the borders are.
    every
        The time between two positions of an object, about: it varies by a tenth.
    speed, wait, silence
        The least and the most, drawn evenly.
    noise
        The standard deviation of a coordinate.
    on_border, silent, repeated
        The share of destinations that lie on a border, of waits that end in silence, and of
        positions that are reported twice.
    """

    size: float = 2000.0
    border: float = 500.0
    every: float = 10.0
    speed: tuple[float, float] = (5.0, 15.0)
    wait: tuple[float, float] = (0.0, 600.0)
    silence: tuple[float, float] = (1000.0, 3000.0)
    noise: float = 4.0
    on_border: float = 0.3
    silent: float = 0.2
    repeated: float = 0.02


def tracks(
    how: Fleet | None = None, *, objects: int = 20, seconds: float = 7200, seed: int = 1
) -> pa.Table:
    """The positions of so many objects in so many seconds, in the order of time.

    Returns
    -------
    pyarrow.Table
        Columns ``object, at, x, y``. The same arguments give the same table.

    Examples
    --------
    >>> made = tracks(objects=2, seconds=600, seed=3)
    >>> made.column_names, made.num_rows
    (['object', 'at', 'x', 'y'], 108)
    >>> made == tracks(objects=2, seconds=600, seed=3)
    True
    """
    how = how or Fleet()
    rng = np.random.default_rng(seed)
    parts = [_track(how, seconds, rng) for _ in range(objects)]
    number = np.repeat(np.arange(objects), [len(time) for time, *_ in parts])
    time, x, y = (np.concatenate(part) for part in zip(*parts, strict=True))
    order = np.argsort(time, kind="stable")
    micros = _START + np.round(time[order] * 1e6).astype(np.int64)
    columns = [number[order].astype(np.int32), pa.array(micros).cast(SCHEMA.field("at").type)]
    return pa.table([*columns, x[order], y[order]], schema=SCHEMA)


def arrivals(made: pa.Table, *, lateness: float, seed: int = 1) -> pa.Table:
    """The positions in an order of arrival in which each is delayed by up to `lateness` seconds.

    None is older than the newest before it by more than that, so that none is late.

    Examples
    --------
    >>> made = tracks(objects=3, seconds=600)
    >>> mixed = arrivals(made, lateness=60)
    >>> mixed == made, mixed.sort_by([("at", "ascending")])["at"] == made["at"]
    (False, True)
    """
    delay = np.random.default_rng(seed).uniform(0, lateness * 1e6, made.num_rows)
    arrival = made["at"].cast(pa.int64()).to_numpy() + delay
    return made.take(pa.array(np.argsort(arrival, kind="stable")))


def _track(how: Fleet, seconds: float, rng: np.random.Generator) -> tuple[Floats, Floats, Floats]:
    """One object's times, x and y."""
    when, where, silences = _drive(how, seconds, rng)
    count = int(seconds / how.every)
    time = (np.arange(count) + rng.uniform(0, 0.1, count)) * how.every
    for begin, end in silences:
        time = time[(time < begin) | (time >= end)]
    time = np.sort(np.concatenate([time, time[rng.random(len(time)) < how.repeated]]))
    # a position that is reported twice is the same both times
    distinct, at = np.unique(time, return_inverse=True)
    noise = rng.normal(0, how.noise, (2, len(distinct)))
    x = np.interp(distinct, when, where[:, 0]) + noise[0]
    y = np.interp(distinct, when, where[:, 1]) + noise[1]
    return time, x[at], y[at]


def _drive(
    how: Fleet, seconds: float, rng: np.random.Generator
) -> tuple[Floats, Floats, list[tuple[float, float]]]:
    """When an object is where, corner by corner, and when it is silent."""
    here = rng.uniform(0, how.size, 2)
    when, where, silences, time = [0.0], [here], [], 0.0
    while time <= seconds:
        there = rng.uniform(0, how.size, 2)
        if rng.random() < how.on_border:
            there[0] = round(there[0] / how.border) * how.border
        time += float(np.hypot(*(there - here))) / rng.uniform(*how.speed)
        when.append(time)
        time += rng.uniform(*how.wait)
        if rng.random() < how.silent:
            silence = rng.uniform(*how.silence)
            silences.append((time, time + silence))
            time += silence
        when.append(time)
        where += [there, there]
        here = there
    return np.array(when), np.array(where), silences
