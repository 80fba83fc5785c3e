"""metrics: progress reports as Spark gives them, in each of their forms, and a real query."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from pyspark.sql import Row, SparkSession
from pyspark.sql.streaming.listener import StreamingQueryProgress
from tests.support.queries import PlayedQuery

import rivermouth as rm
from rivermouth.errors import RivermouthError
from rivermouth.kernels.table_join.map_sketch import packed
from rivermouth.testing import frame, replay

ZONES = {
    "type": "FeatureCollection",
    "features": [
        {
            "type": "Feature",
            "properties": {"zone": zone},
            "geometry": {
                "type": "Polygon",
                "coordinates": [[[x, 0], [x + 1, 0], [x + 1, 1], [x, 1], [x, 0]]],
            },
        }
        for zone, x in (("a", 0), ("b", 1))
    ],
}


def task(rows: int, matched: int, *, version: int | None = 1, age: float = 1, **aside: int) -> str:
    report: dict[str, Any] = {
        "rows_in": rows,
        "rows_out": rows + 1,
        "matched": matched,
        "seconds": 0.25,
        "rejected": aside,
    }
    if version is not None:
        report["table"] = {
            "rows": 10 * version,
            "version": version,
            "age_seconds": age,
            "load_seconds": 0.5,
            "index": "cells",
        }
    return json.dumps(report)


def progress(number: int, rows: int, milliseconds: int, **observed: list[str]) -> dict[str, Any]:
    """A report as in Spark's JSON."""
    return {
        "id": "5fd04b5e-5e4f-4b8f-a6f5-3c0d6f1f1d2a",
        "runId": "0ea2ba4f-7c4d-4b1c-8e6c-0d5a0c4a4f6e",
        "name": None,
        "timestamp": "2026-11-15T21:00:00.000Z",
        "batchId": number,
        "batchDuration": milliseconds,
        "durationMs": {"addBatch": milliseconds - 1, "triggerExecution": milliseconds},
        "eventTime": {},
        "stateOperators": [],
        "sources": [source(rows)],
        "sink": {"description": "memory", "numOutputRows": -1},
        "observedMetrics": {
            name.replace("__", "."): {"tasks": tasks} for name, tasks in observed.items()
        },
    }


def source(rows: int) -> dict[str, Any]:
    offsets = {"startOffset": "0", "endOffset": "1", "latestOffset": "1"}
    rates = {"inputRowsPerSecond": 1.0, "processedRowsPerSecond": 1.0}
    return {"description": "files", **offsets, "numInputRows": rows, **rates, "metrics": {}}


def bucket(number: int, *, watermark: int | None = None, **more: Any) -> dict[str, Any]:
    """What a step says, as the stateful door carries it."""
    return {"bucket": number, "seconds": 0.5, "watermark": watermark, **more}


def of(*reports: Any) -> dict[str, Any]:
    return rm.metrics(PlayedQuery.ended(*reports))  # type: ignore[arg-type]


def test_a_query_that_has_not_begun() -> None:
    assert of() == {
        "batches": 0,
        "since_batch": None,
        "missed_batches": 0,
        "rows": 0,
        "source_rows": 0,
        "rows_per_second": None,
        "last_batch_seconds": None,
        "median_batch_seconds": None,
        "p95_batch_seconds": None,
        "latency": None,
        "backlog": None,
        "state": None,
        "corrections": None,
        "operators": {},
    }


def test_batches_are_counted_and_timed() -> None:
    numbers = of(progress(0, 100, 4000), progress(1, 300, 500), progress(2, 200, 1500))
    assert numbers["batches"] == 3
    assert numbers["rows"] == 600
    assert numbers["rows_per_second"] == 100
    assert numbers["last_batch_seconds"] == 1.5
    assert numbers["median_batch_seconds"] == 1.5


def test_waiting_is_no_batch_and_a_batch_reported_twice_counts_once() -> None:
    waiting = progress(1, 0, 3) | {"durationMs": {"latestOffset": 1, "triggerExecution": 3}}
    first, second = progress(0, 100, 1000), progress(1, 50, 1000)
    numbers = of(first, waiting, waiting, second, second)
    assert (numbers["batches"], numbers["rows"]) == (2, 150)


def test_rows_of_several_sources_are_added() -> None:
    assert of(progress(0, 0, 1000) | {"sources": [source(3), source(4)]})["rows"] == 7


