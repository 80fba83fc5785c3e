"""Nexmark's persons, auctions and bids, made from a seed after the generator's published shape.

Of 50 events one is a person, three are auctions and 46 are bids, 10,000 events a second. Half of
the bids are for the *hot* auction, the first of the last hundred; three of four bids are by the hot
bidder, and three of four auctions by the hot seller, each one of the last hundred persons. The
others are spread over the last hundred auctions and the last thousand persons, and some that are
yet to come. An auction is open for a third of a second at most, which is what a hundred auctions in
flight make of that rate. Prices are log-uniform between 1 and a million.

Simpler than the original: no texts but names (no ``extra``, which fills an event up to 100, 200 or
500 bytes, no description, address or card), other random numbers, and events in the order of time,
which is also the original's default.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.parquet as pq

from benchmarks.harness.experiment import CACHE, SEED
from benchmarks.harness.tdrive import write_parts

Ints = npt.NDArray[np.int64]

PERSONS, AUCTIONS, BIDS = "persons", "auctions", "bids"
GROUP = 50  #: events, of which one is a person and three are auctions
OF_GROUP = {PERSONS: range(1), AUCTIONS: range(1, 4), BIDS: range(4, GROUP)}
RATE = 10_000  #: events a second
START_US = 1_700_000_000_000_000
FIRST_ID, FIRST_CATEGORY, CATEGORIES = 1000, 10, 5
IN_FLIGHT, ACTIVE, LEAD = 100, 1000, 10  #: auctions, persons, and ids yet to come of either
HOT = 100  #: one of so many auctions or persons is hot
HOT_AUCTION, HOT_BIDDER, HOT_SELLER = 2, 4, 4  #: one of so many is not for, or by, the hot one
#: how long an auction is open on average: until so many more have begun
OPEN_MS = IN_FLIGHT * GROUP // len(OF_GROUP[AUCTIONS]) * 1000 // RATE
SIDE_KEYS = 10_000  #: rows of the table that query 13 joins with
_FIRST = ("Ada", "Ben", "Cleo", "Dan", "Eva", "Finn", "Gus", "Hana", "Ivo", "Jo", "Kim")
_LAST = ("Abel", "Brook", "Cole", "Dorn", "Ellis", "Frey", "Gray", "Holm", "Irving")


@dataclass(frozen=True)
class Events:
    """So many events as streams of files, one folder an entity; file n of each spans the same time.

    Parameters
    ----------
    count
        Of all events; a multiple of ``50 * files``, so that the entities' files begin together.
    files
        How many files an entity has.
    """

    count: int
    files: int

    def __post_init__(self) -> None:
        if self.count % (GROUP * self.files):
            raise ValueError(f"{self.count} events are not {self.files} files of whole groups")

    def folder(self, entity: str) -> Path:
        """Where an entity's files are, made once."""
        folder = CACHE / f"nexmark-{SEED}-{self.count}-in-{self.files}" / entity
        if not (folder / "_made").exists():
            write_parts(table(entity, self.count), folder, self.files)
        return folder

    def end_us(self, file: int) -> int:
        """When a file's last event has been, in microseconds since 1970."""
        return START_US + self.count // self.files * (file + 1) * 1_000_000 // RATE


def side_table() -> Path:
    """The bounded table of query 13: ``key`` and ``value``."""
    path = CACHE / f"nexmark-side-{SIDE_KEYS}.parquet"
    if not path.exists():
        path.parent.mkdir(parents=True, exist_ok=True)
        keys = np.arange(SIDE_KEYS)
        pq.write_table(pa.table({"key": keys, "value": [f"value {key}" for key in keys]}), path)
    return path


def table(entity: str, count: int) -> pa.Table:
    """All persons, auctions or bids among the first `count` events, in the order of time."""
    random = np.random.default_rng((SEED, list(OF_GROUP).index(entity)))
    offsets = np.array(OF_GROUP[entity])
    events = (np.arange(count // GROUP)[:, None] * GROUP + offsets).ravel()
    at = START_US + events * 1000 // RATE * 1000  # whole milliseconds
    columns = _MADE[entity](events, at, random)
    times = columns.keys() & {"at", "expires"}
    return pa.table(columns | {name: pa.array(columns[name]).cast(_TIME) for name in times})


def _persons(events: Ints, at: Ints, random: np.random.Generator) -> dict[str, Any]:
    names = np.array([f"{first} {last}" for first in _FIRST for last in _LAST])
    return {
        "id": FIRST_ID + _last_person(events),
        "name": names[random.integers(len(names), size=len(events))],
        "at": at,
    }


def _auctions(events: Ints, at: Ints, random: np.random.Generator) -> dict[str, Any]:
    first_bid = _prices(len(events), random)
    return {
        "id": FIRST_ID + _last_auction(events),
        "seller": FIRST_ID + _people(events, HOT_SELLER, 0, random),
        "category": FIRST_CATEGORY + random.integers(CATEGORIES, size=len(events)),
        "first_bid": first_bid,
        "reserve": first_bid + _prices(len(events), random),
        "at": at,
        "expires": at + 1000 * (1 + random.integers(2 * OPEN_MS, size=len(events))),
    }


def _bids(events: Ints, at: Ints, random: np.random.Generator) -> dict[str, Any]:
    last = _last_auction(events)
    oldest = np.maximum(last - IN_FLIGHT, 0)
    auction = oldest + random.integers(last - oldest + 1 + LEAD)
    is_hot = random.integers(HOT_AUCTION, size=len(events)) > 0
    return {
        "auction": FIRST_ID + np.where(is_hot, last // HOT * HOT, auction),
        "bidder": FIRST_ID + _people(events, HOT_BIDDER, 1, random),
        "price": _prices(len(events), random),
        "at": at,
    }


def _people(events: Ints, ratio: int, place: int, random: np.random.Generator) -> Ints:
    """For each event a person, who is the hot one, of that `place`, but once in `ratio`."""
    last = _last_person(events)
    active = np.minimum(last + 1, ACTIVE)
    person = last + 1 - active + random.integers(active + LEAD)
    is_hot = random.integers(ratio, size=len(events)) > 0
    return np.where(is_hot, last // HOT * HOT + place, person)


def _prices(count: int, random: np.random.Generator) -> Ints:
    """In cents."""
    return np.rint(10 ** (6 * random.random(count)) * 100).astype(np.int64)


def _last_person(events: Ints) -> Ints:
    """The newest person when an event happens, counted from 0; a person is its own."""
    return events // GROUP


def _last_auction(events: Ints) -> Ints:
    """The same of auctions; -1 before the first."""
    each = len(OF_GROUP[AUCTIONS])
    begun = np.clip(events % GROUP, 0, each)  # of this event's group, itself included
    return events // GROUP * each + begun - 1


_TIME = pa.timestamp("us", "UTC")
_MADE = {PERSONS: _persons, AUCTIONS: _auctions, BIDS: _bids}
