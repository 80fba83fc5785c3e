"""The demo as a newcomer runs it: in a process of its own, without a terminal."""

from __future__ import annotations

import io
import json
import os
import re
import sqlite3
import subprocess
import sys
from collections.abc import Callable
from contextlib import closing
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
from rivermouth.cli.demo import _after_first_batch
from rivermouth.cli.demo.report import report
from rivermouth.cli.demo.story import Story, story
from rivermouth.cli.demo.summary import Outcome, is_exact
from rivermouth.errors import SessionError
from rivermouth.observe import plot
from rivermouth.testing.city import city
from rivermouth.testing.fences import fence_events

__all__ = ["browser"]
COMMAND = "import sys; from rivermouth.cli import main; sys.exit(main())"
OPTIONS = ["--minutes", "0.3", "--scale", "0.5", "--seed", "3", "--out", "made here"]


@pytest.fixture(scope="module")
def told() -> Story:
    return story(batches=6, scale=0.5, seed=3)


@pytest.fixture(scope="module")
def demos(tmp_path_factory: pytest.TempPathFactory) -> list[tuple[Path, str]]:
    """Two short demos at once, one of them on a single core: their files and what they printed."""
    cores = os.sched_getaffinity(0)
    folders = [tmp_path_factory.mktemp(name) for name in ("all-cores", "one-core")]
    runs = [
        subprocess.Popen(
            [sys.executable, "-c", COMMAND, "demo", *OPTIONS],
            cwd=folder,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            preexec_fn=_pinned(allowed),
        )
        for folder, allowed in zip(folders, (cores, {min(cores)}), strict=True)
    ]
    printed = [run.communicate() for run in runs]
    assert [run.returncode for run in runs] == [0, 0], printed
    return [(folder / "made here", out) for folder, (out, _) in zip(folders, printed, strict=True)]


def _pinned(cores: set[int]) -> Callable[[], None]:
    return lambda: os.sched_setaffinity(0, cores)


@pytest.fixture(scope="module")
def demo(demos: list[tuple[Path, str]]) -> tuple[Path, str]:
    return demos[0]


@pytest.mark.slow
@pytest.mark.spark
def test_it_writes_the_files_that_it_names(demo: tuple[Path, str], told: Story) -> None:
    out, printed = demo
    assert told.sentence in printed
    assert re.search(r"http://127\.0\.0\.1:\d+/", printed)
    assert sorted(path.name for path in out.iterdir()) == [
        *("districts.geojson", "earnings.parquet", "fleet.db", "history", "map.png"),
        *("offers.parquet", "placed.parquet", "report.html", "spark.log", "visits.parquet"),
    ]
    assert len(np.unique(imread(out / "map.png").reshape(-1, 4), axis=0)) > 100


@pytest.mark.spark
def test_charges_are_late_and_early_windows_are_corrected(demos: list[tuple[Path, str]]) -> None:
    for out, printed in demos:
        batches = re.findall(r"^(?:placed|offers|visits|earnings) +(\d+) batches", printed, re.M)
        assert batches == ["6"] * 4
        assert _number(r"([\d,]+) windows of five minutes were emitted early", printed) > 10
        assert _number(r"([\d,]+) of [\d,]+ charges arrived after their window", printed) > 0
        assert _number(r"([\d,]+) of the early windows were corrected", printed) > 0
        assert _number(r"corrected, by ([\d,.]+) crowns", printed) > 0
        assert "equals a recomputation of all charges" in printed
        # not only at the end: also while the stream ran
        lines = "".join(file.read_text() for file in (out / "history").iterdir()).splitlines()
        corrections = [made for line in lines for made in json.loads(line).get("corrections", ())]
        assert {made["final"] for made in corrections} == {False, True}


@pytest.mark.spark
def test_the_numbers_are_the_same_on_one_core(demos: list[tuple[Path, str]]) -> None:
    both = [printed[printed.index("Positions:") : printed.index("Report:")] for _, printed in demos]
    assert both[0] == both[1]


def _number(pattern: str, text: str) -> float:
    (found,) = re.findall(pattern, text)
    return float(found.replace(",", ""))


@pytest.mark.spark
def test_cabs_are_where_shapely_has_them_and_driven_by_whom_the_fleet_says(
    demo: tuple[Path, str], told: Story
) -> None:
    placed = pq.read_table(demo[0] / "placed.parquet")
    assert placed.num_rows == sum(batch.num_rows for batch in told.cabs)
    merewick = city(3)
    lon, lat = placed["lon"].to_numpy(), placed["lat"].to_numpy()
    district = np.array(placed["district"].to_pylist(), dtype=object)
    for name, shape in zip(merewick.names, merewick.districts, strict=True):
        assert (shapely.contains_xy(shape, lon, lat) == (district == name)).all(), name
    with closing(sqlite3.connect(demo[0] / "fleet.db")) as database, database:
        fleet = dict(database.execute("SELECT cab, driver FROM drivers").fetchall())
    database.close()
    drivers = zip(placed["cab"].to_pylist(), placed["driver"].to_pylist(), strict=True)
    assert all(fleet.get(cab) == driver for cab, driver in drivers)


@pytest.mark.spark
def test_earnings_are_the_charges_and_a_wrong_one_is_noticed(
    demo: tuple[Path, str], told: Story
) -> None:
    charges = pa.concat_tables(told.charges)
    earnings = pq.read_table(demo[0] / "earnings.parquet")
    assert pc.sum(earnings["rides"]).as_py() == charges.num_rows
    assert pc.sum(earnings["earned"]).as_py() == pytest.approx(pc.sum(charges["fare"]).as_py())
    assert set(earnings["status"].to_pylist()) == {"exact"}
    assert is_exact(earnings, told)
    assert not is_exact(earnings.slice(1), told)
    earned = earnings.column_names.index("earned")
    more = pc.add(earnings["earned"], 0.01)
    assert not is_exact(earnings.set_column(earned, "earned", more), told)


