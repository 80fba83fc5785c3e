"""Tables of keys and of ranges, and the streams that ask for them: seeded, made once, with truth.

A table lies in a Parquet file and, row for row the same, in a PostgreSQL where a case needs one.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import psycopg
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from benchmarks.harness import stores
from benchmarks.harness.experiment import CACHE, SEED, Case, cpu_seconds
from benchmarks.harness.runner import Runner
from benchmarks.harness.tdrive import GROUPS
from benchmarks.harness.zipf import Zipf
from benchmarks.peers.environment import Environment
from rivermouth.kernels.skew.hotspots import load_cv

Ints = npt.NDArray[np.int64]

JDBC = Environment("postgresql-jdbc", packages=(), jars=("org.postgresql:postgresql:42.7.7",))
GAP = 977  #: between two ids: a table of ids without gaps would be an easier one
PER_KEY, APART = 32, 1000  #: of a table of ranges: rows a key, and the mean step between its values
REACH = 2 * APART  #: each way: about four rows a probe


@dataclass(frozen=True)
class Stream:
    """A folder of files, one a micro-batch; how many rows go in and should come out of each."""

    folder: Path
    rows: Sequence[int]
    out: Sequence[int]

    def case(
        self, runner: Runner, name: str, *, files: int, store: int | None = None, **options: Any
    ) -> Case:
        """A run of a case of `keyed_cases` over the first files, its rows counted."""

        def ask() -> dict[str, Any]:
            return runner.measure(case=name, folder=str(self.folder), files=files, options=options)

        return self.checked(f"{name} {options}", ask, files=files, store=store)

    def checked(
        self, name: str, ask: Callable[[], dict[str, Any]], *, files: int, store: int | None = None
    ) -> Case:
        """What `ask` measures over the first files, per million rows, and its rows counted.

        `store` is the process of a server whose CPU time is reported beside the runner's.
        """

        def once() -> dict[str, float]:
            before = cpu_seconds(store) if store else 0.0
            found = ask()
            asked = {"store_cpu_s": cpu_seconds(store) - before} if store else {}
            truth = sum(self.rows[:files]), sum(self.out[:files])
            if (found["rows_in"], found["rows_out"]) != truth:
                raise AssertionError(f"{name}: {found}, the truth is {truth}")
            million = found["rows_in"] / 1e6
            return {
                "cpu_s_per_million": found["cpu_s"] / million,
                "rows_per_s": found["rows_in"] / found["wall_s"],
                "out_per_s": found["rows_out"] / found["wall_s"],
                "wall_s_per_million": found["wall_s"] / million,
                "memory_gb": found["memory_gb"],
                **{key: value / million for key, value in asked.items()},
                **({"batch_ms": found["batch_ms"]} if "batch_ms" in found else {}),
                **found.get("cache", {}),
                **_spread(found.get("loads", ()), found.get("seconds", ())),
            }

        return once


def _spread(loads: Sequence[Sequence[int]], seconds: Sequence[Sequence[float]]) -> dict[str, float]:
    """Load CV of a routed stream's batches and its largest load, once two cycles have passed."""
    later = [one for one in loads[2:] if one]
    if not later:
        return {}
    return {
        "load_cv_of_seconds": float(np.median([load_cv(one) for one in seconds[2:] if one])),
        "load_cv": float(np.median([load_cv(one) for one in later])),
        "worst_load_cv": max(load_cv(one) for one in later),
        "largest_load": max(max(one) / sum(one) for one in later),
    }


def items(rows: int) -> Path:
    """A Parquet file of ids in no order, each with a short name."""
    path = CACHE / "tables" / f"items-{rows}.parquet"
    if not path.exists():
        path.parent.mkdir(parents=True, exist_ok=True)
        number = pa.array(np.random.default_rng(SEED).permutation(rows))
        name = pc.binary_join_element_wise("item", number.cast("string"), " ")
        pq.write_table(pa.table({"id": pc.multiply(number, GAP), "name": name}), path)
    return path


def items_in(url: str, rows: int, name: str = "items") -> None:
    """The same table in a PostgreSQL."""
    _make(
        url,
        f"CREATE UNLOGGED TABLE {name} AS SELECT n::int8 * {GAP} AS id, 'item ' || n AS name"
        f" FROM generate_series(0, {rows - 1}) AS n",
        f"ALTER TABLE {name} ADD PRIMARY KEY (id)",
        f"VACUUM ANALYZE {name}",
    )


def view_in(url: str, table: str, name: str) -> None:
    """A table of a PostgreSQL under another name."""
    _make(url, f"CREATE VIEW {name} AS SELECT * FROM {table}")


