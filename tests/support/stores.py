"""The same rows in each kind of store, so that one test body asks them all."""

from __future__ import annotations

import datetime as dt
import json
import sqlite3
import warnings
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any
from urllib.parse import unquote, urlsplit

import psycopg
import pyarrow as pa
import pyarrow.parquet as pq
import pymysql
import pyogrio
import pytest
import shapely
from deltalake import write_deltalake
from pyiceberg.catalog import load_catalog

import rivermouth as rm

DATABASES = ("sqlite", "mysql", "postgres")
QUERYABLE = (*DATABASES, "parquet", "delta")
OGR = {"geopackage": "GPKG", "shapefile": "ESRI Shapefile", "flatgeobuf": "FlatGeobuf"}
STORES = (*QUERYABLE, "geojson", "iceberg", *OGR)

_SUFFIXES = {"geopackage": "gpkg", "shapefile": "shp", "flatgeobuf": "fgb"}
_NAIVE, _DECIMAL, _WIDE = pa.timestamp("us"), pa.decimal128(12, 3), pa.decimal128(38, 4)
_JSON = {pa.int64(), pa.int32(), pa.float64(), pa.string(), pa.bool_()}
_HELD = {
    "geojson": _JSON,
    "geopackage": {*_JSON, pa.binary(), pa.date32(), pa.timestamp("us", "UTC")},
    "flatgeobuf": {*_JSON, pa.binary(), pa.timestamp("us", "UTC")},
    "shapefile": {*_JSON, pa.date32()},
}
_WITHOUT = {"sqlite": {_DECIMAL, _WIDE, pa.timestamp("us", "UTC")}}
_TYPES = {
    pa.int64(): ("INTEGER", "BIGINT", "int8"),
    pa.int32(): ("INTEGER", "INT", "int4"),
    pa.float64(): ("REAL", "DOUBLE", "float8"),
    # a collation that takes E for e, and blanks at the end for nothing
    pa.string(): (
        "TEXT COLLATE NOCASE",
        "VARCHAR(60) CHARACTER SET utf8mb4 COLLATE utf8mb4_general_ci",
        "text",
    ),
    pa.bool_(): ("BOOLEAN", "BIT(1)", "bool"),
    pa.binary(): ("BLOB", "VARBINARY(60)", "bytea"),
    pa.date32(): ("DATE", "DATE", "date"),
    pa.timestamp("us"): ("DATETIME", "DATETIME(6)", "timestamp"),
    pa.timestamp("us", "UTC"): ("", "TIMESTAMP(6) NULL", "timestamptz"),
    _DECIMAL: ("", "DECIMAL(12, 3)", "numeric(12, 3)"),
    _WIDE: ("", "DECIMAL(38, 4)", "numeric(38, 4)"),
}


@contextmanager
def mysql_connection(url: str) -> Iterator[Any]:
    """A connection of the test's own, which may write."""
    parts = urlsplit(url)
    connection = pymysql.connect(
        host=parts.hostname,
        port=parts.port,
        user=parts.username,
        password=unquote(parts.password),
        database=parts.path[1:],
        autocommit=True,
        charset="utf8mb4",
    )
    with connection:
        yield connection


def write_ogr(path: Path, driver: str, rows: pa.Table, shapes: Any, **how: Any) -> Path:
    """A file of GDAL's with these rows, and a geometry each."""
    geometry = pa.array([None if s is None else shapely.to_wkb(s) for s in shapes], pa.binary())
    path.unlink(missing_ok=True)
    given = {"geometry_type": "Unknown", "crs": "EPSG:4326", **how}
    if driver == "ESRI Shapefile" and given["geometry_type"] == "Unknown":
        given["geometry_type"] = "Point"
    if driver == "FlatGeobuf":
        given.setdefault("SPATIAL_INDEX", "NO")  # which else sorts the rows
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # a Shapefile has no room for some numbers
        pyogrio.write_arrow(
            rows.append_column("geometry", geometry),
            path,
            driver=driver,
            geometry_name="geometry",
            **given,
        )
    return path


def write_iceberg(folder: Path, name: str, rows: pa.Table) -> dict[str, str]:
    """A table with these rows in a catalog of its own; gives the catalog's properties."""
    at = {"type": "sql", "uri": f"sqlite:///{folder}/catalog.db", "warehouse": f"file://{folder}"}
    catalog = load_catalog("default", **at)
    catalog.create_namespace_if_not_exists(name.partition(".")[0])
    if catalog.table_exists(name):
        catalog.drop_table(name)
    catalog.create_table(name, schema=rows.schema).append(rows)
    catalog.close()
    return at


