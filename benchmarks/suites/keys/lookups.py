"""How fast keys find their rows: the index in arrays beside pandas', kernels alone, on one core.

Tables of ten million keys: ids without gaps, ids with gaps, strings of 12 to 24 characters, and
a million keys of ten rows each. Batches are of the size that Spark sends; keys are drawn evenly, so
that caches do not help. What both answer is compared.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import pandas as pd
import pyarrow as pa

from benchmarks.harness.experiment import SEED, arguments, interleave, progress, save
from rivermouth.kernels.keys import key_index

RUNS = 5
BATCH = 10_000  #: rows of an Arrow batch, Spark's default
ROWS, ASKED = 10_000_000, 2_000_000

Ints = npt.NDArray[np.int64]
Find = Callable[[pa.Array], npt.NDArray[Any]]


@dataclass(frozen=True)
class Table:
    """A column of keys, and the keys that are asked for, nine of ten of which are there."""

    name: str
    column: pa.Array
    asked: pa.Array


def tables(rows: int, asked: int) -> list[Callable[[], Table]]:
    """The tables, each made when it is needed."""
    return [
        lambda: _table("ids without gaps", rows, asked, lambda n: n),
        lambda: _table("ids with gaps", rows, asked, lambda n: n * 977 + 12_345),
        lambda: _table("ten rows a key", rows, asked, lambda n: n // 10 * 10 * 977),
        lambda: _table("strings", rows, asked, _texts),
    ]


def _table(name: str, rows: int, asked: int, make: Callable[[Ints], Any]) -> Table:
    random = np.random.default_rng(SEED)
    column = pa.array(make(random.permutation(rows)))
    return Table(name, column, pa.array(make(random.integers(0, rows * 10 // 9, asked))))


def _texts(numbers: Ints) -> pa.Array:
    """Names such as vehicles have, of different lengths."""
    head = pa.array(np.array(["vehicle-", "bus-", "tram-on-line-"])[numbers % 3])
    return pa.compute.binary_join_element_wise(head, pa.array(numbers + 10**8).cast("string"), "")


def run(make: Callable[[], Table], runs: int) -> list[dict[str, Any]]:
    """Our row and pandas' for one table."""
    table = make()
    key_index.build([table.column[:9]]).lookup([table.asked[:9]])  # compiled
    index, built = _timed(lambda: key_index.build([table.column]))
    frame, theirs_built = _timed(lambda: _pandas(table.column))
    finds: dict[str, Find] = {
        "rivermouth": lambda part: index.lookup([part]),
        "pandas": lambda part: frame.get_indexer(part.to_numpy(zero_copy_only=False)),
    }
    _same(finds, table)
    mapped = sum(array.nbytes for array in index.arrays().values()) / 1e6
    about = {
        "rivermouth": {"build_s": built, "index_mb": mapped, "shared": True},
        "pandas": {"build_s": theirs_built, "index_mb": None, "shared": False},
    }
    cases = {name: _case(find, table.asked) for name, find in finds.items()}
    return [
        {"table": table.name, "rows": len(table.column)} | about[row["case"]] | row
        for row in interleave(cases, runs=runs)
    ]


def _pandas(column: pa.Array) -> pd.Index:
    """Distinct keys with their hash table, as a worker would have to build it."""
    index = pd.Index(pd.unique(column.to_numpy(zero_copy_only=False)))
    index.get_indexer(index[:1])
    return index


def _same(finds: dict[str, Find], table: Table) -> None:
    found = {name: find(table.asked[:BATCH]) for name, find in finds.items()}
    if not np.array_equal(found["rivermouth"], found["pandas"]):
        raise AssertionError(f"{table.name}: the keys found differ")


def _case(find: Find, asked: pa.Array) -> Callable[[], dict[str, float]]:
    def once() -> dict[str, float]:
        cpu, wall = time.process_time(), time.perf_counter()
        for start in range(0, len(asked), BATCH):
            find(asked[start : start + BATCH])
        wall, cpu = time.perf_counter() - wall, time.process_time() - cpu
        return {"keys_per_s": len(asked) / wall, "keys_per_cpu_s": len(asked) / cpu}

    return once


def _timed(make: Callable[[], Any]) -> tuple[Any, float]:
    start = time.process_time()
    made = make()
    return made, time.process_time() - start


def main() -> None:
    """Ask every table; leave ``lookups``."""
    given = arguments(__doc__)
    rows, asked = (100_000, 50_000) if given.quick else (ROWS, ASKED)
    runs = given.runs or (1 if given.quick else RUNS)
    found: list[dict[str, Any]] = []
    made = tables(rows, asked)
    with progress("lookups", len(made)) as step:
        for make in made:
            step("")
            found += run(make, runs)
    print(save("lookups", found, quick=given.quick, seed=SEED, data="seeded"))


if __name__ == "__main__":
    main()
