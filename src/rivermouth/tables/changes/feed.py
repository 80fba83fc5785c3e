"""What a feed of changes must offer, and the feed that a user's value names."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Protocol, runtime_checkable

import pyarrow as pa

from rivermouth.errors import DefinitionError
from rivermouth.spec.changes import Changes, Debezium, Delta, Files, Own, Polling
from rivermouth.tables.extras import needs
from rivermouth.tables.source import Source

#: what a change may be; a feed that cannot tell an insert from an update says "upsert"
OPS = ("insert", "update", "upsert", "delete")


@dataclass(frozen=True)
class ChangeBatch:
    """Some changes of a table, in the order in which they were made.

    Parameters
    ----------
    op
        What each was, one of `OPS`.
    rows
        The rows after the changes; of a delete only the key columns count.
    position
        Where to read on, as JSON has it: numbers, texts, lists and dictionaries.
    made
        When each was made, as timestamps in UTC; None where the feed does not know.
    is_last
        Whether there are none after these by now.
    repeats
        Whether rows may be among them that are as they were: those are no changes.
    """

    op: pa.Array
    rows: pa.Table
    position: Any
    made: pa.Array | None = None
    is_last: bool = True
    repeats: bool = False


@runtime_checkable
class ChangeFeed(Protocol):
    """The changes of a table, each at a position, to be read from any position as often as needed.

    Implementations are values: they can be pickled, and their repr shows no secret.
    """

    @property
    def identity(self) -> str:
        """Text that tells this feed from every other, the same each time, without secrets."""

    def start(self) -> Any:
        """The present position: the table, read after this call, has all changes up to it."""

    def read(self, position: Any, columns: Sequence[str], limit: int) -> ChangeBatch:
        """About `limit` changes after `position`; their rows have these columns of the table.

        Raises
        ------
        TableGap
            If changes after `position` are lost. The table is then loaded anew.
        TableUnavailable
            If the feed does not answer.
        """


@runtime_checkable
class Pinned(ChangeFeed, Protocol):
    """A feed that can say what the table was at a position."""

    def table_at(self, position: Any) -> Source:
        """The table with all changes up to `position` and none after."""


def feed_of(changes: Changes, source: Source, schema: pa.Schema) -> ChangeFeed:
    """The feed of a table's changes, whose rows have the columns of `schema`.

    Raises
    ------
    DefinitionError
        If the feed cannot be that of this table, or is none.
    """
    match changes.feed:
        case Files():
            from rivermouth.tables.changes.files import FileFeed

            return FileFeed(changes.feed, changes.key)
        case Delta():
            with needs("deltalake", call="changes.delta", extra="delta"):
                from rivermouth.tables.sources.delta import DeltaFiles

            if isinstance(source, DeltaFiles) and source.version is None:
                from rivermouth.tables.changes.delta import DeltaFeed

                return DeltaFeed(source)
            raise DefinitionError(
                "changes.delta",
                f"{source!r} is not a Delta table, or one version of it",
                todo="Use rm.tables.delta(path) without version=.",
            )
        case Debezium():
            with needs("confluent_kafka", call="changes.debezium", extra="kafka"):
                from rivermouth.tables.changes.debezium import DebeziumFeed

            return DebeziumFeed(changes.feed, changes.key, schema)
        case Polling():
            from rivermouth.tables.changes.polling import PollingFeed
            from rivermouth.tables.sources.table import Table

            if isinstance(source, Table):
                return PollingFeed(source, changes.feed)
            raise DefinitionError(
                "changes.polling",
                f"{source!r} cannot be asked for rows by a column",
                todo="Use a table of rm.tables in a database or in files.",
            )
        case Own(feed):
            if isinstance(feed, ChangeFeed):
                return feed
    raise DefinitionError(
        "full(changes=)",
        f"{changes.feed!r} is not a feed of changes",
        todo="Use one of rm.changes, or an object with the members of rm.tables.ChangeFeed.",
    )
