"""Paper A's workloads as they run on hosts, in one process: stores, streams and rows."""

from __future__ import annotations

from contextlib import ExitStack

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from benchmarks.harness import hosts_feed, hosts_query, stores
from benchmarks.papers import workload_hosts, workload_hosts_driver
from benchmarks.papers.workload_hosts import FORMS, WORKLOADS
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
    key = {"recall": "customer", "traffic": "turn", "slices": "road"}[name]
    tables = 512 * ROWS if name == "slices" else ROWS  # as many roads as others have rows
    first, again, other = (
        workload_hosts.skewed(workload, tables, 5_000, stream) for stream in (1, 1, 2)
    )
    assert first.equals(again)
    assert not first.equals(other)
    counts = np.sort(np.bincount(first[key].to_numpy(), minlength=ROWS))[::-1]
    assert counts[: ROWS // 10].sum() > 0.6 * 5_000
    if name == "traffic":
        assert (first["turn"].to_numpy() // 3 == first["road"].to_numpy()).all()


@pytest.fixture(scope="module")
def urls():
    """Of the stores, each with the tables of its workloads."""
    with ExitStack() as stack:
        servers = {name: stack.enter_context(start()) for name, start in SERVERS.items()}
        for name, store in workload_hosts.STORES.items():
            WORKLOADS[name].store(servers[store], ROWS)
        yield {name: servers[store].url for name, store in workload_hosts.STORES.items()}


def test_reports_meet_as_many_rows_of_history_as_a_loop_over_them_finds():
    workload = WORKLOADS["slices"]
    folder = workload.tables(2_000)
    live = workload_hosts.skewed(workload, 2_000, 50, 1).to_pylist()
    history = pq.read_table(folder / "history.parquet").to_pylist()
    truth = sum(
        one["road"] == then["road"] and abs(one["second"] - then["second"]) <= 600
        for one in live
        for then in history
    )
    assert truth > len(live)
    assert workload.out(folder, pa.Table.from_pylist(live)) == truth


@pytest.mark.spark
@pytest.mark.server
@pytest.mark.slow
@pytest.mark.parametrize(("name", "form"), [(name, form) for name in FORMS for form in FORMS[name]])
def test_a_form_gives_every_row(spark, urls, tmp_path, name, form):
    workload = WORKLOADS[name]
    batches, out = workload_hosts._records(workload, ROWS, BATCH, 2)
    hosts_feed.write_batches(batches, tmp_path / "in" / "warm", 4)
    where = {"tables": str(workload.tables(ROWS)), "snapshots": str(tmp_path / "snapshots")}
    if form in ("incremental", "by_record"):
        where = {"url": urls[name], "rows": ROWS}
    if form == "incremental":
        where["held"] = 50
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
