"""Folders on S3, by a real server: URIs with keys and a query, and what is shown of them."""

import json
from types import SimpleNamespace

import numpy as np
import pyarrow as pa
import pyarrow.fs
import pyarrow.parquet as pq
import pytest
from deltalake import write_deltalake
from tests.support.feeds import Journal
from tests.support.object_store import KEY, SECRET, object_store
from tests.tables.changes.test_following import forget, full_load, opened, rows_of

import rivermouth as rm
from rivermouth.errors import DefinitionError, RivermouthError, TableInvalid, TableUnavailable
from rivermouth.kernels.stream_join.salting import SaltChange, SaltSchedule
from rivermouth.spec.locations import Location
from rivermouth.tables import files
from rivermouth.tables.cache import snapshot
from rivermouth.tables.cache.batch_versions import MicroBatch
from rivermouth.tables.cache.snapshot import Snapshot, SnapshotSpec
from rivermouth.tables.changes import following
from rivermouth.tables.skew.routing_store import RoutingStore, TaskStats
from rivermouth.tables.skew.salting_store import SaltingStore
from rivermouth.tables.sources.snapshot import SnapshotTable, publish
from rivermouth.tables.worker_cache import WorkerCache

pytestmark = pytest.mark.server

USERS = pa.table({"uid": pa.array(range(100)), "name": [f"user {n}" for n in range(100)]})
SCHEMES = pytest.mark.parametrize("scheme", ["s3", "s3a"])


@pytest.fixture(scope="module")
def s3():
    with object_store() as (store, _):
        yield store


@pytest.fixture
def users(s3):
    with s3.files.open_output_stream(f"{s3.bucket}/users/part.parquet") as file:
        pq.write_table(USERS, file)
    return s3


def spec(source, buckets=None):
    return SnapshotSpec(source, USERS.schema, keys=rm.keys("uid"), buckets=buckets)


@SCHEMES
def test_parquet_files_are_read(users, scheme):
    table = rm.tables.parquet(users.uri("users", scheme))
    assert table.read(["uid", "name"]).equals(USERS)
    assert table.name == "users"


@SCHEMES
def test_a_delta_table_is_read(s3, tmp_path, scheme):
    write_deltalake(tmp_path / "delta", USERS, mode="overwrite")
    for file in (file for file in (tmp_path / "delta").rglob("*") if file.is_file()):
        name = f"{s3.bucket}/delta-{scheme}/{file.relative_to(tmp_path / 'delta')}"
        with s3.files.open_output_stream(name) as out:
            out.write(file.read_bytes())
    table = rm.tables.delta(s3.uri(f"delta-{scheme}", scheme))
    assert table.read(["uid", "name"]).equals(USERS)
    with pytest.raises(TableInvalid, match="at version 9") as caught:
        rm.tables.delta(s3.uri(f"delta-{scheme}", scheme), version=9).schema()
    assert not any(secret in str(caught.value) for secret in (KEY, SECRET))


@SCHEMES
def test_a_geojson_file_is_read(s3, scheme):
    point = {"type": "Point", "coordinates": [1, 2]}
    feature = {"type": "Feature", "properties": {"name": "a"}, "geometry": point}
    with s3.files.open_output_stream(f"{s3.bucket}/places.geojson") as file:
        file.write(json.dumps({"type": "FeatureCollection", "features": [feature]}).encode())
    table = rm.tables.geojson(s3.uri("places.geojson", scheme))
    assert table.read(["name"]).to_pylist() == [{"name": "a"}]


@SCHEMES
def test_a_snapshot_made_by_one_host_is_copied_by_another(users, tmp_path, monkeypatch, scheme):
    table, cache = rm.tables.parquet(users.uri("users")), rm.full(path=users.uri("snaps", scheme))
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "one"))
    made = Snapshot(spec(table), cache, cache.path).open()
    version = f"{spec(table).digest}/v{made.number}"
    assert f"{version}/rows.arrow" in users.names("snaps")
    assert f"{spec(table).digest}/CURRENT" in users.names("snaps")

    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "two"))
    copied = Snapshot(spec(table), cache, cache.path).open()
    assert copied.number == made.number, "the table was read again"
    assert copied.rows.equals(USERS)
    users.files.delete_dir(f"{users.bucket}/snaps")