def test_operators_are_summed_over_batches_and_tasks() -> None:
    name = "rivermouth__join_table__districts__geojson__4"
    numbers = of(
        progress(0, 30, 1000, **{name: [task(10, 9, null=1), task(20, 15, null=2, empty=1)]}),
        progress(1, 5, 1000, **{name: [task(5, 5)]}),
    )
    assert numbers["operators"] == {
        "join_table.districts.geojson": {
            "rows_in": 35,
            "rows_out": 38,
            "matched": 29,
            "unmatched": 6,
            "rejected": {"null": 3, "empty": 1},
            "seconds": 0.75,
            "rows_per_task": [5],
            "load_cv": None,
            "late": None,
            "future": None,
            "routing": None,
            "state": None,
            "watermark": None,
            "gauges": None,
            "counts": {},
            "table": {
                "rows": 10,
                "version": 1,
                "age_seconds": 1,
                "load_seconds": 0.5,
                "index": "cells",
            },
            "cache": None,
            "per_row": None,
        }
    }


def test_caches_are_summed_and_what_workers_hold_is_what_each_held_last() -> None:
    name = "rivermouth__join_table__users__1"

    def cached(worker: str, hits: int, misses: int, rows: int) -> str:
        counts = {"hits": hits, "negative_hits": 1, "misses": misses}
        cache = {"worker": worker, **counts, "entries": rows, "rows": rows, "bytes": 8 * rows}
        return json.dumps(json.loads(task(10, 9)) | {"cache": cache})

    numbers = of(
        progress(0, 20, 1000, **{name: [cached("a", 4, 6, 6), cached("b", 2, 8, 8)]}),
        progress(1, 10, 1000, **{name: [cached("a", 9, 1, 7)]}),
    )
    assert numbers["operators"]["join_table.users"]["cache"] == {
        "hits": 15,
        "negative_hits": 3,
        "misses": 15,
        "hit_ratio": 18 / 33,
        "entries": 15,
        "rows": 15,
        "bytes": 120,
        "workers": 2,
        "per_worker": {
            "a": {"entries": 7, "rows": 7, "bytes": 56, "hit_ratio": 15 / 22},
            "b": {"entries": 8, "rows": 8, "bytes": 64, "hit_ratio": 3 / 11},
        },
    }


def test_a_routed_stream_tells_its_rule_and_its_rows_by_partition() -> None:
    name = "rivermouth__join_table__users__1"

    def routed(partition: int, rows: int, rule: int, cycle: int) -> str:
        told = {
            "partition": partition, "partitions": 3, "rule": rule, "cycle": cycle,
            "cycle_load_cv": 0.4, "moved": True, "records": [5, 6, 7], "cost": [0.1, 0.2, 0.3],
        }  # fmt: skip
        return json.dumps(json.loads(task(rows, rows)) | {"routing": told})

    tasks = [routed(2, 30, 1, 4), routed(0, 10, 1, 4), routed(2, 20, 0, 3)]
    numbers = of(progress(0, 60, 1000, **{name: tasks}))
    found = numbers["operators"]["join_table.users"]["routing"]
    assert (found["rule"], found["cycle"], found["moved"]) == (1, 4, True)
    assert found["rows_per_partition"] == [10, 0, 50]
    assert found["load_cv"] == pytest.approx(np.std([10, 0, 50], ddof=1) / 20)


def test_buckets_are_summed_and_their_state_is_that_of_the_newest_batch() -> None:
    name = "rivermouth__join_interval__7"

    def said(*buckets: dict[str, Any]) -> str:
        return json.dumps({"buckets": buckets})

    first = bucket(
        0, watermark=5, counts={"rows_in": 4, "rows_out": 2, "late": 1, "pairs": 9}, k=2.0
    )
    second = bucket(1, watermark=3, counts={"rows_in": 6, "rows_out": 1, "late": 0}, k=4.0)
    later = bucket(1, watermark=8, counts={"rows_in": 1, "late": 2}, state={"rows": 3}, k=1.0)
    last = bucket(
        0, watermark=9, counts={"rows_in": 2}, state={"rows": 5}, rejected={"null_time": 1}
    )
    numbers = of(
        progress(0, 10, 1000, **{name: [said(second), said(first)]}),
        progress(1, 3, 1000, **{name: [said(later, last)]}),
    )
    assert numbers["operators"] == {
        "join_interval": {
            "rows_in": 13,
            "rows_out": 3,
            "matched": None,
            "unmatched": None,
            "late": 3,
            "future": None,
            "rejected": {"null_time": 1},
            "seconds": 2.0,
            "rows_per_task": [2, 1],
            "load_cv": pytest.approx(0.4714, abs=1e-4),
            "table": None,
            "cache": None,
            "per_row": None,
            "routing": None,
            "state": {"rows": 8},
            "watermark": 8,
            "gauges": {"k": {"min": 1.0, "mean": 1.0, "max": 1.0}},
            "counts": {"pairs": 9},
        }
    }


