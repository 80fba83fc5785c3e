"""From a cell to the rows that may be met there, laid out so that Spark SQL can look it up.

SQL takes an element out of an array by its number and no more, so the indexes of the native
plan have one form, for polygons and for points:

    number of the cell -> number of the list -> candidates: a row, and what its test needs

Cells of the same content share a list, as all those inside one polygon do, so that the arrays
stay small: they are sent to every host once per batch. A table can be indexed in *groups*, one
per key, each of which has cells, lists and rows of its own.

In a left join a list ends in the candidate `NONE`, which stands for the event that meets no
other row of the list. It is left out where that cannot be.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt

from rivermouth.kernels.arrays import Bools, Floats, Ints, Shapes
from rivermouth.kernels.spatial.cells import Cells, edges_of
from rivermouth.kernels.spatial.sphere import RADIUS, unit_vectors

NONE = -1

#: what a cell's counts are multiplied with, one prime per axis: too small to overflow
PRIMES = (2_147_483_647, 1_640_531_527, 1_431_655_777)
#: how many cells there can be along an axis
MOST = 2**28

_GROWTH = 1.0 + 1e-9  # far more than the rounding of a distance
_TINY_CHORD = 1e-12  # sines of the JVM and of numpy differ in the last place
_TINY, _SQUARABLE = 1e-150, 1e155  # squares of smaller differences are 0, of larger ones infinite
_HUGE = float(np.finfo(float).max)
_CROWD = 32.0  # points in a cell beyond which cells are made no larger


@dataclass(frozen=True)
class Lists:
    """Cells and their lists, group after group.

    Parameters
    ----------
    cell_start, list_start
        Where each group's cells and lists start.
    cell
        The list of each cell, numbered within its group; `NONE` where there is nothing.
    start
        Where each list's candidates start.
    row
        Each candidate's row, numbered within its group; `NONE` for nothing else.
    """

    cell_start: Ints
    list_start: Ints
    cell: Ints
    start: Ints
    row: Ints


@dataclass(frozen=True)
class Polygons:
    """Lists of polygons; a point is inside where a ray to the right crosses an odd number of edges.

    Parameters
    ----------
    grid
        Each group's grid, as in `rivermouth.kernels.spatial.cells.Cells`.
    edge_start
        Where each candidate's edges start. Without edges, every point of the cell is inside.
    ends
        The edges, lower end first: ax, ay, bx, by. What a cell of `Cells` keeps of the edges
        elsewhere stands among them as edges at infinity: a toggle goes up from its height, a
        base from below everything.
    """

    lists: Lists
    grid: Floats
    edge_start: Ints
    ends: Floats


@dataclass(frozen=True)
class Points:
    """Lists of points; the test of a candidate is its distance.

    A point stands in every cell that it can be reached from. Cells are cubes of the space that
    distances are measured in (the plane, or unit vectors), counted from `low` along each axis,
    at most `MOST`, and hashed: a cell's number is the sum of these counts times `PRIMES`, modulo
    the number of its group's cells. Cells that share a number share a list, which costs a look
    and changes nothing.

    Parameters
    ----------
    side
        The length of a cell's edges.
    low, high
        The box that all events with a match lie in.
    x, y
        Of each candidate, as they came (for the sphere: longitude, latitude).
    """

    lists: Lists
    side: float
    low: Floats
    high: Floats
    x: Floats
    y: Floats


# -- polygons


def of_cells(cells: Cells, *, full: bool, none: bool) -> Polygons:
    """The lists of an index of cells, as one group.

    Parameters
    ----------
    full
        Whether polygons that a cell lies wholly inside of are listed.
    none
        Whether lists end in `NONE`.
    """
    count = len(cells.cell_start) - 1
    of_entry = np.repeat(np.arange(count), np.diff(cells.cell_start))
    is_border = np.diff(cells.edge_start) > 0
    kept = is_border | full
    first = _first_alike(of_entry[kept], cells.entry_row[kept], is_border[kept], count)
    leads = first == np.arange(count)
    entry = np.flatnonzero(kept & leads[of_entry])
    number = np.where(first == NONE, NONE, (np.cumsum(leads) - 1)[first])
    lists = Lists(
        cell_start=np.array([0, count]),
        list_start=np.array([0, np.count_nonzero(leads)]),
        cell=number,
        start=np.searchsorted(of_entry[entry], np.append(np.flatnonzero(leads), count)),
        row=cells.entry_row[entry].astype(np.int64),
    )
    edge_start, ends = _edges(cells, entry, is_border[entry])
    made = Polygons(lists, cells.grid.reshape(1, -1), edge_start, ends)
    return _with_none(made) if none else made


def _edges(cells: Cells, entry: Ints, is_border: Bools) -> tuple[Ints, Floats]:
    """Each entry's edges, toggles and base, all as upward edges; entries that need none, none."""
    number = np.full(len(cells.entry_row), NONE)
    number[entry] = np.arange(len(entry))
    owner = [
        np.repeat(number, np.diff(cells.edge_start)),
        np.repeat(number, np.diff(cells.toggle_start)),
        np.flatnonzero(cells.entry_base[entry] & is_border),
    ]
    ends = [_upward(cells.ends[cells.edge]), _at_infinity(cells.toggle)]
    ends.append(_at_infinity(np.full(len(owner[2]), -np.inf)))
    order = np.argsort(np.concatenate(owner), kind="stable")
    start = np.searchsorted(np.concatenate(owner)[order], np.arange(len(entry) + 1))
    return start, np.concatenate(ends)[order]


