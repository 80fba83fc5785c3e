"""What is written down of a query that is played: every batch, once, and how it ended."""

from __future__ import annotations

import gc
import time
import weakref
from pathlib import Path
from typing import Any

import pytest
from tests.support.queries import PlayedQuery

from rivermouth.observe import recorder
from rivermouth.observe.history import Reader, Writer
from rivermouth.observe.recorder import HistoryFile, Recorder, recorder_of


def report(number: int, *, rows: int = 5) -> dict[str, Any]:
    return {
        "batchId": number,
        "timestamp": "2026-11-15T21:00:00.000Z",
        "batchDuration": 100,
        "durationMs": {"addBatch": 90} if rows else {"latestOffset": 1},
        "sources": [{"numInputRows": rows, "metrics": {}}],
        "stateOperators": [],
        "observedMetrics": {},
    }


@pytest.fixture(autouse=True)
def _no_pause(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(recorder, "_PAUSE", 0.001)


def recorded(query: PlayedQuery, path: Path) -> Reader:
    """What a history says when the query has ended."""
    attached(query, path)
    reader, deadline = Reader(path), time.monotonic() + 30
    while reader.end is None:
        assert time.monotonic() < deadline
        time.sleep(0.01)
        reader.refresh()
    return reader


def attached(query: Any, path: Path) -> tuple[Recorder, HistoryFile]:
    file = HistoryFile(query, Writer(path, run=path.stem, query="query", name="played"))
    recorder = recorder_of(query)
    recorder.attach(file)
    return recorder, file


def numbers(reader: Reader) -> list[int]:
    return [batch["batch"] for batch in reader.log.recent]


def test_a_query_that_has_ended_is_released_and_its_log_is_kept(tmp_path: Path) -> None:
    query = PlayedQuery([report(0)], [report(1)])
    run, released = recorder_of(query), weakref.ref(query)  # type: ignore[arg-type]
    recorded(query, tmp_path / "run.jsonl")
    del query
    deadline = time.monotonic() + 30
    while released() is not None:
        assert time.monotonic() < deadline, "its plan and tables would stay in Spark's memory"
        time.sleep(0.01)
        gc.collect()
    assert run.log.totals.batches == 2


def test_every_batch_is_written_once(tmp_path: Path) -> None:
    query = PlayedQuery([], [report(0)], [], [report(1)], [report(2)])
    assert numbers(recorded(query, tmp_path / "run.jsonl")) == [0, 1, 2]
    assert query.asked_for_all == 0


def test_batches_between_two_looks_are_not_missed(tmp_path: Path) -> None:
    query = PlayedQuery([report(0)], [report(1), report(2), report(3)], [report(4)])
    assert numbers(recorded(query, tmp_path / "run.jsonl")) == [0, 1, 2, 3, 4]
    assert query.asked_for_all == 1


def test_waiting_is_no_batch_and_hides_none(tmp_path: Path) -> None:
    idle = report(2, rows=0)
    query = PlayedQuery(
        [report(0)], [report(1), idle], [idle], [idle, report(2)], [report(3, rows=0)]
    )
    assert numbers(recorded(query, tmp_path / "run.jsonl")) == [0, 1, 2]


def test_a_run_that_began_before_is_caught_up_with(tmp_path: Path) -> None:
    query = PlayedQuery([report(7), report(8)], [report(9)])
    assert numbers(recorded(query, tmp_path / "run.jsonl")) == [7, 8, 9]


def test_a_failure_is_kept_without_its_password(tmp_path: Path) -> None:
    failure = RuntimeError("no answer from postgresql://ann:s3cr3t@db/city?password=s3cr3t\nat x")
    reader = recorded(PlayedQuery([report(0)], failure=failure), tmp_path / "run.jsonl")
    assert reader.status == "failed"
    assert "s3cr3t" not in reader.path.read_text()
    assert reader.end == {
        "at": pytest.approx(time.time(), abs=60),
        "failure": "no answer from postgresql://ann:***@db/city?password=*** at x",
    }


def test_stopping_writes_what_is_known_by_then(tmp_path: Path) -> None:
    query = PlayedQuery([report(0)], *[[] for _ in range(100_000)])
    assert query.isActive
    recording, file = attached(query, tmp_path / "run.jsonl")
    recording.detach(file)
    reader = Reader(tmp_path / "run.jsonl")
    assert (numbers(reader), reader.status) == ([0], "ended")


def test_a_query_has_one_recorder_and_its_counts_go_on(tmp_path: Path) -> None:
    query = PlayedQuery(*([report(number)] for number in range(500)), kept=10)
    first = recorder_of(query)  # type: ignore[arg-type]
    assert recorder_of(query) is first  # type: ignore[arg-type]
    finish(first)
    totals = first.log.totals
    assert (totals.batches, totals.since, totals.missed, totals.rows) == (500, 0, 0, 2500)


def test_a_history_that_begins_later_has_the_counts_before_it(tmp_path: Path) -> None:
    query = PlayedQuery(*([report(number)] for number in range(300)), kept=10)
    recording = recorder_of(query)  # type: ignore[arg-type]
    finish(recording)
    reader = recorded(query, tmp_path / "run.jsonl")
    assert vars(reader.log.totals) == vars(recording.log.totals)
    assert numbers(reader) == [*range(300)]


def test_reports_that_were_gone_are_told_of(tmp_path: Path) -> None:
    burst = [report(number) for number in range(1, 41)]
    query = PlayedQuery([report(0)], burst, kept=10)
    assert query.isActive
    recording = recorder_of(query)  # type: ignore[arg-type]
    finish(recording)
    totals = recording.log.totals
    assert (totals.batches, totals.since, totals.newest, totals.missed) == (11, 0, 40, 30)
    late = recorder_of(PlayedQuery.ended(*(report(number) for number in range(150))))  # type: ignore[arg-type]
    assert (late.log.totals.since, late.log.totals.batches) == (50, 100)


def finish(recording: Recorder) -> None:
    deadline = time.monotonic() + 30
    while recording.is_running:
        assert time.monotonic() < deadline
        time.sleep(0.001)


def test_a_spark_that_is_gone_ends_the_history_with_a_word(tmp_path: Path) -> None:
    class Gone(PlayedQuery):
        @property
        def lastProgress(self) -> dict[str, Any] | None:  # noqa: N802
            if self._at >= 0:  # it was there when it was asked for the first time
                raise ConnectionRefusedError("no gateway")
            return None

    reader = recorded(Gone([], []), tmp_path / "run.jsonl")
    assert reader.status == "failed"
    assert reader.end is not None
    assert reader.end["failure"] == "Spark no longer answers (ConnectionRefusedError)"
