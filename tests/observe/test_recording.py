"""What is written down of a query that is played: every batch, once, and how it ended."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import pytest

from rivermouth.observe import recording
from rivermouth.observe.history import Reader, Writer
from rivermouth.observe.recording import Recorder


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


class Played:
    """As much of a query as a recorder asks, one step of a script at each look."""

    def __init__(self, *looks: list[dict[str, Any]], failure: Exception | None = None) -> None:
        self._looks, self._at, self._failure = looks, -1, failure
        self.asked_for_all = 0

    @property
    def isActive(self) -> bool:  # noqa: N802  (Spark's name)
        self._at += 1
        return self._at < len(self._looks) - 1

    @property
    def _reports(self) -> list[dict[str, Any]]:
        return [one for look in self._looks[: self._at + 1] for one in look]

    @property
    def lastProgress(self) -> dict[str, Any] | None:  # noqa: N802
        return self._reports[-1] if self._reports else None

    @property
    def recentProgress(self) -> list[dict[str, Any]]:  # noqa: N802
        self.asked_for_all += 1
        return self._reports

    def exception(self) -> Exception | None:
        return self._failure


@pytest.fixture(autouse=True)
def _no_pause(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(recording, "_PAUSE", 0.001)


def recorded(query: Played, path: Path) -> Reader:
    Recorder(query, Writer(path, run="run", name="played"))  # type: ignore[arg-type]
    reader, deadline = Reader(path), time.monotonic() + 30
    while reader.end is None:
        assert time.monotonic() < deadline
        time.sleep(0.01)
        reader.refresh()
    return reader


def numbers(reader: Reader) -> list[int]:
    return [batch["batch"] for batch in reader.batches]


def test_every_batch_is_written_once(tmp_path: Path) -> None:
    query = Played([], [report(0)], [], [report(1)], [report(2)])
    assert numbers(recorded(query, tmp_path / "run.jsonl")) == [0, 1, 2]
    assert query.asked_for_all == 0


def test_batches_between_two_looks_are_not_missed(tmp_path: Path) -> None:
    query = Played([report(0)], [report(1), report(2), report(3)], [report(4)])
    assert numbers(recorded(query, tmp_path / "run.jsonl")) == [0, 1, 2, 3, 4]
    assert query.asked_for_all == 1


def test_waiting_is_no_batch_and_hides_none(tmp_path: Path) -> None:
    idle = report(2, rows=0)
    query = Played([report(0)], [report(1), idle], [idle], [idle, report(2)], [report(3, rows=0)])
    assert numbers(recorded(query, tmp_path / "run.jsonl")) == [0, 1, 2]


def test_a_run_that_began_before_is_caught_up_with(tmp_path: Path) -> None:
    query = Played([report(7), report(8)], [report(9)])
    assert numbers(recorded(query, tmp_path / "run.jsonl")) == [7, 8, 9]


def test_a_failure_is_kept_without_its_password(tmp_path: Path) -> None:
    failure = RuntimeError("no answer from postgresql://ann:s3cr3t@db/city?password=s3cr3t\nat x")
    reader = recorded(Played([report(0)], failure=failure), tmp_path / "run.jsonl")
    assert reader.status == "failed"
    assert "s3cr3t" not in reader.path.read_text()
    assert reader.end == {
        "at": pytest.approx(time.time(), abs=60),
        "failure": "no answer from postgresql://ann:***@db/city?password=*** at x",
    }


def test_stopping_writes_what_is_known_by_then(tmp_path: Path) -> None:
    query = Played([report(0)], *[[] for _ in range(100_000)])
    recorder = Recorder(query, Writer(tmp_path / "run.jsonl", run="run", name=None))  # type: ignore[arg-type]
    recorder.stop()
    reader = Reader(tmp_path / "run.jsonl")
    assert (numbers(reader), reader.status) == ([0], "ended")


def test_a_spark_that_is_gone_ends_the_history_with_a_word(tmp_path: Path) -> None:
    class Gone(Played):
        @property
        def lastProgress(self) -> dict[str, Any] | None:  # noqa: N802
            raise ConnectionRefusedError("no gateway")

    reader = recorded(Gone([], []), tmp_path / "run.jsonl")
    assert reader.status == "failed"
    assert reader.end is not None
    assert reader.end["failure"] == "Spark no longer answers (ConnectionRefusedError)"
