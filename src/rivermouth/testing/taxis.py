"""Taxis that drive through the city of `rivermouth.testing.city`, and what their devices report.

A taxi drives on the city's plan, along streets that are straight there: to a bridge where it must
cross the river, and on to its destination. The city's warp makes winding streets of them. On a
bridge a taxi is over water, in no district.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa

from rivermouth.kernels.arrays import Floats, Ints
from rivermouth.testing.city import BRIDGES, COAST, HEIGHT, ISLAND, WIDTH, banks

if TYPE_CHECKING:
    from rivermouth.testing.city import City

Place = tuple[float, float]

SCHEMA = pa.schema(
    [
        ("taxi", pa.int32()),
        ("at", pa.timestamp("us", tz="UTC")),
        ("lon", pa.float64()),
        ("lat", pa.float64()),
    ]
)

_BLOCK = 0.3  # kilometres between two streets
_SHORE = 0.1  # kilometres that streets keep from the water and the city's edge
_SPEED = (22.0, 48.0)  # km/h
_WAIT = (20.0, 300.0)  # seconds at a destination
_UNDERWAY = 900.0  # seconds: how long ago the first trips may have begun
_SPREAD = 0.8  # kilometres from a district's centre to where its trips end (standard deviation)
_NOISE = 0.006  # kilometres by which a position is off (standard deviation)
#: what share of positions is bad, and how
_BAD = {"null": 0.004, "nan": 0.002, "zero": 0.003}
_START = np.datetime64("2025-05-17T17:30", "us")  # a Saturday evening, UTC
#: how much more often trips end here than elsewhere
_BUSY = {"Old Town": 7.0, "Harbour": 4.0, "Station": 5.0, "Saltmarket": 2.5, "The Close": 3.0}


def positions(
    city: City, *, taxis: int = 400, seconds: float = 3600, every: float = 10, seed: int = 1
) -> pa.Table:
    """What the taxis' devices report in so many seconds, in the order of time.

    Parameters
    ----------
    city
        Where they drive.
    taxis, seconds, every
        How many, for how long, and how many seconds apart one taxi reports.
    seed
        The same seed gives the same table.

    Returns
    -------
    pyarrow.Table
        Columns ``taxi, at, lon, lat``. About one position in a hundred is bad: null, NaN, or at
        longitude and latitude zero, as devices report what they do not know.

    Examples
    --------
    >>> from rivermouth.testing.city import city
    >>> positions(city(), taxis=3, seconds=60, every=10).num_rows
    18
    """
    rng = np.random.default_rng(seed)
    ticks = np.arange(0, seconds, every, dtype=float)
    # a taxi's device reports at its own second, not at the full ten of all
    times = ticks[:, None] + rng.uniform(0, every, taxis)
    x, y = np.empty_like(times), np.empty_like(times)
    for taxi in range(taxis):
        when, where = _drive(city, seconds + every, rng)
        x[:, taxi] = np.interp(times[:, taxi], when, where[:, 0])
        y[:, taxi] = np.interp(times[:, taxi], when, where[:, 1])
    order = np.argsort(times, axis=None)
    flat = (part.ravel()[order] for part in (times, x, y))
    return _reported(city, order % taxis, *flat, rng=rng)


def _reported(
    city: City, taxi: Ints, time: Floats, x: Floats, y: Floats, *, rng: np.random.Generator
) -> pa.Table:
    """The table of these positions, with noise and bad rows."""
    lon, lat = city.on_map(x + rng.normal(0, _NOISE, len(x)), y + rng.normal(0, _NOISE, len(y)))
    fate = np.searchsorted(np.cumsum(list(_BAD.values())), rng.uniform(size=len(x)), side="right")
    null, nan, zero = (fate == number for number in range(len(_BAD)))
    for degrees in (lon, lat):
        degrees[nan], degrees[zero] = np.nan, 0.0
    at = _START + (time * 1e6).astype("timedelta64[us]")
    columns = [
        pa.array(taxi, pa.int32()),
        pa.array(at, pa.timestamp("us")).cast(SCHEMA.field("at").type),
        pa.array(lon, mask=null),
        pa.array(lat, mask=null),
    ]
    return pa.table(columns, schema=SCHEMA)


def _drive(city: City, seconds: float, rng: np.random.Generator) -> tuple[Floats, Floats]:
    """One taxi's way: when it is at which corner of the plan, for at least so long."""
    here = _destination(city, rng)
    time = -rng.uniform(0, _UNDERWAY)
    when, where = [time], [here]
    while time <= seconds:
        there = _destination(city, rng)
        speed = rng.uniform(*_SPEED) / 3600
        for corner in _route(here, there, rng):
            time += (abs(corner[0] - where[-1][0]) + abs(corner[1] - where[-1][1])) / speed
            when.append(time)
            where.append(corner)
        time += rng.uniform(*_WAIT)
        when.append(time)
        where.append(there)
        here = there
    return np.array(when), np.array(where)


def _destination(city: City, rng: np.random.Generator) -> Place:
    """A corner of two streets near the centre of a district, busy ones more often."""
    weight = np.array([_BUSY.get(name, 1.0) for name in city.names])
    district = rng.choice(len(weight), p=weight / weight.sum())
    x, y = city.centres[district]
    if city.names[district] == ISLAND:
        return float(x + rng.uniform(-0.9, 0.9)), float(y)  # it has one street
    while True:
        corner = _street(x + rng.normal(0, _SPREAD)), _street(y + rng.normal(0, _SPREAD))
        if _bank(corner) == np.sign(y - HEIGHT / 2) and _on_land(corner):
            return corner


def _street(value: float) -> float:
    """The nearest street, of those that run along an axis of the plan."""
    return round(float(value) / _BLOCK) * _BLOCK


def _on_land(place: Place) -> bool:
    return COAST + _SHORE < place[0] < WIDTH - _SHORE and _SHORE < place[1] < HEIGHT - _SHORE


def _bank(place: Place) -> int:
    """-1 south of the river, 1 north of it, 0 between the banks."""
    south, north = banks(place[0])
    return int(place[1] > north + _SHORE) - int(place[1] < south - _SHORE)


def _route(here: Place, there: Place, rng: np.random.Generator) -> Iterator[Place]:
    """The corners on the way, the destination last."""
    if _bank(here) == _bank(there):
        yield from _leg(here, there, rng)
        return
    bridge = min(_bridges(here, there), key=lambda x: abs(here[0] - x) + abs(there[0] - x))
    on, off = _head(bridge, here), _head(bridge, there)
    yield from _leg(here, on, rng)
    yield off
    yield from _leg(off, there, rng)


def _bridges(here: Place, there: Place) -> tuple[float, ...]:
    """The bridges between two places; only the first leads to the island."""
    return BRIDGES if _bank(here) and _bank(there) else BRIDGES[:1]


def _head(bridge: float, place: Place) -> Place:
    """Where a bridge ends on the side of a place; for one on the island, its street there."""
    south, north = banks(bridge)
    ends = {-1: south - 2 * _SHORE, 0: place[1], 1: north + 2 * _SHORE}
    return bridge, ends[_bank(place)]


def _leg(here: Place, there: Place, rng: np.random.Generator) -> Iterator[Place]:
    """Along one street and then another, on the same bank; one of the two ways is always dry."""
    corners = [(here[0], there[1]), (there[0], here[1])]
    dry = [corner for corner in corners if _bank(corner) == _bank(here)]
    yield dry[rng.integers(len(dry))]
    yield there
