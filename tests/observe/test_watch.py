"""watch over a real query: what is on the page, in the history, and in `metrics` is the same."""

from __future__ import annotations

import json
import subprocess
import sys
import time
import urllib.request
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession
from pyspark.sql.streaming.query import StreamingQuery

import rivermouth as rm
from rivermouth.errors import DefinitionError
from rivermouth.observe.history import Reader
from rivermouth.testing import frame, replay

NAMES = ["Harbour", "<script>alert(1)</script>"]


def started(spark: SparkSession, folder: Path) -> StreamingQuery:
    """Six records in three batches, and two squares."""
    squares = [
        {
            "type": "Feature",
            "properties": {"district": name},
            "geometry": {
                "type": "Polygon",
                "coordinates": [[[x, 0], [x + 1, 0], [x + 1, 1], [x, 1], [x, 0]]],
            },
        }
        for x, name in enumerate(NAMES)
    ]
    path = folder / "districts.geojson"
    path.write_text(json.dumps({"type": "FeatureCollection", "features": squares}))
    events = frame(
        spark,
        """
        id int | x double | y double
        1      | 0.5      | 0.5
        2      | 1.5      | 0.5
        3      | 9.0      | 9.0
        4      | null     | 0.5
        5      | 0.25     | 0.5
        6      | 0.75     | 0.5
        """,
    )
    joined = rm.join_table(
        replay(events, cuts=[2, 2, 2]),
        rm.tables.geojson(path),
        on=rm.within(rm.point("x", "y"), "geometry"),
        how="left",
        columns=["district"],
    )
    return (
        joined.writeStream.format("noop")
        .queryName("placed")
        .option("checkpointLocation", str(folder / "checkpoint"))
        .trigger(availableNow=True)
        .start()
    )


def asked(url: str) -> Any:
    with urllib.request.urlopen(url, timeout=30) as answer:
        return json.load(answer)


@pytest.mark.spark
def test_page_history_and_metrics_agree(spark: SparkSession, tmp_path: Path) -> None:
    query = started(spark, tmp_path)
    with rm.watch(query, history=tmp_path / "histories") as watching:
        query.awaitTermination()
        deadline = time.monotonic() + 60
        while (run := asked(f"{watching.url}api/runs"))[0]["status"] == "running":
            assert time.monotonic() < deadline
            time.sleep(0.1)
        (key,) = [one["key"] for one in run]
        page = asked(f"{watching.url}api/runs/{key}")
        shapes = asked(f"{watching.url}api/runs/{key}/shapes/join_table.districts.geojson")
        assert watching.url in watching._repr_html_()
    numbers = rm.metrics(query)
    assert page["metrics"] == numbers
    assert (page["run"]["name"], page["run"]["batches"]) == ("placed", 3)
    assert numbers["operators"]["join_table.districts.geojson"]["per_row"] == [3, 1]
    assert shapes["labels"] == NAMES
    assert sorted(map(tuple, page["places"]["join_table.districts.geojson"])) == [
        *((0.25, 0.5), (0.5, 0.5), (0.75, 0.5), (1.5, 0.5), (9.0, 9.0))
    ]
    (path,) = (tmp_path / "histories").iterdir()
    assert Reader(path).status == "ended"
    with pytest.raises(OSError, match="refused"):
        urllib.request.urlopen(str(watching.url), timeout=5)


def test_what_is_no_query_is_told_so() -> None:
    with pytest.raises(DefinitionError, match="watch: there is no query"):
        rm.watch()
    with pytest.raises(DefinitionError, match="watch: a str has no progress reports"):
        rm.watch("query")  # type: ignore[arg-type]


def test_a_finished_run_is_shown_by_another_process(tmp_path: Path) -> None:
    from tests.support.histories import whole

    whole(tmp_path / "run.jsonl")
    code = "import sys; from rivermouth.cli import main; sys.exit(main())"
    with subprocess.Popen(
        [sys.executable, "-c", code, "watch", str(tmp_path)], stdout=subprocess.PIPE, text=True
    ) as process:
        assert process.stdout is not None
        line = process.stdout.readline()
        assert f"(1 run in {tmp_path};" in line
        url = line.split()[0]
        assert asked(f"{url}api/runs/run")["metrics"]["rows"] == 1200
        process.terminate()


def test_the_command_tells_of_places_without_histories(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    from rivermouth.cli import main

    assert main(["watch", str(tmp_path / "none")]) == 1
    assert capsys.readouterr().err == (
        f"watch: there is no {tmp_path / 'none'}. "
        "Run a query with rm.watch(query), or name the file or folder that it wrote.\n"
    )
    (tmp_path / "other.txt").write_text("x\n")
    assert main(["watch", str(tmp_path / "other.txt")]) == 1
    assert "is not a history that this version can read" in capsys.readouterr().err


@pytest.mark.spark
def test_fence_events_are_in_the_history_with_the_shapes_of_the_fences(
    spark: SparkSession, tmp_path: Path
) -> None:
    zone = {"type": "Polygon", "coordinates": [[[0, 0], [1, 0], [1, 1], [0, 1], [0, 0]]]}
    feature = {"type": "Feature", "properties": {"zone": "Harbour"}, "geometry": zone}
    path = tmp_path / "zones.geojson"
    path.write_text(json.dumps({"type": "FeatureCollection", "features": [feature]}))
    positions = frame(
        spark,
        """
        ship | at timestamp        | x double | y double
        ada  | 2026-01-01 12:00:00 | -5       | 0.5
        ada  | 2026-01-01 12:10:00 | 0.5      | 0.5
        ada  | 2026-01-01 12:20:00 | 5        | 0.5
        ada  | 2026-01-01 12:30:00 | 6        | 0.5
        """,
    )
    events = rm.fence_events(
        replay(positions, cuts=[2, 2]), rm.tables.geojson(path), by="ship", time="at",
        on=rm.within(rm.point("x", "y"), "geometry"), lateness="0 seconds",
    )  # fmt: skip
    writer = events.writeStream.format("noop").trigger(availableNow=True)
    query = writer.option("checkpointLocation", str(tmp_path / "checkpoint")).start()
    with rm.watch(query, history=tmp_path / "histories", page=False):
        query.awaitTermination()
    (history,) = (tmp_path / "histories").iterdir()
    reader = Reader(history)
    reader.refresh()
    ((name, record),) = reader.log.totals.operators.items()
    assert record["events"]["per_fence"] == {"Harbour": 2}
    newest = [(one["event"], one["object"], one["x"]) for one in record["events"]["newest"]]
    assert newest == [("exit", "ada", 5.0), ("enter", "ada", 0.5)]
    assert reader.shapes[name]["labels"] == ["Harbour"]
