"""Pictures of runs: the lines are the numbers of the history."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.support.histories import BEGIN, whole
from tests.support.queries import PlayedQuery

import rivermouth as rm
from rivermouth.errors import DefinitionError


def drawn(axes: object) -> dict[str, list[float]]:
    return {line.get_label(): list(line.get_ydata()) for line in axes.get_lines()}  # type: ignore[attr-defined]


def test_throughput_is_rows_per_second_of_work_and_of_time(tmp_path: Path) -> None:
    figure = rm.plot.throughput(whole(tmp_path / "run.jsonl", 3), title="Cabs")
    assert drawn(figure.axes[0]) == {"processed": [400.0] * 3, "arrived": [100.0] * 2}
    assert figure.axes[0].get_title(loc="left") == "Cabs"
    (first, *_) = figure.axes[0].get_lines()[0].get_xdata()
    assert first.timestamp() == BEGIN


def test_latency_is_the_batch_and_the_wait_before_it(tmp_path: Path) -> None:
    lines = drawn(rm.plot.latency(whole(tmp_path / "run.jsonl", 3)).axes[0])
    assert lines["batch"] == [0.25] * 3
    assert lines["median row"] == [0.25, 0.75, 0.75]
    assert lines["slowest row"] == [0.25, 1.25, 1.25]


def test_skew_has_a_line_for_each_operator_with_several_tasks(tmp_path: Path) -> None:
    lines = drawn(rm.plot.skew(whole(tmp_path / "run.jsonl", 4)).axes[0])
    assert lines == {"join_table.districts.geojson": [0.0] * 4, "aggregate": [0.0] * 4}


def test_quality_is_coverage_against_the_promise_and_k(tmp_path: Path) -> None:
    above, beneath = rm.plot.quality(whole(tmp_path / "run.jsonl", 2)).axes
    assert drawn(above) == {"coverage": [0.94] * 2, "required": [0.97] * 2}
    assert drawn(beneath) == {"K": [0.94] * 2}


@pytest.mark.parametrize("kind", ["throughput", "latency", "skew", "quality"])
def test_each_is_saved_and_a_run_without_a_batch_is_an_empty_picture(
    tmp_path: Path, kind: str
) -> None:
    figure = getattr(rm.plot, kind)(PlayedQuery.ended(), path=tmp_path / "p.png")
    assert all(not axes.get_lines() for axes in figure.axes)
    assert (tmp_path / "p.png").read_bytes().startswith(b"\x89PNG")
    getattr(rm.plot, kind)(whole(tmp_path / "run.jsonl", 3), path=tmp_path / "p.svg")
    assert (tmp_path / "p.svg").read_bytes().startswith(b"<?xml")


def test_what_is_no_run_is_told_so() -> None:
    with pytest.raises(DefinitionError) as error:
        rm.plot.latency(3)
    assert str(error.value) == (
        "plot.latency: a int has no progress reports. "
        "Give what writeStream...start() or rm.exact(...).start() returns."
    )
