"""show: a frame or a running query as a notebook displays it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, overload

from rivermouth.errors import DefinitionError
from rivermouth.observe.notebook.frames import FrameView
from rivermouth.observe.notebook.live import QueryView
from rivermouth.observe.reports import query_of
from rivermouth.spec.conditions import Geometry

if TYPE_CHECKING:
    from pyspark.sql import DataFrame
    from pyspark.sql.streaming.query import StreamingQuery

    from rivermouth.spark.exact.job import Running

_MOST_ROWS = 100_000


@overload
def show(
    what: DataFrame,
    *,
    rows: int = ...,
    geometry: Geometry | None = ...,
    colour: str | None = ...,
) -> FrameView: ...
@overload
def show(what: StreamingQuery | Running) -> QueryView: ...
def show(
    what: Any, *, rows: int = 1000, geometry: Geometry | None = None, colour: str | None = None
) -> FrameView | QueryView:
    """A frame with a map, or a running query with its numbers, for a notebook.

    Nothing runs before the notebook displays what is returned. ``%load_ext rivermouth`` shows
    every frame and query that ends a cell in this way.

    Parameters
    ----------
    what
        A frame: its first rows are fetched by a Spark job and drawn; of a stream the columns are
        shown. Or a query that was started: it is looked at once a second until it ends, from its
        own progress reports; no job runs.
    rows
        How many rows of a frame are fetched, at most 100,000.
    geometry
        The frame's places: a column of WKB or GEOMETRY, or ``rm.point("lon", "lat")``. None: a
        GEOMETRY column, a binary one called geometry, geom, shape or wkb, or two columns called
        lon and lat, lng and lat, longitude and latitude, or x and y; without any there is no map.
    colour
        The column by whose values the map is coloured: the seven most frequent get a colour each.

    Returns
    -------
    FrameView or QueryView
        What a notebook can display; elsewhere its ``repr`` says the most important.

    Examples
    --------
    >>> rm.show(placed, geometry=rm.point("lon", "lat"), colour="district")  # doctest: +SKIP
    >>> rm.show(query)  # doctest: +SKIP
    """
    if hasattr(what, "isStreaming") and hasattr(what, "schema"):
        if not 1 <= rows <= _MOST_ROWS:
            raise DefinitionError(
                "show", f"rows is {rows}", todo=f"Give a number from 1 to {_MOST_ROWS:,}."
            )
        return FrameView(what, rows, geometry, colour)
    if geometry is not None or colour is not None:
        raise DefinitionError(
            "show", "geometry and colour are of frames", todo="Leave them out for a query."
        )
    query_of(what, where="show")
    return QueryView(what)
