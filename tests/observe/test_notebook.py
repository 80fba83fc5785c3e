"""Frames and queries in notebooks: what they show, and that they do so in a real JupyterLab."""

from __future__ import annotations

import json
import os
import re
import socket
import subprocess
import sys
import time
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
import shapely
from tests.support.browser import Browser, browser

import rivermouth as rm
from rivermouth.testing import frame, replay

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

__all__ = ["browser"]

TAXIS = """
    taxi int | lon double | lat double | note
    1        | 0.5        | 0.5        | <b>bold</b>
    2        | 1.5        | 1.0        | plain
    3        | null       | 2.0        | plain
"""


@pytest.fixture
def districts(tmp_path: Path) -> str:
    boxes = {"west": shapely.box(0, 0, 1, 2), "east <i>": shapely.box(1, 0, 2, 2)}
    features = [
        {
            "type": "Feature",
            "properties": {"name": name},
            "geometry": json.loads(shapely.to_geojson(box)),
        }
        for name, box in boxes.items()
    ]
    path = tmp_path / "districts.geojson"
    path.write_text(json.dumps({"type": "FeatureCollection", "features": features}))
    return str(path)


def test_a_frame_shows_its_rows_and_its_places(spark: SparkSession) -> None:
    html = rm.show(frame(spark, TAXIS), colour="note")._repr_html_()
    assert html.count("<circle") == 2
    assert "2 of 3 rows have a place" in html
    assert "all 3 rows; columns: 4" in html
    assert "<b>" not in html  # what comes from data is no markup
    assert html.count("&lt;b&gt;bold") == 3  # cell, legend and the text at its point
    assert "<script" not in html


def test_a_frame_of_shapes_is_drawn_from_wkb(spark: SparkSession) -> None:
    hole = shapely.box(0, 0, 4, 4).difference(shapely.box(1, 1, 2, 2))
    frame = spark.createDataFrame(
        [(1, bytearray(shapely.to_wkb(hole))), (2, None)], "id int, geom binary"
    )
    html = rm.show(frame)._repr_html_()
    (path,) = re.findall(r'<path d="([^"]+)"', html)
    assert path.count("M") == 2  # the outline and the hole
    assert "1 of 2 rows have a place" in html


def test_a_frame_without_places_has_no_map_and_few_of_many_rows(spark: SparkSession) -> None:
    html = rm.show(spark.range(50), rows=30)._repr_html_()
    assert "<svg" not in html
    assert "the first 30 rows; columns: 1; 20 are listed" in html


def test_a_stream_shows_its_columns_and_runs_nothing(spark: SparkSession) -> None:
    html = rm.show(replay(frame(spark, TAXIS)))._repr_html_()
    assert "A stream" in html
    assert html.count("<tr>") == 5
    assert not spark.streams.active


def test_wrong_arguments_are_told(spark: SparkSession) -> None:
    taxis = frame(spark, TAXIS)
    with pytest.raises(rm.errors.ColumnError, match="'lng', which is not among"):
        rm.show(taxis, geometry=rm.point("lng", "lat"))
    with pytest.raises(rm.errors.DefinitionError, match="rows is 0"):
        rm.show(taxis, rows=0)
    with pytest.raises(rm.errors.DefinitionError, match="has no progress reports"):
        rm.show(3)  # type: ignore[call-overload]


def test_a_query_shows_its_numbers_and_the_shapes_it_met(
    spark: SparkSession, districts: str
) -> None:
    query = started(spark, districts)
    query.awaitTermination()
    view = rm.show(query)
    html = view._repr_html_()
    assert "ended" in html
    assert html.count("<path") == 2
    assert "<title>west: 1</title>" in html
    assert "east &lt;i&gt;: 1" in html
    assert re.search(r">rows</div><div[^>]*>3<", html)
    assert repr(view).startswith("QueryView: ended; ")


def started(spark: SparkSession, districts: str) -> Any:
    joined = rm.join_table(
        replay(frame(spark, TAXIS)),
        rm.tables.geojson(districts),
        on=rm.within(rm.point("lon", "lat"), "geometry"),
        columns=["name"],
    )
    writer = joined.writeStream.format("memory").queryName("shown_in_notebook")
    return writer.trigger(availableNow=True).start()


def test_the_extension_is_loaded_and_unloaded(spark: SparkSession) -> None:
    shells = pytest.importorskip("IPython.core.interactiveshell")
    shell = shells.InteractiveShell.instance()
    taxis = frame(spark, TAXIS)
    shell.run_line_magic("load_ext", "rivermouth")
    try:
        assert "<circle" in shell.display_formatter.format(taxis)[0]["text/html"]
    finally:
        shell.run_line_magic("unload_ext", "rivermouth")
    assert "text/html" not in shell.display_formatter.format(taxis)[0]


