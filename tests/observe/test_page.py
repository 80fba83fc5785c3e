"""The live page in a real browser: its numbers, its updates, clicks, keys, nobody left out."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import shapely
from tests.support.browser import Browser, Page, browser
from tests.support.histories import (
    BEGIN,
    FENCES,
    NAMES,
    PLACED,
    SQUARES,
    batch,
    begin,
    fenced,
    numbers,
    placed,
    whole,
)

from rivermouth.observe import shapes
from rivermouth.observe.history import Writer
from rivermouth.observe.server import Server

__all__ = ["browser"]
pytestmark = pytest.mark.server

AXE = Path(__file__).parents[1] / "vendor" / "axe.min.js"
SHOWN = "document.querySelectorAll('#tiles div').length > 0"


@pytest.fixture
def server(tmp_path: Path) -> Iterator[Server]:
    started = Server(tmp_path)
    yield started
    started.stop()


@pytest.fixture
def page(browser: Browser, server: Server) -> Iterator[Page]:
    """A page that must not have complained, nor asked anybody but its own server."""
    opened = browser.page()
    yield opened
    opened.close()
    assert opened.complaints == []
    assert [url for url in opened.requests if not url.startswith(server.url)] == []


def tile(page: Page, name: str) -> str:
    return page.text(f"#tiles [data-name={name}] dd")


def number(page: Page, name: str) -> str:
    return page.text(f'#numbers [data-name="{name}"] td')


def test_its_numbers_are_those_of_metrics(page: Page, server: Server, tmp_path: Path) -> None:
    whole(tmp_path / "run.jsonl")
    expected = numbers(*(batch(one) for one in range(12)))
    page.open(server.url)
    page.wait(SHOWN)
    assert page.run("rivermouth.state.page.metrics") == json.loads(json.dumps(expected))
    assert tile(page, "rows") == "1,200" == f"{expected['rows']:,}"
    assert tile(page, "batches") == "12"
    assert tile(page, "median_batch_seconds") == "250 ms"
    assert tile(page, "state") == "5.0 MB"
    assert tile(page, "late") == "60"
    assert page.text("#status") == "ended"
    join = expected["operators"]["join_table.districts.geojson"]
    assert number(page, "matched") == f"{join['matched']:,}"
    assert number(page, "rejected.null") == f"{join['rejected']['null']:,}"
    assert page.run("document.querySelectorAll('#load-bars li').length") == 2


def test_corrections_are_counted_and_drawn(page: Page, server: Server, tmp_path: Path) -> None:
    writer = begin(tmp_path / "run.jsonl")
    writer.batch(batch(0))
    page.open(server.url)
    page.wait(SHOWN)
    assert not page.run("document.querySelector('#tiles [data-name=corrections]')")
    made = {"upto": 0, "final": False}
    told = [{"number": 1, "rows": 4, "at": BEGIN + 1.0, **made}]
    writer.corrections(told)
    page.wait("document.querySelector('#tiles [data-name=corrections] dd')?.textContent === '4'")
    writer.corrections([*told, {"number": 2, "rows": 3, "at": BEGIN + 2.0, **made}])
    page.wait("document.querySelector('#tiles [data-name=corrections] dd').textContent === '7'")
    assert "Results by corrections; newest: so far 7, this correction 3" in page.run(
        "document.querySelector('#chart-corrections canvas').getAttribute('aria-label')"
    )


def test_routing_is_drawn_batch_by_batch(page: Page, server: Server, tmp_path: Path) -> None:
    writer = begin(tmp_path / "run.jsonl")
    for one, skew in enumerate((0.4, 0.31, 0.02)):
        told = {
            "rule": min(one, 1), "cycle": one, "cycle_load_cv": 0.5 - one / 10, "moved": one < 2,
            "partitions": 2, "records": [60, 40], "cost": [0.6, 0.4],
            "rows_per_partition": [51, 49], "load_cv": skew,
        }  # fmt: skip
        writer.batch(batch(one, operators={PLACED: placed(100, [50, 25, 0], routing=told)}))
    page.open(server.url)
    page.wait("document.querySelector('#chart-routing canvas') !== null")
    said = page.run("document.querySelector('#chart-routing canvas').getAttribute('aria-label')")
    assert said == "Routing by hotspots (load CV); newest: this batch 0.02, cycle before 0.30"
    lines = page.run(
        "uPlot.sync('batches').plots.find((plot) => plot.root.closest('#chart-routing')).data"
    )
    assert lines[1:] == [[0.4, 0.31, 0.02], [0.5, 0.4, 0.3]]


def test_it_updates_while_a_run_goes_on_and_says_how_it_ends(
    page: Page, server: Server, tmp_path: Path
) -> None:
    page.open(server.url)
    assert page.wait("document.querySelector('#status').textContent") == "waiting"
    writer = begin(tmp_path / "run.jsonl")
    writer.batch(batch(0))
    page.wait("document.querySelector('#status').textContent === 'running'")
    assert tile(page, "rows") == "100"
    writer.batch(batch(1))
    page.wait("document.querySelector('[data-name=rows] dd').textContent === '200'")
    assert page.run("rivermouth.state.batches.length") == 2
    page.click("#pause")
    writer.batch(batch(2))
    page.click("#pause")
    page.wait("document.querySelector('[data-name=rows] dd').textContent === '300'")
    writer.end("no more <b>disk</b>")
    page.wait("document.querySelector('#status').textContent === 'failed'")
    assert page.text("#failure") == "no more <b>disk</b>"


def test_names_are_shown_and_never_run(page: Page, server: Server, tmp_path: Path) -> None:
    evil = "<img src=x onerror=alert(1)>"
    writer = begin(tmp_path / "run.jsonl", name=evil)
    operators = {
        PLACED: placed(
            100,
            [50, 40, 0],
        ),
        f"rivermouth.join_table.{evil}.2": placed(100, [0]),
    }
    operators[PLACED]["rejected"] = {evil: 90}
    writer.batch(batch(0, operators=operators))
    page.open(server.url)
    page.wait("document.querySelectorAll('#shape-list button').length")
    listed = page.run(
        "[...document.querySelectorAll('#shape-list button')].map(b => b.textContent)"
    )
    assert listed == ["Harbour50", "<script>alert(1)</script>40", "Old Town0"]
    assert evil in page.text("#run")
    assert evil in page.text("#operator")
    assert evil in page.text("#advice-list")
    assert evil in page.text("#numbers")
    assert page.run("document.querySelectorAll('main script, main img, header img').length") == 0


def test_operators_and_times_are_chosen(page: Page, server: Server, tmp_path: Path) -> None:
    writer = begin(tmp_path / "run.jsonl")
    for one in range(100):
        writer.batch(batch(one))
    page.open(server.url)
    page.wait(SHOWN)

    def charts() -> list[str]:
        found: list[str] = page.run(
            "[...document.querySelectorAll('#operator-charts figure')].map(f => f.id)"
        )
        return found

    assert charts() == ["chart-outcome", "chart-trouble", "chart-skew", "chart-age"]
    page.run(
        "(() => { const s = document.querySelector('#operator'); s.value = 'aggregate';"
        "s.dispatchEvent(new Event('change')) })()"
    )
    page.wait("document.querySelector('#chart-coverage') !== null")
    assert charts() == [
        *("chart-outcome", "chart-trouble", "chart-skew"),
        *("chart-coverage", "chart-promise", "chart-slack", "chart-held"),
    ]
    said = page.run("document.querySelector('#chart-coverage canvas').getAttribute('aria-label')")
    assert said == "Coverage of early results; newest: coverage 94.0 %, required 97.0 %"
    said = page.run("document.querySelector('#chart-promise canvas').getAttribute('aria-label')")
    assert said == (
        "Early results that missed eps, so far; newest: missed 3.0 %, upper bound (95 %) 4.5 %, "
        "promised 5.0 %"
    )
    assert number(page, "gauges.slack.mean") == "940 ms"
    page.run(
        "(() => { const s = document.querySelector('#operator'); s.value = 'join_table.drivers';"
        "s.dispatchEvent(new Event('change')) })()"
    )
    page.wait("document.querySelector('#chart-hits') !== null")
    assert number(page, "cache.per_worker.host:1.bytes") == number(page, "cache.bytes") != ""
    points = "uPlot.sync('batches').plots[0].data[0].length"
    assert page.run(points) == 100
    page.click("#range label:first-of-type")
    assert page.run(points) == 61  # the newest minute, both ends
    page.click("#range label:last-of-type")
    assert page.run(points) == 100


def test_advice_says_what_is_wrong_and_what_to_do(
    page: Page, server: Server, tmp_path: Path
) -> None:
    whole(tmp_path / "run.jsonl")
    page.open(server.url)
    page.wait("document.querySelectorAll('#advice-list li').length")
    assert page.run(
        "[...document.querySelectorAll('#advice-list li b')].map(b => b.textContent)"
    ) == [*("join_table.districts.geojson", "aggregate", "aggregate")]
    assert "Wait longer" in page.text("#advice-list")


def test_shapes_are_chosen_on_the_map_and_in_the_list(
    page: Page, server: Server, tmp_path: Path
) -> None:
    whole(tmp_path / "run.jsonl")
    page.open(server.url)
    page.wait("document.querySelectorAll('#shape-list button').length")
    page.click("#map")  # its middle is the middle of the second square
    assert page.run("rivermouth.state.shape") == 1
    pressed = "document.querySelector('#shape-list [aria-pressed=true] span').textContent"
    assert page.run(pressed) == "<script>alert(1)</script>"
    assert page.text("#map-tip") == "<script>alert(1)</script>: 300"
    page.click("#shape-list button")
    assert page.run(pressed) == "Harbour"
    page.run("document.querySelector('#shape-filter').focus()")
    for key in "old":
        page.key(key)
    page.wait("document.querySelectorAll('#shape-list button').length === 1")
    assert page.text("#shape-list") == "Old Town0"
    assert page.text("#shape-count") == "1 shapes"


def test_fence_events_are_on_the_map_and_listed_the_newest_first(
    page: Page, server: Server, tmp_path: Path
) -> None:
    writer = begin(tmp_path / "run.jsonl")
    writer.shapes({"operator": FENCES, **shapes.outlines(SQUARES, list(NAMES))})
    for one in range(3):
        writer.batch(batch(one, operators={FENCES: fenced(one)}))
    page.open(server.url)
    page.wait("document.querySelectorAll('#event-list li').length === 3")
    assert page.text("#event-list li") == "08:00:02exit<b>2</b>Old Town"
    assert page.run("rivermouth.map.state.counts") == [2, 0, 1]
    assert page.run("rivermouth.map.state.events").pop(0)["x"] == 2.5
    assert page.text("#h-shapes") == "Shapes by events"
    assert page.text("#shape-list li") == "Harbour2"


def test_the_map_and_the_page_obey_keys(page: Page, server: Server, tmp_path: Path) -> None:
    whole(tmp_path / "run.jsonl")
    page.open(server.url)
    page.wait("document.querySelectorAll('#shape-list button').length")
    view = "rivermouth.map.currentView()"
    before = page.run(view)
    page.run("document.querySelector('#map').focus()")
    page.key("ArrowRight")
    assert page.run(view)["x"] == pytest.approx(before["x"] - 60)
    page.key("+")
    assert page.run(view)["zoom"] == pytest.approx(before["zoom"] * 1.4)
    page.key("0")
    assert page.run(view) == pytest.approx(before)
    page.key("Enter")
    assert page.run("rivermouth.state.shape") == 1
    page.run("document.activeElement.blur()")
    page.key(" ")
    assert page.run("rivermouth.state.paused") is True


def test_every_control_is_reached_by_the_tab_key(
    page: Page, server: Server, tmp_path: Path
) -> None:
    whole(tmp_path / "run.jsonl")
    page.open(server.url)
    page.wait("document.querySelectorAll('#shape-list button').length")
    reached = []
    for _ in range(14):
        page.key("Tab")
        reached.append(
            page.run(
                "(({id, className, value}) => id || className || value)(document.activeElement)"
            )
        )
    wanted = ["skip", "run", "pause", "theme", "0", "map", "shape-filter", "operator", "scroll"]
    assert [name for name in reached if name in wanted] == wanted


@pytest.mark.parametrize("dark", [False, True], ids=["light", "dark"])
@pytest.mark.parametrize("width", [1280, 390], ids=["desk", "phone"])
def test_axe_finds_no_serious_fault(
    browser: Browser, server: Server, tmp_path: Path, dark: bool, width: int
) -> None:
    whole(tmp_path / "run.jsonl")
    page = browser.page(width, 900, dark=dark)
    page.open(server.url)
    page.wait("document.querySelectorAll('#shape-list button').length")
    page.run(AXE.read_text())
    found: list[dict[str, Any]] = page.run("axe.run().then(result => result.violations)")
    serious = [
        (fault["id"], node["html"])
        for fault in found
        if fault["impact"] in ("serious", "critical")
        for node in fault["nodes"]
    ]
    assert serious == []
    assert page.run("document.documentElement.scrollWidth") <= width
    assert page.run("document.documentElement.dataset.theme") == ("dark" if dark else "light")
    page.close()


def test_ten_thousand_shapes_are_drawn_fast(page: Page, server: Server, tmp_path: Path) -> None:
    writer = Writer(tmp_path / "run.jsonl", run="run", query="id", name=None)
    grid = [shapely.box(x, y, x + 1, y + 1) for x in range(100) for y in range(100)]
    round_ = shapely.simplify(shapely.buffer(shapely.centroid(np.array(grid)), 0.49), 0.01)
    writer.shapes({"operator": PLACED, **shapes.outlines(round_, [f"s{i}" for i in range(10_000)])})
    writer.batch(batch(0, operators={PLACED: placed(20_000, [1, 2] * 5_000)}))
    page.open(server.url)
    page.wait("document.querySelectorAll('#shape-list button').length === 200")
    assert page.text("#shape-count") == "the first 200 of 10,000"
    # a frame is what a person waits for while dragging, here by software on a busy machine
    median = page.run(
        """(async () => {
            const { map, state } = rivermouth;
            const [{ per_row }] = Object.values(state.page.metrics.operators);
            const frame = () => new Promise((done) => requestAnimationFrame(done));
            const times = [];
            for (let i = 0; i < 9; i++) {
                const begin = performance.now();
                map.setCounts(per_row, []);
                await frame();
                await frame();
                times.push(performance.now() - begin);
            }
            return times.sort((a, b) => a - b)[4];
        })()"""
    )
    assert median < 1000
