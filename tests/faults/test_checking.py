"""The checker finds what a fault could do: rows lost, repeated, invented, or of two versions."""

from __future__ import annotations

import datetime as dt
import json

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from tests.faults import inputs
from tests.faults.campaign import Happened, History, Result
from tests.faults.checking import (
    EXPECTED,
    Fed,
    check,
    check_revisions,
    check_versions,
    differences,
)
from tests.faults.nemesis import AIMED, COMMON, WORKLOADS, Fault, newest, plan

FED = Fed(
    *(
        pa.concat_tables([inputs.records(1, stream, number) for number in range(4)])
        for stream in inputs.STREAMS
    )
)


def sink(folder, batches):
    """A sink of Spark's with these rows in each batch."""
    (folder / "out" / "_spark_metadata").mkdir(parents=True)
    (folder / "progress").mkdir()
    for number, rows in enumerate(batches):
        pq.write_table(pa.Table.from_pylist(rows), folder / "out" / f"part-{number}.parquet")
        entry = json.dumps({"path": f"file:///mnt/shared/out/part-{number}.parquet"})
        (folder / "out" / "_spark_metadata" / str(number)).write_text(f"v1\n{entry}\n")
    return folder


def pairs(workload):
    return [dict(zip(("id", "other"), row, strict=True)) for row in EXPECTED[workload](FED)]


@pytest.mark.parametrize("workload", ["interval", "window"])
def test_the_pairs_of_the_oracle_pass(tmp_path, workload):
    rows = pairs(workload)
    assert len(rows) > 100
    verdict = check(workload, sink(tmp_path, [rows[:50], rows[50:]]), FED)
    assert verdict.rows == len(rows)
    assert verdict.violations == []


def test_a_lost_a_repeated_and_an_invented_row_are_found(tmp_path):
    rows = pairs("interval")
    doctored = [*rows[1:], rows[5], {"id": -7, "other": -7}]
    missing, surplus = check("interval", sink(tmp_path, [doctored]), FED).violations
    assert missing == f"1 rows missing: {tuple(rows[0].values())}"
    assert surplus.startswith("2 rows not expected: (-7, -7), ")


def reported(folder, number, tasks, *, rows):
    """A batch's progress, as Spark gives it."""
    said = {"tasks": [json.dumps(task) for task in tasks]}
    report = {
        "batchId": number, "numInputRows": rows, "sources": [], "stateOperators": [],
        "timestamp": "2026-01-01T00:00:00.000Z", "durationMs": {"addBatch": 1}, "batchDuration": 1,
        "observedMetrics": {"rivermouth.join_interval.1": said},
    }  # fmt: skip
    (folder / "progress" / f"{number}.json").write_text(json.dumps(report))


def test_metrics_count_the_rows_of_the_sink_unless_the_batch_was_not_run_again(tmp_path):
    rows = pairs("interval")
    folder = sink(tmp_path, [rows[:50], rows[50:]])
    task = {"rows_in": 60, "rows_out": 50}
    reported(folder, 0, [task], rows=60)
    reported(folder, 1, [], rows=0)
    assert check("interval", folder, FED).violations == []
    reported(folder, 0, [{**task, "rows_out": 49}], rows=60)
    (violation,) = check("interval", folder, FED).violations
    assert violation.endswith("50 rows are in the sink")
    reported(folder, 0, [task], rows=60)
    reported(folder, 1, [], rows=60)
    (violation,) = check("interval", folder, FED).violations
    assert violation.startswith("batch 1, ")


def test_differences_count_rows():
    assert differences([(1,), (1,), (2,)], [(1,), (2,), (2,)]) == [
        "1 rows missing: (2,)",
        "1 rows not expected: (1,)",
    ]


def test_two_versions_in_a_batch_and_an_older_one_after_it_are_found():
    def rows(*versions):
        return [{"key": 1, "name": f"1@{each}", "version": each} for each in versions]

    assert check_versions({0: rows(1, 1), 1: rows(2), 2: rows(2)}) == []
    assert check_versions({0: rows(1, 2), 1: rows(1)}) == [
        "batch 0 has rows of versions [1, 2]",
        "batch 1 has version 1 after 2",
    ]
    assert check_versions({0: [{"key": 1, "name": "2@1", "version": 1}]}) != []


def test_revisions_that_do_not_rise_are_found():
    at = dt.datetime(2026, 1, 1)
    changes = [
        {"key": 1, "window_start": at, "revision": 0, "change": "insert", "emitted": at},
        {"key": 1, "window_start": at, "revision": 0, "change": "update", "emitted": at},
    ]
    assert check_revisions(pa.Table.from_pylist(changes[:1])) == []
    assert len(check_revisions(pa.Table.from_pylist(changes))) == 1
    assert len(check_revisions(pa.Table.from_pylist(changes[1:]))) == 1


def test_the_windows_of_the_oracle_hold_every_record_once():
    rows = list(EXPECTED["aggregate"](FED))
    assert sum(count for _, _, count, _ in rows) == FED.events.num_rows
    assert sum(total for *_, total in rows) == sum(FED.events.column("value").to_pylist())


def test_a_plan_is_its_seed_s_and_has_every_kind_about_as_often():
    for workloads in (WORKLOADS, ("window",)):
        made = plan(workloads, 7, 60)
        assert made == plan(workloads, 7, 60)
        assert made != plan(workloads, 8, 60)
        kinds = [fault.kind for fault in made]
        able = [kind for kind, of in AIMED.items() if {*of} & {*workloads}]
        counts = {kind: kinds.count(kind) for kind in (*COMMON, *able)}
        assert sum(counts.values()) == 60
        assert max(counts.values()) - min(counts.values()) <= 1
        assert all(fault.workload in AIMED[fault.kind] for fault in made if fault.kind in AIMED)


def test_a_fault_that_is_aimed_at_one_query_is_another_one_for_the_rest():
    publication = Fault("kill_in_publication", "worker-1", 0.0, 0.0, "refresh")
    assert publication.kind_for("refresh") == "kill_in_publication"
    assert publication.kind_for("window") == "executor_kill"
    assert Fault("table_refresh", "worker-1", 0.0, 0.0, "refresh").kind_for("window") is None
    link = Fault("link_down", "worker-1", 5.0, 0.0)
    assert {link.kind_for(workload) for workload in WORKLOADS} == {"link_down"}


def test_a_history_counts_for_a_query_what_hit_it():
    history = History(("refresh", "window"), 1)
    for kind, aim, did in (
        ("link_down", None, True), ("table_refresh", "refresh", True), ("pause", None, False),
    ):  # fmt: skip
        fault = Fault(kind, "worker-1", 0.0, 0.0, aim)
        history.happened.append(
            Happened(fault, did, {"refresh": 2.04, "window": 3.0}, {"window": 1})
        )
    history.results = {name: Result(9, 540, 500, []) for name in history.workloads}
    refresh, window = map(history.summary, history.workloads)
    assert refresh["recovery"] == {"link_down": [2.0], "table_refresh": [2.0]}
    assert (window["recovery"], window["faults"], window["restarts"]) == (
        {"link_down": [3.0]},
        1,
        3,
    )


def test_the_newest_entry_of_a_log(tmp_path):
    assert newest(tmp_path / "absent") == -1
    for name in ("9", "10", ".11.tmp", "000000000012.arrow"):
        (tmp_path / name).touch()
    assert newest(tmp_path) == 12