def _upward(ends: Floats) -> Floats:
    falls = ends[:, 3] < ends[:, 1]
    return np.where(falls[:, None], ends[:, [2, 3, 0, 1]], ends)


def _at_infinity(low: Floats) -> Floats:
    """Edges right of everything, from these heights up."""
    far = np.full(len(low), np.inf)
    return np.column_stack([far, low, far, far])


def _first_alike(of_entry: Ints, row: npt.NDArray[np.int32], is_border: Bools, count: int) -> Ints:
    """For each cell the first that lists the same rows without a test; itself where one tests."""
    first = np.full(count, NONE)
    first[of_entry] = of_entry
    length = np.bincount(of_entry, minlength=count)
    start = np.cumsum(length) - length
    tests = np.zeros(count, dtype=bool)
    tests[of_entry[is_border]] = True
    for size in np.unique(length[(length > 0) & ~tests]):
        alike = np.flatnonzero((length == size) & ~tests)
        rows = row[start[alike, None] + np.arange(size)]
        _, at, which = np.unique(rows, axis=0, return_index=True, return_inverse=True)
        first[alike] = alike[at][which.reshape(-1)]
    return first


def _with_none(made: Polygons) -> Polygons:
    """The same lists, those in which every candidate has a test ending in `NONE`."""
    start = made.lists.start
    certain = np.concatenate([[0], np.cumsum(np.diff(made.edge_start) == 0)])
    doubtful = certain[start[1:]] == certain[start[:-1]]
    at = start[1:][doubtful]
    longer = start + np.concatenate([[0], np.cumsum(doubtful)])
    lists = replace(made.lists, start=longer, row=np.insert(made.lists.row, at, NONE))
    edge_start = np.insert(made.edge_start, at, made.edge_start[at])
    return replace(made, lists=lists, edge_start=edge_start)


def one_cell(shapes: Shapes) -> Cells:
    """The index of a few polygons: one cell, in which each lists all its edges."""
    ends, row = edges_of(shapes)
    rows, first = np.unique(row, return_index=True)
    xy = ends.reshape(-1, 2) if len(ends) else np.zeros((1, 2))
    low, high = xy.min(axis=0), xy.max(axis=0)
    return Cells(
        grid=np.array([*low, 1.0, 1.0, 1, 1, *high]),
        cell_start=np.array([0, len(rows)]),
        entry_row=rows.astype(np.int32),
        entry_base=np.zeros(len(rows), dtype=bool),
        edge_start=np.append(first, len(ends)),
        toggle_start=np.zeros(len(rows) + 1, np.int64),
        edge=np.arange(len(ends), dtype=np.int32),
        toggle=np.empty(0),
        ends=ends,
    )


def stack(groups: Sequence[Polygons]) -> Polygons:
    """Groups of polygons, one after the other."""
    return Polygons(
        lists=Lists(
            cell_start=_offsets([part.lists.cell_start for part in groups]),
            list_start=_offsets([part.lists.list_start for part in groups]),
            cell=np.concatenate([part.lists.cell for part in groups]),
            start=_offsets([part.lists.start for part in groups]),
            row=np.concatenate([part.lists.row for part in groups]),
        ),
        grid=np.concatenate([part.grid for part in groups]),
        edge_start=_offsets([part.edge_start for part in groups]),
        ends=np.concatenate([part.ends for part in groups]),
    )


def _offsets(parts: Sequence[Ints]) -> Ints:
    """Offsets that each start at 0, as offsets into the whole."""
    return np.concatenate([[0], np.cumsum(np.concatenate([np.diff(part) for part in parts]))])


# -- points


