"""What is made of the micro-batches of a query on several hosts, and of the results."""

from __future__ import annotations

import matplotlib.pyplot as plt
import pytest
from benchmarks.suites.routing import hosts_measures, hosts_tables, routing_tables


def task(host, rows, hits, *, held=10, seconds=1.0, loads=1):
    cache = {
        "worker": f"{host}:7", "hits": hits, "negative_hits": 0, "misses": rows - hits,
        "loads": loads, "load_seconds": 0.5, "rows": held,
    }  # fmt: skip
    return {"rows_in": rows, "seconds": seconds, "cache": cache}


@pytest.fixture
def batches():
    """Two of 400 records on two hosts; in the second one partition has nothing."""
    return [
        {
            "rows": 400, "rows_out": 400, "began": 100.0, "seconds": 2.0, "driver_seconds": 0.4,
            "tasks": [task("a", 300, 240), task("b", 100, 60, held=5)],
            "left": [[99_000_000, 101_000_000], [100_000_000, 101_500_000]],
        },
        {
            "rows": 400, "rows_out": 400, "began": 102.0, "seconds": 1.0, "driver_seconds": 0.2,
            "tasks": [task("b", 400, 400, held=8, loads=0)],
            "left": [[101_000_000, 102_500_000]],
        },
    ]  # fmt: skip


def test_rates_loads_and_hits(batches):
    hosts_measures.check(batches)
    rates = hosts_measures.rates(batches)
    assert rates["rows_per_s"] == pytest.approx(800 / 3)
    assert rates["spread"]["rows_per_s"] == [200, 400]
    assert hosts_measures.loads(batches[1], 2) == [400, 0]
    balance = hosts_measures.balance(batches, 2)
    assert balance["load_cv"] == pytest.approx((2**-0.5 + 2**0.5) / 2)
    assert balance["largest_load"] == pytest.approx(0.875)
    caches = hosts_measures.caches(batches)
    assert caches["hit_ratio"] == pytest.approx(700 / 800)
    assert (caches["cached_rows"], caches["loads_per_million"]) == (18, 2500)
    assert caches["hosts"]["b"] == {
        "records": 500, "hit_ratio": pytest.approx(460 / 500), "cached_rows": 8, "workers": 1,
    }  # fmt: skip


def test_a_micro_batch_waits_for_its_longest_tasks_and_could_gain_what_they_take_more(batches):
    stages = [
        {"began": 99.0, "seconds": [50.0]},  # of the micro-batch before
        {"began": 100.0, "seconds": [0.5, 0.5]},
        {"began": 101.0, "seconds": [0.8, 0.2]},
        {"began": 102.5, "seconds": [0.4, 0.2]},
    ]
    found = hosts_measures.waits(batches, stages)
    assert found["driver_s"] == pytest.approx(0.3)
    assert found["longest_tasks_s"] == pytest.approx((1.3 + 0.4) / 2)
    assert found["mean_tasks_s"] == pytest.approx((1.0 + 0.3) / 2)
    assert found["even_gain"] == pytest.approx((2 / 1.7 + 1 / 0.9) / 2)


def test_latency_is_from_arrival_to_row_and_to_the_end_of_the_batch(batches):
    late = hosts_measures.latencies(batches, since=100.0)
    assert late["records_timed"] == 2
    assert late["p50_ms"] == pytest.approx(1500)
    assert late["p50_to_end_ms"] == pytest.approx(2000)
    with pytest.raises(ValueError, match="no record arrived"):
        hosts_measures.latencies(batches, since=200.0)


def test_a_row_that_is_missing_is_found(batches):
    with pytest.raises(AssertionError, match="399 rows of 400 records"):
        hosts_measures.check([batches[0] | {"rows_out": 399}])


ABOUT = {"hosts": 6, "cores": {"worker": 0.25}}


def skew(z, case, rate, p99):
    hosts = {"a": {"records": 5, "hit_ratio": 0.8, "cached_rows": 9, "workers": 1}}
    return {
        "z": z, "case": case, "rows_per_s": rate, "p50_ms": 100.0, "p99_ms": p99,
        "p99_to_end_ms": p99, "load_cv": 0.3, "load_cv_of_seconds": 0.2, "largest_load": 0.4,
        "hit_ratio": 0.85, "hosts": hosts, "host_load_cv": 0.1, "worker_cores": [0.2, 0.25],
    }  # fmt: skip


def test_tables_of_skews():
    ways = {"hash": (100.0, 1000.0), "ours": (150.0, 600.0), "none": (160.0, 700.0)}
    rows = [skew(z, case, *figures) for z in (1.10, 1.16) for case, figures in ways.items()]
    result = ABOUT | {"rows": rows}
    for table in (hosts_tables.speed, hosts_tables.caches, hosts_tables.weight):
        cells = table(result)
        assert {len(line) for line in cells} == {len(cells[0])}
    assert hosts_tables.speed(result)[2][2:4] == ["150", "1.50"]
    plt.close(hosts_tables.skews_plot(result))


