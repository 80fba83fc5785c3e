from __future__ import annotations

import math

import pytest

from rivermouth import testing

pytestmark = pytest.mark.spark


def test_a_batch_frame_is_one_batch(spark):
    assert testing.batches(spark.range(2)) == [[{"id": 0}, {"id": 1}]]


def test_rows_that_hold_nan_are_equal(spark):
    frame = spark.sql("select double('nan') as a, array(float('nan')) as b")
    assert testing.rows(frame) == testing.rows(frame) == [{"a": math.nan, "b": [math.nan]}]


def test_a_given_checkpoint_goes_on_where_it_ended(spark, tmp_path):
    options = {"checkpointLocation": str(tmp_path / "checkpoint")}
    files = tmp_path / "stream"
    stream = testing.replay(spark.range(2), path=files)
    assert testing.rows(stream, **options) == [{"id": 0}, {"id": 1}]
    assert testing.rows(stream, **options) == []
    assert testing.rows(stream) == [{"id": 0}, {"id": 1}]


def test_a_stateful_stream_gives_its_closed_windows(spark):
    text = """
    arrival | at timestamp
    1       | 2024-01-01T00:00:01Z
    2       | 2024-01-01T00:00:02Z
    3       | 2024-01-01T00:01:00Z
    """
    counted = (
        testing.stream(spark, text, cuts=1)
        .withWatermark("at", "5 seconds")
        .groupBy("at")
        .count()
        .select("count")
    )
    assert testing.rows(counted) == [{"count": 1}, {"count": 1}]


def test_a_workers_failure_can_be_read(spark):
    def fail(batches):
        for batch in batches:
            raise ValueError(f"a batch of {batch.num_rows} rows is not to our taste")
            yield batch

    for frame in (spark.range(3), testing.replay(spark.range(3))):
        with pytest.raises(Exception, match="is not to our taste") as failure:
            testing.rows(frame.mapInArrow(fail, "id long"))
        lines = str(failure.value).splitlines()
        assert len(lines) < 10, failure.value
