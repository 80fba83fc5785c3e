"""How fast a point finds its rows: few shapes and many, simple and complex, near and nearest.

The kernels alone, on one core, asked with batches of the size that Spark sends, beside shapely's
STRtree in the same run. Whatever shapely answers is compared, pair by pair, with our answer.
"""

from __future__ import annotations

import gc
import time
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pyarrow as pa
import shapely

from benchmarks.harness import SEED, arguments, interleave, progress, save
from benchmarks.library import Ask, Floats
from benchmarks.questions import ZONES, Question, growth, headline
from rivermouth.kernels.matching import Index, Matcher, prepare

RUNS = 3
BATCH = 10_000  #: rows of an Arrow batch, Spark's default
POINTS, GROWTH_POINTS, LIBRARY_POINTS = 1_000_000, 200_000, 50_000
SIZES = [10**power for power in range(2, 7)]


def run(question: Question, *, points: int, runs: int) -> list[dict[str, Any]]:
    """Ours and shapely's rows for one question."""
    x, y = question.points(points)
    shapes = question.shapes()
    table = {"geometry": pa.array(shapely.to_wkb(shapes))}
    prepare(question.place, {"geometry": table["geometry"][:4]}, where="bench")  # compiled
    index, built = _timed(lambda: prepare(question.place, table, where="bench"))
    asks = {"rivermouth": _ours(question, table, index)}
    builds = {"rivermouth": built}
    counts = {"rivermouth": points, "shapely": min(points, LIBRARY_POINTS)}
    if question.library is not None:
        answer = question.library
        asks["shapely"], builds["shapely"] = _timed(lambda: answer(shapes))
        _same_pairs(question, asks, x[:BATCH], y[:BATCH])
    cases = {form: _case(ask, x[: counts[form]], y[: counts[form]]) for form, ask in asks.items()}
    return [
        {
            "question": question.name,
            "rows": question.rows,
            "vertices": question.vertices,
            "points": counts[row["case"]],
            "index": index.kind if row["case"] == "rivermouth" else "STRtree",
            "index_mb": _megabytes(index) if row["case"] == "rivermouth" else None,
            "build_s": builds[row["case"]],
        }
        | row
        for row in interleave(cases, runs=runs)
    ]


def _ours(question: Question, table: dict[str, pa.Array], index: Index) -> Ask:
    matcher = Matcher(None, question.place, table, index)

    def ask(x: Floats, y: Floats) -> Any:
        pairs = matcher.match({"x": pa.array(x), "y": pa.array(y)})
        return pairs.left, pairs.right

    return ask


def _case(ask: Ask, x: Floats, y: Floats) -> Callable[[], dict[str, float]]:
    def once() -> dict[str, float]:
        pairs, cpu, wall = 0, time.process_time(), time.perf_counter()
        for part_x, part_y in _batches(x, y):
            pairs += len(ask(part_x, part_y)[0])
        wall, cpu = time.perf_counter() - wall, time.process_time() - cpu
        return {
            "points_per_s": len(x) / wall,
            "points_per_cpu_s": len(x) / cpu,
            "pairs_per_point": pairs / len(x),
        }

    return once


def _batches(x: Floats, y: Floats) -> Iterator[tuple[Floats, Floats]]:
    for start in range(0, len(x), BATCH):
        yield x[start : start + BATCH], y[start : start + BATCH]


def _same_pairs(question: Question, asks: dict[str, Ask], x: Floats, y: Floats) -> None:
    found = {form: np.column_stack(ask(x, y)) for form, ask in asks.items()}
    found = {form: pairs[np.lexsort(pairs.T[::-1])] for form, pairs in found.items()}
    if not np.array_equal(found["rivermouth"], found["shapely"]):
        raise AssertionError(f"{question.name} over {question.rows} rows: the pairs differ")


def _timed(make: Callable[[], Any]) -> tuple[Any, float]:
    start = time.perf_counter()
    made = make()
    return made, time.perf_counter() - start


def _megabytes(index: Index) -> float:
    return sum(array.nbytes for array in index.arrays.values()) / 1e6


def main() -> None:
    """Ask every question and leave two JSONs: ``shapes``, and ``growth``."""
    given = arguments(__doc__)
    runs = given.runs or (1 if given.quick else RUNS)
    top = headline(20_000 if given.quick else 1_000_000)
    grown = growth(SIZES[:2] if given.quick else SIZES)
    gc.disable()  # making many points with the collector on costs shapely five times as much
    rows: dict[str, list[dict[str, Any]]] = {"shapes": [], "growth": []}
    with progress("shapes", len(top) + len(grown)) as step:
        for name, questions, points in (
            ("shapes", top, POINTS),
            ("growth", grown, GROWTH_POINTS),
        ):
            for question in questions:
                step(f"{question.name}, {question.rows:,} rows")
                points = min(points, 20_000) if given.quick else points
                rows[name] += run(question, points=points, runs=runs)
                gc.collect()
    for name, found in rows.items():
        print(save(name, found, quick=given.quick, seed=SEED, data=f"seeded; {ZONES}"))


if __name__ == "__main__":
    main()
