"""Tables as a notebook shows them: what they are called, and which columns they have."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rivermouth.errors import TableError
from rivermouth.spec.showing import html_table
from rivermouth.tables.source import srid_of

if TYPE_CHECKING:
    import pyarrow as pa

    from rivermouth.tables.source import Source


class Shown:
    """Gives a table its picture in notebooks; no address and no password is in it."""

    def _repr_html_(self: Source) -> str:
        caption = f"{type(self).__name__} {self.name}"
        try:
            rows = [(field.name, _kind(field)) for field in self.schema()]
        except TableError as error:
            rows = [("not readable now", str(error))]
        return html_table(caption, rows)


def _kind(field: pa.Field) -> str:
    srid = srid_of(field)
    if srid is None:
        return str(field.type)
    return f"geometry, SRID {srid}" if srid else "geometry"
