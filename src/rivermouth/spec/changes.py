"""Where the changes of a table come from: values for ``rm.full(changes=...)``.

rm.changes.delta(key="zone")                               Delta's change data
rm.changes.debezium("broker:9092", "city.zones", key=...)  a Debezium topic in Kafka
rm.changes.polling("updated_at", key="zone")               a change column of a database
rm.changes.files("changes/", key="zone")                   Parquet files of changes
rm.changes.feed(mine, key="zone")                          a feed of your own
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from rivermouth.errors import DefinitionError
from rivermouth.spec.durations import Duration, microseconds, positive_seconds
from rivermouth.spec.locations import Location

__all__ = ["debezium", "delta", "feed", "files", "polling"]


@dataclass(frozen=True)
class Files:
    """Parquet files of changes in a folder."""

    path: Location
    op: str
    sequence: str
    contiguous: bool
    made: str | None


@dataclass(frozen=True)
class Delta:
    """The change data of the Delta table itself."""


@dataclass(frozen=True)
class Debezium:
    """A Debezium topic in Kafka; `settings` are the client's, and never shown."""

    servers: str
    topic: str
    settings: tuple[tuple[str, str], ...] = field(default=(), repr=False)


@dataclass(frozen=True)
class Polling:
    """A column of the table that grows with each change."""

    column: str
    deleted: str | None
    overlap: float | int


@dataclass(frozen=True)
class Own:
    """A feed of the user's own."""

    feed: Any


Feed = Files | Delta | Debezium | Polling | Own


@dataclass(frozen=True)
class Changes:
    """A feed of a table's changes, and how it is applied; seconds inside.

    Parameters
    ----------
    feed
        Where changes come from.
    key
        The columns by which a row is known.
    every
        How often the feed is read at most; None: for each micro-batch.
    compact_at
        How many changed rows make a new snapshot worth writing; None: a quarter of the table's,
        and at least 50,000.
    history
        The table's column that says from when on a row holds, where former rows are kept.
    """

    feed: Feed
    key: tuple[str, ...]
    every: float | None = None
    compact_at: int | None = None
    history: str | None = None


def files(
    path: str | os.PathLike[str],
    *,
    key: str | Sequence[str],
    op: str = "op",
    sequence: str = "sequence",
    contiguous: bool = True,
    made: str | None = None,
    every: Duration | None = None,
    compact_at: int | None = None,
    history: str | None = None,
) -> Changes:
    """Follow Parquet files of inserts, updates and deletes that are added to a folder.

    Files are read in the order of their names, each once, whole. A file must appear whole (write it
    under another name and rename it), and a change must be in the table before it is in a file.

    Parameters
    ----------
    path
        The folder, or a URI that pyarrow.fs knows. Files whose names begin with ``.`` or ``_``
        are not looked at.
    key
        The column or columns by which a row of the table is known; no two rows share a key.
    op
        The column that says what was done: "insert", "update", "delete" or "upsert", or their
        first letters. A delete needs its key columns only.
    sequence
        The column of increasing whole numbers that orders changes.
    contiguous
        Whether these numbers have no holes. Then a lost file is found, and the table loaded anew.
    made
        The column of timestamps that says when a change was made, for the metrics. None: unknown.
    every
        How often the feed is read at most. None: once for each micro-batch.
    compact_at
        How many changed rows make a new snapshot worth writing. None: a quarter of the table's,
        and at least 50,000.
    history
        For ``rm.asof``: the table's column of timestamps from which on a row holds. Former rows
        are kept then: an update adds a row, and a delete ends one at the time it was `made`.

    Examples
    --------
    >>> files("/data/changes", key="zone", every="1 second").key
    ('zone',)
    """
    feed = Files(Location.of(os.fspath(path)), op, sequence, contiguous, made)
    return _changes("files", feed, key, every, compact_at, history)


