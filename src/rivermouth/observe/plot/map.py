"""Pictures of shapes and what fell into them.

The colours go from light to dark and keep their order for colour-blind eyes.
"""

from __future__ import annotations

import math
import os
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt
import shapely

from rivermouth.errors import DefinitionError
from rivermouth.observe.plot.figures import INK, empty

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

#: shapes as shapely geometries, or as WKB
Shapes = Sequence[Any] | npt.NDArray[np.object_]
#: one value per shape; None or NaN where there is none
Values = Sequence[float | None] | npt.NDArray[np.generic]

_WHERE = "plot.map"
_COLOURS = "YlGnBu"
_GROUND, _NO_VALUE, _BORDER = "#ffffff", "#dfe5ea", "#ffffff"
_POINT, _LINE = "#c2410c", "#c2410c"
_LUMINANCE = (0.2126, 0.7152, 0.0722)  # how much red, green and blue add to it
_WIDTH, _PAD, _BESIDE, _ABOVE = 9.0, 0.08, 0.9, 0.35  # inches: figure, rim, scale, title


def map(  # noqa: A001  (rm.plot.map is what it is)
    shapes: Shapes,
    values: Values | None = None,
    *,
    labels: Sequence[str | None] | None = None,
    points: Any = None,
    lines: Shapes | None = None,
    path: str | os.PathLike[str] | None = None,
    title: str | None = None,
    legend: str | None = None,
) -> Figure:
    """A map of shapes, coloured by a value each, with points and lines on top.

    Coordinates that could all be longitudes and latitudes are drawn as such: a degree of
    longitude is narrower by the cosine of the map's middle latitude. All others are a plane.

    Parameters
    ----------
    shapes
        Polygons, as shapely geometries or WKB. Null and empty ones are left out.
    values
        A number per shape. Shapes whose value is None or NaN are grey; without values, all are.
    labels
        A text per shape, written where the shape is widest; None: no text.
    points
        Places on top: two arrays, x and y, or points as shapes are given. Places that are not
        finite are left out.
    lines
        Lines on top, given as shapes are.
    path
        Where to save it, as what its ending says: ``.png``, ``.svg``, ``.pdf``.
    title
        A text above the map.
    legend
        What the values count, beside their scale.

    Returns
    -------
    matplotlib.figure.Figure
        To be shown by a notebook, added to, or saved again.

    Raises
    ------
    SessionError
        When matplotlib is not installed.

    Examples
    --------
    >>> from shapely import box
    >>> figure = map([box(0, 0, 1, 1), box(1, 0, 2, 1)], [3, 5], labels=["west", "east"])
    >>> [text.get_text() for text in figure.axes[0].texts]
    ['west', 'east']
    """
    drawn = _polygons(shapes)
    numbers = _per_shape("values", values, drawn, float)
    texts = _per_shape("labels", labels, drawn, object)
    figure, axes = _empty(_bounds(drawn), title, beside=numbers is not None)
    colours, scale = _coloured(numbers, len(drawn))
    _fill(axes, drawn, colours)
    if scale is not None:
        _explain(figure, axes, scale, legend)
    if points is not None:
        _dots(axes, *_xy(points))
    if lines is not None:
        _strokes(axes, _shapes(lines))
    if texts is not None:
        _write(axes, drawn, texts, colours)
    if path is not None:
        figure.savefig(path, dpi=110)
    return figure


def _shapes(given: Shapes) -> npt.NDArray[np.object_]:
    """Shapely geometries, None where there is nothing to draw."""
    shapes = np.array([_shape(one) for one in given], dtype=object)
    shapes[shapely.is_empty(shapes)] = None
    return shapes


def _polygons(given: Shapes) -> npt.NDArray[np.object_]:
    shapes = _shapes(given)
    others = ~shapely.is_missing(shapes) & (shapely.get_dimensions(shapes) != 2)
    if others.any():
        first = int(np.argmax(others))
        raise DefinitionError(
            _WHERE,
            f"shape {first} is a {shapes[first].geom_type}",
            there="shapes are filled, so they must be polygons",
            todo="Give it as points= or lines=.",
        )
    return shapes


def _shape(given: Any) -> Any:
    return shapely.from_wkb(bytes(given)) if isinstance(given, (bytes, bytearray)) else given


def _per_shape(name: str, given: Any, shapes: Any, dtype: type) -> npt.NDArray[Any] | None:
    if given is None:
        return None
    if len(given) != len(shapes):
        raise DefinitionError(
            _WHERE,
            f"{name} has {len(given)} entries",
            there=f"there are {len(shapes)} shapes",
            todo="Give one per shape, None where there is none.",
        )
    return np.array(list(given), dtype=dtype)


def _xy(points: Any) -> tuple[npt.NDArray[np.float64], npt.NDArray[np.float64]]:
    """Finite coordinates, of two arrays or of point shapes."""
    if isinstance(points, tuple) and len(points) == 2 and not _is_shape(points[0]):
        x, y = (np.asarray(part, dtype=float) for part in points)
    else:
        shapes = _shapes(points)
        x, y = shapely.get_x(shapes), shapely.get_y(shapes)
    finite = np.isfinite(x) & np.isfinite(y)
    return x[finite], y[finite]


def _is_shape(given: Any) -> bool:
    return given is None or isinstance(given, (bytes, bytearray, shapely.Geometry))


def _bounds(shapes: npt.NDArray[np.object_]) -> tuple[float, float, float, float]:
    """What the map shows: all shapes, or a unit square where there are none."""
    there = shapes[~shapely.is_missing(shapes)]
    return tuple(shapely.total_bounds(there).tolist()) if len(there) else (0.0, 0.0, 1.0, 1.0)