class Store:
    """A place to put tables in: `put` writes rows there and gives back the table."""

    def __init__(self, kind: str, at: str | Path) -> None:
        self.kind, self.at = kind, at

    def columns(self, rows: pa.Table) -> pa.Table:
        """The columns of `rows` that this store has types for."""
        held = _HELD.get(self.kind, {*_TYPES} - _WITHOUT.get(self.kind, set()))
        return rows.select([field.name for field in rows.schema if field.type in held])

    def put(self, name: str, rows: pa.Table, *, index: str = "", **how: Any) -> Any:
        """The table `name` with these rows, in the order of their column ``id``."""
        if self.kind not in DATABASES:
            return self._put_file(name, rows, **how)
        place = DATABASES.index(self.kind)
        declared = ", ".join(
            f"{field.name} {_TYPES[field.type][place]}" + " PRIMARY KEY" * (field.name == "id")
            for field in rows.schema
        )
        statements = [f"DROP TABLE IF EXISTS {name}", f"CREATE TABLE {name} ({declared})"]
        mark = "?" if self.kind == "sqlite" else "%s"
        insert = f"INSERT INTO {name} VALUES ({', '.join([mark] * rows.num_columns)})"
        values = [tuple(map(self._written, row.values())) for row in rows.to_pylist()]
        with self._connection() as connection, closing(connection.cursor()) as cursor:
            for statement in statements:
                cursor.execute(statement)
            cursor.executemany(insert, values)
            if index:
                cursor.execute(f"CREATE INDEX {name}_index ON {name} ({index})")
            connection.commit()
        return self.table(name, **how)

    def _put_file(self, name: str, rows: pa.Table, **how: Any) -> Any:
        """A file with these rows; with a point each where the format is made for places."""
        path = self.at / f"{name}.{_SUFFIXES.get(self.kind, self.kind)}"
        if self.kind == "parquet":
            pq.write_table(rows, path, row_group_size=500)
        elif self.kind == "delta":
            write_deltalake(path, rows, mode="overwrite", schema_mode="overwrite")
        elif self.kind == "iceberg":
            return rm.tables.iceberg(
                write_iceberg(self.at, f"city.{name}", rows), f"city.{name}", **how
            )
        elif self.kind == "geojson":
            features = [
                {"type": "Feature", "properties": row, "geometry": None} for row in rows.to_pylist()
            ]
            path.write_text(json.dumps({"type": "FeatureCollection", "features": features}))
        else:
            write_ogr(path, OGR[self.kind], rows, [shapely.Point(1, 2)] * rows.num_rows)
        return getattr(rm.tables, self.kind)(path, **how)

    def table(self, name: str, **how: Any) -> Any:
        """The table `name`."""
        made = {
            "sqlite": rm.tables.sqlite,
            "mysql": rm.tables.mysql,
            "postgres": rm.tables.postgres,
        }
        return made[self.kind](self.at, name, **how)

    def execute(self, *statements: str) -> None:
        """Run statements of the test's own."""
        with self._connection() as connection, closing(connection.cursor()) as cursor:
            for statement in statements:
                cursor.execute(statement)
            connection.commit()

    @contextmanager
    def _connection(self) -> Iterator[Any]:
        match self.kind:
            case "sqlite":
                with closing(sqlite3.connect(self.at)) as connection:
                    yield connection
            case "mysql":
                with mysql_connection(str(self.at)) as connection:
                    yield connection
            case "postgres":
                with psycopg.connect(str(self.at)) as connection:
                    yield connection

    def _written(self, value: Any) -> Any:
        if self.kind == "sqlite" and isinstance(value, dt.date):
            return str(value)
        if self.kind == "mysql" and isinstance(value, dt.datetime):
            return value.replace(tzinfo=None)
        return value


def store_of(kind: str, request: pytest.FixtureRequest, folder: Path) -> Store:
    """A store of this kind, its server started if it needs one."""
    match kind:
        case "mysql":
            return Store(kind, request.getfixturevalue("mariadb_url"))
        case "postgres":
            return Store(kind, request.getfixturevalue("postgres_url"))
        case "sqlite":
            return Store(kind, folder / "a # b?.db")
    return Store(kind, folder)
