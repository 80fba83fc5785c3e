"""Spark gives the kernel's results, so that figures of the one are figures of the other."""

from __future__ import annotations

import os

import pyarrow.parquet as pq
from tests.support.micro_batches import processed

import rivermouth as rm
from rivermouth.testing.disorder import Disorder, disordered

BURSTY = Disorder(6_000, 1000.0, 10, 0.8, 7.0, 1.0, 100.0, 2.0, 2.0)


def test_a_stream_gives_the_kernels_results_batch_by_batch(spark, tmp_path):
    rows = disordered(BURSTY).select(["at", "value"])
    batches = [rows.slice(begin, 600) for begin in range(0, rows.num_rows, 600)]
    folder = tmp_path / "events"
    folder.mkdir()
    for number, batch in enumerate(batches):
        path = folder / f"part-{number:03d}.parquet"
        pq.write_table(batch, path)
        os.utime(path, (number, number))  # Spark takes the oldest first
    summary = rm.summary(
        time="at", window=rm.sliding("500 milliseconds", every="100 milliseconds"),
        total=rm.sum("value"), mid=rm.median("value"),
    )  # fmt: skip
    slack = rm.quality()
    source = (
        spark.readStream.schema(spark.read.parquet(str(folder)).schema)
        .option("maxFilesPerTrigger", 1).parquet(str(folder))
    )  # fmt: skip
    emitted = rm.testing.batches(rm.aggregate(source, summary, slack=slack, late="rows"))
    kernel = processed(batches, summary, slack)
    names = ["window_start", "total", "mid", "records", "coverage", "slack"]
    wanted = [
        tuple(row[name] for name in names) for table in kernel.rows for row in table.to_pylist()
    ]
    found = [
        tuple(row[name] for name in names)
        for batch in emitted for row in batch if row["kind"] == "row"
    ]  # fmt: skip
    assert sorted(found) == sorted(wanted)
    late = sum(row["kind"] == "late" for batch in emitted for row in batch)
    assert late == kernel.counts["late"] > 0
