"""The demo as a newcomer runs it: in a process of its own, without a terminal."""

from __future__ import annotations

import io
import re
import shutil
import sqlite3
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest
import shapely
from matplotlib.image import imread
from rich.console import Console
from tests.support.browser import Browser, browser

from rivermouth.cli import main
from rivermouth.cli.demo.arrivals import Arrivals
from rivermouth.cli.demo.report import save
from rivermouth.cli.demo.story import story
from rivermouth.cli.demo.summing import Outcome
from rivermouth.errors import SessionError
from rivermouth.observe import plot
from rivermouth.testing.city import city

__all__ = ["browser"]
COMMAND = "import sys; from rivermouth.cli import main; sys.exit(main())"


@pytest.fixture(scope="module")
def demo(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, str]:
    """A short demo: where its files are, and what it printed."""
    folder = tmp_path_factory.mktemp("demo")
    options = ["--minutes", "0.25", "--scale", "0.5", "--seed", "3", "--out", "made here"]
    run = subprocess.run(
        [sys.executable, "-c", COMMAND, "demo", *options],
        cwd=folder,
        capture_output=True,
        text=True,
    )
    assert run.returncode == 0, run.stderr
    return folder / "made here", run.stdout


@pytest.mark.spark
def test_it_sums_up_and_leaves_what_it_says(demo: tuple[Path, str]) -> None:
    out, said = demo
    told = story(seconds=15, scale=0.5, seed=3)
    assert told.sentence in said
    assert re.search(r"http://127\.0\.0\.1:\d+/", said)
    assert len(re.findall(r"^(?:placed|offers|earnings) +\d+ batch", said, re.M)) == 3
    assert f"{told.cabs.num_rows:,} positions of cabs" in said
    assert "Every answer is exact now." in said
    assert sorted(path.name for path in out.iterdir()) == [
        *("districts.geojson", "earnings.parquet", "fleet.db", "history", "map.png"),
        *("offers.parquet", "placed.parquet", "report.html", "spark.log"),
    ]
    assert len(np.unique(imread(out / "map.png").reshape(-1, 4), axis=0)) > 100


@pytest.mark.spark
def test_cabs_are_where_shapely_has_them_and_driven_by_whom_the_fleet_says(
    demo: tuple[Path, str],
) -> None:
    placed = pq.read_table(demo[0] / "placed.parquet")
    assert placed.num_rows == story(seconds=15, scale=0.5, seed=3).cabs.num_rows
    merewick = city(3)
    lon, lat = placed["lon"].to_numpy(), placed["lat"].to_numpy()
    district = np.array(placed["district"].to_pylist(), dtype=object)
    for name, shape in zip(merewick.names, merewick.districts, strict=True):
        assert (shapely.contains_xy(shape, lon, lat) == (district == name)).all(), name
    with sqlite3.connect(demo[0] / "fleet.db") as database:
        fleet = dict(database.execute("SELECT cab, driver FROM drivers").fetchall())
    database.close()
    drivers = zip(placed["cab"].to_pylist(), placed["driver"].to_pylist(), strict=True)
    assert all(fleet.get(cab) == driver for cab, driver in drivers)


@pytest.mark.spark
def test_earnings_are_exactly_the_charges(demo: tuple[Path, str]) -> None:
    charges = story(seconds=15, scale=0.5, seed=3).charges
    earned = pq.read_table(demo[0] / "earnings.parquet")
    assert pc.sum(earned["rides"]).as_py() == charges.num_rows
    assert pc.sum(earned["earned"]).as_py() == pytest.approx(pc.sum(charges["fare"]).as_py())
    assert set(earned["answer"].to_pylist()) == {"exact"}


@pytest.mark.spark
def test_offers_are_near_in_space_and_time(demo: tuple[Path, str]) -> None:
    offers = pq.read_table(demo[0] / "offers.parquet")
    assert offers.num_rows > 0
    wait = pc.subtract(offers["at"], offers["seen"]).cast(pa.int64()).to_numpy()
    assert (wait >= 0).all()
    assert (wait <= 120_000_000).all()


@pytest.mark.spark
@pytest.mark.server
def test_the_report_opens_without_a_network(demo: tuple[Path, str], browser: Browser) -> None:
    page = browser.page()
    report = (demo[0] / "report.html").as_uri()
    page.open(report)
    page.wait("document.querySelectorAll('#shape-list button').length > 10")
    assert page.complaints == []
    assert page.requests == [report]
    assert page.run("document.querySelectorAll('#run option').length") == 3
    assert "Every answer is exact now." in page.text("#summary-words")
    page.close()


