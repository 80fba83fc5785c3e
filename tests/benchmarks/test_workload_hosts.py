"""Paper A's workloads as they run on hosts, in one process: stores, streams and rows."""

from __future__ import annotations

from contextlib import ExitStack

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from benchmarks.harness import hosts_feed, hosts_query, stores
from benchmarks.papers import workload_hosts, workload_hosts_driver
from benchmarks.papers.workloads import WORKLOADS
from tests.support.servers import mariadb_server, postgres_server

ROWS, BATCH = 600, 240
SERVERS = {"postgres": postgres_server, "mariadb": mariadb_server}


@pytest.fixture(scope="module", params=SERVERS)
def store(request):
    with SERVERS[request.param]() as server:
        yield server


@pytest.mark.server
def test_a_copied_table_has_the_rows_of_its_file(store, tmp_path):
    made = pa.table(
        {"id": np.arange(5), "small": pa.array([1, 2, 3, 4, 5], pa.int32()),
         "much": [0.1, 1 / 3, 1e-300, -2.5, 1e17], "text": ["a", "b c", "", 'say "d"', "é,"]}
    )  # fmt: skip
    pq.write_table(made, tmp_path / "made.parquet")
    stores.copied(store.url, "made", tmp_path / "made.parquet", indexed=("id",))
    ask = stores.asking(store.url)
    assert sorted(map(tuple, ask("SELECT * FROM made", ()))) == [
        tuple(row.values()) for row in made.to_pylist()
    ]
    assert [*map(tuple, ask("SELECT text FROM made WHERE id = %s", [3]))] == [('say "d"',)]


@pytest.mark.parametrize("name", WORKLOADS)
def test_skewed_records_are_the_same_each_time_and_few_keys_have_most_of_them(name):
    workload = WORKLOADS[name]
    key = {"recall": "customer", "traffic": "turn"}[name]
    first, again, other = (
        workload_hosts.skewed(workload, ROWS, 5_000, stream) for stream in (1, 1, 2)
    )
    assert first.equals(again)
    assert not first.equals(other)
    counts = np.sort(np.bincount(first[key].to_numpy(), minlength=ROWS))[::-1]
    assert counts[: ROWS // 10].sum() > 0.6 * 5_000
    if name == "traffic":
        assert (first["turn"].to_numpy() // 3 == first["road"].to_numpy()).all()


@pytest.fixture(scope="module")
def urls():
    """Of the stores, each with the tables of its workload."""
    with ExitStack() as stack:
        found = {}
        for name, store in workload_hosts.STORES.items():
            server = stack.enter_context(SERVERS[store]())
            WORKLOADS[name].store(server, ROWS)
            found[name] = server.url
        yield found


@pytest.mark.spark
@pytest.mark.server
@pytest.mark.slow
@pytest.mark.parametrize("name", WORKLOADS)
@pytest.mark.parametrize("form", workload_hosts.FORMS)
def test_a_form_gives_every_row(spark, urls, tmp_path, name, form):
    workload = WORKLOADS[name]
    batches, out = workload_hosts._records(workload, ROWS, BATCH, 2)
    hosts_feed.write_batches(batches, tmp_path / "in" / "warm", 4)
    where = {
        "incremental": {"url": urls[name], "rows": ROWS, "held": 50},
        "full": {"tables": str(workload.tables(ROWS)), "snapshots": str(tmp_path / "snapshots")},
        "by_record": {"url": urls[name], "rows": ROWS},
    }[form]
    try:
        workload_hosts_driver.start(
            spark, workload=name, form=form, folder=str(tmp_path), files=4, rows=2 * BATCH,
            where=where,
        )  # fmt: skip
        found = hosts_query.progress(spark, rows=2 * BATCH)
    finally:
        hosts_query.stop(spark)
    assert sum(one["rows_out"] for one in found) == out
    assert sum(one["rows"] for one in found) == 2 * BATCH
