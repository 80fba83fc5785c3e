"""How dear it is to find the polygons near a point: the five nearest, and those within a distance.

Ours by its compiled index and by shapely's STRtree (`index="strtree"`, as it was before), and
SedonaDB, each in a process of its own. Each reads the points and the polygons from Parquet, builds
its index and gives the number of pairs, and the sum of the distances (`nearest`) or of the rows'
numbers (`dwithin`), which must be the same.
"""

from __future__ import annotations

import gc
import time
from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np
import pyarrow.dataset as ds
import pyarrow.parquet as pq

import rivermouth as rm
from benchmarks.harness import seeded
from benchmarks.harness.experiment import SEED, arguments, interleave, save
from benchmarks.harness.runner import Runner, serve
from benchmarks.peers import sedona_db
from benchmarks.peers.environment import PeerUnavailable
from benchmarks.suites.table_join.questions import SPOT, Question, unit_points
from rivermouth.kernels.table_join.matching import Matcher, prepare

RUNS = 3
POLYGONS, POINTS = 20_000, 300_000
BATCH = 10_000  #: rows of an Arrow batch, Spark's default
K = 5


def questions(polygons: int) -> dict[str, tuple[Question, float]]:
    """By form: the question, and how many or how far."""
    make = partial(seeded.small_polygons, polygons)
    reach = float(np.sqrt(2 / (np.pi * polygons)))
    asked = {
        "nearest": (rm.nearest(SPOT, "geometry", k=K), K),
        "dwithin": (rm.dwithin(SPOT, "geometry", distance=reach), reach),
    }
    return {
        form: (Question(f"{form} polygons", place, polygons, make, unit_points, None), bound)
        for form, (place, bound) in asked.items()
    }


def ours(index: str) -> None:
    """Our process: answers ``{"table", "points", "form", "bound"}`` by this index."""

    def answer(request: dict[str, Any]) -> dict[str, Any]:
        begin = time.perf_counter()
        form, bound = request["form"], request["bound"]
        by = {"k": bound} if form == "nearest" else {"distance": bound}
        place = getattr(rm, form)(SPOT, "geometry", **by)
        column = pq.read_table(request["table"], columns=["geometry"])["geometry"].combine_chunks()
        table = {"geometry": column}
        made = prepare(place, table, where="bench", index=index)
        matcher = Matcher(None, place, table, made)
        pairs, total = 0, 0.0
        columns = ds.dataset(request["points"])
        for batch in columns.to_batches(columns=["x", "y"], batch_size=BATCH):
            found = matcher.match({"x": batch.column("x"), "y": batch.column("y")})
            values = found.right if found.distance is None else found.distance
            pairs, total = pairs + len(found.left), total + float(values.sum())
        return {"pairs": pairs, "total": total, "wall_s": time.perf_counter() - begin}

    gc.disable()  # making many points with the collector on costs shapely five times as much
    serve(answer, {"index": index})


def run(polygons: int, points: int, runs: int, runners: dict[str, Runner]) -> list[dict[str, Any]]:
    """The rows of both questions for all runners; their answers must agree."""
    rows = []
    for form, (question, bound) in questions(polygons).items():
        request = {
            "table": str(question.table()), "points": str(question.stream(points)),
            "form": form, "bound": bound,
        }  # fmt: skip
        truth = {name: runner.ask(**request) for name, runner in runners.items()}
        _agree(form, truth)
        cases = {name: _case(runner, request, points) for name, runner in runners.items()}
        rows += [
            {"form": form, "polygons": polygons, "points": points} | row
            for row in interleave(cases, runs=runs)
        ]
    return rows


def _case(runner: Runner, request: dict[str, Any], points: int) -> Callable[[], dict[str, float]]:
    def once() -> dict[str, float]:
        found = runner.measure(**request)
        return {
            "cpu_s_per_million": found["cpu_s"] / points * 1e6,
            "points_per_s": points / found["wall_s"],
            "pairs_per_point": found["pairs"] / points,
            "memory_gb": found["memory_gb"],
        }

    return once


def _agree(form: str, found: dict[str, dict[str, Any]]) -> None:
    pairs = {answer["pairs"] for answer in found.values()}
    totals = [answer["total"] for answer in found.values()]
    if len(pairs) > 1 or not np.allclose(totals, totals[0], rtol=1e-9):
        raise AssertionError(f"{form}: the answers differ: {found}")


def main() -> None:
    """Ask both questions of all; leave ``near_shapes``."""
    given = arguments(__doc__)
    quick = given.quick
    module = "benchmarks.suites.table_join.near_shapes_worker"
    runners = {name: Runner(module, name, name=f"near-{name}") for name in ("edgetree", "strtree")}
    peers: dict[str, str] = {}
    try:
        runners["sedonadb"] = sedona_db.start()
        peers = dict(sedona_db.SEDONA_DB.versions)
    except PeerUnavailable as why:
        print(f"without SedonaDB: {why}")
    try:
        polygons, points = (500, 5_000) if quick else (POLYGONS, POINTS)
        runs = given.runs or (1 if quick else RUNS)
        rows = run(polygons, points, runs, {name: each.ready() for name, each in runners.items()})
    finally:
        for runner in runners.values():
            runner.close()
    about = {"quick": quick, "seed": SEED, "data": "seeded"}
    print(save("near_shapes", rows, peers=peers, **about))


if __name__ == "__main__":
    main()
