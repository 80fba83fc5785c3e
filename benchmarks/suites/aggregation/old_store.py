"""Stores of an exact aggregation of any age, and a correction in them: a process with Spark.

``python -m benchmarks.suites.aggregation.old_store CORES`` answers ``{"hours", "way", "times"}``.
"""

from __future__ import annotations

import shutil
import sys
from collections.abc import Iterable, Iterator
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from benchmarks.harness import streams
from benchmarks.harness.experiment import CACHE
from benchmarks.harness.runner import Runner, serve

SEED = 7
END = 1_800_000_000_000_000  # the same end of every stream, in microseconds since 1970
MINUTE = 60_000_000
BATCH_MINUTES, BATCH_ROWS, SENSORS = 10, 5_000, 20
LATE_ROWS, LATE_MINUTES = 200, (30, 90)
#: batches after which the store is compacted, as `rm.exact` does, and those after the last time
COMPACTED, REST = 64, 20


def start() -> Runner:
    """A session of two cores as a runner."""
    return Runner(__spec__.name, "2", name="old-store")


def batches(hours: int) -> Iterator[pa.Table]:
    """A stream of so many hours whose last hours are the same, then records that come late."""
    count = hours * 60 // BATCH_MINUTES
    for number in range(count, 0, -1):
        rng = np.random.default_rng((SEED, number))
        begin = END - number * BATCH_MINUTES * MINUTE
        yield _records(rng, begin + np.sort(rng.integers(0, BATCH_MINUTES * MINUTE, BATCH_ROWS)))
    rng = np.random.default_rng((SEED, 0))
    youngest, oldest = (END - minutes * MINUTE for minutes in LATE_MINUTES)
    yield _records(rng, rng.integers(oldest, youngest, LATE_ROWS))


def _records(rng: np.random.Generator, times: np.ndarray) -> pa.Table:
    return pa.table(
        {
            "sensor": pa.array(rng.integers(0, SENSORS, len(times))),
            "at": pa.array(times, pa.timestamp("us", "UTC")),
            "value": pa.array(rng.gamma(2.0, 50.0, len(times))),
        }
    )


def summary() -> Any:
    """What is computed: a sum, a count and a median of windows of ten minutes."""
    import rivermouth as rm

    return rm.summary(
        by="sensor", time="at", window=rm.sliding("10 minutes", every="5 minutes"),
        total=rm.sum("value"), n=rm.count(), middle=rm.median("value"),
    )  # fmt: skip


def build(folder: Path, hours: int) -> None:
    """Write a store as `rm.exact` does: its processor, its writers and its compaction, one bucket.

    Spark has no part in it: a micro-batch costs a few hundredths of a second instead of a second.
    Compactions are counted from the end, so that every store has as many batches after the last.
    """
    import rivermouth as rm
    from rivermouth.kernels.aggregation.plan import AggPlan
    from rivermouth.kernels.aggregation.processor import PARTIALS, AggregateProcessor
    from rivermouth.kernels.aggregation.slots import Slots
    from rivermouth.kernels.state.bucketing import Arrivals
    from rivermouth.spark.exact import store as store_module
    from rivermouth.spark.exact import tasks
    from rivermouth.spark.exact.pieces import WRITTEN, by_slot
    from rivermouth.spark.exact.snapshot import touched
    from rivermouth.spark.exact.store import Store
    from rivermouth.spec.locations import Location

    store_module.GRACE = 0.0  # what is replaced is deleted at once: nobody reads it
    schema = next(batches(1)).schema
    types = dict(zip(schema.names, schema.types, strict=True))
    plan, store, state = AggPlan(summary(), types), Store(Location.of(folder)), {}
    rows = plan.schema(pa.struct(list(types.items())), partials=True)
    slack = rm.fixed("1 minute")
    for number, table in enumerate(batches(hours)):
        newest = int(plan.times(table).max())
        processor = AggregateProcessor(plan, slack, rows)
        found = list(processor.process(state, Arrivals(((table,),), (newest,), number), {}))
        log = (batch for each in found for batch in each.to_batches())
        written = [
            *tasks.log_writer(store.path, plan, types)(log),
            *tasks.backup_writer(store.path, plan, types)(table.to_batches()),
        ]
        store.commit_batch(number, pa.Table.from_batches(written, WRITTEN))
        if (hours * 60 // BATCH_MINUTES - number) % COMPACTED == REST:
            snapshot = store.snapshot()
            work = tasks.slot_compactor(store.path, plan)
            removed = work(slot_batches(by_slot(snapshot.pieces)))
            paths = [path for each in removed for path in each.column("path").to_pylist()]
            slots = touched(Slots.of(plan.grid), snapshot.pieces, PARTIALS)
            store.compacted(snapshot, paths, slots)


def slot_batches(slots: dict[Any, Any]) -> Iterable[pa.RecordBatch]:
    """What a task is given of these slots."""
    from rivermouth.spark.exact.pieces import packed

    rows = [{"slot": slot, "pieces": packed(pieces)} for slot, pieces in slots.items()]
    schema = pa.schema([("slot", pa.int64()), ("pieces", pa.string())])
    return pa.Table.from_pylist(rows, schema).to_batches()


def main(cores: str) -> None:
    """The process itself."""
    import rivermouth as rm
    from rivermouth.spark.exact.results import Results
    from rivermouth.spark.runtime.session import local_session

    spark = local_session("bench", cores=int(cores), conf=streams.CONF)
    home = CACHE / "old-stores"
    shutil.rmtree(home, ignore_errors=True)
    stream = spark.readStream.format("rate").load()  # its columns only; it is never started
    events = stream.selectExpr("value AS sensor", "timestamp AS at", "double(value) AS value")

    @cache
    def job(hours: int) -> Any:
        build(home / f"{hours}", hours)
        return rm.exact(events, summary(), store=home / f"{hours}")

    def results(hours: int) -> Results:
        made = job(hours)
        return Results(spark, made.store, made.schemas, made.store.snapshot(), None)

    @cache
    def tables(hours: int) -> str:
        """The backup and the answers as plain Parquet, as the file sink of the first version."""
        folder = home / f"{hours}-tables"
        now = results(hours)
        now.records.selectExpr("*", "date(at) AS day").write.partitionBy("day").parquet(
            f"{folder}/records"
        )
        now.all.write.parquet(f"{folder}/results")
        now.pending.select("record.*").write.parquet(f"{folder}/late")
        return str(folder)

    def partials(hours: int) -> dict[str, Any]:
        now = results(hours)
        written = now.corrected(final=False)
        return {"rows": sum(written.column("rows").to_pylist())}

    def history(hours: int) -> dict[str, Any]:
        folder = tables(hours)
        records, answers, late = (
            spark.read.parquet(f"{folder}/{name}") for name in ("records", "results", "late")
        )
        fixed = rm.correct(answers.drop("emitted"), records, summary(), late=late)
        fixed.write.mode("overwrite").parquet(f"{folder}/fixed")
        return {"rows": spark.read.parquet(f"{folder}/fixed").count()}

    def size(hours: int) -> dict[str, Any]:
        tables(hours)
        files = [path for path in (home / f"{hours}").rglob("*") if path.is_file()]
        count = job(hours).records().count()
        return {"records": count, "files": len(files), "slots": len(job(hours).store.slots())}

    ways = {"partials": partials, "history": history, "size": size}

    def answer(request: dict[str, Any]) -> dict[str, Any]:
        return [ways[request["way"]](request["hours"]) for _ in range(request.get("times", 1))][-1]

    serve(answer, {"spark": spark.version})
    spark.stop()


if __name__ == "__main__":
    main(*sys.argv[1:])