@pytest.mark.spark
def test_offers_are_near_in_space_and_time(demo: tuple[Path, str]) -> None:
    offers = pq.read_table(demo[0] / "offers.parquet")
    assert offers.num_rows > 0
    wait = pc.subtract(offers["at"], offers["seen"]).cast(pa.int64()).to_numpy()
    assert (wait >= 0).all()
    assert (wait <= 120_000_000).all()


@pytest.mark.spark
def test_visits_are_those_of_the_slow_oracle(demo: tuple[Path, str], told: Story) -> None:
    cabs = pa.concat_tables(told.cabs)
    usable = cabs.filter(pc.is_finite(cabs["lon"])).to_pylist()
    newest = max(row["at"] for row in usable)  # positions of this time wait for a newer one
    track = [
        (row["cab"], row["at"].timestamp(), (row["lon"], row["lat"]))
        for row in usable
        if row["at"] < newest
    ]
    shapes = dict(zip(told.city.names, told.city.districts, strict=True))
    shapely.prepare(list(shapes.values()))
    expected = fence_events(
        track, dict(shapes), lambda place, shape: bool(shapely.contains_xy(shape, *place)),
        dwell=600, min_inside=(2, 0), min_outside=(2, 0),
    )  # fmt: skip
    found = pq.read_table(demo[0] / "visits.parquet").to_pylist()
    assert {row["event"] for row in found} == {"enter", "exit", "dwell"}
    assert sorted(
        (row["cab"], row["at"].timestamp(), row["district"], row["event"]) for row in found
    ) == sorted(
        (event.who, event.time, event.fence, event.event)
        for event in expected
        if event.event in ("enter", "exit", "dwell")
    )


@pytest.mark.spark
@pytest.mark.server
def test_the_report_opens_without_a_network(demo: tuple[Path, str], browser: Browser) -> None:
    page = browser.page()
    report = (demo[0] / "report.html").as_uri()
    page.open(report)
    page.wait("document.querySelectorAll('#shape-list button').length > 10")
    assert page.complaints == []
    assert page.requests == [report]
    assert page.run("document.querySelectorAll('#run option').length") == 4
    assert "equals a recomputation of all charges" in page.text("#summary-words")
    page.close()


def test_a_story_is_the_same_for_the_same_seed_and_its_charges_are_out_of_order() -> None:
    told, again, other = (story(batches=5, scale=0.3, seed=seed) for seed in (2, 2, 4))
    assert (told.hails, told.charges) == (again.hails, again.charges)
    assert told.charges != other.charges
    assert {len(told.cabs), len(told.hails), len(told.charges)} == {5}
    for batches in (told.cabs, told.hails):
        assert (np.diff(_times(batches)) >= np.timedelta64(0)).all()
    at = _times(told.charges)
    assert 0.3 < (at < np.maximum.accumulate(at)).mean() < 1


def _times(batches: list[pa.Table]) -> np.ndarray:
    return pa.concat_tables(batches)["at"].to_numpy()


@pytest.mark.parametrize("words", [["--scale", "0"], ["--minutes", "0.2"], ["--minutes", "inf"]])
def test_numbers_that_make_no_sense_are_refused(
    words: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit):
        main(["demo", *words])
    assert f"argument {words[0]}" in capsys.readouterr().err


class Failed:
    """A query that has failed before its first batch."""

    isActive = False  # noqa: N815  (Spark's name)

    def __init__(self, message: str) -> None:
        self._message = message

    def exception(self) -> Exception:
        return Exception(self._message)


@pytest.mark.parametrize(
    ("message", "attempts"),
    [("Python worker failed to connect back.", 3), ("Python worker failed", 1)],
)
def test_a_query_whose_worker_starts_too_slowly_is_started_again(
    message: str, attempts: int
) -> None:
    started: list[Failed] = []

    def start() -> Failed:
        started.append(Failed(message))
        return started[-1]

    assert _after_first_batch(start) is started[-1]
    assert len(started) == attempts


def test_a_demo_without_matplotlib_says_what_to_install(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def missing(*_: object, **__: object) -> None:
        raise SessionError("plot.map", "matplotlib cannot be imported", todo="Install it.")

    monkeypatch.setattr(plot, "map", missing)
    told = story(batches=1, scale=0.01)
    (cabs,) = told.cabs
    placed = cabs.append_column("district", pa.array(["Harbour"] * cabs.num_rows))
    out = io.StringIO()
    report(_outcome(placed), told, tmp_path, Console(file=out, width=200))
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
            "revision": pa.array([], pa.int64()),
        }
    )
    offers = pa.table(
        {
            "passenger": pa.array([], pa.int32()),
            "cab": pa.array([], pa.int32()),
            "at": pa.array([], at),
        }
    )
    visits = pa.table({"at": pa.array([], at), "event": pa.array([], pa.string())})
    empty = {"rows_in": 0, "matched": 0, "unmatched": 0, "rejected": {}, "late": 0}
    metrics = {
        "placed": {
            "operators": {"join_table.fleet.db/drivers": empty, "join_table.districts": empty}
        },
        "offers": {"operators": {"join_interval": empty}},
        "earnings": {"operators": {"aggregate": empty}},
    }
    return Outcome(placed, offers, visits, windows, windows, metrics)
