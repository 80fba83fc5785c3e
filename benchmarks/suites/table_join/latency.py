"""End-to-end latency, Kafka to Spark to Kafka: ``python -m benchmarks latency [--table keys]``.

Points in the districts of Beijing, or keys in a table of a million rows.

Latency is a record's arrival at a consumer of the second topic less its send time at the producer
of the first, on one clock. The harness's own share is measured in the same run: producer to
consumer with nothing between (``kafka alone``).
"""

from __future__ import annotations

import argparse
import json
import statistics
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow.parquet as pq
import shapely

from benchmarks.harness import experiment, kafka
from benchmarks.harness.kafka_query import Case, cases, session, start
from benchmarks.harness.kafka_traffic import (
    RecordsMissing,
    Topics,
    Traffic,
    create_topics,
    write_bodies,
)
from benchmarks.harness.tdrive import DISTRICTS, TDRIVE, districts
from benchmarks.suites.keys import keyed
from benchmarks.suites.table_join.restart import kill_and_restart

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

Arrivals = Sequence[Mapping[str, Any]]

ALONE = "kafka alone"
BARE, NATIVE = "bare, real-time", "native, real-time"
ASYNCHRONOUS = "workers, micro-batches, asynchronous progress"
POINTS = 20_000  #: different records; they are sent in turn
KEYS = 1_000_000  #: rows of the table of keys
WARM = 2.0  #: seconds at the start of each run that do not count


@dataclass(frozen=True)
class Setting:
    """A case of `kafka_query.cases` and how Spark runs it."""

    case: str
    trigger: Mapping[str, str]
    options: Mapping[str, str] = field(default_factory=dict)


# The interval of real-time mode is the time between checkpoints; this is Spark's default.
REAL_TIME = {"realTime": "5 minutes"}
MICRO_BATCHES = {"processingTime": "0 seconds"}
SETTINGS: dict[str, Setting] = {
    BARE: Setting("bare", REAL_TIME),
    NATIVE: Setting("native", REAL_TIME),
    "bare, micro-batches": Setting("bare", MICRO_BATCHES),
    "workers, micro-batches": Setting("workers", MICRO_BATCHES),
    ASYNCHRONOUS: Setting("workers", MICRO_BATCHES, {"asyncProgressTrackingEnabled": "true"}),
}
# The same two with a batch end inside the run: how long records wait for the next batch.
TURNS: dict[str, Setting] = {
    "bare, real-time, batches of 5 s": Setting("bare", {"realTime": "5 seconds"}),
    "native, real-time, batches of 5 s": Setting("native", {"realTime": "5 seconds"}),
}


@dataclass(frozen=True)
class Sample:
    """What is sent, the queries it goes through, and the values that it must bring from them.

    Parameters
    ----------
    table
        What the records meet.
    bodies
        What is sent, in turn.
    brings, truth
        A column, and the values of it in all rows of each record, in any order.
    data
        What is said of the data beside the figures.
    cases
        The queries by name, where they are not those of `kafka_query.cases`.
    """

    table: Path
    bodies: Sequence[Mapping[str, float]]
    brings: str
    truth: Sequence[Sequence[Any]]
    data: Mapping[str, Any]
    cases: Mapping[str, Case] | None = None

    def case(self, name: str) -> Case:
        """The query of that name."""
        return (self.cases or cases(self.table))[name]


