"""A task that joins a table by an incremental cache, in this process: the time that it counts."""

import time

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyspark.sql import types as t

import rivermouth as rm
from rivermouth.kernels.table_join.assemble import assemble
from rivermouth.spark.engines import workers
from rivermouth.spark.engines.table_steps import incremental_step
from rivermouth.spark.validation.join_table import check
from rivermouth.tables.cache.incremental import IncrementalCache

BATCHES, BUSY = 3, 0.05


def busy():
    began = time.thread_time()
    while time.thread_time() - began < BUSY:
        pass


def idle():
    time.sleep(BUSY)


def before(work, function):
    def called(*given, **named):
        work()
        return function(*given, **named)

    return called


@pytest.fixture
def seconds(tmp_path):
    """The seconds that a task of some batches reports; `work` is done before it gets each."""
    pq.write_table(pa.table({"k": range(40), "name": ["a"] * 40}), tmp_path / "table.parquet")
    table = rm.tables.parquet(tmp_path / "table.parquet")
    fields = t.StructType([t.StructField("k", t.LongType())])
    join = check(fields, table, on=rm.keys("k"), how="left", columns=["name"], suffixes=None)

    def made(work=lambda: None):
        for number in range(BATCHES):
            work()
            keys = pa.array(range(10 * number, 10 * number + 10), pa.int64())
            yield pa.RecordBatch.from_arrays([keys], ["k"])

    def measured(work=lambda: None):
        step = incremental_step(join, rm.incremental(rows=100))(workers._joined)
        for _ in step.batches(made(work)):
            work()  # as Spark does when it takes a batch
        report = step.report()
        assert (report["rows_in"], report["matched"]) == (10 * BATCHES, 10 * BATCHES)
        return report["seconds"]

    measured()  # kernels are compiled
    return measured


@pytest.mark.parametrize("part", ["begin", "finish"])
def test_looking_keys_up_and_gathering_rows_counts(seconds, monkeypatch, part):
    monkeypatch.setattr(IncrementalCache, part, before(busy, getattr(IncrementalCache, part)))
    assert seconds() >= BATCHES * BUSY


@pytest.mark.parametrize("part", ["begin", "finish"])
def test_waiting_for_the_store_or_another_task_does_not_count(seconds, monkeypatch, part):
    monkeypatch.setattr(IncrementalCache, part, before(idle, getattr(IncrementalCache, part)))
    assert seconds() < BATCHES * BUSY


@pytest.mark.parametrize(("work", "counts"), [(busy, True), (idle, False)])
def test_joining_is_measured_by_the_same_clock(seconds, monkeypatch, work, counts):
    """Where there are more tasks than cores a task waits while it joins, too."""
    monkeypatch.setattr(workers, "assemble", before(work, assemble))
    assert (seconds() >= BATCHES * BUSY) == counts


def test_what_spark_does_between_batches_does_not_count(seconds):
    assert seconds(busy) < BATCHES * BUSY
