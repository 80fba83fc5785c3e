import pytest
import shapely

import rivermouth as rm
from rivermouth.errors import ColumnError, PlanError, TableMissing
from rivermouth.spark.runtime.versions import GEOMETRY, lacking
from rivermouth.spec.locations import Location
from rivermouth.tables.source import srid_of
from rivermouth.tables.sources.snapshot import SnapshotTable
from rivermouth.testing import frame, replay, rows

pytestmark = pytest.mark.spark


@pytest.fixture
def zones(spark):
    shapes = [("west", shapely.box(0, 0, 5, 9).wkb), ("east", shapely.box(5, 0, 9, 9).wkb)]
    df = spark.createDataFrame(shapes, "zone string, w binary")
    has_geometry = GEOMETRY not in lacking(spark.version)
    shape = "ST_GeomFromWKB(w, 4326)" if has_geometry else "w"
    return df.selectExpr("zone", f"{shape} as shape", "1 as n")


@pytest.fixture
def cabs(spark):
    return frame(
        spark,
        """
        cab int | x double | y double
        1       | 1.0      | 1.0
        2       | 6.0      | 1.0
        3       | 99.0     | 1.0
        """,
    )


@pytest.mark.since("4.2")  # GEOMETRY
def test_a_frame_tells_its_columns_and_reference_system(zones):
    schema = rm.tables.frame(zones).schema()
    assert schema.names == ["zone", "shape", "n"]
    assert srid_of(schema.field("shape")) == 4326
    assert srid_of(schema.field("zone")) is None


def test_a_frame_cannot_be_read_by_workers_and_says_what_can(zones):
    with pytest.raises(PlanError, match=r"table = rm\.snapshot\(df, path\)"):
        rm.tables.frame(zones).read(["zone"])


def test_a_type_that_no_table_has_is_refused_by_name(spark):
    df = spark.sql("select map('a', 1) as m")
    with pytest.raises(ColumnError, match="column 'm' is of a type that a table cannot have"):
        rm.tables.frame(df).schema()


def test_a_snapshot_is_a_table_for_the_workers(zones, cabs, tmp_path):
    table = rm.snapshot(zones, tmp_path / "zones")
    assert table == SnapshotTable(Location.of(tmp_path / "zones"))
    stated = srid_of(table.schema().field("shape"))
    assert stated == (4326 if zones.schema["shape"].dataType.typeName() == "geometry" else None)
    files = (tmp_path / "zones").rglob("*.parquet")
    assert table.file_bytes() == sum(file.stat().st_size for file in files)
    assert table.file_rows() == zones.count()
    on = rm.within(rm.point("x", "y"), "shape")
    joined = rm.join_table(cabs, table, on=on, how="left", columns=["zone"])
    assert {row["cab"]: row["zone"] for row in rows(joined)} == {1: "west", 2: "east", 3: None}


def test_a_new_snapshot_is_taken_up_by_a_running_join(zones, cabs, tmp_path):
    table = rm.snapshot(zones, tmp_path / "zones")
    joined = rm.join_table(
        replay(cabs, cuts=1), table, on=rm.within(rm.point("x", "y"), "shape"),
        columns=["zone"], cache=rm.full(refresh="1 millisecond", max_age="1 millisecond"),
    )  # fmt: skip
    assert {row["zone"] for row in rows(joined)} == {"west", "east"}
    rm.snapshot(zones.selectExpr("concat(zone, ' side') as zone", "shape", "n"), tmp_path / "zones")
    assert {row["zone"] for row in rows(joined)} == {"west side", "east side"}


def test_no_snapshot_is_said_plainly(tmp_path, cabs):
    with pytest.raises(TableMissing, match="there is no snapshot under"):
        rm.join_table(cabs, SnapshotTable(Location.of(tmp_path / "none")), on=rm.keys("cab"))
