"""What a campaign feeds: files of records that their number and a seed determine."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

ROWS = 60  # of a file
SECONDS = 5  # of event time that a file covers
KEYS = 120
BEGIN = 1_767_225_600  # 2026-01-01, seconds since 1970
END = BEGIN + 10 * 86_400  # the record that closes all windows
DISORDER = 3.0  # seconds that a record may come late in every workload
OUTAGE = 60.0  # seconds that some records of an exact aggregation come late
STREAMS = ("events", "others")


def records(seed: int, stream: str, number: int) -> pa.Table:
    """The records of one file: most keys are rare, some are not in the table."""
    rng = np.random.default_rng([seed, STREAMS.index(stream), number])
    at = BEGIN + SECONDS * number + rng.uniform(0, SECONDS, ROWS) - rng.uniform(0, DISORDER, ROWS)
    outage = np.where(rng.random(ROWS) < 0.05, rng.uniform(0, OUTAGE, ROWS), 0.0)
    key = np.minimum(rng.zipf(1.3, ROWS) - 1, KEYS - 1)
    x, y = rng.uniform(0, 12, (2, ROWS))
    return _table(
        ROWS * number + np.arange(ROWS), key, at, at - outage, rng.integers(0, 1000, ROWS), x, y
    )


def end(number: int) -> pa.Table:
    """The file that closes all windows: one record, far ahead of the others."""
    at = np.array([END], float)
    return _table(np.array([ROWS * number]), np.array([-1]), at, at, *np.full((3, 1), 0))


def _table(ids: np.ndarray, key: np.ndarray, at: np.ndarray, sent: np.ndarray,
           value: np.ndarray, x: np.ndarray, y: np.ndarray) -> pa.Table:  # fmt: skip
    times = {
        name: pa.array((seconds * 1e6).astype(np.int64), pa.timestamp("us", "UTC"))
        for name, seconds in (("at", at), ("sent", sent))
    }
    numbers = {"id": ids, "key": key, "value": value}
    return pa.table(
        {**{name: array.astype(np.int64) for name, array in numbers.items()}, **times}
        | {"x": x.astype(float), "y": y.astype(float)}
    )


def table(version: int) -> pa.Table:
    """The dimension table: every third key has no row; `version` is in each."""
    keys = np.array([key for key in range(KEYS) if key % 3])
    names = [f"{key}@{version}" for key in keys.tolist()]
    return pa.table({"key": keys, "name": names, "version": np.full(len(keys), version)})


def publish(found: pa.Table, path: Path, *, age: int | None = None) -> None:
    """Write a file that readers see whole or not at all; `age` orders the files of a stream."""
    path.parent.mkdir(parents=True, exist_ok=True)
    staged = path.parent / f".{path.name}"
    pq.write_table(found, staged)
    if age is not None:
        os.utime(staged, (age, age))  # Spark reads files by age
    staged.rename(path)


class Feeder:
    """Writes the next file of each stream as soon as the query has nearly caught up.

    Parameters
    ----------
    folder
        Where the streams' folders are.
    seed
        What determines the records.
    committed
        How many micro-batches the query has committed.
    """

    def __init__(self, folder: Path, seed: int, committed: Callable[[], int]) -> None:
        self._folder, self._seed, self._committed = folder, seed, committed
        self.count = 0
        self._stopped = threading.Event()
        self._thread = threading.Thread(target=self._feed, daemon=True)

    def start(self) -> None:
        """Write a first file, which the query needs to know the schema, and go on."""
        self._write()
        self._thread.start()

    def stop(self) -> None:
        """Write the file that closes all windows, and no more."""
        self._stopped.set()
        self._thread.join()
        for stream in STREAMS:
            publish(end(self.count), self._folder / stream / "end.parquet", age=self.count + 1)

    def fed(self, stream: str) -> Iterator[pa.Table]:
        """The records that have been written, the last one excepted."""
        return (records(self._seed, stream, number) for number in range(self.count))

    def _feed(self) -> None:
        while not self._stopped.wait(0.1):
            if self.count - self._committed() < 3:
                self._write()

    def _write(self) -> None:
        for stream in STREAMS:
            found = records(self._seed, stream, self.count)
            name = f"{self.count:05}.parquet"
            publish(found, self._folder / stream / name, age=self.count + 1)
        self.count += 1