def test_a_snapshot_in_buckets_is_copied_bucket_by_bucket(users, tmp_path, monkeypatch):
    table, folder = rm.tables.parquet(users.uri("users")), Location(users.uri("buckets"))
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "one"))
    Snapshot(spec(table, 3), rm.full(), folder)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "two"))
    copied = Snapshot(spec(table, 3), rm.full(), folder)
    found = pa.concat_tables([copied.open(bucket).rows for bucket in range(3)])
    assert found.sort_by("uid").equals(USERS)


def test_hosts_join_one_version_per_micro_batch(users, tmp_path, monkeypatch):
    table, folder = rm.tables.parquet(users.uri("users")), users.uri("refreshed")
    cache = rm.full(refresh="10 seconds")

    def task(host, batch, now):
        monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / host))
        monkeypatch.setattr(snapshot, "_chosen", WorkerCache(size=64))  # as in another process
        micro_batch = MicroBatch("query", batch)
        found = Snapshot(spec(table), cache, folder, lambda: now, batch=micro_batch)
        refreshing = snapshot._refreshing.find(found._store.home)
        if refreshing is not None:
            refreshing.join(30)
        return found.open().number

    first = task("one", 0, 1000.0)
    assert task("two", 0, 1011.0) == first, "and refreshes meanwhile"
    assert task("three", 0, 1012.0) == first
    second = {task(host, 1, 1013.0) for host in ("one", "two", "three")}
    assert len(second) == 1
    assert second != {first}
    assert task("two", 0, 1014.0) == first, "it runs again"
    task("one", 2, 1015.0)
    records = [name for name in users.names("refreshed") if "/batches/" in name]
    assert {int(name.rpartition("/")[2].partition("-")[0]) for name in records} == {1, 2}


def test_a_table_that_follows_changes_is_the_same_on_every_host(s3, tmp_path, monkeypatch):
    journal, folder = Journal(tmp_path), s3.uri("followed")
    journal.add(*(("insert", key, "old", 0, key % 9, 0) for key in range(50)))

    def at(host, batch):
        monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / host))
        forget()  # as in another process
        version = opened(journal, folder, batch=MicroBatch("query", batch), compact_at=6)
        for thread in following._rebuilding.values():
            thread.join(30)
        return version

    known = [0]
    for batch in range(6):
        known.append(len(journal.changes()))
        seen = [at(host, batch) for host in (("one", "two") if batch % 2 else ("two", "one"))]
        assert seen[0].name == seen[1].name, "the hosts of a micro-batch join one version"
        position = seen[0].step.position
        assert rows_of(seen[0]) == rows_of(seen[1]) == full_load(journal, position)
        assert position >= known[-2], "it may be what was there when the batch before began"
        for key in (batch, 10 + batch):
            journal.add(("update", key, "new", batch, 1, 1), ("delete", 30 + key, "", 0, 0, 0))
    assert at("two", 5).name == seen[0].name, "it runs again, with the version that it had"
    assert seen[0].step.counts["compactions"] >= 1
    assert journal.reads() == 1, "the table is read once, by whoever was first"
    journal.add(("delete", 7, "", 0, 0, 0))
    (tmp_path / "lost").write_text(str(len(journal.changes())))
    at("three", 6)
    assert rows_of(at("one", 7)) == full_load(journal, None), "a gap in the feed: a full load"
    assert journal.reads() == 2