def test_buckets_that_say_nothing_yet_have_no_watermark_and_no_gauges() -> None:
    name = "rivermouth__aggregate__1"
    report = json.dumps({"buckets": [bucket(0, counts={"rows_in": 0}), bucket(1)]})
    operator = of(progress(0, 0, 10, **{name: [report]}))["operators"]["aggregate"]
    assert (operator["watermark"], operator["gauges"], operator["load_cv"]) == (None, None, None)
    assert operator["rows_per_task"] == [0, 0]


def test_state_and_backlog_are_those_of_the_newest_batch() -> None:
    first = progress(0, 5, 1000) | {
        "stateOperators": [
            {"numRowsTotal": 3, "memoryUsedBytes": 100},
            {"numRowsTotal": 4, "memoryUsedBytes": 50},
        ]
    }
    behind = source(5) | {"metrics": {"maxOffsetsBehindLatest": "12"}}
    second = progress(1, 5, 1000) | {"sources": [behind, source(2)]}
    assert of(first)["state"] == {"rows": 7, "bytes": 150}
    assert of(first)["backlog"] is None
    assert (of(first, second)["state"], of(first, second)["backlog"]) == (None, 12)


def at(second: float, number: int, rows: int, milliseconds: int) -> dict[str, Any]:
    return progress(number, rows, milliseconds) | {"timestamp": f"2026-11-15T21:00:{second:06.3f}Z"}


def test_latency_is_the_wait_for_the_batch_and_the_batch() -> None:
    steady = of(*(at(2 * number, number, 100, 500) for number in range(20)))["latency"]
    assert steady["p50"] == pytest.approx(0.5 + 1, abs=0.1)
    assert 2.2 < steady["p95"] < steady["p99"] < 2.5


def test_rows_that_come_after_a_pause_did_not_wait_for_it() -> None:
    numbers = of(at(0, 0, 10, 500), at(1, 1, 10, 500), at(2, 2, 10, 500), at(52, 3, 1000, 500))
    assert numbers["latency"]["p99"] < 1.5


def test_an_overlong_batch_makes_the_rows_of_the_next_wait() -> None:
    numbers = of(at(0, 0, 10, 500), at(1, 1, 10, 20_000), at(21, 2, 1000, 500), at(22, 3, 10, 500))
    assert numbers["latency"]["p50"] == pytest.approx(10.5, abs=0.5)


def test_what_is_no_query_is_told_so() -> None:
    with pytest.raises(RivermouthError, match=r"a str has no progress reports"):
        rm.metrics("query")  # type: ignore[arg-type]


def test_matches_per_row_are_added_since_the_table_changed_its_rows() -> None:
    name = "rivermouth__join_table__zones__1"

    def sketched(*counts: int) -> str:
        sketch = {"counts": packed(np.array(counts)), "places": [[1.0, 2.0]]}
        return json.dumps(json.loads(task(10, 9)) | {"sketch": sketch})

    numbers = of(
        progress(0, 10, 1000, **{name: [sketched(9)]}),
        progress(1, 20, 1000, **{name: [sketched(1, 0, 2), sketched(0, 0, 5)]}),
        progress(2, 10, 1000, **{name: [sketched(0, 4, 0)]}),
    )
    assert numbers["operators"]["join_table.zones"]["per_row"] == [1, 4, 7]


def test_rows_per_task_show_the_skew_of_the_newest_batch_that_had_rows() -> None:
    name = "rivermouth__join_table__zones__1"
    numbers = of(
        progress(0, 9, 1000, **{name: [task(4, 4), task(5, 5)]}),
        progress(1, 92, 1000, **{name: [task(2, 0), task(90, 90)]}),
        progress(2, 0, 1000, **{name: []}),
    )
    assert numbers["operators"]["join_table.zones"]["rows_per_task"] == [90, 2]


