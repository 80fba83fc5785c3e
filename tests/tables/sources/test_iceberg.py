"""Iceberg tables written by pyiceberg: snapshots, geometries, and what cannot be read."""

import pickle
from pathlib import Path

import pyarrow as pa
import pytest
import shapely
from pyiceberg.catalog import load_catalog
from tests.support.stores import write_iceberg

import rivermouth as rm
from rivermouth.errors import ColumnError, TableInvalid, TableMissing, TableUnavailable
from rivermouth.tables.source import srid_of
from rivermouth.testing import check_table

SHAPES = pa.array([shapely.to_wkb(shapely.Point(n, 2)) for n in range(2)] + [None], pa.binary())
ROWS = pa.table({"id": [1, 2, 3], "city": ["Bern", "Basel", None], "shape": SHAPES})


@pytest.fixture
def catalog(tmp_path):
    return write_iceberg(tmp_path, "city.zones", ROWS)


@pytest.fixture
def written(catalog):
    """The table as its writer has it."""
    with load_catalog("default", **catalog) as opened:
        yield opened.load_table("city.zones")


def ids(table):
    return sorted(table.read(["id"])["id"].to_pylist())


def test_the_newest_snapshot_is_read_unless_one_is_named(catalog, written):
    number = written.current_snapshot().snapshot_id
    newest = rm.tables.iceberg(catalog, "city.zones")
    first = rm.tables.iceberg(catalog, "city.zones", snapshot=number)
    written.append(ROWS.slice(0, 1))
    written.delete("id = 2")
    assert (ids(newest), ids(first)) == ([1, 1, 3], [1, 2, 3])
    written.manage_snapshots().rollback_to_snapshot(number).commit()
    assert ids(newest) == [1, 2, 3]
    assert f"/city.zones@{number}" in first.identity
    assert pickle.loads(pickle.dumps(first)) == first
    check_table(newest, expected=newest.read(["id", "city", "shape"]))


@pytest.mark.skipif(not Path("/proc/self/fd").exists(), reason="/proc has no files of a process")
def test_the_catalog_is_closed_once_it_was_read(catalog, tmp_path):
    table = rm.tables.iceberg(catalog, "city.zones")
    table.schema(), table.revision(), ids(table)
    opened = [fd.readlink() for fd in Path("/proc/self/fd").iterdir() if fd.is_symlink()]
    database = tmp_path.resolve() / "catalog.db"  # other tests' may be open
    assert database.exists()
    assert database not in opened


def test_columns_of_wkb_are_geometries_where_they_are_named(catalog):
    table = rm.tables.iceberg(catalog, "city.zones", geometry="shape")
    assert srid_of(table.schema().field("shape")) == 0
    assert table.read(["shape"])["shape"].to_pylist() == SHAPES.to_pylist()
    with pytest.raises(TableInvalid, match="geometry names column 'city', which is large_string"):
        rm.tables.iceberg(catalog, "city.zones", geometry="city").schema()
    with pytest.raises(ColumnError, match="'shap'"):
        rm.tables.iceberg(catalog, "city.zones", geometry="shap").schema()


def test_a_new_column_is_there_for_old_rows_too(catalog, written):
    table = rm.tables.iceberg(catalog, "city.zones")
    more = ROWS.append_column("level", pa.array([7, 7, 7]))
    with written.update_schema() as update:
        update.union_by_name(more.schema)
    before = table.revision()
    written.append(more)
    assert before != table.revision() == table.revision()
    assert sorted(table.read(["level"])["level"].to_pylist(), key=str) == [7, 7, 7, *[None] * 3]


def test_what_cannot_be_read_is_told_without_secrets(catalog, tmp_path):
    with pytest.raises(TableMissing, match=r"there is no 'city.zone' in 'default'"):
        rm.tables.iceberg(catalog, "city.zone").schema()
    with pytest.raises(TableInvalid, match="has no snapshot 5"):
        rm.tables.iceberg(catalog, "city.zones", snapshot=5).schema()
    away = {"type": "rest", "uri": "http://ann:s3cret@127.0.0.1:9/", "token": "t0ken"}
    table = rm.tables.iceberg(away, "city.zones")
    with pytest.raises(TableUnavailable) as caught:
        table.schema()
    said = f"{caught.value} {table!r} {table.identity} {table._repr_html_()}"
    assert not any(secret in said for secret in ("s3cret", "t0ken"))
    for file in tmp_path.rglob("*.parquet"):
        file.unlink()
    with pytest.raises(TableUnavailable, match=r"'city.zones' cannot be read"):
        ids(rm.tables.iceberg(catalog, "city.zones"))
