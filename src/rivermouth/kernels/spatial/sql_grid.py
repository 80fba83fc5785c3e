"""Grids whose cells list candidate rows, in arrays that Spark SQL can look up.

SQL takes elements of arrays by number and no more, so the indexes of the native plan have one form,
for polygons and for points:

    number of the cell -> number of the list -> candidates: a row, and what its test needs

Cells of the same content share a list, as all those inside one polygon do, so that the arrays
stay small: they are sent to every host once per batch. A table is indexed in *groups*, one per key,
each with cells, lists and rows of its own. A group that is too large for one row of Spark is split
into several *parts* by ranges of its cells.

Cell 0 is all that lies outside the grid. In a left join a list ends in the candidate `NONE`, which
stands for the event that matches no other candidate of the list. It is left out where that cannot
be.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from dataclasses import dataclass, fields, replace
from typing import Any

import numpy as np
import numpy.typing as npt

from rivermouth.kernels.arrays import Bools, Floats, Ints, Shapes
from rivermouth.kernels.spatial.cells import Cells, edges_of
from rivermouth.kernels.spatial.sphere import RADIUS, unit_vectors

NONE = -1

#: what a cell's counts are multiplied with, one prime per axis: too small to overflow
PRIMES = (2_147_483_647, 1_640_531_527, 1_431_655_777)
#: how many cells there can be along an axis
MOST_CELLS = 2**28

_GROWTH = 1.0 + 1e-9  # far more than the rounding of a distance
_TINY_CHORD = 1e-12  # sines of the JVM and of numpy differ in the last bit
_TINY, _SQUARABLE = 1e-150, 1e155  # squares of smaller differences are 0, of larger ones infinite
_HUGE = float(np.finfo(float).max)
_CELL_BYTES = 4.125  # of a cell as an element of Spark's array: a number and a bit
_CROWDED = 32.0  # points in a cell beyond which cells are made no larger


@dataclass(frozen=True)
class SqlGrid:
    """The parts of all groups, one after the other.

    Parameters
    ----------
    space
        The numbers that an event's cell is computed from, one row per part. Of polygons those of
        `Cells.grid`; of points the side of a cell, the low and the high corner of the box that all
        matches lie in, and how many cells there are. The last is the number of the first cell.
    cell_start, list_start
        Where each part's cells and lists start.
    cell
        The list of each cell, numbered within its part; `NONE` where there is nothing.
    start
        Where each list's candidates start.
    row
        Each candidate's row, numbered within its part; `NONE` for the event without a match.
    value_start, values
        What each candidate's test needs. Of a point its coordinates. Of a polygon the edges, lower
        end first (ax, ay, bx, by): a point is inside where a ray to the right crosses an odd number
        of them; without edges, every point of the cell is. What a cell of `Cells` keeps of the
        edges elsewhere is given as edges at infinity: a toggle goes up from its height, a base
        from below everything.
    """

    space: Floats
    cell_start: Ints
    list_start: Ints
    cell: Ints
    start: Ints
    row: Ints
    value_start: Ints
    values: Floats

    @property
    def part_bytes(self) -> Floats:
        """About how much each part takes as a row of Spark, without the rows of the table."""
        lists = _sums(self._list_bytes, self.list_start)
        return np.asarray(lists + _CELL_BYTES * np.diff(self.cell_start))

    @property
    def _list_bytes(self) -> Ints:
        """About how much each list takes: an array of structs, in which 8 bytes refer to each."""
        if self.values.shape[1] == 2:  # a number and two doubles
            candidate = np.full(len(self.row), 40)
        else:  # a number and, unless it is null, an array of structs of four doubles
            count = np.diff(self.value_start)
            candidate = np.where(count > 0, 48 + 49 * count, 32)
        return 24 + _sums(candidate, self.start)

    def split(self, pieces: Ints) -> tuple[SqlGrid, Ints, list[Ints]]:
        """Each part split into so many pieces of about the same size.

        Also gives the part that each piece is of, and the rows of that part which it refers to: a
        piece numbers these.
        """
        made, part, rows = [], [], []
        for number, count in enumerate(pieces):
            cell = self.cell[self.cell_start[number] : self.cell_start[number + 1]]
            size = np.full(len(cell), _CELL_BYTES)
            # lists are numbered in the order of the first cells that have them
            first = np.diff(np.maximum.accumulate(cell), prepend=NONE) > 0
            size[first] += self._list_bytes[self.list_start[number] : self.list_start[number + 1]]
            cuts = np.searchsorted(np.cumsum(size), size.sum() * np.arange(1, count) / count)
            for low, high in itertools.pairwise(np.unique([0, *cuts, len(cell)]).tolist()):
                piece, used = self._piece(number, low, high)
                made.append(piece)
                part.append(number)
                rows.append(used)
        return stack(made), np.array(part), rows

    def _piece(self, part: int, low: int, high: int) -> tuple[SqlGrid, Ints]:
        """The cells [low, high) of a part, and the rows they refer to."""
        cell = self.cell[self.cell_start[part] + low : self.cell_start[part] + high]
        lists, cell = _renumbered(cell)
        start, candidates = _taken(self.start, self.list_start[part] + lists)
        rows, row = _renumbered(self.row[candidates])
        value_start, values = _taken(self.value_start, candidates)
        space = self.space[[part]]
        space[0, -1] += low
        ends = np.array([0, len(cell)]), np.array([0, len(lists)])
        return SqlGrid(space, *ends, cell, start, row, value_start, self.values[values]), rows


def stack(parts: Sequence[SqlGrid]) -> SqlGrid:
    """Parts, one after the other."""
    arrays: dict[str, Any] = {}
    for name in (field.name for field in fields(SqlGrid)):
        of_parts = [getattr(part, name) for part in parts]
        arrays[name] = _offsets(of_parts) if "start" in name else np.concatenate(of_parts)
    return SqlGrid(**arrays)


def _offsets(parts: Sequence[Ints]) -> Ints:
    """Offsets that each start at 0, as offsets into the whole."""
    return np.concatenate([[0], np.cumsum(np.concatenate([np.diff(part) for part in parts]))])


def _sums(values: npt.NDArray[Any], start: Ints) -> Ints:
    """The sums of `values` from each start to the next."""
    return np.diff(np.concatenate([[0], np.cumsum(values)])[start])


def _renumbered(numbers: Ints) -> tuple[Ints, Ints]:
    """The numbers that occur, and all as positions among these; `NONE` stays."""
    used = np.unique(numbers[numbers != NONE])
    return used, np.where(numbers == NONE, NONE, np.searchsorted(used, numbers))


def _taken(start: Ints, which: Ints) -> tuple[Ints, Ints]:
    """These of the lists that begin at `start`: where each begins now, and its old elements."""
    length = np.diff(start)[which]
    begin = np.concatenate([[0], np.cumsum(length)])
    return begin, np.arange(begin[-1]) + np.repeat(start[which] - begin[:-1], length)


# -- polygons


def polygon_grid(cells: Cells, *, full: bool, none: bool) -> SqlGrid:
    """The grid of an index of cells, as one part.

    Parameters
    ----------
    full
        Whether polygons that contain the whole cell are listed.
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
    edge_start, ends = _edges(cells, entry, is_border[entry])
    made = SqlGrid(
        space=np.append(cells.grid, 0.0).reshape(1, -1),
        cell_start=np.array([0, count + 1]),
        list_start=np.array([0, np.count_nonzero(leads)]),
        cell=np.concatenate([[NONE], number]),
        start=np.searchsorted(of_entry[entry], np.append(np.flatnonzero(leads), count)),
        row=cells.entry_row[entry].astype(np.int64),
        value_start=edge_start,
        values=ends,
    )
    return _with_none(made) if none else made


