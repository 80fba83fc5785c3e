"""Points in polygons by a grid of cells, exact on the boundary.

A uniform grid is laid over the polygons. Each cell lists the polygons that meet it; for each
of them it keeps the edges that meet the cell and what is needed to answer without the others:

    inside(p) = base  xor  #(toggles <= p.y)  xor  #(edges that a ray from p to the right crosses)

This is the ray test over *all* edges of the polygon, split in two. An edge that does not meet
the cell lies wholly to one side of it, so whether the ray crosses it depends on ``p.y`` alone;
the sum over such edges changes only at the height of a vertex where the boundary leaves the
listed edges, to the right of the cell: those heights are the *toggles*, and *base* is the
constant. Heights are compared as they stand in the data and sides by `orientation.side`, so no
rounding is involved, and the same arrays serve the kernel here and the native Spark plan.

A cell that lies wholly inside a polygon lists it with base true and neither edges nor toggles.
"""

from __future__ import annotations

from dataclasses import dataclass

import numba
import numpy as np
import numpy.typing as npt
import shapely

from rivermouth.kernels.arrays import Bools, Floats, Ints, Shapes, stable_order
from rivermouth.kernels.spatial.orientation import side

OUTSIDE, INSIDE, BOUNDARY = 0, 1, 2

#: predicate of a point against a polygon -> (holds inside, holds on the boundary)
PREDICATES = {
    "within": (True, False),
    "covered_by": (True, True),
    "intersects": (True, True),
    "touches": (False, True),
    # a point never contains, covers, crosses, overlaps or equals a polygon
    **dict.fromkeys(("contains", "covers", "crosses", "overlaps", "equals"), (False, False)),
}

_POLYGON, _MULTIPOLYGON = 3, 6
_FEWEST_CELLS, _FINE_CELLS, _MOST_CELLS = 1 << 12, 1 << 18, 1 << 22
_MOST_ENTRIES = 24_000_000
_GROWTH = 1e-9  # cells are grown by this share when edges are assigned: more than any rounding


@dataclass(frozen=True)
class Cells:
    """The arrays of the index; all of them can be memory-mapped.

    Parameters
    ----------
    grid
        x0, y0, cell width, cell height, columns, rows, largest x, largest y.
    cell_start
        Where each cell's entries start; cells are numbered row by row from the lower left.
    entry_row, entry_base, edge_start, toggle_start
        An entry is a polygon in a cell: its row in the table, its base, where its edges and its
        toggles start.
    edge
        Which edges each entry lists.
    toggle
        The heights at which each entry's constant changes.
    ends
        The edges of all polygons, four numbers each: ax, ay, bx, by.
    """

    grid: Floats
    cell_start: Ints
    entry_row: npt.NDArray[np.int32]
    entry_base: Bools
    edge_start: Ints
    toggle_start: Ints
    edge: npt.NDArray[np.int32]
    toggle: Floats
    ends: Floats

    def match(self, x: Floats, y: Floats, predicate: str) -> tuple[Ints, Ints]:
        """Pairs (point, table row) for which `predicate` holds, in the order of the points.

        Coordinates must be finite. A point's rows come in the table's order.
        """
        inside, boundary = PREDICATES[predicate]
        if not (inside or boundary):
            return np.empty(0, np.int64), np.empty(0, np.int64)
        return _match(
            x, y, inside, boundary, self.grid, self.cell_start, self.entry_row, self.entry_base,
            self.edge_start, self.toggle_start, self.edge, self.toggle, self.ends,
        )  # fmt: skip

    def mean_edges_tested(self) -> float:
        """Edges tested for a point among the shapes, in the mean; a grid is unfit where many."""
        entries = np.diff(self.cell_start)
        load = (
            self.edge_start[self.cell_start[1:]] - self.edge_start[self.cell_start[:-1]] + entries
        )
        return float((load.astype(float) * load).sum() / max(1, load.sum()))


def can_index(shapes: Shapes) -> bool:
    """Whether all shapes (those that are there) are polygons, of one or many parts."""
    type_ids = shapely.get_type_id(shapes)
    return bool(np.isin(type_ids[type_ids >= 0], (_POLYGON, _MULTIPOLYGON)).all())


