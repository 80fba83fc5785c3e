"""Buckets by place: up to 10 M small polygons on hosts whose memory is below their snapshot's size.

Two workers of the cluster lab (``tests/cluster``; Linux, root) join a million points, three times:
the first query reads the table and writes the buckets, the second finds them there, and the third
does with five times the points, so that the cost of a point is told from that of the buckets. The
memory that programs of a host may take together is limited; what they took is the largest that was
seen. The rows of every hundredth point are compared with those of shapely trees over the whole
table, in each query.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import shapely
from tests.cluster.lab import ALL_WORKERS, SHARED, Driver, Lab, lab

from benchmarks.harness import limited_hosts, seeded
from benchmarks.harness.accounting import Sampler
from benchmarks.harness.experiment import CACHE, SEED, save
from benchmarks.harness.limited_hosts import used

SAMPLED = 100  #: every so many points are compared with the truth
CHUNK = 1_000_000  #: polygons that are made at a time
WHOLE_UPTO = 100_000  #: rows up to which the table fits without buckets, and is joined so, too
CONF = {"spark.executor.memory": "512m", "spark.sql.shuffle.partitions": "8"}
_PROGRAM = "benchmarks.suites.table_join.large_tables_driver"
_PAUSE_S = 0.2
TURNS = {"first": 1, "again": 1, "more": 5}  #: how many times the points each query joins

Pair = tuple[int, int]  #: the numbers of a point and of a polygon


@dataclass(frozen=True)
class Size:
    """How much is measured; bytes are what programs of a host may take together."""

    tables: tuple[int, ...]
    points: int
    buckets: int
    limit: int
    hosts: int = 2


WHOLE = Size((100_000, 1_000_000, 10_000_000), 1_000_000, 64, 1_500_000_000)
QUICK = Size((2_000,), 20_000, 4, 1_500_000_000)


def table(rows: int) -> Path:
    """The table, made once, piece by piece."""
    path = CACHE / "large_tables" / f"{rows}.parquet"
    if not path.exists():
        path.parent.mkdir(parents=True, exist_ok=True)
        staged = path.with_suffix(".part")
        schema = pa.schema([("polygon", pa.int64()), ("shape", pa.binary())])
        with pq.ParquetWriter(staged, schema, compression="zstd") as writer:
            for first in range(0, rows, CHUNK):
                shapes = _polygons(rows, first)
                numbers = np.arange(first, first + len(shapes))
                made = {"polygon": numbers, "shape": pa.array(shapely.to_wkb(shapes), pa.binary())}
                writer.write_table(pa.table(made, schema=schema), row_group_size=CHUNK // 10)
        staged.rename(path)
    return path


def _polygons(rows: int, first: int) -> Any:
    count = min(CHUNK, rows - first)
    return seeded.small_polygons(count, total=rows, stream=rows + first)


def points(count: int) -> pa.Table:
    """Points spread evenly, with their numbers."""
    x, y = seeded.places(count, stream=7)
    return pa.table({"point": np.arange(count), "x": x, "y": y})


def truth(rows: int, count: int) -> list[Pair]:
    """Which of the sampled points lie in which polygons, by shapely: each pair once, sorted."""
    sample = points(count).take(np.arange(0, count, SAMPLED))
    numbers = sample["point"].to_numpy()
    spots = shapely.points(sample["x"].to_numpy(), sample["y"].to_numpy())
    found: list[Pair] = []
    for first in range(0, rows, CHUNK):
        tree = shapely.STRtree(_polygons(rows, first))
        which, polygons = tree.query(spots, predicate="within")
        found += zip(numbers[which].tolist(), (polygons + first).tolist(), strict=True)
    return sorted(found)


def checked(outputs: Mapping[str, Path], expected: Sequence[Pair]) -> int:
    """How many rows join the points once; the folders hold what each of `TURNS` wrote.

    Fails unless each query has the `expected` pairs of the sample, each as often as it joins the
    points, and so many times as many rows.
    """
    counts = {}
    for turn, folder in outputs.items():
        rows = pq.read_table(folder)
        sampled = rows.filter(pa.array(rows["point"].to_numpy() % SAMPLED == 0))
        pairs = sorted(zip(*(sampled[c].to_pylist() for c in ("point", "polygon")), strict=True))
        if pairs != [pair for pair in expected for _ in range(TURNS[turn])]:
            raise AssertionError(f"{folder.name}: the rows of the sample are not those of shapely")
        counts[turn] = rows.num_rows
    once = counts["again"]
    if counts != {turn: times * once for turn, times in TURNS.items()}:
        raise AssertionError(f"the queries wrote {counts} rows")
    return once


class Bench:
    """A driver on some hosts whose memory is limited."""

    def __init__(self, opened: Lab, driver: Driver, workers: Sequence[str], size: Size) -> None:
        self._lab, self._driver, self._workers, self._size = opened, driver, workers, size

    def measured(self, rows: int, buckets: int | None) -> dict[str, Any]:
        """The first query on a table, the second, and one of more points."""
        name = f"{rows}-{buckets or 'whole'}"
        found: dict[str, Any] = {"case": "buckets" if buckets else "whole", "rows": rows}
        for turn, times in TURNS.items():
            before, began = used(self._lab, self._workers), time.monotonic()
            with Sampler(self._memory, pause=_PAUSE_S) as memory:
                self._driver.call(
                    f"{_PROGRAM}:join", table=f"{SHARED}/{rows}.parquet", buckets=buckets,
                    points=f"{SHARED}/points", snapshots=f"{SHARED}/snapshots-{name}",
                    output=f"{SHARED}/out-{name}-{turn}", times=times,
                )  # fmt: skip
            seconds = time.monotonic() - began
            cpu = float((used(self._lab, self._workers) - before)[:-1].sum())
            found |= {
                f"{turn}_s": seconds,
                f"{turn}_cpu_s": cpu,
                f"{turn}_memory": [max(taken) for taken in zip(*memory.samples, strict=True)],
            }
        further = (TURNS["more"] - TURNS["again"]) * self._size.points / 1e6
        found["cpu_s_per_million"] = (found["more_cpu_s"] - found["again_cpu_s"]) / further
        outputs = {turn: self._lab.shared / f"out-{name}-{turn}" for turn in TURNS}
        found["rows_out"] = checked(outputs, truth(rows, self._size.points))
        snapshots = self._lab.shared / f"snapshots-{name}"
        found["snapshot_bytes"] = sum(
            file.stat().st_size for file in snapshots.rglob("*") if file.is_file()
        )
        return found

    def _memory(self) -> list[int]:
        return [self._lab.host(name).memory() for name in self._workers]


@contextmanager
def bench(size: Size) -> Iterator[Bench]:
    """The hosts, with the tables and the points in their shared folder."""
    workers = ALL_WORKERS[: size.hosts]
    with lab() as opened:
        for rows in size.tables:
            (opened.shared / f"{rows}.parquet").symlink_to(table(rows))
        (opened.shared / "points").mkdir()
        made = points(size.points)
        for number in range(size.hosts * 4):
            part = made.take(np.arange(number, made.num_rows, size.hosts * 4))
            pq.write_table(part, opened.shared / "points" / f"{number:02}.parquet")
        limited_hosts.unlimited(opened, workers)
        for name in workers:
            opened.host(name).limit(memory=size.limit)
        opened.cluster(workers)
        with opened.driver(**CONF) as driver:
            yield Bench(opened, driver, workers, size)


def main() -> None:
    """Leave ``large_tables``."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--quick", action="store_true", help="a small table: a smoke test")
    given = parser.parse_args()
    if (reason := limited_hosts.why_not()) is not None:
        print(f"skipped: {reason}", file=sys.stderr)
        return
    size = QUICK if given.quick else WHOLE
    found = []
    with bench(size) as made:
        for rows in size.tables:
            for buckets in (size.buckets, None) if rows <= WHOLE_UPTO else (size.buckets,):
                found.append(made.measured(rows, buckets))
                print(time.strftime("%H:%M:%S"), found[-1], flush=True)
    about = {
        "data": "seeded", "seed": SEED, "points": size.points, "buckets": size.buckets,
        "limit_bytes": size.limit, "hosts": size.hosts, "sampled": SAMPLED, "conf": CONF,
    }  # fmt: skip
    print(save("large_tables", found, quick=given.quick, **about))


if __name__ == "__main__":
    main()