def _edges(cells: Cells, entry: Ints, is_border: Bools) -> tuple[Ints, Floats]:
    """Each entry's edges, toggles and base, all as upward edges; entries that need none, none."""
    number = np.full(len(cells.entry_row), NONE)
    number[entry] = np.arange(len(entry))
    base = np.flatnonzero(cells.entry_base[entry] & is_border)
    owner = np.concatenate(
        [
            np.repeat(number, np.diff(cells.edge_start)),
            np.repeat(number, np.diff(cells.toggle_start)),
            base,
        ]
    )
    ends = cells.ends[cells.edge]
    upward = np.where((ends[:, 3] < ends[:, 1])[:, None], ends[:, [2, 3, 0, 1]], ends)
    low = np.concatenate([cells.toggle, np.full(len(base), -np.inf)])
    far = np.full(len(low), np.inf)
    order = np.argsort(owner, kind="stable")
    start = np.searchsorted(owner[order], np.arange(len(entry) + 1))
    return start, np.concatenate([upward, np.column_stack([far, low, far, far])])[order]


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


def _with_none(made: SqlGrid) -> SqlGrid:
    """The same lists, those in which every candidate has a test ending in `NONE`."""
    tested = np.diff(made.value_start) > 0
    doubtful = _sums(~tested, made.start) == 0
    at = made.start[1:][doubtful]
    return replace(
        made,
        start=made.start + np.concatenate([[0], np.cumsum(doubtful)]),
        row=np.insert(made.row, at, NONE),
        value_start=np.insert(made.value_start, at, made.value_start[at]),
    )


def one_cell(shapes: Shapes) -> Cells:
    """The index of a few polygons: one cell, in which each lists all its edges."""
    ends, row = edges_of(shapes)
    rows, first = np.unique(row, return_index=True)
    xy = ends.reshape(-1, 2) if len(ends) else np.zeros((1, 2))
    return Cells(
        grid=np.array([*xy.min(axis=0), 1.0, 1.0, 1, 1, *xy.max(axis=0)]),
        cell_start=np.array([0, len(rows)]),
        entry_row=rows.astype(np.int32),
        entry_base=np.zeros(len(rows), dtype=bool),
        edge_start=np.append(first, len(ends)),
        toggle_start=np.zeros(len(rows) + 1, np.int64),
        edge=np.arange(len(ends), dtype=np.int32),
        toggle=np.empty(0),
        ends=ends,
    )