def test_the_table_is_the_newest_version_as_it_was_last_seen() -> None:
    name = "rivermouth__join_table__zones__1"
    late = [task(1, 1, version=2, age=7), task(1, 1, version=3, age=0.5), task(1, 1, version=3)]
    numbers = of(
        progress(0, 1, 1000, **{name: [task(1, 1, version=1, age=90)]}),
        progress(1, 3, 1000, **{name: late}),
    )
    table = numbers["operators"]["join_table.zones"]["table"]
    assert (table["version"], table["rows"], table["age_seconds"]) == (3, 30, 1)


def test_a_store_that_answers_has_no_table_of_ours() -> None:
    name = "rivermouth__join_table__zones__1"
    numbers = of(progress(0, 1, 1000, **{name: [task(1, 1, version=None)]}))
    assert numbers["operators"]["join_table.zones"]["table"] is None


def test_two_joins_with_one_table_stay_apart_in_the_order_of_their_definition() -> None:
    first, second = "rivermouth__join_table__zones__9", "rivermouth__join_table__zones__10"
    numbers = of(progress(0, 7, 1000, **{second: [task(3, 1)], first: [task(7, 3)]}))
    rows = {name: operator["rows_in"] for name, operator in numbers["operators"].items()}
    assert rows == {"join_table.zones": 7, "join_table.zones#2": 3}


def test_observations_of_the_user_are_left_alone() -> None:
    assert of(progress(0, 1, 1000, mine__1=["x"]))["operators"] == {}


@pytest.mark.parametrize("form", ["dict", "row", "spark", "connect"])
def test_all_forms_of_a_report_give_the_same(form: str) -> None:
    name = "rivermouth.join_table.zones.1"
    plain = progress(0, 10, 1000, rivermouth__join_table__zones__1=[task(10, 9, null=1)])
    expected = of(plain)
    assert expected["operators"]["join_table.zones"]["matched"] == 9
    given: Any = plain
    if form == "row":
        given = plain | {"observedMetrics": {name: Row(**plain["observedMetrics"][name])}}
    if form == "spark":
        given = StreamingQueryProgress.fromJson(plain)
    if form == "connect":
        tasks = plain["observedMetrics"][name]["tasks"]
        kind = {"type": "array", "elementType": "string", "containsNull": False}
        field = {"name": "tasks", "type": kind, "nullable": False, "metadata": {}}
        row = {"values": [tasks], "schema": {"type": "struct", "fields": [field]}}
        given = StreamingQueryProgress.fromJson(plain | {"observedMetrics": {name: row}})
    assert of(given) == expected


@pytest.mark.spark
def test_a_real_query(spark: SparkSession, tmp_path: Path) -> None:
    (tmp_path / "zones.geojson").write_text(json.dumps(ZONES))
    events = frame(
        spark,
        """
        id int | x double | y double
        1      | 0.5      | 0.5
        2      | 1.5      | 0.5
        3      | 9.0      | 9.0
        4      | null     | 0.5
        5      | NaN      | 0.5
        6      | 0.2      | 0.2
        """,
    )
    joined = rm.join_table(
        replay(events, cuts=[4, 0, 2]),
        rm.tables.geojson(tmp_path / "zones.geojson"),
        on=rm.within(rm.point("x", "y"), "geometry"),
        how="left",
        columns=["zone"],
    )
    query = (
        joined.writeStream.format("noop")
        .option("checkpointLocation", str(tmp_path / "checkpoint"))
        .trigger(availableNow=True)
        .start()
    )
    query.awaitTermination()
    numbers = rm.metrics(query)
    assert json.loads(json.dumps(numbers)) == numbers
    assert numbers["rows"] == 6
    assert numbers["rows_per_second"] > 0
    operator = numbers["operators"]["join_table.zones.geojson"]
    assert (operator["rows_in"], operator["rows_out"]) == (6, 6)
    assert (operator["matched"], operator["unmatched"]) == (3, 3)
    assert operator["rejected"] == {"null": 1, "not_finite": 1}
    assert sum(operator["rows_per_task"]) == 2
    assert operator["seconds"] > 0
    assert (operator["table"]["rows"], operator["table"]["index"]) == (2, "cells")
