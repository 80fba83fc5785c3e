"""How fine the cells over polygons should be: four, two, one or half a cell for each edge.

The index is probed with batches of 10,000 points, on one core. Taxi positions in the districts of
Beijing, where most are near few edges; points spread over the zones of New York and over small
polygons. What is chosen by itself is the row `chosen`; all find the same pairs.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import numpy as np
import pyarrow.parquet as pq

from benchmarks.harness import seeded, tdrive
from benchmarks.harness.experiment import SEED, arguments, data, interleave, progress, save
from benchmarks.suites.table_join import questions
from benchmarks.suites.table_join.questions import Floats, Shapes
from rivermouth.kernels.spatial import cells

RUNS = 7
POINTS = 500_000
BATCH = 10_000  #: rows of an Arrow batch, Spark's default
PER_EDGE = (4.0, 2.0, 1.0, 0.5)


def tables(points: int, polygons: int) -> dict[str, tuple[Shapes, Floats, Floats]]:
    """By name: the polygons, and where the points lie."""
    taxis = pq.read_table(data(tdrive.TDRIVE), columns=["lon", "lat"])
    chosen = taxis.take(np.linspace(0, taxis.num_rows - 1, points).astype(np.int64))
    return {
        "districts of Beijing": (
            np.array(tdrive.districts()[1]),
            chosen["lon"].to_numpy(),
            chosen["lat"].to_numpy(),
        ),
        "taxi zones of New York": (questions.zones(), *questions.points_of_the_city(points)),
        "small polygons": (seeded.small_polygons(polygons), *questions.unit_points(points)),
    }


def probed(index: cells.Cells, x: Floats, y: Floats) -> Callable[[], dict[str, float]]:
    """A run over all points."""

    def once() -> dict[str, float]:
        began = time.process_time()
        pairs = 0
        for first in range(0, len(x), BATCH):
            rows = slice(first, first + BATCH)
            pairs += len(index.match(x[rows], y[rows], "within")[0])
        return {"ns_per_point": (time.process_time() - began) / len(x) * 1e9, "pairs": pairs}

    return once


def built(shapes: Shapes) -> dict[str, cells.Cells]:
    """The index with each number of cells, and the one that is chosen."""
    edges = len(cells.edges_of(shapes)[0])
    fixed = {f"{n:g}": cells.build(shapes, cells=round((n * edges) ** 0.5)) for n in PER_EDGE}
    return {**fixed, "chosen": cells.build(shapes)}


def main() -> None:
    """Leave ``grids``."""
    given = arguments(__doc__)
    points, polygons = (10_000, 500) if given.quick else (POINTS, 100_000)
    rows: list[dict[str, Any]] = []
    with progress("grids", 3) as step:
        for name, (shapes, x, y) in tables(points, polygons).items():
            step(name)
            found = built(shapes)
            cases = {case: probed(index, x, y) for case, index in found.items()}
            edges = len(cells.edges_of(shapes)[0])
            for row in interleave(cases, runs=given.runs or (1 if given.quick else RUNS)):
                index = found[row["case"]]
                size = sum(array.nbytes for array in vars(index).values())
                tested = index.mean_edges_tested()
                rows.append({"table": name, "edges": edges, "bytes": size, "tested": tested} | row)
            if len({row["pairs"] for row in rows if row["table"] == name}) != 1:
                raise AssertionError(f"{name}: grids differ in their pairs")
    print(save("grids", rows, quick=given.quick, seed=SEED, data="T-Drive, taxi zones, seeded"))


if __name__ == "__main__":
    main()
