"""The page of peers: the same work by us and by others, from the results of several benchmarks."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from benchmarks.harness.formatting import Cells, number, only
from benchmarks.suites.nexmark.queries import ASKED

Row = Mapping[str, Any]
Which = Mapping[str, Any]  #: what the one row says that is meant


@dataclass(frozen=True)
class Work:
    """Work that all have done in one run of a benchmark.

    Parameters
    ----------
    title
        What it is.
    result
        The benchmark's JSON.
    rate
        A row's work per CPU-second, or the CPU time of some work.
    ours, peers
        Which rows; the peers' by their names. One that was not measured is left out.
    is_compared
        Whether the benchmark compares the answers.
    """

    title: str
    result: str
    rate: str
    ours: Which
    peers: Mapping[str, Which]
    is_compared: bool = True

    def per_cpu_second(self, row: Row) -> float:
        """The row's work per CPU-second; whole queries count as one."""
        if self.rate.startswith("cpu_s"):
            amount = 1e6 if self.rate.endswith("per_million") else 1.0
            return float(amount / (row[self.rate] + row.get("store_cpu_s", 0.0)))
        return float(row[self.rate])


_SPARK_CELLS, _FLINK_CELLS = "Spark's own, on cells", "Flink 2.3, on cells"
_PAIRS = {_SPARK_CELLS: {"case": "native_cells"}, _FLINK_CELLS: {"case": "flink_cells"}}
_ENGINES = {
    "SedonaDB": "sedonadb", "DuckDB spatial": "duckdb", "Sedona on Spark": "sedona",
    "GeoPandas": "geopandas",
}  # fmt: skip
WORKS = (
    Work("taxis in 16 districts, a stream", "stream_table", "cpu_s_per_million",
         {"case": "workers", "cores": 2},
         {"Sedona on Spark, subdivided": {"case": "subdivided", "cores": 2},
          "Sedona on Spark, whole": {"case": "whole", "cores": 2}}),
    Work("10 M rows by key, full cache", "equality", "cpu_s_per_million",
         {"case": "workers", "batch_rows": 1_000_000},
         {"Spark's own, cached": {"case": "spark_cached", "batch_rows": 1_000_000},
          "Spark's own, JDBC": {"case": "spark_jdbc", "batch_rows": 1_000_000}}),
    Work("10 M rows by key, a cache of 1 %", "incremental", "cpu_s_per_million",
         {"case": "s3fifo, present"}, {"Flink 2.3, lookup join": {"case": "flink"}}),
    Work("2^21 rows by range", "ranges", "cpu_s_per_million", {"case": "sorted", "power": 21},
         {"Spark's own, cached": {"case": "spark_cached"},
          "Spark's own, broadcast": {"case": "spark_broadcast"}}),
    *(Work(f"two streams, {name} pairs", "stream_stream", "rows_per_cpu_s",
           {"case": "join_interval", "workload": name},
           {peer: {**which, "workload": name} for peer, which in _PAIRS.items()})
      for name in ("sparse", "dense")),
    *(Work(f"{count} windows a record, grouped", "sliding", "rows_per_cpu_s",
           {"case": "ours", "ratio": count, "by": "sensor"},
           {"Spark's own": {"case": "spark", "ratio": count, "by": "sensor"}}, is_compared=False)
      for count in (5, 50, 500)),
    *(Work(title, "near_shapes", "cpu_s_per_million", {"case": "edgetree", "form": form},
           {"SedonaDB": {"case": "sedonadb", "form": form}})
      for form, title in (("nearest", "five nearest of 20,000 polygons, kernel alone"),
                          ("dwithin", "polygons within a distance, kernel alone"))),
    *(Work(f"SpatialBench {query.upper()}, through Spark", "spatialbench", "cpu_s",
           {"engine": "rivermouth", "query": query},
           {peer: {"engine": engine, "query": query} for peer, engine in _ENGINES.items()})
      for query in ("q8", "q9", "q12")),
    *(Work(f"Nexmark {query.upper()}, {asks}", "nexmark", "rows_per_cpu_s",
           {"case": "ours", "query": query},
           {"Spark's own": {"case": "spark", "query": query}})
      for query, asks in ASKED.items()),
)  # fmt: skip


#: a row's work per second of the clock, by the names that benchmarks have for it
_PER_SECOND = ("rows_per_s", "points_per_s")


def table(results: Path) -> Cells:
    """A line a peer and work, those first in which the peer does more with the same CPU time.

    Cells of two numbers are ours and the peer's; one that was not measured is a dash.
    """
    head = [
        "work", "peer", "per CPU-s", "ours to the peer's", "per second", "a micro-batch, ms",
        "memory, GB", "the peer's answer", "taken",
    ]  # fmt: skip
    lines = sorted(_lines(results), key=lambda line: line[0])
    return [head, *(cells for _, cells in lines)]


def _lines(results: Path) -> Iterator[tuple[float, list[str]]]:
    for work in WORKS:
        path = results / f"{work.result}.json"
        if not path.exists():
            continue
        document = json.loads(path.read_text())
        rows = document["rows"]
        if not any(work.ours.items() <= row.items() for row in rows):
            continue
        our_row = only(rows, **work.ours)
        ours = work.per_cpu_second(our_row)
        for peer, which in work.peers.items():
            if any(which.items() <= row.items() for row in rows):
                row = only(rows, **which)
                theirs = work.per_cpu_second(row)
                yield (
                    ours / theirs,
                    [
                        work.title,
                        peer,
                        f"{number(ours)} / {number(theirs)}",
                        number(float(f"{ours / theirs:.2g}")),
                        _both(_per_second, our_row, row),
                        _both(lambda row: row.get("batch_ms"), our_row, row),
                        _both(lambda row: row.get("memory_gb") or None, our_row, row),
                        _answer(row) if work.is_compared else "not compared",
                        document["date"][:10],
                    ],
                )


def _per_second(row: Row) -> float | None:
    for name in _PER_SECOND:
        if name in row:
            return float(row[name])
    return 1 / row["wall_s"] if "wall_s" in row else None


def _both(measure: Callable[[Row], float | None], ours: Row, theirs: Row) -> str:
    found = [measure(ours), measure(theirs)]
    if found == [None, None]:
        return ""
    return " / ".join("-" if one is None else number(float(f"{one:.3g}")) for one in found)


def _answer(row: Row) -> str:
    """Whether a peer's rows are right; other benchmarks count them, and end where they are not."""
    if row.get("astray"):
        return f"{number(row['astray'])} rows astray"
    verdicts = [row[name] for name in ("is_right", "agrees") if name in row]
    if not verdicts and "astray" not in row:
        return "as many rows"
    return "right" if all(verdicts) else "wrong"