def build(shapes: Shapes, cells: int | None = None) -> Cells:
    """The index of valid polygons; None and empty ones are listed nowhere.

    `cells` is the least number of cells along the longer side of the extent, chosen from the
    number of edges where it is None; whatever it is, the answers are the same.
    """
    ends, row = edges_of(shapes)
    grid = _grid(shapes, ends, cells)
    cell_of, edge_of = _assign(ends, grid)
    border = _border_entries(cell_of, edge_of, row)
    full_cell, full_row, parity = _inside(
        ends, *stable_order(row, len(shapes)), grid,
        border.cell, *stable_order(border.row, len(shapes)), border.edge_start, edge_of,
    )  # fmt: skip
    toggles, toggle, odd = _toggles(border.cell, border.edge_start, edge_of, ends, grid)
    count = int(grid[4]) * int(grid[5])
    cell_start, entry_row, entry_base, edge_start, toggle_start = _entries(
        # parity was taken on the cell's middle line; the constant is what the toggles leave of it
        count, border.cell, border.row, parity ^ odd, border.edge_start, toggles,
        *stable_order(full_cell, count), full_row,
    )  # fmt: skip
    return Cells(
        grid, cell_start, entry_row, entry_base, edge_start, toggle_start, edge_of, toggle, ends
    )


def edges_of(shapes: Shapes) -> tuple[Floats, Ints]:
    """The edges of all rings, as (ax, ay, bx, by), and the row of each; none without length."""
    parts, part_row = shapely.get_parts(shapes, return_index=True)
    rings, ring_part = shapely.get_rings(parts, return_index=True)
    xy, ring = shapely.get_coordinates(rings, return_index=True)
    if len(xy) < 2:
        return np.empty((0, 4)), np.empty(0, np.int64)
    follows = ring[1:] == ring[:-1]
    ends = np.hstack([xy[:-1], xy[1:]])[follows]
    row = part_row[ring_part[ring[:-1][follows]]]
    long = (ends[:, 0] != ends[:, 2]) | (ends[:, 1] != ends[:, 3])
    return np.ascontiguousarray(ends[long]), np.ascontiguousarray(row[long], dtype=np.int64)


@dataclass(frozen=True)
class _Border:
    """Polygons in cells that their boundary meets: one entry per (cell, row), by cell then row."""

    cell: Ints
    row: Ints
    edge_start: Ints


def _grid(shapes: Shapes, ends: Floats, cells: int | None) -> Floats:
    """The grid over all edges: fine where edges are many, but of a bounded number of entries."""
    if not len(ends):
        return np.array([0.0, 0.0, 1.0, 1.0, 1, 1, 0.0, 0.0])
    low = np.minimum(ends[:, :2], ends[:, 2:]).min(axis=0)
    high = np.maximum(ends[:, :2], ends[:, 2:]).max(axis=0)
    width, height = np.maximum(high - low, np.finfo(float).tiny * 1e16)
    boxes = shapely.bounds(shapes[~(shapely.is_missing(shapes) | shapely.is_empty(shapes))])
    target = float(_wanted_cells(len(ends))) if cells is None else cells**2
    while True:
        across = max(1, round(np.sqrt(target * width / height)))
        along = max(1, round(np.sqrt(target * height / width)))
        across, along = min(across, _MOST_CELLS), min(along, _MOST_CELLS)
        step = np.array([width / across, height / along])
        spans = np.ceil((boxes[:, 2:] - boxes[:, :2]) / step) + 1
        if cells is not None or target <= 64 or spans.prod(axis=1).sum() <= _MOST_ENTRIES:
            break
        target /= 2
    return np.array([*low, *step, across, along, *high])


def _wanted_cells(edges: int) -> int:
    """Four cells an edge while the grid fits a processor's cache, beyond that one.

    Points are then found as fast (`benchmarks/suites/table_join/grids.py`), and an index of small
    polygons is half as large.
    """
    wanted = max(min(4 * edges, _FINE_CELLS), edges)
    return min(max(wanted, _FEWEST_CELLS), _MOST_CELLS)


@numba.njit(cache=True)
def _cell_x(x: float, grid: Floats) -> int:
    i = int(np.floor((x - grid[0]) / grid[2]))
    return min(max(i, 0), int(grid[4]) - 1)


@numba.njit(cache=True)
def _cell_y(y: float, grid: Floats) -> int:
    j = int(np.floor((y - grid[1]) / grid[3]))
    return min(max(j, 0), int(grid[5]) - 1)


