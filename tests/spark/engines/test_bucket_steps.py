"""A task that joins a table in buckets by place, in this process: its batches, and what waits."""

import time

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import shapely
from pyspark.sql import types as t

import rivermouth as rm
from rivermouth.spark.engines import bucket_steps
from rivermouth.spark.engines.partitioning import ROUTE
from rivermouth.spark.engines.workers import _joined
from rivermouth.spark.validation.join_table import check
from rivermouth.spec.locations import Location
from rivermouth.tables.cache.snapshot import Snapshot
from rivermouth.tables.shared_folder import SharedFolder
from rivermouth.testing import oracle

ON = rm.intersects("a", "b")


def circles(seed, count):
    spots = np.random.default_rng(seed).uniform(0, 10, (count, 2))
    return shapely.to_wkb(shapely.buffer(shapely.points(spots), 1.0, quad_segs=2)).tolist()


def write(path, shapes):
    columns = {"name": [f"{n}" for n in range(len(shapes))], "b": pa.array(shapes, pa.binary())}
    pq.write_table(pa.table(columns), path)


@pytest.fixture
def table(tmp_path):
    write(tmp_path / "table.parquet", circles(1, 80))
    return rm.tables.parquet(tmp_path / "table.parquet", geometry="b")


def checked(table, how="left"):
    fields = [t.StructField("id", t.LongType()), t.StructField("a", t.BinaryType())]
    return check(t.StructType(fields), table, on=ON, how=how, columns=["name"], suffixes=None)


def batch_of(shapes, route):
    ids, routes = pa.array(range(len(shapes))), pa.array(route, pa.int32())
    return pa.RecordBatch.from_arrays(
        [ids, pa.array(shapes, pa.binary()), routes], ["id", "a", ROUTE]
    )


def joined(table, folder, shapes, route):
    """The rows of each batch that a task gives, and its report."""
    cache, shared = rm.full(buckets=6), SharedFolder(Location(str(folder)))
    step = bucket_steps.buckets_step(checked(table), cache, shared)(_joined)
    batch = batch_of(shapes, route)
    parts = [batch.slice(start, 10) for start in range(0, len(shapes), 10)]
    found = [
        sorted((row["id"], row["name"]) for row in out.select(["id", "name"]).to_pylist())
        for out in step.batches(iter(parts))
    ]
    return found, step.report()


@pytest.mark.parametrize("held", [0, 64 << 20], ids=["at once", "at the end"])
def test_events_across_a_cut_come_once_whenever_they_are_looked_up(
    table, tmp_path, monkeypatch, held
):
    monkeypatch.setattr(bucket_steps, "_HELD", held)
    shapes = [*circles(2, 40), None, shapely.box(0, 0, 10, 10).wkb]
    found, report = joined(table, tmp_path / "store", shapes, [0] * len(shapes))
    known = [{"name": f"{n}", "b": shape} for n, shape in enumerate(circles(1, 80))]
    events = [{"id": n, "a": shape} for n, shape in enumerate(shapes)]
    truth = oracle.join_table(events, known, on=ON, how="left", columns=["name"])
    expected = sorted((row["id"], row["name"] or "") for row in truth)
    assert sorted((n, name or "") for part in found for n, name in part) == expected
    assert (report["rows_in"], report["rejected"]) == (42, {"null": 1})
    assert report["counts"]["replicated_rows"] >= 5, "the large box is looked up in six buckets"
    waited = [part for part in found if 41 in dict(part)]
    assert waited == [found[-1]]


def test_rows_do_not_depend_on_where_events_were_sent(table, tmp_path):
    """As when Spark has routed them by another version's cut."""
    shapes, rng = circles(3, 40), np.random.default_rng(4)
    found = [
        joined(table, tmp_path / "store", shapes, route)[0]
        for route in ([0] * 40, rng.integers(0, 6, 40))
    ]
    assert found[0] == found[1]


@pytest.mark.parametrize("opened", ["one bucket", "all buckets", "no bucket"])
def test_an_event_is_looked_up_in_one_version(table, tmp_path, monkeypatch, opened):
    """Also if the version that the task has begun with is removed before the task's last event."""
    monkeypatch.setattr(bucket_steps, "_HELD", 1)
    join, folder = checked(table, "inner"), tmp_path / "store"
    everywhere, shapes = shapely.box(0, 0, 10, 10), circles(1, 80)
    mirrored = [shapely.transform(shape, lambda xy: 10 - xy) for shape in shapely.from_wkb(shapes)]
    cache, shared = rm.full(buckets=6), SharedFolder(Location(str(folder)))
    step = bucket_steps.buckets_step(join, cache, shared)(_joined)
    before = {
        "one bucket": [shapely.Point(0, 0).wkb],
        "all buckets": [everywhere.wkb],
        "no bucket": [],
    }

    def batches():
        for shape in before[opened]:
            yield batch_of([shape], [0])
        write(tmp_path / "table.parquet", shapely.to_wkb(mirrored).tolist())
        younger = rm.full(buckets=6, max_age="1 minute")
        for minutes in (2, 4, 6):  # the first version is the third newest then, and removed
            now = time.time() + 60 * minutes
            Snapshot(join.snapshot_spec(younger), younger, str(folder), lambda now=now: now)
        yield batch_of([everywhere.wkb], [0])

    *_, last = step.batches(batches())
    assert sorted(last.column("name").to_pylist()) == sorted(f"{n}" for n in range(80))
    times = {"one bucket": 1, "all buckets": 2, "no bucket": 1}[opened]
    report = step.report()
    assert report["counts"]["replicated_rows"] == 5 * times
    assert report["table"]["age_seconds"] < 0, "it reports the version that it has gone on with"
