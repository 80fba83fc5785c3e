"""The demo as a newcomer runs it: in a process of its own, without a terminal."""

from __future__ import annotations

import io
import re
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import shapely
from matplotlib.image import imread
from rich.console import Console

from rivermouth.cli import main
from rivermouth.cli.arrivals import Arrivals
from rivermouth.cli.demo_report import save
from rivermouth.errors import SessionError
from rivermouth.observe import plot
from rivermouth.testing.city import city
from rivermouth.testing.taxis import positions


@pytest.mark.spark
def test_a_short_demo_sums_up_and_leaves_a_map(tmp_path: Path) -> None:
    command = "import sys; from rivermouth.cli import main; sys.exit(main())"
    options = ["--seconds", "5", "--taxis", "50", "--seed", "3", "--out", "made here"]
    run = subprocess.run(
        [sys.executable, "-c", command, "demo", *options],
        cwd=tmp_path,
        capture_output=True,
        text=True,
    )
    assert run.returncode == 0, run.stderr
    counts = {
        name: int(count.replace(",", ""))
        for name, count in re.findall(
            r"^(rows in|matched|unmatched|set aside) +([\d,]+)", run.stdout, re.M
        )
    }
    out = tmp_path / "made here"
    placed = pq.read_table(out / "placed.parquet")
    assert counts["rows in"] == placed.num_rows == 50 * 5 * 60 // 10
    assert counts["matched"] == len(placed["district"].drop_null())
    assert counts["matched"] + counts["unmatched"] == counts["rows in"]
    assert 0 < counts["set aside"] < counts["unmatched"] < counts["matched"]
    assert len(re.findall(r"^\d+ batch", run.stdout, re.M)) == 1
    assert f"The map:   {Path('made here', 'map.png')}" in run.stdout
    assert "█" in run.stdout
    assert len(np.unique(imread(out / "map.png").reshape(-1, 4), axis=0)) > 100
    assert sorted(path.name for path in out.iterdir()) == [
        "districts.geojson",
        "map.png",
        "placed.parquet",
    ]
    _assert_placed_as_shapely_does(placed)


def _assert_placed_as_shapely_does(placed: pa.Table) -> None:
    merewick = city(3)
    lon, lat = placed["lon"].to_numpy(), placed["lat"].to_numpy()
    district = np.array(placed["district"].to_pylist(), dtype=object)
    for name, shape in zip(merewick.names, merewick.districts, strict=True):
        assert (shapely.contains_xy(shape, lon, lat) == (district == name)).all(), name


def test_numbers_below_one_are_refused(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        main(["demo", "--taxis", "0"])
    assert "argument --taxis" in capsys.readouterr().err


def test_rows_arrive_one_file_after_another_each_once(tmp_path: Path) -> None:
    table = pa.table({"id": range(10)})
    with Arrivals(table, tmp_path, seconds=1.5) as arrivals:
        assert not arrivals.over
        _wait_for(arrivals)
    files = sorted(tmp_path.iterdir())
    assert len(files) == 3
    assert [row for file in files for row in pq.read_table(file)["id"].to_pylist()] == [*range(10)]


def test_arrivals_end_with_their_block(tmp_path: Path) -> None:
    with Arrivals(pa.table({"id": range(10)}), tmp_path, seconds=600) as arrivals:
        assert not arrivals.over
    assert arrivals.over
    assert len(list(tmp_path.iterdir())) < 10


def test_arrivals_that_cannot_be_written_are_heard_of(tmp_path: Path) -> None:
    arrivals = Arrivals(pa.table({"id": [1]}), tmp_path / "missing", seconds=1)
    with arrivals, pytest.raises(FileNotFoundError):
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
    placed = positions(city(), taxis=2, seconds=60)
    placed = placed.append_column("district", pa.array(["Harbour"] * placed.num_rows))
    out = io.StringIO()
    save(placed, city(), tmp_path, Console(file=out))
    assert "plot.map: matplotlib cannot be imported. Install it.\n" in out.getvalue()
    assert pq.read_table(tmp_path / "placed.parquet").num_rows == placed.num_rows