@numba.njit(cache=True)
def _walk(ends: Floats, e: int, grid: Floats, cursor: Ints, edges: npt.NDArray[np.int32]) -> None:
    """For each cell that edge `e` may meet: write `e` at the cell's cursor and advance it.

    Only count, in `cursor`, if `edges` is empty.
    """
    ax, ay, bx, by = ends[e, 0], ends[e, 1], ends[e, 2], ends[e, 3]
    grow_x, grow_y = grid[2] * _GROWTH, grid[3] * _GROWTH
    across = int(grid[4])
    for j in range(_cell_y(min(ay, by) - grow_y, grid), _cell_y(max(ay, by) + grow_y, grid) + 1):
        low, high = min(ax, bx), max(ax, bx)
        if ay != by:
            # the part of the edge within this row of cells, grown on all sides
            bottom = grid[1] + j * grid[3] - grow_y
            top = grid[1] + (j + 1) * grid[3] + grow_y
            t0, t1 = (bottom - ay) / (by - ay), (top - ay) / (by - ay)
            t0, t1 = min(max(min(t0, t1), 0.0), 1.0), min(max(max(t0, t1), 0.0), 1.0)
            x0, x1 = ax + t0 * (bx - ax), ax + t1 * (bx - ax)
            low, high = max(low, min(x0, x1)), min(high, max(x0, x1))
        for i in range(_cell_x(low - grow_x, grid), _cell_x(high + grow_x, grid) + 1):
            cell = j * across + i
            if len(edges):
                edges[cursor[cell]] = e
            cursor[cell] += 1


@numba.njit(cache=True, nogil=True)  # tasks go on while a table is indexed beside them
def _assign(ends: Floats, grid: Floats) -> tuple[Ints, npt.NDArray[np.int32]]:
    """All (cell, edge) in which the edge may meet the cell, by cell, then by edge."""
    cells = int(grid[4]) * int(grid[5])
    counts, none = np.zeros(cells, np.int64), np.empty(0, np.int32)
    for e in range(len(ends)):
        _walk(ends, e, grid, counts, none)
    cursor = np.cumsum(counts) - counts
    edges = np.empty(counts.sum(), np.int32)
    for e in range(len(ends)):
        _walk(ends, e, grid, cursor, edges)
    return np.repeat(np.arange(cells), counts), edges


def _border_entries(cell_of: Ints, edge_of: npt.NDArray[np.int32], row: Ints) -> _Border:
    """One entry per (cell, row); `cell_of` is sorted and, within a cell, edges (so rows) are."""
    rows = row[edge_of]
    first = np.ones(len(cell_of), dtype=bool)
    first[1:] = (cell_of[1:] != cell_of[:-1]) | (rows[1:] != rows[:-1])
    start = np.flatnonzero(first)
    return _Border(cell_of[start], rows[start], np.append(start, len(cell_of)))


@numba.njit(cache=True)
def _crosses(ends: Floats, e: int, x: float, y: float) -> bool:
    """Whether the ray from (x, y) to the right crosses edge `e`: lower end included, upper not."""
    ay, by = ends[e, 1], ends[e, 3]
    if (ay > y) == (by > y):
        return False
    turn = side(ends[e, 0], ay, ends[e, 2], by, x, y)
    return turn > 0 if by > ay else turn < 0


@numba.njit(cache=True, nogil=True)
def _inside(
    ends: Floats, edges: Ints, edges_of_row: Ints, grid: Floats,
    border_cell: Ints, borders: Ints, borders_of_row: Ints, edge_start: Ints,
    edge_of: npt.NDArray[np.int32],
) -> tuple[Ints, Ints, Bools]:  # fmt: skip
    """The cells wholly inside each row, and the ray parity of the unlisted edges in border cells.

    Row by row of the table and of the grid: the edges that cross the middle line of a row of
    cells are the only ones a ray along it can cross. `edges` and `borders` are the edges and
    border entries of each row of the table, from its ``..._of_row`` to the next one's.
    """
    across = int(grid[4])
    parity = np.zeros(len(border_cell), np.bool_)
    full_cell, full_row, count = np.empty(1024, np.int64), np.empty(1024, np.int64), 0
    line_start, line_edges = np.empty(int(grid[5]) + 1, np.int64), np.empty(64, np.int64)
    for r in range(len(edges_of_row) - 1):
        own = edges[edges_of_row[r] : edges_of_row[r + 1]]
        if not len(own):
            continue
        i0, i1, j0, j1 = _span(ends, own, grid)
        line_edges = _lines(ends, own, grid, j0, j1, line_start, line_edges)
        at, last = borders_of_row[r], borders_of_row[r + 1]
        for j in range(j0, j1 + 1):
            y = grid[1] + (j + 0.5) * grid[3]
            crossing = line_edges[line_start[j - j0] : line_start[j - j0 + 1]]
            crossing = crossing[: _only_crossing(ends, crossing, y)]
            known = False  # whether `here` still holds: until the next border cell
            here = False
            for i in range(i0, i1 + 1):
                cell = j * across + i
                x = grid[0] + (i + 0.5) * grid[2]
                is_border = at < last and border_cell[borders[at]] == cell
                if is_border or not known:
                    here = _is_odd(ends, crossing, x, y)
                    known = not is_border
                if is_border:
                    entry = borders[at]
                    listed = edge_of[edge_start[entry] : edge_start[entry + 1]]
                    parity[entry] = here ^ _is_odd(ends, listed, x, y)
                    at += 1
                elif here:
                    if count == len(full_cell):
                        full_cell = np.append(full_cell, np.empty(count, np.int64))
                        full_row = np.append(full_row, np.empty(count, np.int64))
                    full_cell[count], full_row[count] = cell, r
                    count += 1
    return full_cell[:count], full_row[:count], parity