def even(table: int, batch: int, files: int) -> Stream:
    """Keys of `items`, each as likely as any other."""
    random = np.random.default_rng((SEED, 1))
    parts = [{"key": random.integers(0, table, batch) * GAP} for _ in range(files)]
    return _written(f"even-{table}-{batch}-{files}", parts, [batch] * files)


def skewed(table: int, batch: int, files: int, *, z: float, absent: int, part: int = 0) -> Stream:
    """Keys of `items` by Zipf's law, of which `absent` tenths (of the keys) are not there.

    `part` tells independent streams apart.
    """
    zipf = _zipf(z, table)
    parts, out = [], []
    for number in range(files):
        key = zipf.draw(batch, stream=1000 * part + number)
        gone = key % 10 < absent  # it depends on the key, so that it stays so
        parts.append({"key": key * GAP + gone})
        out.append(int(batch - gone.sum()))
    return _written(f"skewed-{table}-{batch}-{files}-{z}-{absent}-{part}", parts, out)


def wandering(table: int, batch: int, stays: Sequence[int], *, z: float) -> Stream:
    """Keys of `items` by Zipf's law; after so many files each, other keys are the frequent ones."""
    zipf, parts = _zipf(z, table), []
    for home, files in enumerate(stays):
        for number in range(files):
            key = zipf.draw(batch, stream=1000 * home + number)
            parts.append({"key": (key + home * table // len(stays)) % table * GAP})
    name = f"wandering-{table}-{batch}-{'-'.join(map(str, stays))}-{z}"
    return _written(name, parts, [batch] * len(parts))


_zipf = cache(Zipf)


def slices(power: int) -> Path:
    """A Parquet file of 2^power rows: `PER_KEY` values for each key, in no order, with a delay."""
    path = CACHE / "tables" / f"slices-{power}.parquet"
    if not path.exists():
        path.parent.mkdir(parents=True, exist_ok=True)
        pq.write_table(_slices(power), path)
    return path


def _slices(power: int) -> pa.Table:
    random, rows = np.random.default_rng((SEED, power)), 1 << power
    return pa.table(
        {
            "road": random.integers(0, rows // PER_KEY, rows),
            "slot": random.integers(0, PER_KEY * APART, rows),
            "delay": random.integers(0, 600, rows).astype(np.float64),
        }
    )


def slices_in(url: str, power: int) -> None:
    """The same table as ``slices_POWER`` of a PostgreSQL, indexed as the question needs it."""
    stores.copied(url, f"slices_{power}", slices(power), indexed=("road", "slot"))


def probes(power: int, batch: int, files: int) -> Stream:
    """Roads and times that ask `slices`; the truth by sorting and counting."""
    table, width = pq.read_table(slices(power)), 4 * PER_KEY * APART
    known = np.sort(table["road"].to_numpy() * width + table["slot"].to_numpy())
    random, parts, out = np.random.default_rng((SEED, power, 1)), [], []
    for _ in range(files):
        road = random.integers(0, (1 << power) // PER_KEY, batch)
        at = random.integers(0, PER_KEY * APART, batch)
        low = np.searchsorted(known, road * width + np.maximum(at - REACH, 0))
        high = np.searchsorted(known, road * width + at + REACH, side="right")
        parts.append({"road": road, "at": at})
        out.append(int((high - low).sum()))
    return _written(f"probes-{power}-{batch}-{files}", parts, out)


def _written(name: str, parts: Sequence[dict[str, Ints]], out: Sequence[int]) -> Stream:
    tables = [pa.table(part) for part in parts]
    with_speed = [
        table.append_column("speed", pa.array(np.arange(table.num_rows) % 97 / 7))
        for table in tables
    ]
    return written(name, with_speed, out)


def written(name: str, parts: Sequence[pa.Table], out: Sequence[int]) -> Stream:
    """The stream of these files, made where it is missing."""
    folder = CACHE / "keyed" / name
    if not (folder / "_made").exists():
        folder.mkdir(parents=True, exist_ok=True)
        for number, table in enumerate(parts):
            group = -(-table.num_rows // GROUPS)
            pq.write_table(table, folder / f"part-{number:03d}.parquet", row_group_size=group)
        (folder / "_made").touch()
    return Stream(folder, [table.num_rows for table in parts], out)


def _make(url: str, *statements: str) -> None:
    with psycopg.connect(url, autocommit=True) as connection:
        connection.execute("SET maintenance_work_mem = '1GB'")  # an index is sorted in memory
        for statement in statements:
            connection.execute(statement)