def _empty(
    bounds: tuple[float, float, float, float], title: str | None, *, beside: bool
) -> tuple[Figure, Axes]:
    """A figure whose axes just hold `bounds`, without ticks: a map is read by its shapes."""
    west, south, east, north = bounds
    aspect = _aspect(west, south, east, north)
    wide, high = max(east - west, 1e-9), max(north - south, 1e-9)
    height = (_WIDTH - _BESIDE * beside) * aspect * high / wide + _ABOVE * bool(title)
    height = np.clip(height, _WIDTH / 3, _WIDTH * 1.3)
    figure = empty(_WHERE, _WIDTH, float(height), w_pad=_PAD, h_pad=_PAD)
    axes = figure.add_subplot(facecolor=_GROUND, aspect=aspect, xticks=[], yticks=[])
    axes.set(xlim=(west, east), ylim=(south, north))
    axes.spines[:].set_visible(False)
    if title:
        axes.set_title(title, loc="left", fontsize=14, fontweight="bold", color=INK)
    return figure, axes


def _aspect(west: float, south: float, east: float, north: float) -> float:
    """How much longer a unit of y is drawn than one of x.

    Examples
    --------
    >>> round(_aspect(10, 59, 11, 61), 2), _aspect(0, 0, 4000, 3000)
    (2.0, 1.0)
    """
    degrees = west >= -180 and east <= 180 and south >= -90 and north <= 90
    middle = min(abs(north + south) / 2, 85.0)
    return 1 / math.cos(math.radians(middle)) if degrees else 1.0


def _coloured(values: npt.NDArray[Any] | None, count: int) -> tuple[Any, Any]:
    """A colour per shape, and the scale that explains them; None where no shape has a value."""
    from matplotlib import colormaps
    from matplotlib.cm import ScalarMappable
    from matplotlib.colors import ListedColormap, Normalize, to_rgba

    colours = np.tile(to_rgba(_NO_VALUE), (count, 1))
    known = np.zeros(count, bool) if values is None else np.isfinite(values)
    if values is None or not known.any():
        return colours, None
    # without the ends: the lightest colour is lost on the ground, the darkest is ink
    palette = ListedColormap(colormaps[_COLOURS](np.linspace(0.08, 0.85, 256)))
    scale = ScalarMappable(Normalize(values[known].min(), values[known].max()), palette)
    colours[known] = scale.to_rgba(values[known])
    return colours, scale


def _fill(axes: Axes, shapes: Any, colours: Any) -> None:
    from matplotlib.collections import PathCollection

    there = ~shapely.is_missing(shapes)
    outlines = [_outline(shape) for shape in shapes[there]]
    axes.add_collection(
        PathCollection(outlines, facecolors=colours[there], edgecolors=_BORDER, linewidths=0.9)
    )


def _outline(shape: Any) -> Any:
    """One path around all parts and holes; holes go the other way round, so they stay empty."""
    from matplotlib.path import Path

    rings = [
        Path(np.asarray(ring.coords)[:, :2], closed=True)
        for part in shapely.get_parts(shapely.orient_polygons(shape))
        if part.geom_type == "Polygon"
        for ring in (part.exterior, *part.interiors)
    ]
    return Path.make_compound_path(*rings)


def _explain(figure: Figure, axes: Axes, scale: Any, legend: str | None) -> None:
    bar = figure.colorbar(scale, ax=axes, shrink=0.6, aspect=28, pad=0.01, format="{x:,.6g}")
    bar.outline.set_visible(False)
    bar.ax.tick_params(labelsize=9, labelcolor=INK, length=0)
    if legend:
        bar.set_label(legend, color=INK, fontsize=10)


def _dots(axes: Axes, x: npt.NDArray[np.float64], y: npt.NDArray[np.float64]) -> None:
    """Points so large and dense that many of them still let the shapes be seen."""
    crowd = max(len(x), 1)
    axes.scatter(
        *(x, y),
        s=np.clip(4000 / crowd, 0.35, 12),
        c=_POINT,
        alpha=np.clip(40 / math.sqrt(crowd), 0.12, 0.8),
        linewidths=0,
        rasterized=crowd > 5000,
    )


def _strokes(axes: Axes, lines: Any) -> None:
    from matplotlib.collections import LineCollection

    parts = shapely.get_parts(lines[~shapely.is_missing(lines)])
    axes.add_collection(
        LineCollection(
            [np.asarray(part.coords)[:, :2] for part in parts],
            colors=_LINE,
            linewidths=0.9,
            alpha=0.75,
            capstyle="round",
        )
    )


def _write(axes: Axes, shapes: Any, texts: npt.NDArray[Any], colours: Any) -> None:
    """Write on the shapes: dark on light ones, light on dark ones, each with a rim of the other."""
    from matplotlib.patheffects import withStroke

    dark = colours[:, :3] @ _LUMINANCE < 0.5
    for shape, text, is_dark in zip(shapes, texts, dark, strict=True):
        if shape is None or not text:
            continue
        ink, rim = ("white", INK) if is_dark else (INK, "white")
        axes.text(
            *(*_widest(shape), text),
            ha="center",
            va="center",
            fontsize=9,
            color=ink,
            path_effects=[withStroke(linewidth=2.2, foreground=rim, alpha=0.75)],
            zorder=5,
        )


def _widest(shape: Any) -> tuple[float, float]:
    """The middle of the largest circle within a shape: a label there is the shape's own."""
    circle = shapely.maximum_inscribed_circle(shape, tolerance=math.sqrt(shape.area) / 100)
    x, y = circle.coords[0]
    return x, y
