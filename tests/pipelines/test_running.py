"""Declared pipelines in Spark: the papers' workloads as files, the columns' mistakes, a stop."""

import json
import os
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from examples.pipelines import make_data
from tests.support.servers import postgres_server

import rivermouth as rm
from rivermouth.cli import main
from rivermouth.pipelines.running import Pipeline, PipelineError, RunError
from rivermouth.pipelines.sinks import upsert

pytestmark = [pytest.mark.spark]

EXAMPLES = Path(make_data.__file__).parent


def ran(spark, path):
    """Run what is there, and wait for the end."""
    pipeline = Pipeline.read(path)
    pipeline.define(spark)
    pipeline.start(once=True).wait()
    return pipeline


@pytest.fixture
def example(request, tmp_path):
    name = request.param
    make_data.MAKERS[name](tmp_path / "data")
    shutil.copy(EXAMPLES / f"{name}.yaml", tmp_path)
    return tmp_path / f"{name}.yaml"


def read(folder, *names):
    return [pq.read_table(folder / "data" / name).to_pandas() for name in names]


@pytest.mark.parametrize("example", ["traffic"], indirect=True)
def test_paper_a_traffic_gives_what_pandas_gives(spark, example):
    ran(spark, example)
    folder = example.parent
    reports, roads, turns = read(folder, "reports", "roads.parquet", "turns.parquet")
    lost = reports.merge(roads, on="road").merge(turns, on="turn")
    delay = lost.took_s - lost.length_m / (lost.free_kmh / 3.6)
    lost = lost.assign(delay_s=delay.clip(0), stopped_s=(delay - lost.lost_s).clip(0))
    written = pd.concat(
        pd.read_json(path, lines=True) for path in (folder / "data/out/reports").glob("*.json")
    )
    assert len(written) == len(reports) == 600
    assert written.delay_s.sum() == pytest.approx(lost.delay_s.sum())
    (found,) = read(folder, "out/turns")
    slices = lost.left_at.map(lambda at: int(at.timestamp()) // 300 * 300)
    expected = lost.groupby([lost.turn, slices]).delay_s.agg(["size", "mean"])
    assert len(found) > 100  # the windows that have closed
    for row in found.itertuples():
        vehicles, delay_s = expected.loc[row.turn, int(row.window_start.timestamp())]
        assert (row.vehicles, row.delay_s) == (vehicles, pytest.approx(delay_s))


@pytest.mark.parametrize("example", ["sums"], indirect=True)
def test_paper_b_sums_are_exact_in_the_end(spark, example):
    pipeline = ran(spark, example)
    (readings,) = read(example.parent, "readings")
    seconds = readings["at"].map(lambda at: int(at.timestamp()))
    expected = {}
    for sensor, second, value in zip(readings.sensor, seconds, readings["value"], strict=True):
        for start in range(second - 4, second + 1):
            total, n = expected.get((sensor, start), (0.0, 0))
            expected[sensor, start] = (total + value, n + 1)
    results = pipeline.sinks["loads"].results().collect()
    found = {
        (row["sensor"], int(row["window_start"].timestamp())): (row["total"], row["n"])
        for row in results
    }
    assert found == expected
    assert {row["status"] for row in results} == {"exact"}


@pytest.mark.parametrize("example", ["districts"], indirect=True)
def test_paper_c_taxis_have_districts_and_calls_their_taxis(spark, example):
    ran(spark, example)
    folder = example.parent
    taxis = pq.read_table(folder / "data" / "taxis").to_pandas()
    placed = spark.read.parquet(str(folder / "data/out/placed")).toPandas()
    west, south = taxis.lon.between(10, 11), taxis.lat.between(50, 51)
    inside = taxis.lon < 12
    expected = (
        south.map({True: "south ", False: "north "}) + west.map({True: "west", False: "east"})
    ).where(inside)  # fmt: skip
    counted = placed.district.value_counts(dropna=False).to_dict()
    assert sum(counted.values()) == 400
    assert {k: v for k, v in counted.items() if isinstance(k, str)} == (
        expected.value_counts().to_dict()
    )  # fmt: skip
    offers = pd.concat(
        pd.read_json(path, lines=True)
        for path in (folder / "data/out/offers").glob("*.json")
        if path.stat().st_size
    )
    assert {f"caller {n}" for n in range(12)} == set(offers.caller)
    visits = spark.read.parquet(str(folder / "data/out/visits")).toPandas()
    assert set(visits.district) == set(expected.dropna())


# -- mistakes that columns show

PLACED = """
sources:
  taxis: {{files: {{path: taxis}}}}
tables:
  names: {{parquet: names.parquet}}
  gone: {{parquet: gone.parquet}}
steps:
  named:
    join_table:
      events: taxis
      table: names
      on: {{keys: {on}}}
  again:
    select:
      frame: named
      columns: [{column}, taxi]
  lost:
    join_table: {{events: again, table: gone, on: {{keys: taxi}}}}
sinks:
  out: {{{sink}: {{frame: {frame}}}}}
"""


@pytest.fixture
def data(tmp_path):
    (tmp_path / "taxis").mkdir()
    pq.write_table(pa.table({"taxi": [1, 2, 3]}), tmp_path / "taxis" / "0.parquet")
    names = pa.table({"taxi": [1, 2], "name": ["one", "two"]})
    pq.write_table(names, tmp_path / "names.parquet")
    pq.write_table(names.rename_columns(["taxi", "nick"]), tmp_path / "gone.parquet")
    return tmp_path


def written(folder, **given):
    chosen = {"on": "taxi", "column": "name", "sink": "memory", "frame": "again", **given}
    path = folder / "p.yaml"
    path.write_text(PLACED.format(**chosen).lstrip())
    return path


def test_the_library_s_errors_have_the_file_s_lines(spark, data, capsys):
    (data / "gone.parquet").unlink()
    path = written(data, on="taksi")
    pipeline = Pipeline.read(path)
    with pytest.raises(PipelineError) as error:
        pipeline.define(spark)
    assert error.value.lines == [
        f"{path}:11:18: join_table: on names column 'taksi', which is not among the events' "
        "['taxi']. Did you mean 'taxi'?",
    ]
    path = written(data, column="nam")
    assert main(["run", str(path), "--check"]) == 1
    said = capsys.readouterr().err
    assert f"{path}:15:17: AnalysisException: [UNRESOLVED_COLUMN" in said


def test_what_is_not_there_has_the_line_that_names_it(spark, data, capsys):
    (data / "gone.parquet").unlink()
    path = written(data)
    assert main(["run", str(path), "--check"]) == 1
    said = capsys.readouterr().err
    assert f"{path}:5:19: tables.parquet: there is no '{data}/gone.parquet'" in said
    path.write_text(path.read_text().replace("path: taxis", "path: taxi"))
    assert main(["run", str(path), "--check"]) == 1
    said = capsys.readouterr().err
    assert f"{path}:2:25: files: there is no '{data}/taxi'" in said
    assert "Did you mean 'taxis'?" in said


def test_a_batch_does_not_write_its_rows_twice_unless_told_to(spark, data, capsys):
    def run(mode):
        path = written(data, sink="files", frame=f"again, path: out{mode}")
        path.write_text(path.read_text().replace("path: taxis", "path: taxis, stream: false"))
        return main(["run", str(path)])

    def count():
        return spark.read.parquet(str(data / "out")).count()

    assert run("") == 0
    assert capsys.readouterr().out == "p: out written\n"
    assert (run(""), count()) == (1, 2)
    assert "out' is there already. Delete it, or give mode: overwrite" in capsys.readouterr().err
    assert (run(", mode: overwrite"), count()) == (0, 2)
    assert (run(", mode: append"), count()) == (0, 4)
    path = written(data, sink="files", frame="again, path: out, mode: overwrite")
    assert main(["run", str(path), "--check"]) == 1
    assert "mode is 'overwrite', but a stream only appends" in capsys.readouterr().err


def test_check_of_a_right_file_runs_nothing(spark, data, capsys):
    path = written(data)
    assert main(["run", str(path), "--check"]) == 0
    assert capsys.readouterr().out == f"{path}: no mistakes\n"
    assert spark.streams.active == []


def test_a_pipeline_once_then_again_and_new_files(spark, data):
    path = written(data, sink="files", frame="again, path: out")
    ran(spark, path)
    assert sorted(r[0] for r in spark.read.parquet(str(data / "out")).collect()) == ["one", "two"]
    pq.write_table(pa.table({"taxi": [2]}), data / "taxis" / "1.parquet")
    ran(spark, path)
    names = sorted(r[0] for r in spark.read.parquet(str(data / "out")).collect())
    assert names == ["one", "two", "two"]


def test_batch_sources_are_written_at_once_and_memory_is_a_table(spark, data, capsys):
    path = written(data, sink="console", frame="again")
    path.write_text(path.read_text().replace("path: taxis", "path: taxis, stream: false"))
    assert main(["run", str(path), "--once"]) == 0
    assert "|two |" in capsys.readouterr().out
    ran(spark, written(data))
    assert spark.table("out").count() == 2


def test_a_query_that_fails_says_why_without_secrets(spark, data, monkeypatch):
    (data / "my_service.py").write_text(
        "def names(keys):\n    raise ValueError('bad token s3cret')\n"
    )
    monkeypatch.setenv("TOKEN_OF_MINE", "s3cret")
    path = data / "p.yaml"
    path.write_text(
        """
spark: {spark.app.note: "${TOKEN_OF_MINE}"}
sources: {taxis: {files: taxis}}
tables:
  names:
    service: {function: "my_service:names", keys: taxi, schema: {taxi: int64, name: string}}
steps:
  named: {join_table: {events: taxis, table: names, on: {keys: taxi}, cache: incremental}}
sinks: {out: {memory: named}}
"""
    )
    pipeline = Pipeline.read(path)
    pipeline.define(spark)
    with pytest.raises(RunError, match=r"bad token \$\{TOKEN_OF_MINE\}"), pipeline.redacting():
        pipeline.start(once=True).wait()


# -- sinks


@pytest.mark.server
def test_upsert_keeps_the_newest_row_of_each_key_in_postgresql(spark, data, monkeypatch):
    (data / "sold").mkdir()
    for number, rows in enumerate([[(1, 1, "a"), (1, 3, "b"), (2, 2, "c")], [(1, 2, "d")]]):
        k, at, v = zip(*rows, strict=True)
        pq.write_table(pa.table({"k": k, "at": at, "v": v}), data / "sold" / f"{number}.parquet")
        os.utime(data / "sold" / f"{number}.parquet", (number, number))
    path = data / "p.yaml"
    path.write_text(
        """
sources: {sold: {files: {path: sold, files_per_batch: 1}}}
tables: {newest: {postgres: {url: "${DATABASE_URL}", table: newest}}}
sinks: {newest: {upsert: {frame: sold, table: newest, keys: [k], order: [at]}}}
"""
    )
    with postgres_server() as server:
        monkeypatch.setenv("DATABASE_URL", server.url)
        ran(spark, path)
        found = rm.tables.postgres(server.url, "newest").read(["k", "at", "v"]).to_pylist()
    assert sorted(found, key=str) == [{"k": 1, "at": 3, "v": "b"}, {"k": 2, "at": 2, "v": "c"}]


def test_upsert_into_what_takes_no_rows_is_an_error(spark):
    with pytest.raises(rm.RivermouthError, match=r"upsert: x takes no rows\. Give a table of"):
        upsert(spark.range(1), rm.tables.parquet("x"), keys=["id"], order=["id"])


# -- a stop


@pytest.mark.slow
@pytest.mark.parametrize(("sent", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_an_interrupted_run_stops_cleanly_and_goes_on(data, spark, sent, code):
    path = written(data, sink="files", frame="again, path: out")
    program = "import sys; from rivermouth.cli import main; sys.exit(main())"
    process = subprocess.Popen(
        [sys.executable, "-c", program, "run", str(path)],
        stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, env=dict(os.environ),
    )  # fmt: skip
    try:
        until = time.monotonic() + 300
        while not list((data / "checkpoints").glob("p/out/commits/0")):
            assert process.poll() is None, process.stdout.read()
            assert time.monotonic() < until
            time.sleep(0.2)
        process.send_signal(sent)
        said, _ = process.communicate(timeout=120)
    finally:
        process.kill()
    assert process.returncode == code, said
    assert said.endswith("stopping\nstopped; started again, it goes on where it was\n")
    assert "Traceback" not in said
    pq.write_table(pa.table({"taxi": [1]}), data / "taxis" / "1.parquet")
    ran(spark, path)
    names = sorted(r[0] for r in spark.read.parquet(str(data / "out")).collect())
    assert names == ["one", "one", "two"]


def test_the_schema_is_printed(capsys):
    assert main(["run", "--schema"]) == 0
    assert json.loads(capsys.readouterr().out)["title"] == "A pipeline of rivermouth"


def test_no_file_is_an_error(capsys):
    assert main(["run"]) == 1
    assert capsys.readouterr().err.startswith("run: no file is named. Write rivermouth run")
