"""How fast a point finds its rows: few shapes and many, simple and complex, near and nearest.

The kernels alone, on one core, asked with batches of the size that Spark sends, beside shapely's
STRtree in the same run; whatever shapely answers is compared with our answer pair by pair. Then
the headline questions as streams inside Spark, beside an identity `mapInArrow` of the same points;
their rows must be as many as the kernels' pairs.
"""

from __future__ import annotations

import gc
import time
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pyarrow as pa
import shapely

from benchmarks.harness import session, streams
from benchmarks.harness.experiment import SEED, arguments, interleave, progress, save
from benchmarks.harness.runner import Runner
from benchmarks.suites.table_join.library import Ask, Floats
from benchmarks.suites.table_join.questions import FILES, ZONES, Question, growth, headline
from rivermouth.kernels.table_join.matching import Index, Matcher, prepare

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
            "title": question.title,
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


def run_in_spark(
    questions: list[Question], pairs: dict[str, int], *, points: int, runs: int, million: int
) -> list[dict[str, Any]]:
    """The questions as streams on two cores: CPU seconds per million points."""
    with session.start(cores=2) as runner:
        cases = {"identity": _streamed(runner, "identity", str(questions[-1].stream(points)))}
        for number, question in enumerate(questions):
            options = {"number": number, "million": million}
            folder = str(question.stream(points))
            cases[question.title] = _streamed(
                runner, "question", folder, pairs[question.title], options=options
            )
        return [row | {"points": points} for row in interleave(cases, runs=runs, warmup=2)]


def _streamed(
    runner: Runner, case: str, folder: str, pairs: int | None = None, **more: Any
) -> Callable[[], dict[str, float]]:
    def once() -> dict[str, float]:
        found = runner.measure(case=case, folder=folder, files=FILES, **more)
        if pairs is not None and found["rows_out"] != pairs:
            raise AssertionError(f"{more}: {found['rows_out']} rows, the kernel found {pairs}")
        return {
            "cpu_s_per_million": found["cpu_s"] / found["rows_in"] * 1e6,
            "points_per_s": found["rows_in"] / found["wall_s"],
        }

    return once


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


def ask_all(questions: list[Question], points: int, runs: int, title: str) -> list[dict[str, Any]]:
    """The rows of all questions."""
    rows = []
    with progress(title, len(questions)) as step:
        for question in questions:
            step(question.title)
            rows += run(question, points=points, runs=runs)
            gc.collect()
    return rows


def grow(
    sizes: list[int], top: list[dict[str, Any]], points: int, runs: int
) -> list[dict[str, Any]]:
    """The rows of growing tables; those that the headline has already are not asked again."""
    questions = growth(sizes)
    known = {row["title"] for row in top}
    asked = ask_all([q for q in questions if q.title not in known], points, runs, "growth")
    rows = [*top, *asked]
    return [row for q in questions for row in rows if row["title"] == q.title]


def main() -> None:
    """Ask every question; leave ``shapes``, ``growth`` and ``shapes_in_spark``."""
    given = arguments(__doc__)
    quick = given.quick
    runs = given.runs or (1 if quick else RUNS)
    million = 20_000 if quick else 1_000_000
    points, growth_points = (20_000, 20_000) if quick else (POINTS, GROWTH_POINTS)
    about = {"quick": quick, "seed": SEED, "data": f"seeded; {ZONES}"}
    gc.disable()  # making many points with the collector on costs shapely five times as much

    top = ask_all(headline(million), points, runs, "shapes")
    print(save("shapes", top, **about))
    grown = grow(SIZES[:2] if quick else SIZES, top, growth_points, runs)
    print(save("growth", grown, **about))
    pairs = {
        row["title"]: round(row["pairs_per_point"] * points)
        for row in top
        if row["case"] == "rivermouth"
    }
    spark = run_in_spark(headline(million), pairs, points=points, runs=runs, million=million)
    print(save("shapes_in_spark", spark, **about, conf=streams.CONF))


if __name__ == "__main__":
    main()
