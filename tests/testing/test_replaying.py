from __future__ import annotations

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from rivermouth import testing
from rivermouth.errors import DefinitionError
from rivermouth.testing.replaying import _sizes

pytestmark = pytest.mark.spark

TEXT = """
    arrival | id int | at timestamp         | local timestamp_ntz | price decimal(9, 4) | raw binary
    3       | 1      | 2024-01-01T00:00:03Z | 1969-12-31T23:59:59 | 1.2500              | 00ff
    1       | 2      | 1960-01-01T00:00:00Z | null                | null                | null
    2       | 3      | null                 | 2024-01-01T00:00:00 | -0.0001             |
"""


def test_a_stream_arrives_in_order_in_the_cuts(spark):
    stream = testing.stream(spark, TEXT, cuts=[2, 0, 1])
    assert stream.isStreaming
    assert [[row["id"] for row in batch] for batch in testing.batches(stream)] == [[2, 3], [], [1]]


def test_twelve_batches_come_in_order(spark):
    stream = testing.replay(spark.range(36).repartition(3).orderBy("id"), cuts=3)
    assert testing.batches(stream) == [
        [{"id": number} for number in range(start, start + 3)] for start in range(0, 36, 3)
    ]


def test_values_and_types_survive(spark):
    frame = testing.frame(spark, TEXT)
    stream = testing.replay(frame, cuts=1)
    assert stream.dtypes == frame.dtypes
    assert testing.rows(stream) == testing.rows(frame)


@pytest.mark.since("4.2")  # GEOMETRY
def test_geometry_survives_with_one_srid_and_with_many(spark):
    frame = testing.frame(
        spark,
        """
        srid int | spot geometry
        4326     | POINT (1 2)
        3857     | POINT (3 4)
        0        | null
        """,
    ).selectExpr("st_geomfromwkb(spot, 4326) as one", "st_geomfromwkb(spot, srid) as many")
    stream = testing.replay(frame, cuts=2)
    assert stream.dtypes == frame.dtypes == [("one", "geometry(4326)"), ("many", "geometry(any)")]
    rows = testing.rows(stream)
    assert rows == testing.rows(frame)
    assert [row["many"] and row["many"]["srid"] for row in rows] == [4326, 3857, None]


def test_nested_values_survive(spark):
    frame = spark.sql("select array(1, null) as a, named_struct('x', 1.5D) as s, map('k', 1) as m")
    stream = testing.replay(frame)
    assert stream.dtypes == frame.dtypes
    assert testing.rows(stream) == testing.rows(frame)


def test_the_files_stay_where_they_were_asked_for(spark, tmp_path):
    testing.replay(spark.range(4), cuts=3, path=tmp_path / "stream")
    names = sorted(file.name for file in (tmp_path / "stream").iterdir())
    assert names == ["batch-000000.parquet", "batch-000001.parquet"]


def test_an_empty_frame_is_a_stream_of_one_empty_batch(spark):
    assert testing.batches(testing.replay(spark.range(0), cuts=5)) == [[]]


def test_cuts_that_do_not_add_up_are_an_error(spark):
    with pytest.raises(DefinitionError) as error:
        testing.replay(spark.range(3), cuts=[1, 1])
    assert str(error.value) == (
        "testing.replay: cuts [1, 1] do not add up to the frame's rows; it has 3. "
        "Give sizes whose sum that is."
    )
    with pytest.raises(DefinitionError, match=r"cuts is 0\. Give each batch at least one row"):
        testing.replay(spark.range(3), cuts=0)


@given(count=st.integers(0, 200), cuts=st.integers(1, 50))
@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_sizes_add_up(count, cuts):
    sizes = _sizes(count, cuts)
    assert sum(sizes) == count
    assert all(size == cuts for size in sizes[:-1])
    assert 0 <= sizes[-1] <= cuts