@dataclass(frozen=True)
class Bench:
    """All that stays the same from run to run."""

    spark: SparkSession
    bootstrap: str
    folder: Path
    sample: Sample
    bodies: Path
    rate: float

    def alone(self, *, seconds: float) -> dict[str, float]:
        """Latency of producer and consumer with nothing between them."""
        target = create_topics(self.bootstrap).target
        with self._traffic(Topics(target, target), seconds=seconds) as road:
            road.open()
            return latencies(road.arrivals(), warm=self.rate * WARM)

    def query(self, setting: Setting, *, seconds: float) -> dict[str, float]:
        """Latency through one query, whose rows are checked against the truth."""
        topics = create_topics(self.bootstrap)
        with (
            self._running(setting, topics) as alive,
            self._traffic(topics, seconds=seconds) as road,
        ):
            road.open(alive=alive)
            arrivals = road.arrivals(alive=alive)
        self._check(arrivals, setting, count=self._count(seconds))
        return latencies(arrivals, warm=self.rate * WARM)

    def _count(self, seconds: float) -> int:
        return int(self.rate * (WARM + seconds))

    def _traffic(self, topics: Topics, *, seconds: float) -> Traffic:
        return Traffic(
            self.bootstrap,
            topics,
            bodies=self.bodies,
            rate=self.rate,
            count=self._count(seconds),
            folder=self.folder,
        )

    @contextmanager
    def _running(self, setting: Setting, topics: Topics) -> Iterator[Callable[[], bool]]:
        query = start(
            self.spark,
            self.sample.case(setting.case),
            bootstrap=self.bootstrap,
            topics=topics,
            checkpoint=self.folder / topics.target,
            trigger=setting.trigger,
            options=setting.options,
        )
        try:
            yield lambda: query.isActive
        except RecordsMissing as error:
            raise RecordsMissing(f"{setting}: {error}; the query: {query.exception()}") from error
        finally:
            query.stop()

    def _check(self, arrivals: Arrivals, setting: Setting, *, count: int) -> None:
        missing = count - len({arrival["number"] for arrival in arrivals})
        if missing:
            raise RecordsMissing(f"{setting}: {missing} of {count} records did not arrive")
        if setting.case == "bare":
            return
        brought: dict[int, list[Any]] = {}
        for arrival in arrivals:
            brought.setdefault(arrival["number"], []).append(arrival.get(self.sample.brings))
        for number, values in brought.items():
            expected = self.sample.truth[number % len(self.sample.truth)]
            if sorted(values, key=str) != sorted(expected, key=str):
                raise AssertionError(f"{setting}: record {number}: {values}, not {expected}")


def latencies(arrivals: Arrivals, *, warm: float) -> dict[str, float]:
    """Median, 99th percentile and maximum in milliseconds of records numbered `warm` and up."""
    taken = np.array([row["arrived"] - row["sent"] for row in arrivals if row["number"] >= warm])
    median, high, most = np.percentile(taken / 1e6, [50, 99, 100])
    return {"median_ms": float(median), "p99_ms": float(high), "max_ms": float(most)}


def measure(
    bench: Bench, settings: Mapping[str, Setting], *, runs: int, warmup: int, seconds: float
) -> tuple[list[dict[str, Any]], list[float]]:
    """Alternating runs: a row for each setting, and for each round the join's ratio to the bare."""
    medians: dict[str, list[float]] = {name: [] for name in settings}

    def once(name: str) -> dict[str, float]:
        taken = bench.query(settings[name], seconds=seconds)
        medians[name].append(taken["median_ms"])
        return taken

    steps = {ALONE: partial(bench.alone, seconds=seconds)}
    steps |= {name: partial(once, name) for name in settings}
    with experiment.progress("latency", len(steps) * (runs + warmup)) as step:
        rows = experiment.interleave(steps, runs=runs, warmup=warmup, step=step)
    pairs = zip(medians[NATIVE][-runs:], medians[BARE][-runs:], strict=True)
    return rows, [native / plain for native, plain in pairs]


def places() -> Sample:
    """Points of T-Drive, and the district that shapely finds each within."""
    table = pq.read_table(experiment.data(TDRIVE), columns=["lon", "lat"])
    chosen = np.random.default_rng(experiment.SEED).choice(table.num_rows, POINTS, replace=False)
    points = table.take(chosen)
    found: list[list[str | None]] = [[None]] * POINTS
    for name, shape in zip(*districts(), strict=True):
        inside = shapely.contains_xy(shape, points["lon"].to_numpy(), points["lat"].to_numpy())
        for number in np.flatnonzero(inside):
            found[number] = [name]
    about = {"points": TDRIVE, "table": DISTRICTS, "records": POINTS}
    return Sample(experiment.data(DISTRICTS), points.to_pylist(), "district", found, about)