def test_a_story_is_the_same_for_the_same_seed_and_its_charges_are_out_of_order() -> None:
    told = story(seconds=5, scale=0.3, seed=2)
    again = story(seconds=5, scale=0.3, seed=2)
    assert (told.hails, told.charges) == (again.hails, again.charges)
    assert told.charges != story(seconds=5, scale=0.3, seed=4).charges
    for table in (told.cabs, told.hails):
        assert (np.diff(table["at"].to_numpy()) >= np.timedelta64(0)).all()
    at = told.charges["at"].to_numpy()
    late = (at < np.maximum.accumulate(at)).mean()
    assert 0.3 < late < 1


@pytest.mark.parametrize("words", [["--scale", "0"], ["--minutes", "-1"], ["--minutes", "inf"]])
def test_numbers_that_make_no_sense_are_refused(
    words: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit):
        main(["demo", *words])
    assert f"argument {words[0]}" in capsys.readouterr().err


def test_rows_arrive_one_file_after_another_each_once(tmp_path: Path) -> None:
    table = pa.table({"id": range(10)})
    with Arrivals(table, tmp_path, seconds=1.5) as arrivals:
        assert [path.name for path in tmp_path.iterdir()] == ["000000.parquet"]
        arrivals.begin()
        assert not arrivals.over
        _wait_for(arrivals)
    files = sorted(tmp_path.iterdir())
    assert len(files) == 3
    assert [row for file in files for row in pq.read_table(file)["id"].to_pylist()] == [*range(10)]


def test_arrivals_end_with_their_block(tmp_path: Path) -> None:
    with Arrivals(pa.table({"id": range(10)}), tmp_path, seconds=600) as arrivals:
        arrivals.begin()
        assert not arrivals.over
    assert arrivals.over
    assert len(list(tmp_path.iterdir())) < 10


def test_arrivals_that_cannot_be_written_are_heard_of(tmp_path: Path) -> None:
    folder = tmp_path / "arriving"
    folder.mkdir()
    with Arrivals(pa.table({"id": [1, 2, 3]}), folder, seconds=1.5) as arrivals:
        shutil.rmtree(folder)
        arrivals.begin()
        with pytest.raises(FileNotFoundError):
            _wait_for(arrivals)


def _wait_for(arrivals: Arrivals) -> None:
    deadline = time.monotonic() + 60
    while not arrivals.over:
        assert time.monotonic() < deadline
        time.sleep(0.05)


def test_a_demo_without_matplotlib_says_what_to_install(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def missing(*_: object, **__: object) -> None:
        raise SessionError("plot.map", "matplotlib cannot be imported", todo="Install it.")

    monkeypatch.setattr(plot, "map", missing)
    told = story(seconds=1, scale=0.01)
    placed = told.cabs.append_column("district", pa.array(["Harbour"] * told.cabs.num_rows))
    out = io.StringIO()
    save(_outcome(placed), told, tmp_path, Console(file=out, width=200))
    assert "plot.map: matplotlib cannot be imported. Install it.\n" in out.getvalue()
    assert pq.read_table(tmp_path / "placed.parquet").num_rows == placed.num_rows


def _outcome(placed: pa.Table) -> Outcome:
    """Of queries that have found nothing."""
    at = pa.timestamp("us", tz="UTC")
    windows = pa.table(
        {
            "district": pa.array([], pa.string()),
            "window_start": pa.array([], at),
            "earned": pa.array([], pa.float64()),
            "rides": pa.array([], pa.int64()),
            "change": pa.array([], pa.string()),
        }
    )
    offers = pa.table(
        {
            "passenger": pa.array([], pa.int32()),
            "cab": pa.array([], pa.int32()),
            "at": pa.array([], at),
        }
    )
    empty = {"rows_in": 0, "matched": 0, "unmatched": 0, "rejected": {}, "late": 0}
    cached = {**empty, "cache": {"hit_ratio": None}}
    metrics = {
        "placed": {
            "operators": {"join_table.fleet.db/drivers": cached, "join_table.districts": empty}
        },
        "offers": {"operators": {"join_interval": empty}},
        "earnings": {"operators": {"aggregate": empty}},
    }
    return Outcome(placed, offers, windows, windows, metrics)
