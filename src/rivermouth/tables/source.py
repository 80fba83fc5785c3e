"""What a table must offer: the protocols, and how geometry columns are marked."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Protocol, TypeVar, runtime_checkable

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from rivermouth.errors import TableInvalid
from rivermouth.spec.conditions import Condition

T = TypeVar("T")

_SRID = b"rivermouth.srid"


@runtime_checkable
class Source(Protocol):
    """A table that can be read whole.

    Implementations are frozen values: they can be pickled, and their repr shows no secret.
    """

    @property
    def name(self) -> str:
        """Short, for messages and metrics, as in ``districts.geojson`` or ``public.zones``."""

    @property
    def identity(self) -> str:
        """Text that tells this table from every other, the same each time, without secrets."""

    def schema(self) -> pa.Schema:
        """The columns and their types; a geometry column is made by `geometry_field`."""

    def read(self, columns: Sequence[str]) -> pa.Table:
        """All rows in the table's order, these columns only, geometry as WKB."""


@runtime_checkable
class Scanning(Source, Protocol):
    """A table that is read in batches, so that nobody holds the whole of it."""

    def scan(self, columns: Sequence[str], use: Callable[[Iterator[pa.RecordBatch]], T]) -> T:
        """What `use` makes of all rows in the table's order, these columns only.

        `use` is called while the table is open. Where a connection is lost it may be called once
        more, and then begins again.
        """


def scan(source: Source, columns: Sequence[str], use: Callable[[Iterator[pa.RecordBatch]], T]) -> T:
    """What `use` makes of a table's rows: in batches where it can be read so, or at once."""
    if isinstance(source, Scanning):
        return source.scan(columns, use)
    return use(iter(source.read(columns).to_batches()))


@runtime_checkable
class Queryable(Source, Protocol):
    """A table whose store evaluates conditions, for ``rm.external`` and ``rm.incremental``."""

    def lookup(
        self, condition: Condition, columns: Sequence[str], left: Mapping[str, pa.Array]
    ) -> tuple[npt.NDArray[np.int64], pa.Table]:
        """The rows that match each record, by one statement.

        `left` holds the records' columns that the condition names. Gives the record's number
        for each row, and the rows with these columns; for `nearest` a last one, of distances.
        """


@runtime_checkable
class Batched(Queryable, Protocol):
    """A store that takes few keys at a time, in several calls at once; each is retried alone."""

    @property
    def batch(self) -> int:
        """The most keys of one `lookup`."""

    @property
    def concurrency(self) -> int:
        """How many calls of `lookup` may be under way in a process."""


@runtime_checkable
class Versioned(Source, Protocol):
    """A table that says cheaply whether it has changed, so that it is read again only then."""

    def revision(self) -> str:
        """Text that is another one whenever rows or columns have changed."""


@runtime_checkable
class InFiles(Source, Protocol):
    """A table that says cheaply how large its files are."""

    def file_bytes(self) -> int:
        """What they take on disk, all rows and columns, about."""

    def file_rows(self) -> int:
        """How many rows they hold, about."""


def revision_of(source: Source) -> str | None:
    """What the table calls its present rows; None where it cannot tell."""
    return source.revision() if isinstance(source, Versioned) else None


@runtime_checkable
class Upserting(Protocol):
    """A table that rows can be written into by key."""

    def upsert(self, rows: pa.Table, *, keys: Sequence[str], order: Sequence[str]) -> None:
        """Write rows over those with the same keys, unless these come later by `order`.

        The table is created if it does not exist. All rows are written or none.
        """

    def delete(self, keys: pa.Table) -> None:
        """Remove the rows with these keys."""


def geometry_field(name: str, srid: int = 0) -> pa.Field:
    """A column of WKB in the reference system `srid`, 0 where it is not known."""
    return pa.field(name, pa.binary(), metadata={_SRID: str(srid).encode()})


def srid_of(field: pa.Field) -> int | None:
    """The reference system of a geometry column, 0 where not known; None for other columns."""
    stated = (field.metadata or {}).get(_SRID)
    return None if stated is None else int(stated)


def gone(name: str, names: Iterable[str], *, where: str, table: str) -> TableInvalid:
    """The error for a column that was there when the join was defined."""
    return TableInvalid(
        where,
        f"{table} has no column {name!r}",
        there=f"its columns are {sorted(names)}",
        todo="If the table has changed, define the join again.",
    )


def check_unchanged(rows: pa.Table, then: pa.Schema, names: Iterable[str], *, table: str) -> None:
    """Whether these columns of `rows` still are of the types that the table had `then`.

    Raises
    ------
    TableInvalid
        Where a column is gone or of another type.
    """
    for name in names:
        expected = then.field(name).type
        found = rows.schema.field(name).type if name in rows.column_names else "missing"
        if found != expected:
            raise TableInvalid(
                table,
                f"column {name!r} was of type {expected} when the join was defined",
                there=f"now it is {found}",
                todo="Define the join anew.",
            )
