"""One fetch from a store: the rows of some keys, sorted as a chunk of the cache, in a thread."""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from typing import cast

import numpy as np
import pyarrow as pa

from rivermouth.errors import TableInvalid, TableUnavailable
from rivermouth.kernels.arrays import Bools, Ints
from rivermouth.kernels.cache.row_chunks import Order, row_sizes
from rivermouth.kernels.keys.values import missing
from rivermouth.kernels.ranges.range_keys import RangeEncoder
from rivermouth.spec.conditions import Keys, Range
from rivermouth.spec.identity import digest, identity
from rivermouth.tables.cache.retry import RetryPolicy
from rivermouth.tables.source import Batched, Queryable, Source, check_unchanged

_MOST_KEYS = 20_000  # of one statement


@dataclass(frozen=True)
class FetchedRows:
    """Rows by key: which columns, and for each key where its rows start, how many, and how large.

    `order` is what each key's rows are sorted by, where they are. `failed` tells the keys for which
    the store did not answer, and `error` why; they have no rows.
    """

    columns: dict[str, pa.Array]
    order: Order | None
    start: Ints
    count: Ints
    size: Ints
    failed: Bools
    error: TableUnavailable | None = None


@dataclass(frozen=True)
class LookupSpec:
    """What is looked up in a table, whatever the records.

    Parameters
    ----------
    source
        The table; a `Queryable` one, where there are keys.
    keys, range
        The condition's parts, at least one of them given. Without keys the whole table is one
        key's; each key's rows are sorted by the column of the range.
    columns
        The table's columns to bring.
    left, table
        The types of the records' columns that the condition names, and of the table's columns,
        as they were when the join was defined.
    """

    source: Source
    keys: Keys | None
    range: Range | None
    columns: tuple[str, ...]
    left: pa.Schema
    table: pa.Schema

    @property
    def digest(self) -> str:
        """Text that is the same for the same lookup."""
        types = [[str(one) for one in side] for side in (self.left, self.table)]
        return digest(
            identity(
                table=self.source.identity,
                on=(self.keys, self.range),
                columns=self.columns,
                types=types,
            )
        )

    def fetch(self, keys: Mapping[str, pa.Array], count: int, retry: RetryPolicy) -> FetchedRows:
        """The rows of `count` distinct keys; one statement for as many as the store takes.

        A statement that fails for good leaves its own keys without an answer, not the others'.

        Raises
        ------
        TableUnavailable
            If every statement failed.
        """
        most, at_once = _MOST_KEYS, 1
        if isinstance(self.source, Batched):
            most, at_once = self.source.batch, self.source.concurrency
        failed = np.zeros(count, dtype=bool)

        def part(first: int) -> tuple[Ints, pa.Table] | TableUnavailable:
            some = {name: column[first : first + most] for name, column in keys.items()}
            try:
                numbers, rows = self._query(some, retry, is_alone=count <= most)
            except TableUnavailable as error:
                failed[first : first + most] = True
                return error
            self._check(numbers, rows, min(most, count - first))
            return numbers + first, rows

        with ThreadPoolExecutor(at_once, "rivermouth-fetch") as pool:
            starts = range(0, count, most)
            parts = list(pool.map(part, starts) if at_once > 1 else map(part, starts))
        found = [each for each in parts if not isinstance(each, TableUnavailable)]
        error = next((each for each in parts if isinstance(each, TableUnavailable)), None)
        if error is not None and not found:
            raise error
        number = np.concatenate([numbers for numbers, _ in found])
        by_key = self._by_key(number, pa.concat_tables([rows for _, rows in found]), count)
        return replace(by_key, failed=failed, error=error)

    @property
    def _read(self) -> list[str]:
        sort = () if self.range is None else (self.range.right,)
        return [*dict.fromkeys((*self.columns, *sort))]

    def _query(
        self, keys: Mapping[str, pa.Array], retry: RetryPolicy, *, is_alone: bool
    ) -> tuple[Ints, pa.Table]:
        columns, on = self._read, self.keys
        if on is None:
            rows = retry.run(lambda: self.source.read(columns), "the whole table")
            return np.zeros(rows.num_rows, np.int64), rows
        source, count = cast(Queryable, self.source), len(next(iter(keys.values())))
        what = "one key" if count == 1 else f"{count:,} keys"
        numbers, rows = retry.run(lambda: source.lookup(on, columns, keys), what, is_alone=is_alone)
        return np.asarray(numbers, np.int64), rows

    def _check(self, numbers: Ints, rows: pa.Table, count: int) -> None:
        """Whether the table is still the one that the join was defined on."""
        check_unchanged(rows, self.table, self._read, table=self.source.name)
        is_short = rows.num_columns and len(numbers) != rows.num_rows
        if is_short or (len(numbers) and not 0 <= numbers.min() <= numbers.max() < count):
            raise TableInvalid(
                self.source.name,
                f"its answer for {count} keys cannot be right",
                there=f"{len(numbers)} key numbers came with {rows.num_rows} rows",
                todo="lookup() must give one number of the keys it was given with each row.",
            )

    def _by_key(self, number: Ints, table: pa.Table, count: int) -> FetchedRows:
        """The rows key by key, in their order or sorted; rows that are in no range left out."""
        order, rows = None, np.arange(len(number))
        if self.range is not None:
            sort = _array(table, self.range.right)
            encoder, keys = RangeEncoder.fit(sort)
            rows = np.flatnonzero(~missing([sort]))
            rows = rows[np.lexsort((keys[rows], number[rows]))]  # stable: equals as in the table
            order = encoder, keys[rows]
        elif len(number) and (np.diff(number) < 0).any():
            rows = np.argsort(number, kind="stable")
        columns = {name: _array(table, name) for name in self.columns}
        if len(rows) < len(number) or (np.diff(rows) != 1).any():
            index = pa.array(rows)
            columns = {name: column.take(index) for name, column in columns.items()}
            number = number[rows]
        counts = np.bincount(number, minlength=count)
        start = np.cumsum(counts) - counts
        sizes = row_sizes(columns, len(number)) + (0 if order is None else order[1].itemsize)
        total = np.concatenate([[0.0], np.cumsum(sizes)])
        size = np.ceil(total[start + counts] - total[start]).astype(np.int64)
        return FetchedRows(columns, order, start, counts, size, np.zeros(count, dtype=bool))


class Fetch(threading.Thread):
    """A fetch that goes on beside other work."""

    def __init__(
        self, spec: LookupSpec, keys: Mapping[str, pa.Array], count: int, retry: RetryPolicy
    ) -> None:
        super().__init__(name="rivermouth-fetch", daemon=True)
        self._work: Callable[[], FetchedRows] = lambda: spec.fetch(keys, count, retry)
        self._result: FetchedRows | Exception
        self.start()

    def run(self) -> None:
        """Fetch, and keep what came of it."""
        try:
            self._result = self._work()
        except Exception as error:  # whatever it was, it is raised to who waits for the rows
            self._result = error

    def result(self) -> FetchedRows | Exception:
        """The rows, or the error instead of them, once there is one."""
        self.join()
        return self._result


def _array(table: pa.Table, name: str) -> pa.Array:
    column = table.column(name).combine_chunks()
    if isinstance(column, pa.ChunkedArray):  # what older versions give
        return column.chunk(0) if column.num_chunks else pa.array([], column.type)
    return column
