"""The progress line, of a query that is played: numbers as Spark reports them, one batch a look."""

from __future__ import annotations

import io
import json
from typing import Any

import pytest
from rich.console import Console
from tests.support.queries import PlayedQuery

from rivermouth.observe import progress, recorder
from rivermouth.observe.progress import follow, line


def played(batches: int, *, failure: Exception | None = None) -> PlayedQuery:
    """A query with one more report at each look."""
    return PlayedQuery(*([_report(number)] for number in range(batches)), [], failure=failure)


def _report(number: int) -> dict[str, Any]:
    task = {
        "rows_in": 100,
        "rows_out": 100,
        "matched": 90,
        "seconds": 0.1,
        "rejected": {"null": 2},
    }
    return {
        "batchId": number,
        "timestamp": f"2026-11-15T21:00:{number % 60:02d}.000Z",
        "sources": [{"numInputRows": 100, "metrics": {}}],
        "stateOperators": [],
        "batchDuration": 500,
        "durationMs": {"addBatch": 400},
        "observedMetrics": {"rivermouth.join_table.zones.1": {"tasks": [json.dumps(task)]}},
    }


@pytest.fixture(autouse=True)
def _no_pause(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(progress, "_PAUSE", 0)
    monkeypatch.setattr(recorder, "_PAUSE", 3600)  # a script is played by one who asks


def written(query: PlayedQuery, *, terminal: bool, **options: Any) -> tuple[str, dict[str, Any]]:
    out = io.StringIO()
    console = Console(file=out, force_terminal=terminal, width=120)
    numbers = follow(query, console=console, **options)  # type: ignore[arg-type]
    return out.getvalue(), numbers


def test_without_a_terminal_there_is_one_line_at_the_end() -> None:
    text, numbers = written(played(3), terminal=False)
    assert text == "3 batches · 300 rows · 200 rows/s · 90.0 % matched · 6 rejected\n"
    assert numbers["rows"] == 300


def test_on_a_terminal_the_line_is_written_anew_at_each_look() -> None:
    text, _ = written(played(3), terminal=True)
    for rows in (100, 200, 300):
        assert f" {rows} rows" in text
    assert text.rstrip().endswith("6 rejected")


def test_until_ends_it_while_the_query_runs_on() -> None:
    text, numbers = written(played(100), terminal=False, until=lambda now: now["rows"] >= 200)
    assert numbers["batches"] == 2
    assert text.startswith("2 batches")


def test_a_failed_query_raises_what_it_failed_with() -> None:
    with pytest.raises(RuntimeError, match="no more disk"):
        written(played(1, failure=RuntimeError("no more disk")), terminal=False)


def test_several_operators_are_told_apart() -> None:
    operator = {"rows_in": 10, "matched": 5, "late": None, "rejected": {}, "cache": None}
    operator["table"] = None
    numbers = {"batches": 1, "rows": 10, "rows_per_second": None}
    text = line({**numbers, "operators": {"join_table.a": operator, "join_table.b": operator}})
    assert text == "1 batch · 10 rows · join_table.a: 50.0 % matched · join_table.b: 50.0 % matched"


def test_an_operator_that_matches_nothing_shows_its_rows_and_late_ones() -> None:
    join = {"rows_in": 10, "matched": 5, "late": None, "rejected": {}, "cache": None}
    aggregate = {**join, "rows_in": 1200, "matched": None, "late": 3, "table": None}
    numbers = {"batches": 2, "rows": 10, "rows_per_second": None}
    both = {"join_table.a": {**join, "table": None}, "aggregate": aggregate}
    text = line({**numbers, "operators": both})
    assert text.endswith("join_table.a: 50.0 % matched · aggregate: 3 late")
    text = line({**numbers, "operators": both | {"aggregate": {**aggregate, "late": 0}}})
    assert text.endswith("aggregate: 1,200 rows")