def test_tables_of_the_bar():
    ways = {"hash": (1e5, 2000.0), "none": (1.7e5, 1500.0), "ours": (1.5e5, 1200.0),
            "stay": (1.6e5, 1000.0)}  # fmt: skip
    seconds = dict.fromkeys(("driver_s", "longest_tasks_s", "mean_tasks_s", "load_s"), 0.5)
    rows = [
        {"z": 1.1, "case": case, "rows_per_s": rate, "p99_ms": p99, "batch_s": 4.0, **seconds,
         "even_gain": 1.2, "hit_ratio": 0.8, "worker_cores": 0.15,
         "spread": {"rows_per_s": [rate - 1e4, rate + 1e4], "p99_ms": [p99 - 100, p99 + 200]}}
        for case, (rate, p99) in ways.items()
    ]  # fmt: skip
    result = ABOUT | {"rows": rows}
    assert [line[1:] for line in hosts_tables.bars(result)] == [
        ["", "z = 1.10"], ["at least 1.4", "1.50"], ["at least 1.4", "1.60"],
        ["at most 0.7", "0.60"], ["at most 0.7", "0.50"], ["", "1.20"],
        ["", hosts_tables.LABELS["none"]], ["", hosts_tables.LABELS["stay"]],
    ]  # fmt: skip
    cells = hosts_tables.waits(result)
    assert {len(line) for line in cells} == {12}
    assert cells[1][2:5] == ["100 (90-110)", "2.0 (1.9-2.2) s", "4.00 s"]


def test_tables_of_moves_and_of_binding():
    of = (9, 0.2, 0.2, 0.3, 0.1, 0.4, 2, 0.5, 0.2, 0.1, 0.7)
    series = [{"load_cv": cv, "rows_per_s": 100 * cv, "hit_ratio": cv / 10} for cv in of]
    result = ABOUT | {"rows": [{"case": "ours", "moved": 6, "series": series}]}
    cells = hosts_tables.moves(result)
    # five before the move, not the first and not the last of them alone
    assert cells[1][1:6] == ["0.200", "2.000", "0.500", "0.200", "0.100"]
    assert cells[1][6:] == ["20", "200", "50", "20", "10", "0.020", "0.070"]
    assert {len(line) for line in cells} == {13}
    plt.close(hosts_tables.moves_plot(result))
    row = {
        "case": "ours", "bound": "state", "partitions": 6, "hit_ratio": 0.9, "cached_rows": 7,
        "missed_per_record": 0.1, "loads_per_million": 120.0, "rows_per_s": 5000.0,
    }  # fmt: skip
    cells = hosts_tables.binding(ABOUT | {"rows": [row]})
    assert cells[1][1:5] == ["6", "stay, by state", "0.900", "100"]


def test_what_stands_is_a_median_of_what_there_is_before_the_first_move():
    series = (0.1, 0.3, 0.2, 2, 0.4, 0.5, 3, 0.6, 0.7)
    rows = [
        {"case": case, "batch": number, "load_cv": cv, "moved": number in (3, 6)}
        for case in ("hash", "algorithm2", "ours")
        for number, cv in enumerate(series)
    ]
    cells = routing_tables.over_time({"rows": rows})
    assert cells[1] == ["`rm.by_hash()`", "0.200", "2.500", "0.500", "0.600"]


def test_table_of_a_workload_by_hosts():
    rows = [
        {"case": case, "hosts": hosts, "out_per_s": hosts * 90.0, "p50_ms": 300.0, "p99_ms": 900.0}
        for hosts in (1, 2, 4, 6)
        for case in ("incremental", "full", "by_record")
    ]
    paper = {"paper": {"out_per_s": {"1": 10, "2": 20, "4": 39}, "ms": {"1": 3.0, "4": 4.0}}}
    result = {"name": "recall_hosts", "paper": paper, "rows": rows}
    cells = hosts_tables.workload(result)
    assert cells[1] == [
        "the paper: BS-Join on Flink", "10", "20", "39", "", "3.90", "3", "", "4", "",
    ]  # fmt: skip
    assert cells[2][5:] == ["4.00", *["300 / 900"] * 4]
    assert cells[0][1:] == [
        "results/s, 1 host", "2 hosts", "4 hosts", "6 hosts", "speed-up at 4",
        "latency, ms, 1 host", "2 hosts", "4 hosts", "6 hosts",
    ]  # fmt: skip
    plt.close(hosts_tables.workload_plot(result))