@numba.njit(cache=True)
def _span(ends: Floats, edges: Ints, grid: Floats) -> tuple[int, int, int, int]:
    """The columns and rows of cells that these edges of closed rings are assigned to."""
    low_y, high_y, low_x, high_x = np.inf, -np.inf, np.inf, -np.inf
    for e in edges:
        low_x, high_x = min(low_x, ends[e, 0]), max(high_x, ends[e, 0])
        low_y, high_y = min(low_y, ends[e, 1]), max(high_y, ends[e, 1])
    # as wide as edges are assigned, so that each border entry is passed exactly once
    grow_x, grow_y = grid[2] * _GROWTH, grid[3] * _GROWTH
    return (
        _cell_x(low_x - grow_x, grid), _cell_x(high_x + grow_x, grid),
        _cell_y(low_y - grow_y, grid), _cell_y(high_y + grow_y, grid),
    )  # fmt: skip


@numba.njit(cache=True)
def _lines(
    ends: Floats, edges: Ints, grid: Floats, j0: int, j1: int, line_start: Ints, line_edges: Ints
) -> Ints:
    """Of one polygon, the edges whose height meets each row of cells from `j0` to `j1`.

    Written into `line_start` and `line_edges`, which is returned, larger if it was too small.
    """
    rows = j1 - j0 + 1
    line_start[: rows + 1] = 0
    for e in edges:
        a, b = ends[e, 1], ends[e, 3]
        for j in range(_cell_y(min(a, b), grid), _cell_y(max(a, b), grid) + 1):
            line_start[j - j0] += 1
    total = 0
    for k in range(rows):
        total += line_start[k]
        line_start[k] = total
    line_start[rows] = total
    if total > len(line_edges):
        line_edges = np.empty(2 * total, np.int64)
    for k in range(len(edges) - 1, -1, -1):  # backwards: each line's cursor ends at its start
        a, b = ends[edges[k], 1], ends[edges[k], 3]
        for j in range(_cell_y(min(a, b), grid), _cell_y(max(a, b), grid) + 1):
            line_start[j - j0] -= 1
            line_edges[line_start[j - j0]] = edges[k]
    return line_edges


@numba.njit(cache=True)
def _only_crossing(ends: Floats, edges: Ints, y: float) -> int:
    """Move the edges that cross the height `y` to the front; how many they are."""
    n = 0
    for e in edges:
        if (ends[e, 1] > y) != (ends[e, 3] > y):
            edges[n] = e
            n += 1
    return n


@numba.njit(cache=True)
def _is_odd(ends: Floats, edges: npt.NDArray[np.integer], x: float, y: float) -> bool:
    """Whether the ray from (x, y) to the right crosses an odd number of these edges."""
    odd = False
    for e in edges:
        odd ^= _crosses(ends, e, x, y)
    return odd


