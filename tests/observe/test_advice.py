"""Advice: silent where all is well, and one sentence for each thing that is wrong."""

from __future__ import annotations

from typing import Any

import pytest
from tests.support.histories import batch, earned, enriched, numbers, operator, placed

from rivermouth.observe.advice import advice


def said(*batches: dict[str, Any]) -> list[str]:
    return [f"{one['where']}: {one['what']}" for one in advice(numbers(*batches))]


def of(name: str, **moment: Any) -> list[str]:
    return said(batch(0, operators={f"rivermouth.{name}.1": operator(**moment)}))


def test_a_healthy_run_is_left_alone() -> None:
    assert said() == []
    good = {
        "rivermouth.join_table.d.1": placed(1000, [999, 0]),
        "rivermouth.join_table.e.2": enriched(100_000, 90_000),
    }
    assert said(*(batch(number, operators=good) for number in range(20))) == []


def test_late_rows_and_thin_windows() -> None:
    late = said(batch(0, operators={"rivermouth.aggregate.1": earned(1000, 30)}))
    assert late == [
        "aggregate: 30 rows (3.0 %) came late",
        "aggregate: windows close with 94.0 % of their rows, 97.0 % are required",
    ]


def promised(**gauges: float) -> list[str]:
    means = {name: {"min": 0.0, "mean": value, "max": 1.0} for name, value in gauges.items()}
    return of("aggregate", counts={"rows_in": 1000}, gauges=means)


def test_a_promise_that_was_missed_and_one_that_cannot_be_kept_yet() -> None:
    kept = {"missed_share": 0.06, "missed_low": 0.04, "missed_promised": 0.05}
    assert promised(**kept, windows_to_learn=0) == []
    assert promised(**kept | {"missed_share": 0.081, "missed_low": 0.051}) == [
        "aggregate: 8.1 % of the early results missed eps, 5 % are promised"
    ]
    assert promised(missed_share=0.0, missed_promised=0.05, windows_to_learn=60) == [
        "aggregate: too few windows have settled for the promise: about 60 more are needed"
    ]


def test_future_rows() -> None:
    assert of("join_interval", counts={"rows_in": 9, "future": 2}) == [
        "join_interval: 2 rows lie in the future"
    ]


def test_a_hot_partition_and_one_that_is_only_small() -> None:
    counts = {"rows_in": 10_000}
    assert of("join_table.zones", counts=counts, loads=[9_000, 500, 500]) == [
        "join_table.zones: one of 3 partitions has 90 % of the rows (load CV 1.47)"
    ]
    assert of("join_table.zones", counts=counts, loads=[90, 5, 5]) == []
    assert "rm.grid(skew_path=folder)" in todo_of_uneven("join_interval")


def todo_of_uneven(name: str, **moment: Any) -> str:
    uneven = operator(counts={"rows_in": 10_000}, loads=[9_000, 500, 500], **moment)
    (one,) = advice(numbers(batch(0, operators={f"rivermouth.{name}.1": uneven})))
    return one["todo"]


def test_uneven_partitions_of_a_table_join_are_its_source_s_or_a_routing_s() -> None:
    # neither a join without routing nor one by hash tells how its rows came there
    unrouted = todo_of_uneven("join_table.users")
    source, by_hash = unrouted.split(": ", 1)[1].split(". ")
    assert source == "events.repartition(n)"
    assert by_hash.startswith("If routing=rm.by_hash()")
    by_hotspot = todo_of_uneven("join_table.users", routing={"rule": 1, "load_cv": 1.5})
    assert by_hotspot.startswith("The next rule evens them out")
    table = {"rows": 9, "version": 1, "age_seconds": 1, "refresh_seconds": None, "buckets": [0, 1]}
    in_buckets = todo_of_uneven("join_table.users", table=table)
    assert in_buckets.startswith("Events go to the bucket of their rows")
    assert not any("rm.by_hotspot" in todo for todo in (by_hotspot, in_buckets))


def test_rows_that_could_not_take_part() -> None:
    aside = {"null": 60, "srid": 3, "empty": 2, "invalid": 1}
    assert of("join_table.zones", counts={"rows_in": 1000, "matched": 9}, rejected=aside) == [
        "join_table.zones: 66 rows (6.6 %) could not take part: 60 null, 3 srid, 2 empty"
    ]


def test_nothing_matched() -> None:
    assert of("join_table.zones", counts={"rows_in": 1000, "matched": 0}) == [
        "join_table.zones: nothing matched"
    ]


@pytest.mark.parametrize(("age", "stale"), [(25, False), (31, True)])
def test_a_table_that_is_not_read_anew(age: float, stale: bool) -> None:
    table = {"refresh_seconds": 10, "age_seconds": age, "version": 1}
    found = of("join_table.zones", counts={"rows_in": 10, "matched": 1}, table=table)
    expected = "join_table.zones: the table is 31 s old, and should be read anew every 10 s"
    assert found == ([expected] if stale else [])


def test_a_cache_that_does_not_help_once_it_is_warm() -> None:
    poor = "join_table.users: the cache answers 20 % of the lookups"
    name = "rivermouth.join_table.users.1"
    assert said(batch(0, operators={name: enriched(50_000, 10_000)})) == [poor]
    assert said(batch(0, operators={name: enriched(5_000, 1_000)})) == []


def test_a_slow_batch_and_a_source_that_runs_ahead() -> None:
    quick = [batch(number, operators={}) for number in range(30)]
    slow = batch(30, operators={}, seconds=4.0, backlog=5_000)
    assert said(*quick, slow) == [
        "source: 5,000 rows wait, more than a batch takes",
        "batches: the newest took 4.0 s, half of them take 0.2 s or less",
    ]


def test_each_says_what_to_do() -> None:
    late = {"rivermouth.aggregate.1": operator(counts={"rows_in": 9, "late": 3})}
    (one,) = advice(numbers(batch(0, operators=late)))
    assert one["todo"] == (
        'Wait longer (lateness=, slack=), or get them with late="rows" and rm.rejected.'
    )
    assert one["level"] == "warning"
