"""The benchmark of the promise: its short cut, what it counts, and a run that was stopped."""

from __future__ import annotations

import json
import time
from itertools import count
from types import SimpleNamespace

import numpy as np
import pyarrow as pa
import pytest
from benchmarks.harness import report
from benchmarks.harness.experiment import save
from benchmarks.papers import kinds, promise, promise_report
from benchmarks.papers.walking import outcome, walk

import rivermouth as rm

SUMMARY = rm.summary(
    time="at", window=rm.sliding("1 second", every="200 milliseconds"), answer=rm.sum("value")
)


@pytest.mark.parametrize("slack", [rm.fixed("300 milliseconds"), rm.max_delay()])
def test_what_is_computed_at_once_is_what_the_kernel_finds(slack):
    rows = kinds.stream("bursts that stop", 100).slice(0, 15_000)
    found = outcome(rows, SUMMARY, slack, eps=0.05, batch_s=1.0)
    slow = walk(rows, SUMMARY, slack, eps=0.05, batch_s=1.0)
    grid = slow.truth.plan.grid
    assert found.end.tolist() == (slow.above["window"] * grid.every + grid.size).tolist()
    assert found.missed.tolist() == slow.above["missed"].tolist()
    assert 0 < found.missed.mean() < 1
    assert found.slack == pytest.approx(slow.slack)
    assert found.latency == pytest.approx(slow.latency)
    assert found.begun == slow.newest[0]


@pytest.mark.parametrize("slack", [rm.fixed("0 seconds"), rm.quality()])
def test_a_window_that_closed_before_its_records_came_is_missed(slack):
    """The window from 2 s has one record, which comes when event time is at 10 s."""
    at, arrival = (
        pa.array(np.array(seconds) * 1_000_000).cast(pa.timestamp("us", "UTC"))
        for seconds in ([0, 10, 2, 30, 31], [0, 10, 11, 12, 13])
    )
    rows = pa.table({"at": at, "value": np.ones(5), "arrival": arrival})
    summary = rm.summary(time="at", window=rm.tumbling("1 second"), answer=rm.sum("value"))
    found = outcome(rows, summary, slack, eps=0.05, batch_s=1.0)
    missed = dict(zip((found.end // 1_000_000).tolist(), found.missed.tolist(), strict=True))
    assert missed[1] == 0
    assert missed[3] == 1


def test_every_kind_differs_by_seed_and_is_sorted_by_arrival(monkeypatch):
    monkeypatch.setattr(kinds, "_fleet_delays", lambda: np.linspace(50, 70, 1000))
    monkeypatch.setattr(kinds, "FLEET_LENGTH_S", 60.0)
    for kind in kinds.KINDS:
        one, two = (kinds.stream(kind, seed) for seed in (100, 101))
        assert one != two
        assert one == kinds.stream(kind, 100)
        arrival, at = (one.column(name).cast(pa.int64()).to_numpy() for name in ("arrival", "at"))
        assert (np.diff(arrival) >= 0).all()
        assert (arrival >= at).all()


def test_nothing_was_chosen_on_the_seeds_that_are_measured():
    assert not set(kinds.SEEDS) & set(kinds.TUNED_ON)


def test_a_run_that_was_stopped_goes_on(tmp_path, monkeypatch):
    path = tmp_path / "found.jsonl"
    done = {"kind": "jitter", "seed": 1, "case": "fixed", "missed": 0.5}
    path.write_text(json.dumps(done) + "\n")
    monkeypatch.setattr(promise, "_found_before", lambda: path)
    assert list(promise.rows_of([("jitter", 1, "fixed")], quick=False)) == [done]


def test_no_stream_is_begun_once_the_time_is_up(tmp_path, monkeypatch):
    monkeypatch.setattr(promise, "_found_before", lambda: tmp_path / "found.jsonl")
    monkeypatch.setattr(kinds, "LENGTH_S", 10.0)
    todo = [("jitter", seed, "fixed") for seed in range(1, 30)]
    assert list(promise.rows_of(todo, quick=False, minutes=0)) == []
    clock = SimpleNamespace(monotonic=count(0, 20).__next__, process_time=time.process_time)
    monkeypatch.setattr(promise, "time", clock)
    found = list(promise.rows_of(todo, quick=False, minutes=1))
    assert len(found) == 2  # the clock is looked at before the first, and after each
    assert len((tmp_path / "found.jsonl").read_text().splitlines()) == len(found)


@pytest.fixture
def results(tmp_path):
    """Two kinds; the second misses more than delta in the mean, and 1.3 times that at worst."""
    missed = {"jitter": (0.01, 0.06), "outages": (0.05, 0.07)}
    rows = [
        {
            "kind": kind, "seed": seed, "case": case, "missed": missed[kind][seed - 1],
            "missed_first": 0.2, "mean_slack_s": seconds * seed,
        }
        for kind in missed
        for seed in (2, 1)
        for case, seconds in (("quality", 1.0), ("pd", 0.5), ("fixed", 1.0), ("max_delay", 4.0))
    ]  # fmt: skip
    save("promise", rows, folder=tmp_path, delta=0.05)
    return tmp_path


def test_the_table_shows_what_was_missed_and_k_to_that_of_max_delay(results):
    lines = report.render("promise", results).splitlines()
    assert lines[0].startswith("| missed, 5.0 % promised: mean (worst seed) | `rm.quality()` |")
    jitter, outages = "3.5 % (6.0 %)", "**6.0 %** (**7.0 %**)"
    assert lines[2:5] == [
        f"| jitter | {' | '.join([jitter] * 4)} | 20.0 % | 1.50 s | 6.00 s | 0.25 |",
        f"| outages | {' | '.join([outages] * 4)} | 20.0 % | 1.50 s | 6.00 s | 0.25 |",
        "| kinds that kept it; K in the median over streams "
        "| 1 of 2 | 1 of 2 | 1 of 2 | 1 of 2 |  |  |  | 0.25 |",
    ]


def test_every_stream_is_a_point_of_the_picture(results):
    figure = promise_report.picture(json.loads((results / "promise.json").read_text()))
    missed, waits = figure.axes
    points = sum(len(line.get_xdata()) for line in missed.lines if line.get_marker() == "o")
    assert points == 3 * 4
    assert sum(len(line.get_xdata()) for line in waits.lines if line.get_marker() == "o") == 4
