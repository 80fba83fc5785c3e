"""Apache Flink: its lookup join with a partial cache on PostgreSQL, and its interval join on cells.

This file is both ends: `lookup` and `interval` make the environment and start the peer from a
benchmark; ``python -m benchmarks.peers.flink JOB`` compiles that job, which lies beside it, and
becomes its Java.

In the lookup join Flink keeps so many rows per subtask, least recently used, absent keys included,
and asks for one missing key at a time: its JDBC connector has no lookup of several.
"""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Any
from urllib.parse import unquote, urlsplit

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from benchmarks.harness.runner import Runner
from benchmarks.peers.environment import Environment

_OF = "org.apache.flink"
FLINK = Environment(
    "flink",
    packages=(),
    jars=(
        f"{_OF}:flink-clients:2.3.0",
        f"{_OF}:flink-table-api-java-bridge:2.3.0",
        f"{_OF}:flink-table-planner-loader:2.3.0",
        f"{_OF}:flink-table-runtime:2.3.0",
        f"{_OF}:flink-connector-jdbc-core:4.0.0-2.0",
        f"{_OF}:flink-connector-jdbc-postgres:4.0.0-2.0",
        "org.postgresql:postgresql:42.7.7",
    ),
    whole=True,
)
LOOKUP, INTERVAL = "FlinkLookup", "FlinkInterval"
OPEN = ("java.lang", "java.util", "java.util.concurrent", "java.net", "java.nio")
HEAP = "-Xmx3g"  #: as Spark's driver has
RECORD = np.dtype([("key", "<i8"), ("speed", "<f8")])
TAXI = np.dtype([("taxi", "<i8"), ("ts", "<i8"), ("lon", "<f8"), ("lat", "<f8")])


def lookup(url: str, *, cores: int, rows: int) -> Runner:
    """The peer as a runner, with a cache of so many rows per core.

    Raises
    ------
    PeerUnavailable
        When its environment cannot be made here.
    """
    FLINK.make()
    place = urlsplit(url)
    runner = Runner(__spec__.name, LOOKUP, name="flink")
    runner.ask(
        url=f"jdbc:postgresql://{place.hostname}:{place.port}{place.path}",
        user=place.username,
        password=unquote(place.password or ""),
        cores=cores,
        rows=rows,
    )
    return runner


def interval() -> Runner:
    """The peer as a runner of interval joins.

    Raises
    ------
    PeerUnavailable
        When its environment cannot be made here.
    """
    FLINK.make()
    return Runner(__spec__.name, INTERVAL, name="flink-interval")


def meet(runner: Runner, folder: Path, **options: Any) -> dict[str, Any]:
    """The taxis of a folder with themselves; `options` are metres, seconds, cells and cores."""
    return runner.measure(file=str(_in_one(folder)), **options)


def _in_one(folder: Path) -> Path:
    """All files of `daytime` in the order of time, as bare records."""
    path = folder / "_all.records"  # Spark passes over such names
    if not path.exists():
        parts = sorted(folder.glob("part-*.parquet"))
        table = pa.concat_tables([pq.read_table(part) for part in parts]).sort_by("ts")
        records = np.empty(table.num_rows, TAXI)
        records["ts"] = table["ts"].cast(pa.timestamp("ms", "UTC")).cast(pa.int64()).to_numpy()
        for name in ("taxi", "lon", "lat"):
            records[name] = table[name].to_numpy()
        path.write_bytes(records.tobytes())
    return path


def ask(runner: Runner, folder: Path, files: int) -> dict[str, Any]:
    """The first files of a folder of `keyed` through the join; what it took."""
    return runner.measure(files=[str(_plain(folder, number)) for number in range(files)])


def _plain(folder: Path, number: int) -> Path:
    """A file of the stream as bare records, which cost less to read than any format."""
    path = folder / f"_part-{number:03d}.records"  # Spark passes over such names
    if not path.exists():
        table = pq.read_table(folder / f"part-{number:03d}.parquet")
        records = np.empty(table.num_rows, RECORD)
        for name in RECORD.names or ():
            records[name] = table[name].to_numpy()
        path.write_bytes(records.tobytes())
    return path


def main() -> None:
    """Compile a job and become it."""
    job = Path(__file__).with_name(f"{sys.argv[1]}.java")
    jars, classes = str(FLINK.folder / "jars" / "*"), FLINK.folder / "classes"
    words = ["javac", "-cp", jars, "-d", str(classes), "-nowarn", str(job)]
    subprocess.run(words, check=True, stdout=sys.stderr)
    opened = [f"--add-opens=java.base/{name}=ALL-UNNAMED" for name in OPEN]
    words = ["java", HEAP, *opened, "-cp", f"{classes}:{jars}", job.stem]
    os.execvp("java", words)


if __name__ == "__main__":
    main()
