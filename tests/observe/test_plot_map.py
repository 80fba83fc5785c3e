"""Maps: what is drawn where, and what is said when it cannot be."""

from __future__ import annotations

import builtins
import subprocess
import sys
from pathlib import Path

import numpy as np
import numpy.typing as npt
import pytest
import shapely
from matplotlib.figure import Figure
from shapely import LineString, MultiPolygon, Point, Polygon, box

import rivermouth as rm
from rivermouth.errors import DefinitionError, SessionError

SQUARES = [box(0, 0, 1, 1), box(1, 0, 2, 1)]


def pixels(figure: Figure) -> npt.NDArray[np.uint8]:
    figure.canvas.draw()
    return np.asarray(figure.canvas.buffer_rgba())[:, :, :3]  # type: ignore[attr-defined]


def colour_at(figure: Figure, x: float, y: float) -> tuple[int, ...]:
    picture = pixels(figure)
    column, row = figure.axes[0].transData.transform((x, y))
    return tuple(int(part) for part in picture[picture.shape[0] - int(row), int(column)])


@pytest.mark.parametrize("ending", ["png", "svg"])
def test_a_file_is_made(tmp_path: Path, ending: str) -> None:
    path = tmp_path / f"map.{ending}"
    figure = rm.plot.map(SQUARES, [1, 2], points=([0.5], [0.5]), path=path, title="Squares")
    assert isinstance(figure, Figure)
    assert path.read_bytes().startswith(b"\x89PNG" if ending == "png" else b"<?xml")


def test_values_give_colours_and_a_scale() -> None:
    figure = rm.plot.map(SQUARES, [1, 2], legend="cars")
    west, east = colour_at(figure, 0.5, 0.5), colour_at(figure, 1.5, 0.5)
    assert sum(west) > sum(east)  # more is darker
    assert figure.axes[1].get_ylabel() == "cars"


def test_shapes_without_a_value_are_alike_and_of_no_scale_colour() -> None:
    figure = rm.plot.map([*SQUARES, box(2, 0, 3, 1), box(3, 0, 4, 1)], [1, 2, None, float("nan")])
    unknown = colour_at(figure, 2.5, 0.5)
    assert unknown == colour_at(figure, 3.5, 0.5)
    assert unknown not in (colour_at(figure, 0.5, 0.5), colour_at(figure, 1.5, 0.5))
    assert len(rm.plot.map(SQUARES).axes) == 1
    assert len(rm.plot.map(SQUARES, [None, None]).axes) == 1


def test_wkb_is_drawn_as_its_shape() -> None:
    as_wkb = rm.plot.map(list(shapely.to_wkb(SQUARES)), [1, 2])
    assert (pixels(as_wkb) == pixels(rm.plot.map(SQUARES, [1, 2]))).all()


def test_holes_are_empty_and_parts_are_all_drawn() -> None:
    ring = box(0, 0, 3, 3) - box(1, 1, 2, 2)
    figure = rm.plot.map([MultiPolygon([ring, box(4, 0, 5, 3)])], [1])
    assert colour_at(figure, 1.5, 1.5) == (255, 255, 255)
    assert colour_at(figure, 0.5, 0.5) == colour_at(figure, 4.5, 1.5) != (255, 255, 255)


def test_null_and_empty_shapes_are_left_out() -> None:
    figure = rm.plot.map([None, *SQUARES, Polygon()], [9, 1, 2, 9], labels=["a", "b", "c", "d"])
    assert [text.get_text() for text in figure.axes[0].texts] == ["b", "c"]
    assert rm.plot.map([]).axes[0].get_xlim() == (0, 1)


@pytest.mark.parametrize(
    "points",
    [
        ([0.5, np.nan], [0.5, 0.5]),
        [Point(0.5, 0.5), None, Point()],
        [shapely.to_wkb(Point(0.5, 0.5))],
        (Point(0.5, 0.5), None),
    ],
)
def test_points_are_drawn_and_no_place_is_left_out(points: object) -> None:
    figure = rm.plot.map(SQUARES, points=points)
    assert colour_at(figure, 0.5, 0.5) != colour_at(figure, 0.2, 0.2)
    (dots,) = figure.axes[0].collections[1:]
    assert np.asarray(dots.get_offsets()).tolist() == [[0.5, 0.5]]


def test_lines_are_drawn() -> None:
    figure = rm.plot.map(SQUARES, lines=[LineString([(0.2, 0.5), (0.8, 0.5)]), None])
    assert colour_at(figure, 0.5, 0.5) != colour_at(figure, 0.5, 0.2)


def test_a_label_is_within_its_shape_even_around_a_hole() -> None:
    ring = box(0, 0, 3, 3) - box(0.5, 0.5, 2.0, 2.5)
    (label,) = rm.plot.map([ring], labels=["ring"]).axes[0].texts
    assert ring.contains(Point(label.get_position()))


def test_labels_are_light_on_dark_shapes() -> None:
    light, dark = rm.plot.map(SQUARES, [1, 2], labels=["few", "many"]).axes[0].texts
    assert dark.get_color() == "white" != light.get_color()


def test_degrees_of_longitude_are_narrower_in_the_north() -> None:
    assert rm.plot.map([box(10, 59, 11, 61)]).axes[0].get_aspect() == pytest.approx(2, abs=0.01)
    assert rm.plot.map([box(0, 0, 4000, 3000)]).axes[0].get_aspect() == 1


def test_values_that_do_not_fit_are_refused() -> None:
    with pytest.raises(DefinitionError) as error:
        rm.plot.map(SQUARES, [1, 2, 3])
    assert str(error.value) == (
        "plot.map: values has 3 entries; there are 2 shapes. "
        "Give one per shape, None where there is none."
    )


def test_shapes_that_cannot_be_filled_are_refused() -> None:
    with pytest.raises(DefinitionError) as error:
        rm.plot.map([*SQUARES, Point(0, 0)])
    assert str(error.value) == (
        "plot.map: shape 2 is a Point; shapes are filled, so they must be polygons. "
        "Give it as points= or lines=."
    )


def test_without_matplotlib_the_error_names_the_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    real = builtins.__import__

    def without(name: str, *rest: object, **more: object) -> object:
        if name.startswith("matplotlib"):
            raise ImportError("No module named 'matplotlib'")
        return real(name, *rest, **more)  # type: ignore[arg-type]

    monkeypatch.setattr(builtins, "__import__", without)
    with pytest.raises(SessionError) as error:
        rm.plot.map(SQUARES)
    assert str(error.value) == (
        "plot.map: matplotlib cannot be imported; No module named 'matplotlib'. "
        "Install it: pip install 'rivermouth[plot]'."
    )


def test_neither_pyplot_nor_a_setting_is_touched() -> None:
    code = """
import sys, matplotlib
matplotlib.use("svg")  # without a choice, reading the settings would make one
before = dict(matplotlib.rcParams)
import rivermouth as rm
from shapely import box
rm.plot.map([box(0, 0, 1, 1)], [1], labels=["a"], title="t").canvas.draw()
assert "matplotlib.pyplot" not in sys.modules
assert dict(matplotlib.rcParams) == before
"""
    subprocess.run([sys.executable, "-c", code], check=True)
