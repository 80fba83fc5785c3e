"""One fetch from a store: keys in, their rows out as a chunk is made of them; beside other work."""

from __future__ import annotations

import threading
from collections.abc import Mapping
from dataclasses import dataclass
from typing import cast

import numpy as np
import pyarrow as pa

from rivermouth.errors import TableInvalid
from rivermouth.kernels.cache.row_chunks import row_sizes
from rivermouth.kernels.keys.encoding import Ints
from rivermouth.kernels.ranges.bounds import Numbers, Scale
from rivermouth.spec.conditions import Keys
from rivermouth.tables.cache.retry import Asking
from rivermouth.tables.source import Queryable, Source, check_unchanged

_MOST_KEYS = 20_000  # of one statement


@dataclass(frozen=True)
class Answer:
    """Rows by key: which columns, and for each key where its rows start, how many, and how large.

    `order` is the value by which each key's rows are sorted, where they are.
    """

    columns: dict[str, pa.Array]
    order: Numbers | None
    start: Ints
    count: Ints
    size: Ints


@dataclass(frozen=True)
class Question:
    """What is asked of a table, whatever the keys.

    Parameters
    ----------
    source
        The table.
    keys
        Which columns are the key; None: the whole table is one key's.
    columns, table
        The columns to bring, and the table's types as they were when the join was defined.
    sort, scale
        The column by which each key's rows are sorted, and as which numbers; None: not at all.
    """

    source: Source
    keys: Keys | None
    columns: tuple[str, ...]
    table: pa.Schema
    sort: str | None
    scale: Scale | None

    def answered(self, keys: Mapping[str, pa.Array], count: int, asking: Asking) -> Answer:
        """The rows of `count` distinct keys; one statement for some thousands of them."""
        parts = []
        for first in range(0, count, _MOST_KEYS):
            part = {name: column[first : first + _MOST_KEYS] for name, column in keys.items()}
            numbers, rows = self._ask(part, asking)
            self._check(numbers, rows, min(_MOST_KEYS, count - first))
            parts.append((numbers + first, rows))
        number = np.concatenate([numbers for numbers, _ in parts])
        return self._by_key(number, pa.concat_tables([rows for _, rows in parts]), count)

    @property
    def _asked(self) -> list[str]:
        return [*dict.fromkeys((*self.columns, *((self.sort,) if self.sort else ())))]

    def _ask(self, keys: Mapping[str, pa.Array], asking: Asking) -> tuple[Ints, pa.Table]:
        columns = self._asked
        if self.keys is None:
            rows = asking.ask(lambda: self.source.read(columns), "the whole table")
            return np.zeros(rows.num_rows, np.int64), rows
        equal, source = self.keys, cast(Queryable, self.source)
        count = len(next(iter(keys.values())))
        what = "one key" if count == 1 else f"{count:,} keys"
        numbers, rows = asking.ask(lambda: source.lookup(equal, columns, keys), what)
        return np.asarray(numbers, np.int64), rows

    def _check(self, numbers: Ints, rows: pa.Table, count: int) -> None:
        """Whether the table is still the one that the join was defined on."""
        check_unchanged(rows, self.table, self._asked, table=self.source.name)
        is_short = rows.num_columns and len(numbers) != rows.num_rows
        if is_short or (len(numbers) and not 0 <= numbers.min() <= numbers.max() < count):
            raise TableInvalid(
                self.source.name,
                f"its answer for {count} keys cannot be right",
                there=f"{len(numbers)} key numbers came with {rows.num_rows} rows",
                todo="lookup() must give one number of the keys it was asked for with each row.",
            )

    def _by_key(self, number: Ints, table: pa.Table, count: int) -> Answer:
        """The rows key by key, in their order or sorted; rows that no range can meet left out."""
        order, rows = None, np.arange(len(number))
        if self.sort is not None:
            assert self.scale is not None
            order, there = self.scale.numbers(_array(table, self.sort))
            rows = np.flatnonzero(there)
            rows = rows[np.lexsort((order[rows], number[rows]))]  # stable: equals as in the table
        elif len(number) and (np.diff(number) < 0).any():
            rows = np.argsort(number, kind="stable")
        columns = {name: _array(table, name) for name in self.columns}
        if len(rows) < len(number) or (np.diff(rows) != 1).any():
            index = pa.array(rows)
            columns = {name: column.take(index) for name, column in columns.items()}
            number = number[rows]
            order = None if order is None else order[rows]
        counts = np.bincount(number, minlength=count)
        start = np.cumsum(counts) - counts
        sizes = row_sizes(columns, len(number)) + (0 if order is None else order.itemsize)
        total = np.concatenate([[0.0], np.cumsum(sizes)])
        size = np.ceil(total[start + counts] - total[start]).astype(np.int64)
        return Answer(columns, order, start, counts, size)


class Fetch(threading.Thread):
    """A question that is being asked beside other work."""

    def __init__(
        self, question: Question, keys: Mapping[str, pa.Array], count: int, asking: Asking
    ) -> None:
        super().__init__(name="rivermouth-fetch", daemon=True)
        self._question, self._keys, self._count, self._asking = question, keys, count, asking
        self._answer: Answer | None = None
        self._error: Exception | None = None
        self.start()

    def run(self) -> None:
        """Ask, and keep what came of it."""
        try:
            self._answer = self._question.answered(self._keys, self._count, self._asking)
        except Exception as error:  # whatever it was, it is raised to who waits for the answer
            self._error = error

    def result(self) -> Answer | Exception:
        """The answer, or the error instead of it, once there is one."""
        self.join()
        found = self._answer or self._error
        assert found is not None
        return found


def _array(table: pa.Table, name: str) -> pa.Array:
    column = table.column(name).combine_chunks()
    if isinstance(column, pa.ChunkedArray):  # what older versions give
        return column.chunk(0) if column.num_chunks else pa.array([], column.type)
    return column
