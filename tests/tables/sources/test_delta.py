"""Delta tables written by deltalake: versions, partitions, geometries, and what cannot be read."""

import math
import pickle

import pyarrow as pa
import pyarrow.dataset as ds
import pytest
import shapely
from deltalake import DeltaTable, write_deltalake

import rivermouth as rm
from rivermouth.errors import TableInvalid, TableMissing
from rivermouth.tables.source import srid_of
from rivermouth.testing import check_table

ROWS = pa.table({"id": [1, 2, 3], "city": ["Bern", "Basel", None], "share": [0.5, math.nan, 2.0]})


@pytest.fixture
def path(tmp_path):
    write_deltalake(tmp_path / "zones", ROWS, partition_by=["city"])
    return tmp_path / "zones"


def ids(table):
    return sorted(table.read(["id"])["id"].to_pylist())


def test_the_newest_version_is_read_unless_one_is_named(path):
    newest, first = rm.tables.delta(path), rm.tables.delta(path, version=0)
    write_deltalake(path, ROWS.slice(0, 1), mode="append")
    DeltaTable(path).delete("id = 2")
    assert (ids(newest), ids(first)) == ([1, 1, 3], [1, 2, 3])
    assert (newest.revision(), first.revision()) == ("2", "0")
    DeltaTable(path).restore(0)
    assert ids(newest) == [1, 2, 3]
    assert repr(first) == f"DeltaFiles('{path}@0')"
    assert first.identity != newest.identity
    assert pickle.loads(pickle.dumps(first)) == first
    check_table(newest, expected=newest.read(["id", "city", "share"]))


def test_a_version_knows_what_its_files_take(path):
    sizes = [file.stat().st_size for file in path.rglob("*.parquet")]
    write_deltalake(path, ROWS.slice(0, 1), mode="append")
    before, now = rm.tables.delta(path, version=0), rm.tables.delta(path)
    assert before.file_bytes() == sum(sizes) < now.file_bytes()
    assert before.file_rows() == ROWS.num_rows == now.file_rows() - 1


@pytest.mark.parametrize(
    ("where", "expected"),
    [
        (("city", "=", "Basel"), [2]),
        (("city", "is", None), [3]),
        (("share", "<", 5.0), [1, 3]),
        ([("city", "is not", None), ("id", ">", 1)], [2]),
    ],
)
def test_rows_are_filtered_by_partitions_and_by_values(path, where, expected):
    assert ids(rm.tables.delta(path, where=where)) == expected


def test_files_of_other_partitions_are_not_read(path):
    (file,) = rm.tables.delta(path).dataset().get_fragments(ds.field("city") == "Bern")
    assert file.path.startswith("city=Bern/")


def test_a_file_that_was_removed_under_the_log_is_told_so(path):
    table = rm.tables.delta(path)
    for file in path.glob("city=*/*.parquet"):
        file.unlink()
    with pytest.raises(TableMissing, match=r"tables.delta: there is no"):
        ids(table)


def test_columns_of_wkb_are_geometries_where_they_are_named(tmp_path):
    shapes = pa.array([shapely.to_wkb(shapely.Point(1, 2)), None], pa.binary())
    write_deltalake(tmp_path / "zones", pa.table({"id": [1, 2], "shape": shapes}))
    table = rm.tables.delta(tmp_path / "zones", geometry="shape")
    assert srid_of(table.schema().field("shape")) == 0
    assert table.read(["shape"])["shape"].to_pylist() == shapes.to_pylist()


def test_a_new_column_is_there_for_old_rows_too(path):
    table = rm.tables.delta(path)
    write_deltalake(
        path, ROWS.append_column("level", pa.array([7, 7, 7])), mode="append", schema_mode="merge"
    )
    assert {*table.schema().names} == {"id", "city", "share", "level"}
    assert sorted(table.read(["level"])["level"].to_pylist(), key=str) == [7, 7, 7, *[None] * 3]


def test_what_is_no_table_or_no_version_is_told_so(path, tmp_path):
    with pytest.raises(TableMissing, match=r"tables.delta: .*is no Delta table"):
        rm.tables.delta(tmp_path).schema()
    with pytest.raises(TableMissing, match=r"is no Delta table"):
        rm.tables.delta(tmp_path).revision()
    with pytest.raises(TableInvalid, match=r"cannot be read at version 9"):
        rm.tables.delta(path, version=9).schema()


def test_deletion_vectors_are_refused_rather_than_ignored(path):
    log = path / "_delta_log" / "00000000000000000001.json"
    log.write_text(
        '{"protocol":{"minReaderVersion":3,"minWriterVersion":7,'
        '"readerFeatures":["deletionVectors"],"writerFeatures":["deletionVectors"]}}\n'
    )
    with pytest.raises(TableInvalid, match=r"deletion vectors"):
        rm.tables.delta(path).schema()