def test_other_keys_for_the_same_folder_use_the_same_copy(users, tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    table, uri = rm.tables.parquet(users.uri("users")), users.uri("rotated")
    Snapshot(spec(table), rm.full(), uri)
    Snapshot(spec(table), rm.full(), uri.replace(KEY, "AKIAANOTHER"))
    assert len(list((tmp_path / "rivermouth" / "snapshots").iterdir())) == 1
    shown = [str(path) for path in tmp_path.rglob("*")]
    assert not any(KEY in path or "k3y" in path for path in shown)


@SCHEMES
def test_rules_and_statistics_of_routing(s3, scheme):
    folder = s3.uri(f"routing-{scheme}", scheme)
    keys = np.arange(50)
    for partition in range(2):
        ones = np.ones(50).tolist()
        RoutingStore(folder).add(
            TaskStats(partition, 500, 0, 1.0, 0.0, (keys + 50 * partition).tolist(), ones, ones)
        )
    state = RoutingStore(folder).advance(rm.by_hotspot(cycle=1000), 2)
    assert (state.version, sum(state.records)) == (1, 1000)
    assert RoutingStore(folder).state(2) == state
    assert s3.names(f"routing-{scheme}") == ["rule.json"], "the statistics are not kept"


@SCHEMES
def test_salting_changes(s3, scheme):
    store = SaltingStore(s3.uri(f"skew-{scheme}", scheme), 8, where="join_interval")
    change = SaltChange(0, 100, 4, 3)
    assert store.schedule(7) == SaltSchedule()
    store.publish(0, [change])
    assert store.schedule(7) == SaltSchedule((change,))
    assert s3.names(f"skew-{scheme}") == ["bucket-0.json"]


def test_a_published_table(users):
    folder = Location(users.uri("published"))
    users.files.copy_file(
        f"{users.bucket}/users/part.parquet", f"{users.bucket}/published/v1/part.parquet"
    )
    publish(folder, "v1", {})
    table = SnapshotTable(folder)
    assert table.read(["uid", "name"]).equals(USERS)
    assert KEY not in repr(table) + table.identity


def test_errors_show_no_keys(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    with object_store() as (store, server):
        uri = store.uri("gone")
        said = [_error(lambda: rm.tables.parquet(uri).schema())]
        said.append(_error(lambda: SnapshotTable(Location(uri)).schema()))
        server.stop()
        said.append(_error(lambda: rm.tables.parquet(uri).schema()))
        said.append(_error(lambda: SaltingStore(uri, 8, where="join_interval").schedule(1)))
        said.append(_error(lambda: rm.tables.geojson(uri).schema()))
    said.append(_error(lambda: rm.tables.geojson(uri + "&token=1").schema()))
    for text in said:
        assert "gone" in text, text
        assert not any(s in text for s in (KEY, SECRET, SECRET.replace("/", "%2F"))), text


def test_a_scheme_that_pyarrow_does_not_know_is_refused():
    with pytest.raises(DefinitionError, match=r"'dbfs://x/y' is not a URI that pyarrow.fs knows"):
        rm.tables.geojson("dbfs://x/y").schema()


def _error(call):
    with pytest.raises(RivermouthError) as raised:
        call()
    return f"{raised.value} {raised.value.__cause__ or ''}"


def test_a_store_that_cannot_be_opened_is_named_with_what_to_set(monkeypatch):
    # pyarrow asks Amazon for a bucket's region where nothing names it; here it cannot
    said = "When resolving region for bucket 'lab': AWS Error NETWORK_CONNECTION, key SECRET%2F"

    def unreachable(_):
        raise OSError(said)

    monkeypatch.setattr(pyarrow.fs, "FileSystem", SimpleNamespace(from_uri=unreachable))
    with pytest.raises(TableUnavailable) as caught:
        files.filesystem("s3a://KEY:SECRET%2F@lab/snapshots")
    text = str(caught.value)
    assert text.startswith("path: 's3a://lab/snapshots' cannot be opened on host '")
    assert "When resolving region for bucket 'lab'" in text
    assert "set AWS_DEFAULT_REGION" in text
    assert "SECRET" not in text.replace("AWS_SECRET_ACCESS_KEY", "")