@numba.njit(cache=True, nogil=True)
def _toggles(
    border_cell: Ints, edge_start: Ints, edge_of: npt.NDArray[np.int32], ends: Floats, grid: Floats
) -> tuple[Ints, Floats, Bools]:
    """For each listed edge, its ends to the right of the cell and at its height.

    Where the heights of each entry start, the heights, and whether an odd number of them lies
    at or below the cell's middle line. Two listed edges that share such an end give two equal
    heights, which cancel.
    """
    across = int(grid[4])
    start, odd = np.zeros(len(border_cell) + 1, np.int64), np.zeros(len(border_cell), np.bool_)
    height, count = np.empty(1024), 0
    for entry in range(len(border_cell)):
        j, i = divmod(border_cell[entry], across)
        right = grid[0] + (i + 1) * grid[2] + grid[2] * _GROWTH
        bottom = grid[1] + j * grid[3] - grid[3] * _GROWTH
        top = grid[1] + (j + 1) * grid[3] + grid[3] * _GROWTH
        middle = grid[1] + (j + 0.5) * grid[3]
        for end in (0, 2):
            for k in range(edge_start[entry], edge_start[entry + 1]):
                x, y = ends[edge_of[k], end], ends[edge_of[k], end + 1]
                if not (x > right and bottom <= y <= top):
                    continue
                if count == len(height):
                    height = np.append(height, np.empty(count))
                height[count] = y
                count += 1
                odd[entry] ^= y <= middle
        start[entry + 1] = count
    return start, height[:count].copy(), odd


@numba.njit(cache=True, nogil=True)
def _entries(
    cells: int, border_cell: Ints, border_row: Ints, border_base: Bools, edge_start: Ints,
    toggle_start: Ints, full: Ints, full_start: Ints, full_row: Ints,
) -> tuple[Ints, npt.NDArray[np.int32], Bools, Ints, Ints]:  # fmt: skip
    """Border and full entries in one order: by cell, then by row of the table.

    `full` are the full entries by cell, from one `full_start` to the next; both kinds come by
    row within a cell. Border entries keep their mutual order, and so their edges and toggles.
    """
    count = len(border_cell) + len(full)
    cell_start = np.zeros(cells + 1, np.int64)
    row, base = np.empty(count, np.int32), np.ones(count, np.bool_)
    edges, toggles = np.zeros(count + 1, np.int64), np.zeros(count + 1, np.int64)
    at = b = 0
    for cell in range(cells):
        f, last = full_start[cell], full_start[cell + 1]
        while True:
            is_border = b < len(border_cell) and border_cell[b] == cell
            if not is_border and f == last:
                break
            if is_border and (f == last or border_row[b] < full_row[full[f]]):
                row[at], base[at] = border_row[b], border_base[b]
                b += 1
            else:
                row[at] = full_row[full[f]]
                f += 1
            at += 1
            edges[at], toggles[at] = edge_start[b], toggle_start[b]
        cell_start[cell + 1] = at
    return cell_start, row, base, edges, toggles


@numba.njit(cache=True)
def _match(
    x: Floats, y: Floats, inside: bool, boundary: bool, grid: Floats, cell_start: Ints,
    entry_row: npt.NDArray[np.int32], entry_base: Bools, edge_start: Ints, toggle_start: Ints,
    edge: npt.NDArray[np.int32], toggle: Floats, ends: Floats,
) -> tuple[Ints, Ints]:  # fmt: skip
    left, right = np.empty(len(x) + 16, np.int64), np.empty(len(x) + 16, np.int64)
    count = 0
    across = int(grid[4])
    for p in range(len(x)):
        px, py = x[p], y[p]
        if not (grid[0] <= px <= grid[6] and grid[1] <= py <= grid[7]):
            continue
        cell = _cell_y(py, grid) * across + _cell_x(px, grid)
        for entry in range(cell_start[cell], cell_start[cell + 1]):
            is_in = entry_base[entry]
            on_edge = False
            for k in range(edge_start[entry], edge_start[entry + 1]):
                e = edge[k]
                ax, ay, bx, by = ends[e, 0], ends[e, 1], ends[e, 2], ends[e, 3]
                if (py < ay and py < by) or (py > ay and py > by) or (px > ax and px > bx):
                    continue
                if px < ax and px < bx:
                    is_in ^= (ay > py) != (by > py)
                    continue
                turn = side(ax, ay, bx, by, px, py)
                if turn == 0:
                    on_edge = True
                    break
                if (ay > py) != (by > py):
                    is_in ^= turn > 0 if by > ay else turn < 0
            if not on_edge:
                for k in range(toggle_start[entry], toggle_start[entry + 1]):
                    is_in ^= toggle[k] <= py
            if boundary if on_edge else (inside and is_in):
                if count == len(left):
                    left = np.append(left, np.empty(count, np.int64))
                    right = np.append(right, np.empty(count, np.int64))
                left[count] = p
                right[count] = entry_row[entry]
                count += 1
    return left[:count], right[:count]