def keys() -> Sample:
    """Keys of `keyed.items`, nine of ten of which are there, and their names."""
    rows = np.random.default_rng(experiment.SEED).integers(0, KEYS * 10 // 9, POINTS).tolist()
    bodies = [{"item": row * keyed.GAP} for row in rows]
    names = [[f"item {row}" if row < KEYS else None] for row in rows]
    about = {"table": f"{KEYS:,} ids with names, seeded", "records": POINTS}
    return Sample(keyed.items(KEYS), bodies, "name", names, about)


#: by the word of the command line: what is sent, what the result is called, settings left out
SAMPLES: dict[str, tuple[Callable[[], Sample], str, tuple[str, ...]]] = {
    "districts": (places, "latency", ()),
    "keys": (keys, "equality_latency", (ASYNCHRONOUS,)),
}


@contextmanager
def prepared(*, rate: float, sample: Sample) -> Iterator[Bench]:
    """Broker, session and records, all gone at the end."""
    with (
        tempfile.TemporaryDirectory(prefix="rivermouth-latency-") as place,
        kafka.broker() as address,
    ):
        folder = Path(place)
        spark = session("latency")
        try:
            yield Bench(
                spark=spark,
                bootstrap=address,
                folder=folder,
                sample=sample,
                bodies=write_bodies(folder / "bodies.jsonl", sample.bodies),
                rate=rate,
            )
        finally:
            spark.stop()


def turns(bench: Bench, *, seconds: float) -> list[dict[str, Any]]:
    """One run each of `TURNS`, a row each; the maximum is how long a record waited for a batch."""
    return [
        {"case": name, "runs": 1} | bench.query(setting, seconds=seconds)
        for name, setting in TURNS.items()
    ]


def restarted(bench: Bench) -> dict[str, int]:
    """What arrives of the native join, killed and started again."""
    return kill_and_restart(
        bench.bootstrap,
        "native",
        table=bench.sample.table,
        bodies=bench.bodies,
        folder=bench.folder,
    ).counts()


def main() -> None:
    """Measure, save, and print the table."""
    words = _arguments()
    runs, warmup, seconds = (1, 0, 2.0) if words.quick else (words.runs, 1, 4.0)
    make, name, skipped = SAMPLES[words.table]
    sample = make()
    with prepared(rate=words.rate, sample=sample) as bench:
        settings = {name: SETTINGS[name] for name in SETTINGS if name not in skipped}
        rows, ratios = measure(bench, settings, runs=runs, warmup=warmup, seconds=seconds)
        whole = not words.quick and words.table == "districts"
        rows += turns(bench, seconds=3 * seconds) if whole else []
        restart = restarted(bench) if whole else None
    path = experiment.save(
        name,
        rows,
        quick=words.quick,
        peers=kafka.versions(),
        data=sample.data,
        seed=experiment.SEED,
        conf={"rate": words.rate, "seconds": seconds, "warm": WARM, "partitions": 1, "cores": 2},
        settings={name: asdict(setting) for name, setting in (SETTINGS | TURNS).items()},
        ratio={"what": f"{NATIVE} / {BARE}", "median": statistics.median(ratios), "each": ratios},
        restart=restart,
    )
    _print(json.loads(path.read_text()))


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description="Latency from Kafka to Kafka, through each plan.")
    parser.add_argument("--quick", action="store_true", help="one short run each: a smoke test")
    parser.add_argument("--runs", type=int, default=5, help="measured runs of each case")
    parser.add_argument("--table", choices=SAMPLES, default="districts", help="what it meets")
    parser.add_argument("--rate", type=float, default=1000, help="records a second")
    return parser.parse_args()


def _print(result: Mapping[str, Any]) -> None:
    print(f"{'case':48}{'median ms':>11}{'p99 ms':>11}{'max ms':>11}")
    for row in result["rows"]:
        figures = "".join(f"{row[key]:11.2f}" for key in ("median_ms", "p99_ms", "max_ms"))
        print(f"{row['case']:48}{figures}")
    print(f"{result['ratio']['what']}: {result['ratio']['median']:.2f}")
    if result["restart"]:
        print(f"killed and restarted: {result['restart']}")


if __name__ == "__main__":
    main()
