"""Histories: what is written is read again, while it is written, and after files were halved."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest
from tests.support.histories import PLACED, batch, begin, numbers, whole

from rivermouth.errors import DefinitionError
from rivermouth.observe import history
from rivermouth.observe.history import Reader, Writer
from rivermouth.observe.log import Log
from rivermouth.observe.metrics import summarise


def test_what_was_written_is_read(tmp_path: Path) -> None:
    reader = Reader(whole(tmp_path / "run.jsonl", 3))
    assert [one["batch"] for one in reader.log.recent] == [0, 1, 2]
    assert reader.log.recent[0] == batch(0)
    assert reader.about["name"] == "cabs"
    assert reader.shapes["rivermouth.join_table.districts.geojson.1"]["labels"][0] == "Harbour"
    assert reader.status == "ended"


def test_a_reader_reads_on_while_the_run_lives(tmp_path: Path) -> None:
    writer = begin(tmp_path / "run.jsonl")
    reader = Reader(writer.path)
    assert (reader.log.totals.batches, reader.status) == (0, "running")
    writer.batch(batch(0))
    half = json.dumps({"batch": batch(1)})
    with writer.path.open("a") as file:
        file.write(half[:20])
    reader.refresh()
    assert reader.log.totals.batches == 1
    with writer.path.open("a") as file:
        file.write(f"{half[20:]}\n")
    writer.end("out of disk")
    reader.refresh()
    assert (reader.log.totals.batches, reader.status) == (2, "failed")


def test_a_run_whose_process_is_gone_is_lost(tmp_path: Path) -> None:
    writer = begin(tmp_path / "run.jsonl")
    reader = Reader(writer.path)
    assert reader.status == "running"
    os.utime(writer.path, (1, 1))
    assert reader.status == "lost"


def test_a_waiting_run_is_touched_and_so_not_lost(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    writer = begin(tmp_path / "run.jsonl")
    os.utime(writer.path, (1, 1))
    writer.alive()
    assert writer.path.stat().st_mtime == 1  # not at every look
    monkeypatch.setattr(history, "_TOUCHED", -1)
    writer.alive()
    assert Reader(writer.path).status == "running"


def test_a_long_history_loses_its_older_half_but_no_counts(tmp_path: Path) -> None:
    writer = Writer(tmp_path / "run.jsonl", run="run", query="id", name=None, most_bytes=30_000)
    reader, rows = Reader(writer.path), 0
    for number in range(200):
        writer.batch(batch(number))
        assert writer.path.stat().st_size <= 30_000
        reader.refresh()
        assert reader.log.recent[-1]["batch"] == number
        assert reader.log.totals.rows == (rows := rows + 100)
    kept = [one["batch"] for one in reader.log.recent]
    assert kept == [*range(200)][-len(kept) :]
    assert 2 < len(kept) < 60
    assert [path.name for path in tmp_path.iterdir()] == ["run.jsonl"]
    again = summarise(Reader(writer.path).log)
    assert (again["batches"], again["since_batch"], again["missed_batches"]) == (200, 0, 0)
    expected = numbers(*(batch(number) for number in range(200)))["operators"]
    for name, operator in again["operators"].items():
        assert operator["seconds"] == pytest.approx(expected[name].pop("seconds"))
        assert {name: of for name, of in operator.items() if name != "seconds"} == expected[name]


def test_counts_per_row_of_a_long_run_are_those_of_all_its_batches(tmp_path: Path) -> None:
    reader = Reader(whole(tmp_path / "run.jsonl", 130))
    sketched = [one["operators"][PLACED]["sketch"] is not None for one in reader.log.recent]
    assert sum(sketched) == 8
    operator = summarise(reader.log)["operators"]["join_table.districts.geojson"]
    assert operator["per_row"] == [130 * 50, 130 * 25, 0]


def test_a_log_keeps_the_newest_batches_and_counts_all() -> None:
    log = Log((batch(number) for number in range(9)), recent=4)
    assert [one["batch"] for one in log.recent] == [5, 6, 7, 8]
    assert (log.totals.batches, log.totals.rows) == (9, 900)


def test_a_history_in_another_format_is_an_error(tmp_path: Path) -> None:
    path = tmp_path / "run.jsonl"
    path.write_text('{"about":{"format":2}}\n{"batch":{"names":"of that time"}}\n')
    with pytest.raises(DefinitionError) as caught:
        Reader(path)
    assert str(caught.value) == (
        f"watch: {path} is a history in format 2; this version reads format {history.FORMAT}. "
        "Read it with the version of rivermouth that wrote it, or run the query again."
    )


@pytest.mark.parametrize("text", ["", "plain\n", "[1]\n", "{}\n"])
def test_a_file_that_is_no_history_is_told_so(tmp_path: Path, text: str) -> None:
    path = tmp_path / "other.jsonl"
    path.write_text(text)
    with pytest.raises(DefinitionError) as error:
        Reader(path)
    assert str(error.value) == (
        f"watch: {path} is not a history that this version can read. "
        "Give a file that rm.watch wrote, or the folder of such files."
    )


def test_the_folder_of_histories_keeps_the_newest_runs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(history.FOLDER, str(tmp_path / "here"))
    monkeypatch.setattr(history, "_MOST_RUNS", 3)
    for number in range(5):
        path = history.new_path(f"run{number}")
        path.touch()
        os.utime(path, (number, number))
    (tmp_path / "here" / "notes.txt").touch()
    assert [path.stem for path in history.files(tmp_path / "here")] == ["run4", "run3", "run2"]
    assert (tmp_path / "here" / "notes.txt").exists()


def test_histories_go_to_the_user_s_state_folder(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(history.FOLDER, raising=False)
    monkeypatch.setenv("XDG_STATE_HOME", "/somewhere/state")
    assert history.folder() == Path("/somewhere/state/rivermouth")