def delta(
    *,
    key: str | Sequence[str],
    every: Duration | None = None,
    compact_at: int | None = None,
    history: str | None = None,
) -> Changes:
    """Follow the versions of a Delta table, ``rm.tables.delta(path)``, by its change data.

    Give the table the property ``delta.enableChangeDataFeed``: without it some versions can be told
    from the files that they added and removed, and others end in a full load. A version that was
    rolled back to, by ``RESTORE``, is followed like any other change. Where files of the change
    data have been removed (``VACUUM``) the table is loaded anew.

    Parameters
    ----------
    key, every, compact_at, history
        As for `files`; for `history`, a row that is deleted ends when the version was committed.
    """
    return _changes("delta", Delta(), key, every, compact_at, history)


def debezium(
    servers: str,
    topic: str,
    *,
    key: str | Sequence[str],
    settings: Mapping[str, str] | None = None,
    every: Duration | None = None,
    compact_at: int | None = None,
    history: str | None = None,
) -> Changes:
    """Follow a Debezium topic in Kafka, in JSON with or without its schema, not unwrapped.

    Whoever reads the feed is a worker; it commits nothing. Where the topic no longer has what comes
    after the last offset read, or the table was emptied, the table is loaded anew.

    Parameters
    ----------
    servers
        The brokers, as in ``"one:9092,two:9092"``.
    topic
        The topic of this table.
    key, every, compact_at, history
        As for `files`; changes were made when the database says so (``source.ts_ms``).
    settings
        More settings of librdkafka, as for encryption. They travel to workers, and are not shown.
    """
    more = tuple(sorted((settings or {}).items()))
    feed = Debezium(servers, topic, more)
    return _changes("debezium", feed, key, every, compact_at, history)


def polling(
    column: str,
    *,
    key: str | Sequence[str],
    deleted: str | None = None,
    overlap: Duration | int = "10 seconds",
    every: Duration | None = None,
    compact_at: int | None = None,
    history: str | None = None,
) -> Changes:
    """Follow a table in a database by a column that grows with each change of a row.

    An index on the column makes it cheap. A row that is removed is not noticed, unless `deleted`
    marks it; with ``rm.full(refresh=...)`` it is gone after the next full load.

    Parameters
    ----------
    column
        A timestamp of the row's last change, or a number that every change makes larger.
    key, every, compact_at, history
        As for `files`. What lies between two readings is not told: `history` has the rows that
        were there when the feed was read.
    deleted
        The column that marks a row as deleted: true, or anything that is not null where it is not
        of booleans.
    overlap
        By how much less than the largest value seen rows are read again: a transaction may commit
        so long after it has set the column. A length of time for timestamps, a whole number for
        numbers. One that commits later is missed until the next full load.

    Examples
    --------
    >>> polling("updated_at", key="zone", deleted="removed_at", overlap="1 minute").feed.overlap
    60.0
    """
    where = "changes.polling(overlap=)"
    if isinstance(overlap, int):
        if overlap < 0:
            raise DefinitionError(where, f"it is {overlap}", todo="Give a number of at least 0.")
        reach: float | int = overlap
    else:
        reach = microseconds(overlap, where=where) / 1e6
    feed = Polling(column, deleted, reach)
    return _changes("polling", feed, key, every, compact_at, history)


def feed(
    own: Any,
    *,
    key: str | Sequence[str],
    every: Duration | None = None,
    compact_at: int | None = None,
    history: str | None = None,
) -> Changes:
    """Follow a feed of your own: an object with the members of ``rm.tables.ChangeFeed``.

    Parameters
    ----------
    own
        The feed, a value that can be pickled.
    key, every, compact_at, history
        As for `files`.
    """
    return _changes("feed", Own(own), key, every, compact_at, history)


def _changes(
    function: str,
    feed: Feed,
    key: str | Sequence[str],
    every: Duration | None,
    compact_at: int | None,
    history: str | None,
) -> Changes:
    where = f"changes.{function}"
    names = (key,) if isinstance(key, str) else tuple(key)
    if not names or len(set(names)) < len(names):
        raise DefinitionError(
            where, f"key is {key!r}", todo="Name the column or columns by which a row is known."
        )
    if compact_at is not None and compact_at < 1:
        raise DefinitionError(where, f"compact_at is {compact_at}", todo="Give at least one row.")
    return Changes(
        feed, names, positive_seconds(every, where=f"{where}(every=)"), compact_at, history
    )
