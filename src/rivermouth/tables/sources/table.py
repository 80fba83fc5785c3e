"""What the library's tables have in common: an identity, a repr, a filter, an HTML repr."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, ClassVar

import pyarrow as pa

from rivermouth.errors import TableError
from rivermouth.spec.filters import Filter, shown
from rivermouth.spec.locations import Location
from rivermouth.spec.showing import html_table
from rivermouth.tables.source import T, srid_of

if TYPE_CHECKING:
    from rivermouth.tables.source import Source


class HTMLRepr:
    """A table as a notebook shows it: its name and columns; no address, no password."""

    def _repr_html_(self: Source) -> str:
        def described(field: pa.Field) -> str:
            srid = srid_of(field)
            return str(field.type) if srid is None else "geometry" + f", SRID {srid}" * bool(srid)

        try:
            rows = [(field.name, described(field)) for field in self.schema()]
        except TableError as error:
            rows = [("not readable now", str(error))]
        return html_table(f"{type(self).__name__} {self.name}", rows)


class Table(HTMLRepr, ABC):
    """A table that is read in batches, named by its location and by which of its rows count."""

    #: the function that makes it, in ``rm.tables``
    function: ClassVar[str]
    where: Filter

    @property
    def call(self) -> str:
        """The function that makes it, as errors name it."""
        return f"tables.{self.function}"

    @property
    @abstractmethod
    def location(self) -> str:
        """Where it is, without secrets."""

    @property
    def identity(self) -> str:
        """Where the table is, and which of its rows count; no password."""
        return f"{self.function}:{self.location}{self._filter}"

    def read(self, columns: Sequence[str]) -> pa.Table:
        """All rows, these columns only."""
        return self.scan(columns, pa.Table.from_batches)

    @abstractmethod
    def scan(self, columns: Sequence[str], use: Callable[[Iterator[pa.RecordBatch]], T]) -> T:
        """What `use` makes of all rows, these columns only, in at least one batch."""

    @property
    def _filter(self) -> str:
        return f" where {shown(self.where)}" if self.where else ""


class FileTable(Table):
    """A table in a file."""

    path: Location

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.location!r}{self._filter})"

    @property
    def name(self) -> str:
        """The file's or folder's name."""
        return self.path.name

    @property
    def location(self) -> str:
        """The file's path, without credentials."""
        return self.path.shown


def at_least_one(batches: Iterable[pa.RecordBatch], schema: pa.Schema) -> Iterator[pa.RecordBatch]:
    """The batches; where there are none, one without rows."""
    batch = None
    for batch in batches:
        yield batch
    if batch is None:
        yield pa.RecordBatch.from_pylist([], schema)
