"""Apache Flink's lookup join with its partial cache, on a table in PostgreSQL.

This file is both ends: `start` makes the environment and starts the peer from a benchmark;
``python -m benchmarks.peers.flink`` compiles the job beside it and becomes its Java.

Flink keeps so many rows per subtask, least recently used, absent keys included, and asks for one
missing key at a time: its JDBC connector has no lookup of several.
"""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Any
from urllib.parse import unquote, urlsplit

import numpy as np
import pyarrow.parquet as pq

from benchmarks.peers.environment import Environment
from benchmarks.runner import Runner

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
JOB = Path(__file__).with_name("FlinkLookup.java")
OPEN = ("java.lang", "java.util", "java.util.concurrent", "java.net", "java.nio")
HEAP = "-Xmx3g"  #: as Spark's driver has
RECORD = np.dtype([("key", "<i8"), ("speed", "<f8")])


def start(url: str, *, cores: int, rows: int) -> Runner:
    """The peer as a runner, with a cache of so many rows per core.

    Raises
    ------
    PeerUnavailable
        When its environment cannot be made here.
    """
    FLINK.make()
    place = urlsplit(url)
    runner = Runner(__spec__.name, name="flink")
    runner.ask(
        url=f"jdbc:postgresql://{place.hostname}:{place.port}{place.path}",
        user=place.username,
        password=unquote(place.password or ""),
        cores=cores,
        rows=rows,
    )
    return runner


def ask(runner: Runner, folder: Path, files: int) -> dict[str, Any]:
    """The first files of a folder of `keyed` through the join; what it took."""
    return runner.measure(files=[str(_plain(folder, number)) for number in range(files)])


def _plain(folder: Path, number: int) -> Path:
    """A file of the stream as bare records, which cost less to read than any format."""
    path = folder / f"part-{number:03d}.records"
    if not path.exists():
        table = pq.read_table(path.with_suffix(".parquet"))
        records = np.empty(table.num_rows, RECORD)
        for name in RECORD.names or ():
            records[name] = table[name].to_numpy()
        path.write_bytes(records.tobytes())
    return path


def main() -> None:
    """Compile the job and become it."""
    jars, classes = str(FLINK.folder / "jars" / "*"), FLINK.folder / "classes"
    words = ["javac", "-cp", jars, "-d", str(classes), "-nowarn", str(JOB)]
    subprocess.run(words, check=True, stdout=sys.stderr)
    opened = [f"--add-opens=java.base/{name}=ALL-UNNAMED" for name in OPEN]
    words = ["java", HEAP, *opened, "-cp", f"{classes}:{jars}", JOB.stem]
    os.execvp("java", words)


if __name__ == "__main__":
    main()
