"""Where dimension rows come from, and how they are kept near the stream.

Each function returns a frozen value that says where a table is; nothing is read until a join is
defined (the table's columns) or runs (its rows).
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from rivermouth.spec.durations import Duration
    from rivermouth.spec.filters import Where
    from rivermouth.tables.sources.frame import FrameTable
    from rivermouth.tables.sources.geojson import GeoJSONFile
    from rivermouth.tables.sources.geopackage import GeoPackageLayer
    from rivermouth.tables.sources.mysql.table import MySQLTable
    from rivermouth.tables.sources.parquet import ParquetFiles
    from rivermouth.tables.sources.postgres.table import PostgresTable
    from rivermouth.tables.sources.sqlite.table import SQLiteTable

__all__ = ["frame", "geojson", "geopackage", "mysql", "parquet", "postgres", "sqlite"]

# A module here never has the name of a function: importing it would put it in the function's place.


def frame(df: Any) -> FrameTable:
    """The rows of a batch DataFrame, joined by the native plan.

    For conditions that only the workers' plan can do, write the frame down once and use what
    that gives: ``table = rm.snapshot(df, path)``.
    """
    from rivermouth.tables.sources.frame import FrameTable, check_is_batch

    check_is_batch(df)
    return FrameTable(df)


def geojson(path: str | os.PathLike[str]) -> GeoJSONFile:
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

    Examples
    --------
    >>> geojson("/data/districts.geojson")
    GeoJSONFile(path='/data/districts.geojson')
    """
    from rivermouth.tables.files import located
    from rivermouth.tables.sources.geojson import GeoJSONFile

    return GeoJSONFile(located(path))


def geopackage(path: str | os.PathLike[str], layer: str | None = None) -> GeoPackageLayer:
    """The rows of a GeoPackage layer, by primary key.

    The geometry column is called ``geometry`` whatever the file calls it, in the layer's EPSG
    code; the primary key is a column like the others. DATETIME is read as a timestamp in UTC.

    Parameters
    ----------
    path
        A local path; the file is opened read-only.
    layer
        A table of ``gpkg_contents``. None: the only one with geometries; several are a
        `TableMissing` that lists them.

    Examples
    --------
    >>> geopackage("/data/city.gpkg", layer="zones")
    GeoPackageLayer(path='/data/city.gpkg', layer='zones')
    """
    from rivermouth.tables.files import located
    from rivermouth.tables.sources.geopackage import GeoPackageLayer

    return GeoPackageLayer(located(path), layer)


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
    Geometries are read as WKB, in the SRID that all rows share. A type that is not known is a
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
        Which rows count, decided by the server: see `postgres`. The driver quotes the values.
    connect_timeout
        How long to wait for the server. None: for ever.
    statement_timeout
        How long one statement may take. None: for ever.

    Examples
    --------
    >>> mysql("mysql://ann:secret@db.example/city", "zones", where=("level", ">=", 3))
    MySQLTable('zones' of ann@db.example:3306/city where level >= 3)
    """
    from rivermouth.errors import SessionError
    from rivermouth.spec.durations import positive_seconds
    from rivermouth.spec.filters import filter_of

    try:
        from rivermouth.tables.sources.mysql.address import MySQLAddress
        from rivermouth.tables.sources.mysql.table import MySQLTable
    except ImportError as error:
        raise SessionError(
            "tables.mysql",
            "the driver PyMySQL cannot be imported",
            there=str(error),
            todo="Install it: pip install 'rivermouth[mysql]'.",
        ) from error
    address = MySQLAddress(
        url,
        positive_seconds(connect_timeout, where="tables.mysql(connect_timeout=)"),
        positive_seconds(statement_timeout, where="tables.mysql(statement_timeout=)"),
    )
    return MySQLTable(address, table, filter_of(where, at="tables.mysql"))


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
    ParquetFiles(path='s3://bucket/zones/', geometry=('shape',))
    """
    from rivermouth.spec.filters import filter_of
    from rivermouth.tables.files import located
    from rivermouth.tables.sources.parquet import ParquetFiles

    named = (geometry,) if isinstance(geometry, str) else tuple(geometry or ())
    return ParquetFiles(located(path), named, filter_of(where, at="tables.parquet"))


def postgres(
    url: str,
    table: str,
    *,
    where: Where | None = None,
    connect_timeout: Duration | None = "10 seconds",
    statement_timeout: Duration | None = "5 minutes",
) -> PostgresTable:
    """A table or view in PostgreSQL, PostGIS's geometry and geography columns included.

    Rows come by primary key, or else in the order in which they lie in the table; a view has no
    order of its own. Geometries are read as WKB, in the SRID that their type states or that all
    rows share. ``numeric(p, s)`` is read as a decimal, ``numeric`` without bounds as a double;
    ``uuid``, ``json`` and enumerations as text. A type that is not known is a `TableInvalid` that
    names the column: cast it in a view.

    With ``cache=rm.external()`` PostGIS answers each batch of records with one statement. Give
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
        Which rows count, decided by the server: one comparison ``(column, operator, value)``, or
        several that must all hold, as in ``[("city", "=", "Bern"), ("level", "in", [1, 2])]``. The
        operators are ``= != < <= > >=``, ``in`` and ``not in`` with a list, ``is`` and ``is not``
        with None. Text compares by its bytes; null and NaN satisfy no comparison. Values are
        bound; for reading the whole table, which COPY does, the driver quotes them.
    connect_timeout
        How long to wait for the server; a ``connect_timeout`` in the url goes first. None: for
        ever.
    statement_timeout
        How long one statement may take. None: for ever.

    Examples
    --------
    >>> postgres("postgresql://ann:secret@db.example/city", "public.zones")
    PostgresTable('public.zones' of ann@db.example:5432/city)
    """
    from rivermouth.errors import SessionError
    from rivermouth.spec.durations import positive_seconds
    from rivermouth.spec.filters import filter_of

    try:
        from rivermouth.tables.sources.postgres.address import PostgresAddress
        from rivermouth.tables.sources.postgres.table import PostgresTable
    except ImportError as error:
        raise SessionError(
            "tables.postgres",
            "the driver psycopg cannot be imported",
            there=str(error),
            todo="Install it: pip install 'rivermouth[postgres]'.",
        ) from error
    address = PostgresAddress(
        url,
        positive_seconds(connect_timeout, where="tables.postgres(connect_timeout=)"),
        positive_seconds(statement_timeout, where="tables.postgres(statement_timeout=)"),
    )
    return PostgresTable(address, table, filter_of(where, at="tables.postgres"))


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
    declaration that is not known, one that names the column. Text compares by its bytes, whatever
    the collation.

    Parameters
    ----------
    path
        A local path.
    table
        Its name, as it is written in the file.
    where
        Which rows count: see `postgres`.
    statement_timeout
        How long one statement may take. None: for ever.

    Examples
    --------
    >>> sqlite("/data/city.db", "zones", where=("closed", "is", None))
    SQLiteTable('zones' of '/data/city.db' where closed is None)
    """
    from rivermouth.spec.durations import positive_seconds
    from rivermouth.spec.filters import filter_of
    from rivermouth.tables.files import located
    from rivermouth.tables.sources.sqlite.table import SQLiteFile, SQLiteTable

    seconds = positive_seconds(statement_timeout, where="tables.sqlite(statement_timeout=)")
    file = SQLiteFile(located(path), seconds)
    return SQLiteTable(file, table, filter_of(where, at="tables.sqlite"))
