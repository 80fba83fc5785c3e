"""The demo's input, generated from a seed: what happens in a made-up city, and when it is known.

Cabs report positions and passengers hail; both arrive in the order of event time. Cards are
charged, and charges arrive out of order: most within seconds, some minutes later, from a tunnel.
The rows are cut into micro-batches by arrival time. So every count that the demo prints depends on
the seed, and not on how fast the machine is.
"""

from __future__ import annotations

import sqlite3
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from rivermouth.kernels.arrays import Floats
from rivermouth.testing.city import City, city
from rivermouth.testing.taxis import positions

BATCH = 180  # seconds of arrivals in a micro-batch

_EVERY = 10  # seconds between two positions of a cab
_CABS = 300
_HAILS, _CHARGES = 20, 90  # in a minute, for so many cabs
_METRE = 1 / 111_195  # degrees of latitude
_STEP = 120.0  # metres from where cabs drive to where people hail (standard deviation)
_BASE_FARE = 3.0
_FARE = (4.0, 2.5)  # shape and scale of the rest
_QUICK = 12.0  # seconds until a charge usually arrives (mean)
_TUNNEL, _LONGEST = 0.08, 420.0  # share of charges made in tunnels, and seconds until they arrive
_COMPANIES = ("Mere Cabs", "Harbour Cars", "Night Owl", "Two Rivers")
_FIRST_NAMES = ("Ada", "Bo", "Cleo", "Dov", "Eda", "Finn", "Gus", "Hana", "Ivo", "June", "Kai")
_LAST_NAMES = ("Aster", "Birch", "Cole", "Drake", "Ember", "Frost", "Gale", "Hart", "Inch")


@dataclass(frozen=True)
class Story:
    """All input: of each stream the rows of each micro-batch, in the order of arrival."""

    city: City
    cabs: list[pa.Table]
    hails: list[pa.Table]
    charges: list[pa.Table]

    @property
    def batches(self) -> int:
        """How many micro-batches there are."""
        return len(self.cabs)

    @property
    def title(self) -> str:
        """Where and when it happens."""
        first, last = pc.min_max(pa.concat_tables(self.cabs)["at"]).as_py().values()
        return f"The cabs of Merewick, {first:%H:%M} to {last:%H:%M}"

    @property
    def sentence(self) -> str:
        """How much there is of what."""
        cabs, hails, charges = map(pa.concat_tables, (self.cabs, self.hails, self.charges))
        return (
            f"{self.title}: {len(pc.unique(cabs['cab'])):,} cabs report {cabs.num_rows:,} "
            f"positions, {hails.num_rows:,} passengers hail, {charges.num_rows:,} cards are "
            f"charged. It arrives in {self.batches} micro-batches, the charges out of order."
        )

    def write(self, folder: Path) -> None:
        """Write the tables that are joined: ``districts.geojson`` and ``fleet.db``."""
        self.city.write(folder / "districts.geojson")
        write_fleet(folder / "fleet.db", pc.max(self.cabs[0]["cab"]).as_py() + 1)


def story(*, batches: int, scale: float = 1.0, seed: int = 7) -> Story:
    """The input of so many micro-batches.

    Parameters
    ----------
    batches
        Each has `BATCH` seconds of arrivals.
    scale
        1 is 300 cabs; hails and charges are in proportion.
    seed
        The same seed gives the same story.
    """
    rng = np.random.default_rng(seed)
    where = city(seed)
    many, seconds = max(2, round(_CABS * scale)), batches * BATCH
    reported = positions(where, taxis=many, seconds=seconds, every=_EVERY, seed=seed)
    cabs = reported.rename_columns(["cab", "at", "lon", "lat"])
    good = cabs.filter(pc.and_(pc.is_finite(cabs["lon"]), pc.not_equal(cabs["lon"], 0.0)))
    hails = _hails(good, max(1, round(_HAILS * scale * seconds / 60)), rng)
    charges = _charges(good, max(1, round(_CHARGES * scale * seconds / 60)), rng)
    # what arrives after the end is in the last batch
    edges = np.append(_seconds(cabs)[0] // 60 * 60 + BATCH * np.arange(batches), np.inf)
    return Story(
        where,
        _arriving(cabs, 0.0, edges),
        _arriving(hails, 0.0, edges),
        _arriving(charges, _delays(charges.num_rows, rng), edges),
    )


def _arriving(rows: pa.Table, delays: Floats | float, edges: Floats) -> list[pa.Table]:
    """The rows that arrive between two edges, so many seconds after their event times."""
    arrival = _seconds(rows) + delays
    order = np.argsort(arrival, kind="stable")
    cuts = np.searchsorted(arrival[order], edges)
    return [rows.take(pa.array(part)) for part in np.split(order, cuts[1:-1])]


def _seconds(rows: pa.Table) -> Floats:
    """Event times in seconds since 1970."""
    return np.asarray(rows["at"].cast(pa.int64()), np.float64) / 1e6


def _sample(table: pa.Table, count: int, rng: np.random.Generator) -> pa.Table:
    return table.take(pa.array(np.sort(rng.integers(table.num_rows, size=count))))


def _hails(cabs: pa.Table, count: int, rng: np.random.Generator) -> pa.Table:
    """Hails near positions of cabs, at their times."""
    near = _sample(cabs, count, rng)
    north, east = rng.normal(0, _STEP * _METRE, (2, count))
    lat = near["lat"].to_numpy() + north
    lon = near["lon"].to_numpy() + east / np.cos(np.radians(lat))
    return pa.table(
        {"passenger": np.arange(count, dtype=np.int32), "at": near["at"], "lon": lon, "lat": lat}
    )


def _charges(cabs: pa.Table, count: int, rng: np.random.Generator) -> pa.Table:
    """Charges at positions of cabs."""
    fare = (_BASE_FARE + rng.gamma(*_FARE, size=count)).round(2)
    return _sample(cabs, count, rng).append_column("fare", pa.array(fare))


def _delays(count: int, rng: np.random.Generator) -> Floats:
    """Seconds until a charge arrives: a few, or as long as its cab is in a tunnel."""
    soon = rng.exponential(_QUICK, count)
    later = rng.uniform(_QUICK, _LONGEST, count)
    return np.where(rng.uniform(size=count) < _TUNNEL, later, soon)


def write_fleet(path: Path, cabs: int) -> None:
    """Write a database of who drives which cab, with every fortieth cab missing."""
    path.unlink(missing_ok=True)
    fleet = [
        (
            cab,
            f"{_FIRST_NAMES[cab % len(_FIRST_NAMES)]} {_LAST_NAMES[cab % len(_LAST_NAMES)]}",
            _COMPANIES[cab % len(_COMPANIES)],
        )
        for cab in range(cabs)
        if cab % 40 != 39
    ]
    with sqlite3.connect(path) as database:
        database.execute(
            "CREATE TABLE drivers (cab INTEGER PRIMARY KEY, driver TEXT, company TEXT)"
        )
        database.executemany("INSERT INTO drivers VALUES (?, ?, ?)", fleet)
    database.close()
