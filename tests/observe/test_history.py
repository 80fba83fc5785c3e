"""Histories: what is written is read again, while it is written, and after files were halved."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from tests.support.histories import PLACED, batch, begin, whole

from rivermouth.errors import DefinitionError
from rivermouth.observe import history
from rivermouth.observe.history import Reader, Writer
from rivermouth.observe.metrics import summarise


def test_what_was_written_is_read(tmp_path: Path) -> None:
    reader = Reader(whole(tmp_path / "run.jsonl", 3))
    assert [one["batch"] for one in reader.batches] == [0, 1, 2]
    assert reader.batches[0] == batch(0)
    assert reader.about["name"] == "cabs"
    assert reader.shapes["rivermouth.join_table.districts.geojson.1"]["labels"][0] == "Harbour"
    assert reader.status == "ended"


def test_a_reader_reads_on_while_the_run_lives(tmp_path: Path) -> None:
    writer = begin(tmp_path / "run.jsonl")
    reader = Reader(writer.path)
    assert (reader.seen, reader.status) == (0, "running")
    writer.batch(batch(0))
    with writer.path.open("a") as file:
        file.write('{"batch": {"half a')
    reader.refresh()
    assert reader.seen == 1
    with writer.path.open("a") as file:
        file.write('": "line"}}\n')
    writer.end("out of disk")
    reader.refresh()
    assert (reader.seen, reader.status) == (2, "failed")


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


def test_a_long_history_loses_its_older_half_and_readers_follow(tmp_path: Path) -> None:
    writer = Writer(tmp_path / "run.jsonl", run="run", name=None, most_bytes=20_000)
    reader = Reader(writer.path)
    for number in range(60):
        writer.batch(batch(number))
        assert writer.path.stat().st_size <= 20_000
        reader.refresh()
        assert reader.batches[-1]["batch"] == number
    numbers = [one["batch"] for one in reader.batches]
    assert numbers == [*range(60)][-len(numbers) :]
    assert 2 < len(numbers) < 60
    assert [path.name for path in tmp_path.iterdir()] == ["run.jsonl"]


def test_counts_per_row_of_a_long_run_are_those_of_all_its_batches(tmp_path: Path) -> None:
    reader = Reader(whole(tmp_path / "run.jsonl", 130))
    sketched = [one["operators"][PLACED]["sketch"] is not None for one in reader.batches]
    assert sum(sketched) == 50
    numbers = summarise(list(reader.batches))["operators"]["join_table.districts.geojson"]
    assert numbers["per_row"] == [130 * 50, 130 * 25, 0]


def test_a_reader_keeps_the_newest_batches_and_counts_all(tmp_path: Path) -> None:
    reader = Reader(whole(tmp_path / "run.jsonl", 9), most=4)
    assert [one["batch"] for one in reader.batches] == [5, 6, 7, 8]
    assert reader.seen == 9


def test_a_history_in_another_format_is_an_error(tmp_path: Path) -> None:
    path = tmp_path / "run.jsonl"
    path.write_text('{"about":{"format":2}}\n{"batch":{"names":"of that time"}}\n')
    with pytest.raises(DefinitionError) as caught:
        Reader(path)
    assert str(caught.value) == (
        f"watch: {path} is a history in format 2; this version reads format 3. "
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