# -- points


def point_grid(
    x: Floats, y: Floats, row: Ints, group: Ints, groups: int, *, limit: float, sphere: bool,
    none: bool,
) -> SqlGrid:  # fmt: skip
    """The grid of points to be found within a distance of `limit`, a part per group.

    A point is listed in every cell that it can be reached from. Cells are cubes of the space that
    distances are measured in (the plane, or unit vectors), counted from the box's low corner along
    each axis, at most `MOST_CELLS`, and hashed: a cell's number is the sum of these counts times
    `PRIMES`, modulo the number of its group's cells, plus one. Cells that share a number share a
    list, which costs a test and changes nothing.

    Parameters
    ----------
    row, group
        Each point's row within its group, and the group.
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
    point, number = _unique(group[point], number % size[group[point]] + 1, point)
    space = np.column_stack([np.tile([side, *low, *high], (groups, 1)), size, np.zeros(groups)])
    return _gathered(space, group[point], number, row[point], np.column_stack([x, y])[point], none)


def _reach(limit: float, sphere: bool) -> float:
    """The farthest that two points `limit` apart can be along an axis, and a little more."""
    if not sphere:
        return min(limit * _GROWTH + _TINY, _SQUARABLE)
    half = min(limit / (2 * RADIUS), math.pi / 2)
    return 2 * math.sin(half) * _GROWTH + _TINY_CHORD


def _box(position: Floats, reach: float) -> tuple[Floats, Floats]:
    """The box of all that can be reached; an empty one where there is no point."""
    if not len(position):
        return np.zeros(position.shape[1]), np.full(position.shape[1], -1.0)
    with np.errstate(over="ignore"):
        return (
            np.maximum(position.min(axis=0) - reach, -_HUGE),
            np.minimum(position.max(axis=0) + reach, _HUGE),
        )


def _side(position: Floats, reach: float, low: Floats, high: Floats, group: Ints) -> float:
    """Cells so wide that a point is in few of them, unless they get crowded by it."""
    with np.errstate(over="ignore"):
        extent = min(float((high - low).max()), _HUGE)
    if extent <= 4 * reach:  # smaller cells would leave out little
        return max(2 * extent, 1.0)
    for factor in (16.0, 8.0, 4.0, 2.0):
        side = max(factor * reach, extent / MOST_CELLS)
        _, count = np.unique(_hash(_whole(position, low, side)) + group, return_counts=True)
        # how many points share a point's cell, in the mean
        if (count.astype(float) ** 2).sum() <= _CROWDED * max(1, count.sum()):
            break
    return side


def _whole(position: Floats, low: Floats, side: float) -> Ints:
    with np.errstate(over="ignore"):
        return np.minimum(np.floor((position - low) / side), MOST_CELLS).astype(np.int64)


def _hash(whole: Ints) -> Ints:
    return np.asarray(whole @ np.array(PRIMES[: whole.shape[1]]))


def _reached(position: Floats, reach: float, low: Floats, side: float) -> tuple[Ints, Ints]:
    """All (point, hash of a cell) in which the point can be reached."""
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


def _unique(group: Ints, number: Ints, point: Ints) -> tuple[Ints, Ints]:
    """Points and cells by group, cell and point, each once."""
    order = np.lexsort((point, number, group))
    point, number, group = point[order], number[order], group[order]
    new = np.ones(len(point), dtype=bool)
    new[1:] = (np.diff(point) != 0) | (np.diff(number) != 0) | (np.diff(group) != 0)
    return point[new], number[new]


def _gathered(
    space: Floats, group: Ints, number: Ints, row: Ints, xy: Floats, none: bool
) -> SqlGrid:
    """The lists of points that are sorted by group and cell."""
    opens = np.ones(len(number), dtype=bool)
    opens[1:] = (np.diff(number) != 0) | (np.diff(group) != 0)
    first = np.flatnonzero(opens)
    start = np.append(first, len(number))
    cell_start = np.concatenate([[0], np.cumsum(space[:, -2].astype(np.int64) + 1)])
    list_start = np.searchsorted(group[first], np.arange(len(space) + 1))
    cell = np.full(cell_start[-1], NONE)
    cell[cell_start[group[first]] + number[first]] = (
        np.arange(len(first)) - list_start[group[first]]
    )
    if none:
        row, xy = np.insert(row, start[1:], NONE), np.insert(xy, start[1:], 0.0, axis=0)
        start = start + np.arange(len(start))
    return SqlGrid(space, cell_start, list_start, cell, start, row, np.arange(len(row) + 1), xy)
