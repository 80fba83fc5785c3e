"""Where dimension rows come from.

Each function returns a frozen value that says where a table is; nothing is read until a join is
defined (the table's columns) or runs (its rows). `Source` is what such a value must offer,
`Queryable` what one whose store evaluates conditions offers besides, `Versioned` one that knows
whether it has changed, and `InFiles` one that knows its size: write your own table with them, and
check it with `rivermouth.testing.check_table`. `ChangeFeed` is what a feed of changes must offer,
for ``rm.changes.feed``.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from rivermouth.tables.extras import needs as _needs

if TYPE_CHECKING:
    from rivermouth.spec.durations import Duration
    from rivermouth.spec.filters import Where
    from rivermouth.tables.changes.feed import ChangeBatch, ChangeFeed
    from rivermouth.tables.source import InFiles, Queryable, Source, Versioned, geometry_field
    from rivermouth.tables.sources.delta import DeltaFiles
    from rivermouth.tables.sources.frame import FrameTable
    from rivermouth.tables.sources.geojson import GeoJSONFile
    from rivermouth.tables.sources.iceberg import IcebergTable
    from rivermouth.tables.sources.mysql.table import MySQLTable
    from rivermouth.tables.sources.ogr import FlatGeobuf, GeoPackage, Shapefile
    from rivermouth.tables.sources.parquet import ParquetFiles
    from rivermouth.tables.sources.postgres.table import PostgresTable
    from rivermouth.tables.sources.service.table import Schema, ServiceTable
    from rivermouth.tables.sources.sqlite.table import SQLiteTable

__all__ = [
    "ChangeBatch",
    "ChangeFeed",
    "InFiles",
    "Queryable",
    "Source",
    "Versioned",
    "delta",
    "flatgeobuf",
    "frame",
    "geojson",
    "geometry_field",
    "geopackage",
    "iceberg",
    "mysql",
    "parquet",
    "postgres",
    "service",
    "shapefile",
    "sqlite",
]

# A module of this folder never has the name of a function: importing it would replace the function.


def __getattr__(name: str) -> Any:
    """The protocols, which need pyarrow, when they are first asked for."""
    if name in ("ChangeBatch", "ChangeFeed"):
        from rivermouth.tables.changes import feed

        return getattr(feed, name)
    if name not in ("InFiles", "Queryable", "Source", "Versioned", "geometry_field"):
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from rivermouth.tables import source

    return getattr(source, name)


def _ogr(name: str, path: str | os.PathLike[str], layer: str | None, where: Where | None) -> Any:
    """A table of the class `name`, which GDAL reads."""
    from rivermouth.spec.filters import filter_of
    from rivermouth.spec.locations import Location

    call = f"tables.{name.lower()}"
    with _needs("pyogrio", call=call, extra="ogr"):
        from rivermouth.tables.sources import ogr
    return getattr(ogr, name)(Location.of(path), layer, filter_of(where, at=call))


def _limits(
    call: str, connect: Duration | None, statement: Duration | None
) -> Iterator[float | None]:
    """The two timeouts of a server in seconds."""
    from rivermouth.spec.durations import positive_seconds

    yield positive_seconds(connect, where=f"{call}(connect_timeout=)")
    yield positive_seconds(statement, where=f"{call}(statement_timeout=)")


def delta(
    path: str | os.PathLike[str],
    version: int | None = None,
    geometry: str | Sequence[str] | None = None,
    *,
    where: Where | None = None,
) -> DeltaFiles:
    """The rows of a Delta table, read by deltalake; needs the extra ``delta``.

    Each worker reads the table's log and files itself, without Spark. Geometry columns are those
    that the files describe, as in `parquet`, and those that `geometry` names.

    Parameters
    ----------
    path
        The table's folder: a local path, or a URI that ``pyarrow.fs`` and deltalake know.
    version
        Which version counts. None: the newest; with ``rm.full(refresh=...)`` the table is read
        again only if there is a newer one.
    geometry
        Columns of WKB that the files do not describe; their SRID is not known.
    where
        Which rows count: see `postgres`. Partitions and row groups that hold none are not read.

    Examples
    --------
    >>> delta("s3://bucket/zones", version=12, geometry="shape")
    DeltaFiles('s3://bucket/zones@12#shape')
    """
    from rivermouth.spec.filters import filter_of
    from rivermouth.spec.locations import Location

    with _needs("deltalake", call="tables.delta", extra="delta"):
        from rivermouth.tables.sources.delta import DeltaFiles
    named = (geometry,) if isinstance(geometry, str) else tuple(geometry or ())
    return DeltaFiles(Location.of(path), version, named, filter_of(where, at="tables.delta"))


def flatgeobuf(path: str | os.PathLike[str], *, where: Where | None = None) -> FlatGeobuf:
    """The rows of a FlatGeobuf file, in the file's order; needs the extra ``ogr``.

    Geometries are in column ``geometry``, in the file's EPSG code. DATETIME is read as a timestamp
    in UTC.

    Parameters
    ----------
    path
        A local path, or a URI that GDAL reads.
    where
        Which rows count: see `postgres`. GDAL skips what it can.

    Examples
    --------
    >>> flatgeobuf("/data/zones.fgb")
    FlatGeobuf('/data/zones.fgb')
    """
    made: FlatGeobuf = _ogr("FlatGeobuf", path, None, where)
    return made


def frame(df: Any) -> FrameTable:
    """The rows of a batch DataFrame, joined by the native plan.

    For conditions that only the workers' plan can evaluate, write the frame once and use what
    that gives: ``table = rm.snapshot(df, path)``.
    """
    from rivermouth.tables.sources.frame import FrameTable

    return FrameTable(df)


def geojson(path: str | os.PathLike[str], *, where: Where | None = None) -> GeoJSONFile:
    """The features of a GeoJSON file, in the file's order.

    A FeatureCollection, a Feature, a bare geometry, or one of these a line. The properties become
    columns of the type that all their values share; one that is null everywhere becomes text. The
    features' ``id`` becomes a column ``id``, unless a property has that name. Geometries are in
    column ``geometry``: longitude and latitude (SRID 4326), or what a ``crs`` member of the older
    GeoJSON names. A null geometry stays null; one that cannot be read is a `TableInvalid`.

    Parameters
    ----------
    path
        A local path, or a URI that ``pyarrow.fs`` knows.
    where
        Which rows count: see `postgres`. The whole file is read.

    Examples
    --------
    >>> geojson("/data/districts.geojson")
    GeoJSONFile('/data/districts.geojson')
    """
    from rivermouth.spec.filters import filter_of
    from rivermouth.spec.locations import Location
    from rivermouth.tables.sources.geojson import GeoJSONFile

    return GeoJSONFile(Location.of(path), filter_of(where, at="tables.geojson"))


def geopackage(
    path: str | os.PathLike[str], layer: str | None = None, *, where: Where | None = None
) -> GeoPackage:
    """The rows of a GeoPackage layer, by primary key; needs the extra ``ogr``.

    The primary key is a column like the others; the geometry column is called ``geometry``
    whatever the file calls it, in the layer's EPSG code. DATETIME is read as a timestamp in UTC.

    Parameters
    ----------
    path
        A local path, or a URI that GDAL reads; the file is opened read-only.
    layer
        None: the only layer with geometries; several are a `TableMissing` that lists them.
    where
        Which rows count: see `postgres`. GDAL skips what it can.

    Examples
    --------
    >>> geopackage("/data/city.gpkg", layer="zones", where=("level", ">=", 3))
    GeoPackage('/data/city.gpkg#zones' where level >= 3)
    """
    made: GeoPackage = _ogr("GeoPackage", path, layer, where)
    return made


def iceberg(
    catalog: str | Mapping[str, str],
    table: str,
    snapshot: int | None = None,
    geometry: str | Sequence[str] | None = None,
    *,
    where: Where | None = None,
) -> IcebergTable:
    """The rows of an Iceberg table, read by pyiceberg; needs the extra ``iceberg``.

    Each worker asks the catalog and reads the files itself, without Spark.

    Parameters
    ----------
    catalog
        The catalog's name in pyiceberg's configuration, which workers must have, too; or its
        properties, as in ``{"type": "rest", "uri": "https://...", "token": "..."}``, with
        ``"name"`` where it is not ``"default"``. They travel to the workers; only ``type``, ``uri``
        and ``warehouse`` are shown, without credentials.
    table
        ``"namespace.table"``.
    snapshot
        The number of the snapshot that counts. None: the newest; with ``rm.full(refresh=...)``
        the table is read again only if there is another one.
    geometry
        Columns of WKB; their SRID is not known.
    where
        Which rows count: see `postgres`. Files and row groups that hold none are not read.

    Examples
    --------
    >>> iceberg({"type": "rest", "uri": "https://tables.example", "token": "secret"}, "city.zones")
    IcebergTable('default(rest, https://tables.example)/city.zones')
    """
    from rivermouth.spec.filters import filter_of

    with _needs("pyiceberg", call="tables.iceberg", extra="iceberg"):
        from rivermouth.tables.sources.iceberg import IcebergTable
    given = {"name": catalog} if isinstance(catalog, str) else {"name": "default", **catalog}
    name = given.pop("name")
    named = (geometry,) if isinstance(geometry, str) else tuple(geometry or ())
    kept = filter_of(where, at="tables.iceberg")
    return IcebergTable(name, tuple(sorted(given.items())), table, snapshot, named, kept)


def mysql(
    url: str,
    table: str,
    *,
    where: Where | None = None,
    connect_timeout: Duration | None = "10 seconds",
    statement_timeout: Duration | None = "5 minutes",
) -> MySQLTable:
    """A table or view in MySQL (8.0.4 or later) or MariaDB (10.6 or later).

    Rows come by primary key, or else as the server gives them. ``decimal(p, s)`` is read as a
    decimal up to 38 digits, ``bigint unsigned`` as a decimal of 20, ``datetime`` as a timestamp
    without and ``timestamp`` as one with a zone; ``json``, ``enum``, ``set`` and ``uuid`` as text.
    Geometries are read as WKB, in the SRID that all rows share. A type that is not supported is a
    `TableInvalid` that names the column: cast it in a view. Text compares by its bytes, whatever
    the collation.

    Parameters
    ----------
    url
        ``mysql://user:password@host:port/database``; behind it ``?unix_socket=``, ``ssl_ca=``,
        ``ssl_cert=``, ``ssl_key=``, ``ssl_key_password=``, ``ssl_verify_cert=`` or
        ``ssl_verify_identity=``. The password is shown nowhere, but travels to the workers.
    table
        ``"table"`` or ``"database.table"``; a name that holds a dot in double quotes.
    where
        Which rows count, evaluated by the server: see `postgres`. The driver quotes the values.
    connect_timeout
        How long to wait for the server. None: no limit.
    statement_timeout
        How long one statement may take. None: no limit.

    Examples
    --------
    >>> mysql("mysql://ann:secret@db.example/city", "zones", where=("level", ">=", 3))
    MySQLTable('zones' of ann@db.example:3306/city where level >= 3)
    """
    from rivermouth.spec.filters import filter_of

    with _needs("PyMySQL", call="tables.mysql", extra="mysql"):
        from rivermouth.tables.sources.mysql.address import MySQLAddress
        from rivermouth.tables.sources.mysql.table import MySQLTable
    limits = _limits("tables.mysql", connect_timeout, statement_timeout)
    return MySQLTable(MySQLAddress(url, *limits), table, filter_of(where, at="tables.mysql"))


def parquet(
    path: str | os.PathLike[str],
    geometry: str | Sequence[str] | None = None,
    *,
    where: Where | None = None,
) -> ParquetFiles:
    """The rows of a Parquet file, or of a folder of them in the order of their paths.

    Geometry columns keep their names. They are found where the file describes them: as GeoParquet
    (WKB or one of the native encodings), as Parquet's GEOMETRY or GEOGRAPHY type, or as the Arrow
    extension ``geoarrow.wkb``. A description without a ``crs`` means longitude and latitude (SRID
    4326); one whose ``crs`` has no EPSG code gives SRID 0, not known. Folders named
    ``column=value`` add that column.

    Parameters
    ----------
    path
        A file or folder; a local path, or a URI that ``pyarrow.fs`` knows.
    geometry
        Columns of WKB that the file does not describe; their SRID is not known.
    where
        Which rows count: see `postgres`. Row groups and folders that hold none are not read.

    Examples
    --------
    >>> parquet("s3://bucket/zones/", geometry="shape")
    ParquetFiles('s3://bucket/zones/#shape')
    """
    from rivermouth.spec.filters import filter_of
    from rivermouth.spec.locations import Location
    from rivermouth.tables.sources.parquet import ParquetFiles

    named = (geometry,) if isinstance(geometry, str) else tuple(geometry or ())
    return ParquetFiles(Location.of(path), named, filter_of(where, at="tables.parquet"))


def postgres(
    url: str,
    table: str,
    *,
    where: Where | None = None,
    connect_timeout: Duration | None = "10 seconds",
    statement_timeout: Duration | None = "5 minutes",
) -> PostgresTable:
    """A table or view in PostgreSQL, PostGIS's geometry and geography columns included.

    Rows come by primary key, or else in the order in which they are stored; a view has no order of
    its own. Geometries are read as WKB, in the SRID that their type states or that all rows share.
    ``numeric(p, s)`` is read as a decimal, ``numeric`` without bounds as a double; ``uuid``,
    ``json`` and enumerations as text. A type that is not supported is a `TableInvalid` that names
    the column: cast it in a view.

    With ``cache=rm.external()`` PostGIS evaluates each batch of records by one statement. Give
    the geometry column a GiST index; for ``meters=``, one on its geography::

        CREATE INDEX ON zones USING gist (geom);
        CREATE INDEX ON stops USING gist (geography(geom));

    Parameters
    ----------
    url
        ``postgresql://user:password@host:port/database``, or libpq's ``key=value`` text. The
        password is shown nowhere, but travels to the workers.
    table
        ``"table"`` or ``"schema.table"``, as it is written in the catalog; a name that holds a
        dot in double quotes.
    where
        Which rows count, evaluated by the server: one comparison ``(column, operator, value)``, or
        several that must all hold, as in ``[("city", "=", "Bern"), ("level", "in", [1, 2])]``. The
        operators are ``= != < <= > >=``, ``in`` and ``not in`` with a list, ``is`` and ``is not``
        with None. Text compares by its bytes; null and NaN satisfy no comparison. Values are
        bound; for reading the whole table, which COPY does, the driver quotes them.
    connect_timeout
        How long to wait for the server; a ``connect_timeout`` in the url goes first. None: no
        limit.
    statement_timeout
        How long one statement may take. None: no limit.

    Examples
    --------
    >>> postgres("postgresql://ann:secret@db.example/city", "public.zones")
    PostgresTable('public.zones' of ann@db.example:5432/city)
    """
    from rivermouth.spec.filters import filter_of

    with _needs("psycopg", call="tables.postgres", extra="postgres"):
        from rivermouth.tables.sources.postgres.address import PostgresAddress
        from rivermouth.tables.sources.postgres.table import PostgresTable
    limits = _limits("tables.postgres", connect_timeout, statement_timeout)
    return PostgresTable(
        PostgresAddress(url, *limits), table, filter_of(where, at="tables.postgres")
    )


def service(
    function: Callable[[Any], Any],
    *,
    keys: str | Sequence[str],
    schema: Schema,
    name: str | None = None,
    unique: bool = True,
    batch: int = 100,
    concurrency: int = 8,
    timeout: Duration | None = "10 seconds",
) -> ServiceTable:
    """What a function of yours answers: an HTTP service, a key-value store, a model.

    The function is called in the workers with a ``pyarrow.Table`` of distinct keys, at most
    `batch` of them, whose columns are those of `keys`: integers as int64, floats as double, times
    in microseconds. It returns the rows of these keys in one of three forms:

    - a ``pyarrow.Table`` or a list of dicts, each row with all columns of `schema`;
    - a dict of such rows by key (by tuples, where there are several key columns). Such a row need
      not repeat its key; None is no row, a list several rows.

    A key that is not in the answer has no rows: `incremental` keeps that, too, for its
    ``missing_ttl``. Columns that `schema` does not name are left out. A row of a key that was not
    asked for, a second row of a key, a missing column and a value of another type are a
    `TableInvalid`.

    To be joined by ``rm.keys`` of all key columns with ``cache=rm.incremental()``, also by ranges
    with ``by=``; or with ``rm.external()``, which keeps nothing and calls once only. It cannot be
    read whole, so that ``rm.full()`` is an error.

    Parameters
    ----------
    function
        Plain or async. It travels to the workers pickled, so clients and connections are to be
        made there, when they are first used. Async functions run in one event loop per worker.
    keys
        The columns by which it is asked.
    schema
        All columns of an answer, the keys among them: a ``pyarrow.Schema``, or a dict of names and
        types, as in ``{"uid": "int64", "name": "string", "shape": "geometry"}``.
    name
        For messages and metrics. None: the function's.
    unique
        Whether each key has one row at most.
    batch
        The most keys of a call.
    concurrency
        How many calls a worker has under way at a time.
    timeout
        How long a call may take: then an async function is cancelled, and a plain one left to
        end in its thread. None: no limit.

    Notes
    -----
    A call that fails or takes too long is made again as ``incremental(attempts=)`` says, alone.
    Python's errors for mistakes (TypeError, ValueError, KeyError and the like) and an HTTP status
    from 400 to 499 but 408, 425 and 429 end the query at once; raise
    ``rivermouth.errors.TableUnavailable`` or ``TableInvalid`` yourself to decide it.

    Examples
    --------
    >>> def scores(keys):
    ...     return {uid: {"score": uid / 2} for uid in keys["uid"].to_pylist() if uid < 100}
    >>> service(scores, keys="uid", schema={"uid": "int64", "score": "double"})
    ServiceTable('scores' by ['uid'])
    """
    from rivermouth.spec.durations import positive_seconds
    from rivermouth.tables.sources.service.table import service_table

    return service_table(
        function,
        keys,
        schema,
        name=name,
        unique=unique,
        batch=batch,
        concurrency=concurrency,
        timeout=positive_seconds(timeout, where="tables.service(timeout=)"),
    )


def shapefile(path: str | os.PathLike[str], *, where: Where | None = None) -> Shapefile:
    """The rows of a Shapefile, in the file's order; needs the extra ``ogr``.

    Geometries are in column ``geometry``, in the EPSG code that GDAL recognises in the ``.prj``.
    Text is decoded as the ``.cpg`` or the ``.dbf`` says. A Shapefile has no empty text and no
    empty geometry: they are null.

    Parameters
    ----------
    path
        The ``.shp``, or a zip archive that holds one Shapefile; a local path, or a URI that GDAL
        reads.
    where
        Which rows count: see `postgres`. GDAL skips what it can.

    Examples
    --------
    >>> shapefile("/data/zones.shp")
    Shapefile('/data/zones.shp')
    """
    made: Shapefile = _ogr("Shapefile", path, None, where)
    return made


def sqlite(
    path: str | os.PathLike[str],
    table: str,
    *,
    where: Where | None = None,
    statement_timeout: Duration | None = "5 minutes",
) -> SQLiteTable:
    """A table or view in an SQLite file, which is opened read-only.

    Rows come by primary key, or else by rowid. A column is read as its declaration says: INTEGER
    and the like as int64, TEXT as string, REAL, NUMERIC and DECIMAL as double, BLOB as binary,
    BOOLEAN, DATE, and DATETIME or TIMESTAMP (without a zone) from what programs commonly write. A
    value that does not fit, which SQLite allows, is a `TableInvalid` that names row and column; a
    declaration that is not supported, one that names the column. Text compares by its bytes,
    whatever the collation.

    Parameters
    ----------
    path
        A local path.
    table
        Its name, as it is written in the file.
    where
        Which rows count: see `postgres`.
    statement_timeout
        How long one statement may take. None: no limit.

    Examples
    --------
    >>> sqlite("/data/city.db", "zones", where=("closed", "is", None))
    SQLiteTable('zones' of '/data/city.db' where closed is None)
    """
    from rivermouth.spec.durations import positive_seconds
    from rivermouth.spec.filters import filter_of
    from rivermouth.spec.locations import Location
    from rivermouth.tables.sources.sqlite.table import SQLiteFile, SQLiteTable

    seconds = positive_seconds(statement_timeout, where="tables.sqlite(statement_timeout=)")
    file = SQLiteFile(Location.of(path), seconds)
    return SQLiteTable(file, table, filter_of(where, at="tables.sqlite"))