def of_points(
    x: Floats, y: Floats, row: Ints, group: Ints, groups: int, *, limit: float, sphere: bool,
    none: bool,
) -> Points:  # fmt: skip
    """The lists of points to be met at a distance of at most `limit`.

    Parameters
    ----------
    row, group
        Each point's group, and its row within it.
    groups
        How many groups there are.
    none
        Whether lists end in `NONE`.
    """
    position = unit_vectors(x, y) if sphere else np.column_stack([x, y])
    reach = _reach(limit, sphere)
    low, high = _box(position, reach)
    side = _side(position, reach, low, high, group)
    point, number = _reached(position, reach, low, side)
    size = 2 * np.bincount(group[point], minlength=groups) + 1
    point, number = _once(group[point], number % size[group[point]], point)
    lists, at = _gather(group[point], number, size, row[point], none=none)
    point = np.insert(point, at, 0)
    return Points(lists, side, low, high, x[point], y[point])


def _reach(limit: float, sphere: bool) -> float:
    """The farthest that two points `limit` apart can be along an axis, and a little more."""
    if not sphere:
        return min(limit * _GROWTH + _TINY, _SQUARABLE)
    half = min(limit / (2 * RADIUS), math.pi / 2)
    return 2 * math.sin(half) * _GROWTH + _TINY_CHORD


def _box(position: Floats, reach: float) -> tuple[Floats, Floats]:
    """The box of all that can be reached; one that nothing is in where there is no point."""
    if not len(position):
        return np.zeros(position.shape[1]), np.full(position.shape[1], -1.0)
    with np.errstate(over="ignore"):
        return (
            np.maximum(position.min(axis=0) - reach, -_HUGE),
            np.minimum(position.max(axis=0) + reach, _HUGE),
        )


def _side(position: Floats, reach: float, low: Floats, high: Floats, group: Ints) -> float:
    """Cells so wide that a point stands in few of them, unless they get crowded by it."""
    with np.errstate(over="ignore"):
        extent = min(float((high - low).max()), _HUGE)
    if extent <= 4 * reach:  # smaller cells would leave out little
        return max(2 * extent, 1.0)
    for factor in (16.0, 8.0, 4.0, 2.0):
        side = max(factor * reach, extent / MOST)
        if factor == 2.0 or _crowding(_number(position, low, side), group) <= _CROWD:
            break
    return side


def _crowding(number: Ints, group: Ints) -> float:
    """How many points share a point's cell, in the mean."""
    _, count = np.unique(number + group, return_counts=True)
    return float((count.astype(float) ** 2).sum() / max(1, count.sum()))


def _number(position: Floats, low: Floats, side: float) -> Ints:
    """The cells' numbers before they are taken modulo the group's number of cells."""
    return _hash(_whole(position, low, side))


def _whole(position: Floats, low: Floats, side: float) -> Ints:
    with np.errstate(over="ignore"):
        return np.minimum(np.floor((position - low) / side), MOST).astype(np.int64)


def _hash(whole: Ints) -> Ints:
    return np.asarray(whole @ np.array(PRIMES[: whole.shape[1]]))


def _reached(position: Floats, reach: float, low: Floats, side: float) -> tuple[Ints, Ints]:
    """All (point, cell's number) in which the point can be reached."""
    with np.errstate(over="ignore"):
        first = _whole(np.maximum(position - reach, low), low, side)
        last = _whole(np.minimum(position + reach, _HUGE), low, side)
    spans = [range(int(span) + 1) for span in (last - first).max(axis=0, initial=0)]
    points, numbers = [np.empty(0, np.int64)], [np.empty(0, np.int64)]
    for step in itertools.product(*spans):
        cell = first + np.array(step)
        meets = np.flatnonzero((cell <= last).all(axis=1))
        points.append(meets)
        numbers.append(_hash(cell[meets]))
    return np.concatenate(points), np.concatenate(numbers)


def _once(group: Ints, number: Ints, point: Ints) -> tuple[Ints, Ints]:
    """Points and cells' numbers by group, number and point, each once."""
    order = np.lexsort((point, number, group))
    point, number, group = point[order], number[order], group[order]
    new = np.ones(len(point), dtype=bool)
    new[1:] = (np.diff(point) != 0) | (np.diff(number) != 0) | (np.diff(group) != 0)
    return point[new], number[new]


def _gather(group: Ints, number: Ints, size: Ints, row: Ints, *, none: bool) -> tuple[Lists, Ints]:
    """Lists of sorted (group, number), and where `NONE` was put in."""
    opens = np.ones(len(number), dtype=bool)
    opens[1:] = (np.diff(number) != 0) | (np.diff(group) != 0)
    first = np.flatnonzero(opens)
    start = np.append(first, len(number))
    cell_start = np.concatenate([[0], np.cumsum(size)])
    list_start = np.searchsorted(group[first], np.arange(len(size) + 1))
    cell = np.full(cell_start[-1], NONE)
    cell[cell_start[group[first]] + number[first]] = (
        np.arange(len(first)) - list_start[group[first]]
    )
    at = start[1:] if none else start[:0]
    if none:
        start = start + np.arange(len(start))
    return Lists(cell_start, list_start, cell, start, np.insert(row, at, NONE)), at
