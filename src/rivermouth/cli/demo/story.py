"""The demo's story: an evening in Merewick, as four things that are sent to a computer.

Cabs report where they are. Passengers hail. Cards are charged, and the charges come out of order:
most after some seconds, some minutes later, when a cab has left a tunnel. A small database knows
who drives which cab. All of it is made from a seed.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from rivermouth.testing.city import City, city
from rivermouth.testing.taxis import positions

#: seconds of the city's time that pass in a second of the demo
PACE = 60
EVERY = 10  # seconds of the city's time between two positions of a cab

_CABS = 300
_HAILS, _CHARGES = 20, 90  # a second of the demo, for so many cabs
_METRE = 1 / 111_195  # degrees of latitude
_STEP = 120.0  # metres from where cabs drive to where people hail (standard deviation)
_FARE = (4.0, 2.5)  # shape and scale, in crowns, on top of the first
_FIRST = 3.0
_QUICK = 12.0  # seconds that most charges take (mean)
_TUNNEL, _LONGEST = 0.08, 420.0  # share of charges made in tunnels, and seconds until they come
_COMPANIES = ("Mere Cabs", "Harbour Cars", "Night Owl", "Two Rivers")
_FIRST_NAMES = ("Ada", "Bo", "Cleo", "Dov", "Eda", "Finn", "Gus", "Hana", "Ivo", "June", "Kai")
_LAST_NAMES = ("Aster", "Birch", "Cole", "Drake", "Ember", "Frost", "Gale", "Hart", "Inch")


@dataclass(frozen=True)
class Story:
    """What happens: each table in the order in which its rows arrive."""

    place: City
    cabs: pa.Table
    hails: pa.Table
    charges: pa.Table

    @property
    def title(self) -> str:
        """Where and when it happens."""
        first, last = pc.min_max(self.cabs["at"]).as_py().values()
        return f"The cabs of Merewick, {first:%H:%M} to {last:%H:%M}"

    @property
    def sentence(self) -> str:
        """What happens, in one sentence."""
        cabs = len(pc.unique(self.cabs["cab"]))
        return (
            f"{self.title}: {cabs:,} of them report {self.cabs.num_rows:,} positions, "
            f"{self.hails.num_rows:,} passengers hail, {self.charges.num_rows:,} cards are "
            "charged, and Spark hears of it as it happens, not always in order:"
        )

    def is_known_to(self, queries: Mapping[str, Mapping[str, Any]]) -> bool:
        """Whether the queries, by their metrics, have taken in all of it.

        The earnings' query reads its charges twice, for its answers and for its backup, so it is
        its operator that is asked.
        """
        aggregate = queries["earnings"]["operators"].get("aggregate", {"rows_in": 0})
        pairs: list[tuple[int, int]] = [
            (queries["placed"]["rows"], self.cabs.num_rows),
            (queries["offers"]["rows"], self.cabs.num_rows + self.hails.num_rows),
            (aggregate["rows_in"], self.charges.num_rows),
        ]
        return all(known >= rows for known, rows in pairs)

    def write(self, folder: Path) -> None:
        """Leave the tables that streams meet: ``districts.geojson`` and ``fleet.db``."""
        self.place.write(folder / "districts.geojson")
        known = pc.max(self.cabs["cab"]).as_py() + 1
        write_fleet(folder / "fleet.db", known)


def story(*, seconds: float, scale: float = 1.0, seed: int = 7) -> Story:
    """What happens in so many seconds of the demo.

    Parameters
    ----------
    seconds
        Of the demo; in the city `PACE` times as long.
    scale
        How many times as much as usual happens.
    seed
        The same seed gives the same story.
    """
    rng = np.random.default_rng(seed)
    place = city(seed)
    many = max(2, round(_CABS * scale))
    reported = positions(place, taxis=many, seconds=seconds * PACE, every=EVERY, seed=seed)
    cabs = reported.rename_columns(["cab", "at", "lon", "lat"])
    good = cabs.filter(pc.and_(pc.is_finite(cabs["lon"]), pc.not_equal(cabs["lon"], 0.0)))
    return Story(
        place,
        cabs,
        _hails(good, max(1, round(_HAILS * scale * seconds)), rng),
        _charges(good, max(1, round(_CHARGES * scale * seconds)), rng),
    )


def _some(table: pa.Table, count: int, rng: np.random.Generator) -> pa.Table:
    """Rows by chance, in the order of time."""
    return table.take(pa.array(np.sort(rng.integers(table.num_rows, size=count))))


def _hails(cabs: pa.Table, count: int, rng: np.random.Generator) -> pa.Table:
    """People hail where cabs drive: a street away from where one was, at that time."""
    near = _some(cabs, count, rng)
    north, east = rng.normal(0, _STEP * _METRE, (2, count))
    lat = near["lat"].to_numpy() + north
    lon = near["lon"].to_numpy() + east / np.cos(np.radians(lat))
    return pa.table(
        {"passenger": np.arange(count, dtype=np.int32), "at": near["at"], "lon": lon, "lat": lat}
    )


def _charges(cabs: pa.Table, count: int, rng: np.random.Generator) -> pa.Table:
    """Cards are charged where cabs are; a charge arrives when it can."""
    paid = _some(cabs, count, rng)
    fare = (_FIRST + rng.gamma(*_FARE, size=count)).round(2)
    charged = paid.append_column("fare", pa.array(fare))
    arrival = paid["at"].to_numpy().astype(np.int64) + (_delays(count, rng) * 1e6).astype(np.int64)
    return charged.take(pa.array(np.argsort(arrival, kind="stable")))


def _delays(count: int, rng: np.random.Generator) -> npt.NDArray[np.float64]:
    """Seconds until a charge arrives: soon, or when its cab is out of a tunnel."""
    soon = rng.exponential(_QUICK, count)
    later = rng.uniform(_QUICK, _LONGEST, count)
    return np.where(rng.uniform(size=count) < _TUNNEL, later, soon)


def write_fleet(path: Path, cabs: int) -> None:
    """Leave a database of who drives which cab; the last one in forty is not on record."""
    path.unlink(missing_ok=True)
    with sqlite3.connect(path) as database:
        database.execute(
            "CREATE TABLE drivers (cab INTEGER PRIMARY KEY, driver TEXT, company TEXT)"
        )
        database.executemany(
            "INSERT INTO drivers VALUES (?, ?, ?)",
            [(cab, _driver(cab), _COMPANIES[cab % len(_COMPANIES)]) for cab in range(cabs)
             if cab % 40 != 39],
        )  # fmt: skip
    database.close()


def _driver(cab: int) -> str:
    """A name for the driver of a cab.

    Examples
    --------
    >>> _driver(0), _driver(12)
    ('Ada Aster', 'Bo Drake')
    """
    first, last = cab % len(_FIRST_NAMES), cab % len(_LAST_NAMES)
    return f"{_FIRST_NAMES[first]} {_LAST_NAMES[last]}"