CELLS = [
    """%load_ext rivermouth
import rivermouth as rm
from rivermouth.testing import session

spark = session()
here, districts = rm.point("lon", "lat"), rm.tables.geojson("districts.geojson")
taxis = spark.range(300).selectExpr(
    "id AS taxi", "2.2 * rand(7) - 0.1 AS lon", "2.2 * rand(11) - 0.1 AS lat"
)""",
    """placed = rm.join_table(
    taxis, districts, on=rm.within(here, "geometry"), how="left", columns=["name"]
)
rm.show(placed, colour="name")""",
    """stream = spark.readStream.format("rate").option("rowsPerSecond", 50).load()
moving = stream.selectExpr("value AS taxi", "pmod(value * 37, 100) / 50 AS lon", "1D AS lat")
query = (
    rm.join_table(moving, districts, on=rm.within(here, "geometry"), columns=["name"])
    .writeStream.format("noop").queryName("rate").trigger(processingTime="1 second").start()
)
query""",
]


@pytest.fixture
def lab(tmp_path: Path, districts: str) -> Iterator[str]:
    """JupyterLab on loopback, serving a notebook; the notebook's address."""
    cells = [
        {
            "cell_type": "code", "id": f"c{i}", "metadata": {}, "outputs": [],
            "execution_count": None, "source": text,
        }
        for i, text in enumerate(CELLS)
    ]  # fmt: skip
    kernel = {"kernelspec": {"name": "python3", "display_name": "Python 3", "language": "python"}}
    notebook = {"cells": cells, "metadata": kernel, "nbformat": 4, "nbformat_minor": 5}
    (tmp_path / "taxis.ipynb").write_text(json.dumps(notebook))
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    options = {
        "ServerApp.ip": "127.0.0.1",
        "ServerApp.port": port,
        "ServerApp.root_dir": tmp_path,
        "ServerApp.open_browser": False,
        "IdentityProvider.token": "rivermouth",
        "LabApp.expose_app_in_browser": True,
        "LabApp.news_url": None,
        "LabApp.check_for_updates_class": "jupyterlab.NeverCheckForUpdate",
    }
    command = [sys.executable, "-m", "jupyterlab", "--allow-root"]
    command += [f"--{name}={value}" for name, value in options.items()]
    with (
        (tmp_path / "lab.log").open("w") as log,
        subprocess.Popen(command, cwd=tmp_path, stderr=log) as server,
    ):
        try:
            wait_for(f"http://127.0.0.1:{port}/api?token=rivermouth")
            yield f"http://127.0.0.1:{port}/lab/tree/taxis.ipynb?token=rivermouth"
        finally:
            server.terminate()


def wait_for(url: str) -> None:
    deadline = time.monotonic() + 60
    while True:
        try:
            urllib.request.urlopen(url, timeout=5).close()
        except OSError:
            assert time.monotonic() < deadline, "JupyterLab does not start"
            time.sleep(0.3)
        else:
            return


@pytest.mark.server
@pytest.mark.slow
def test_frames_and_queries_show_themselves_in_jupyterlab(browser: Browser, lab: str) -> None:
    """Cells are run by JupyterLab itself, in a kernel of its own; numbers grow without a click."""
    page = browser.page(1100, 2000)
    try:
        page.open(lab)
        page.wait(
            "jupyterapp.shell.currentWidget.context.sessionContext.session.kernel.status === 'idle'"
        )
        page.run("void jupyterapp.commands.execute('notebook:run-all-cells')")
        outputs = "[...document.querySelectorAll('.jp-OutputArea-output')]"
        patiently(page, f"{outputs}.some(o => o.querySelectorAll('circle').length === 300)")
        live = f"{outputs}.find(o => o.textContent.includes('rate: running'))"
        rows = f"+{live}.textContent.match(/rows([\\d,]+)rows\\/s/)[1].replace(/,/g, '')"
        patiently(page, f"{rows} > 0")
        first = page.run(rows)
        patiently(page, f"{rows} > {first}")
        patiently(page, f"{live}.querySelectorAll('path').length === 2")
        if picture := os.environ.get("RIVERMOUTH_PICTURE"):
            page.run("document.querySelectorAll('.Toastify').forEach(news => news.remove())")
            page.picture(Path(picture))
    finally:
        page.close()


def patiently(page: Any, expression: str) -> None:
    """As ``page.wait``, several times: Spark starts in the notebook's kernel."""
    for attempt in range(4):
        try:
            page.wait(expression)
        except AssertionError:
            if attempt == 3:
                raise
        else:
            return
