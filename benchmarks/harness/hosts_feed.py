"""Streams for several hosts: folders of files that are there at once, and records that arrive.

All files of a stream have the same length in bytes, so that Spark makes a task a host of them: no
dictionaries, no compression.
"""

from __future__ import annotations

import itertools
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.parquet as pq

Ints = npt.NDArray[np.int64]

TICK = 0.25  #: seconds between two files of records that arrive


def table(keys: Ints, *, first: int, arrival: Ints | None = None) -> pa.Table:
    """Records of these keys, numbered from `first`; an arrival of 0 is not looked at."""
    return pa.table(
        {
            "key": keys,
            "number": np.arange(first, first + len(keys)),
            "arrival": np.zeros(len(keys), np.int64) if arrival is None else arrival,
        }
    )


def write(rows: pa.Table, folder: Path, files: int, *, name: str) -> None:
    """Write rows as so many files of equal length; each appears whole."""
    cuts = np.linspace(0, rows.num_rows, files + 1).astype(int)
    for number, (begin, end) in enumerate(itertools.pairwise(cuts)):
        staged = folder / f".{name}-{number:02d}"
        pq.write_table(rows.slice(begin, end - begin), staged, compression="none",
                       use_dictionary=False)  # fmt: skip
        staged.rename(folder / f"{name}-{number:02d}.parquet")


def write_batches(batches: Sequence[pa.Table], folder: Path, files: int) -> None:
    """Write micro-batches of so many files each, in their order; the folder appears whole."""
    staged = staging(folder)
    staged.mkdir(parents=True)
    folder.parent.mkdir(exist_ok=True)
    for number, rows in enumerate(batches):
        write(rows, staged, files, name=f"batch-{number:03d}")
    staged.rename(folder)


def staging(folder: Path) -> Path:
    """Where a folder is made that is to appear whole: not beside it, where a query looks."""
    return folder.parent.parent / f"staged-{folder.name}"


@dataclass(frozen=True)
class Fed:
    """What was fed: how many records, and how much too late the last tick's files were written."""

    records: int
    overdue: float


def feed(
    rows: Callable[[int, int, Ints], pa.Table],
    folder: Path,
    *,
    rate: float,
    seconds: float,
    files: int,
) -> Fed:
    """Let records arrive one by one at this rate; the files of a tick appear at its end.

    `rows` makes a table of so many records from a number on, of which these are the arrivals, in
    microseconds since 1970.
    """
    folder.mkdir(parents=True, exist_ok=True)
    each = max(files, round(rate * TICK) // files * files)  # the same in all files
    began, overdue = time.time(), 0.0
    for tick in range(round(seconds / TICK)):
        due = began + (tick + 1) * TICK
        share = (np.arange(each) + 0.5) / each
        arrival = ((began + (tick + share) * TICK) * 1e6).astype(np.int64)
        made = rows(tick * each, each, arrival)
        time.sleep(max(0.0, due - time.time()))
        write(made, folder, files, name=f"tick-{tick:04d}")
        overdue = time.time() - due
    return Fed(round(seconds / TICK) * each, overdue)
