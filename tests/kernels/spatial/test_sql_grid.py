"""Grids for Spark SQL, split over several rows: every cell in one piece, with its candidates."""

import numpy as np
import pytest
import shapely
from tests.support.shapes import array

from rivermouth.kernels.spatial import cells, sql_grid


def candidates(grid, part, cell, rows=None):
    """(row, values) of the cell's list; None where the part does not have the cell."""
    first, last = grid.cell_start[part : part + 2]
    at = first + cell - int(grid.space[part, -1])
    if not first <= at < last:
        return None
    if grid.cell[at] == sql_grid.NONE:
        return []
    number = grid.list_start[part] + grid.cell[at]
    return [
        (
            row if rows is None or row == sql_grid.NONE else rows[row],
            grid.values[grid.value_start[n] : grid.value_start[n + 1]].tolist(),
        )
        for n, row in enumerate(grid.row.tolist())
        if grid.start[number] <= n < grid.start[number + 1]
    ]


def polygons(none):
    rng = np.random.default_rng(1)
    shapes = [shapely.Point(*rng.uniform(0, 10, 2)).buffer(2, quad_segs=2) for _ in range(9)]
    return sql_grid.polygon_grid(cells.build(array(shapes), 12), full=True, none=none)


def points(none, *, sphere=False):
    rng = np.random.default_rng(2)
    x, y, group = rng.uniform(0, 20, 90), rng.uniform(0, 20, 90), np.arange(90) % 3
    limit = 1e4 if sphere else 0.1
    row = np.arange(90) // 3
    return sql_grid.point_grid(x, y, row, group, 3, limit=limit, sphere=sphere, none=none)


@pytest.mark.parametrize("none", [False, True])
@pytest.mark.parametrize("make", [polygons, points, lambda none: points(none, sphere=True)])
@pytest.mark.parametrize("count", [1, 2, 5])
def test_each_cell_is_in_one_piece_with_its_candidates(make, count, none):
    grid = make(none)
    pieces = np.full(len(grid.space), 1)
    pieces[-1] = count
    split, part, rows = grid.split(pieces)
    assert np.bincount(part).tolist() == pieces.tolist()
    assert np.allclose(split.part_bytes[-count:], grid.part_bytes[-1] / count, rtol=0.5)
    for group in range(len(grid.space)):
        for cell in range(grid.cell_start[group + 1] - grid.cell_start[group]):
            own = [
                found
                for piece in np.flatnonzero(part == group)
                if (found := candidates(split, piece, cell, rows[piece])) is not None
            ]
            assert own == [candidates(grid, group, cell)]


def test_a_cell_is_never_split():
    x = np.full(50, 0.5)
    grid = sql_grid.point_grid(
        x, x, np.arange(50), np.zeros(50, int), 1, limit=1.0, sphere=False, none=True
    )
    split, _, rows = grid.split(np.array([7]))
    found = [
        own for piece in range(len(split.space)) for cell in range(grid.cell_start[1])
        if (own := candidates(split, piece, cell, rows[piece]))
    ]  # fmt: skip
    assert [len(own) for own in found] == [51]
    assert (np.diff(split.cell_start) > 0).all()
