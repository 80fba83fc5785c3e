"""What a user's function answered, as rows: checked, since nobody else will."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa

from rivermouth.errors import TableInvalid
from rivermouth.kernels.keys import key_index

_FORMS = (
    "Return a pyarrow.Table, a list of dicts with the columns {columns}, or a dict of such rows "
    "by key."
)


@dataclass(frozen=True)
class Promise:
    """What a service says of its answers.

    Parameters
    ----------
    name
        The service's, for messages.
    keys
        The columns by which it is asked.
    schema
        All columns, the keys among them.
    unique
        Whether there is at most one row of each key.
    """

    name: str
    keys: tuple[str, ...]
    schema: pa.Schema
    unique: bool

    def rows(self, answer: Any, asked: pa.Table) -> pa.Table:
        """The answer's rows in the promised types.

        Raises
        ------
        TableInvalid
            Where the answer is not what was promised.
        """
        if isinstance(answer, pa.RecordBatch):
            answer = pa.Table.from_batches([answer])
        if isinstance(answer, pa.Table):
            rows = self._table(answer)
        elif isinstance(answer, Mapping):
            rows = self._listed(self._by_key(answer))
        elif isinstance(answer, Iterable) and not isinstance(answer, (str, bytes)):
            rows = self._listed(answer)
        else:
            raise self._wrong(f"it returned {_shown(answer)}", _FORMS)
        self._check_keys(rows, asked)
        return rows

    def _table(self, answer: pa.Table) -> pa.Table:
        self._check_columns(answer.column_names, "a table")
        columns = [self._cast(answer.column(field.name), field) for field in self.schema]
        return pa.table(columns, schema=self.schema)

    def _by_key(self, answer: Mapping[Any, Any]) -> Iterator[Any]:
        """The rows of a dict, each with its key; None and an empty list are no row."""
        for key, found in answer.items():
            parts = key if isinstance(key, tuple) else (key,)
            if len(parts) != len(self.keys):
                raise self._wrong(
                    f"it returned a dict with the key {key!r}",
                    f"A key has the values of {list(self.keys)}, as a tuple where there are "
                    "several.",
                )
            rows = [] if found is None else [found] if isinstance(found, Mapping) else found
            if isinstance(rows, (str, bytes)) or not isinstance(rows, Iterable):
                raise self._wrong(
                    f"it returned {_shown(found)} for the key {key!r}",
                    "Return a dict with the row's columns, a list of such, or None.",
                )
            for row in rows:
                same = dict(zip(self.keys, parts, strict=True))
                yield {**same, **row} if isinstance(row, Mapping) else row

    def _listed(self, rows: Iterable[Any]) -> pa.Table:
        kept = list(rows)
        for row in kept:
            if not isinstance(row, Mapping):
                raise self._wrong(f"it returned {_shown(row)} as a row", _FORMS)
            self._check_columns(row, "a row")
        columns = [self._cast([row[field.name] for row in kept], field) for field in self.schema]
        return pa.table(columns, schema=self.schema)

    def _check_columns(self, names: Iterable[str], what: str) -> None:
        if missing := [name for name in self.schema.names if name not in set(names)]:
            raise self._wrong(
                f"it returned {what} without the columns {missing}; its columns are "
                f"{sorted(map(str, names))}",
                "Return them, null where there is no value, or leave them out of schema=.",
            )

    def _cast(self, values: Any, field: pa.Field) -> pa.ChunkedArray:
        try:
            if isinstance(values, pa.ChunkedArray):
                return values.cast(field.type)
            return pa.chunked_array([pa.array(values, field.type)], field.type)
        except (pa.ArrowException, TypeError, ValueError, OverflowError) as error:
            raise self._wrong(
                f"it returned values of column {field.name!r} that are no {field.type}: "
                f"{str(error).splitlines()[0]}",
                "Convert them in the function, or name their type in schema=.",
            ) from error

    def _check_keys(self, rows: pa.Table, asked: pa.Table) -> None:
        """Whether each row is of a key that was asked for, and where promised the only one."""
        keys = [rows.column(name).combine_chunks() for name in self.keys]
        index = key_index.build([asked.column(name).combine_chunks() for name in self.keys])
        group = index.lookup(keys)
        unknown = np.flatnonzero(group == key_index.NONE)
        if len(unknown):
            raise self._wrong(
                f"it returned a row of the key {_key(keys, unknown[0])}, which it was not asked "
                "for",
                f"Return rows with the values of {list(self.keys)} as they were given.",
            )
        twice = np.flatnonzero(np.bincount(group, minlength=1) > 1)
        if self.unique and len(twice):
            number = int(np.flatnonzero(group == twice[0])[0])
            raise self._wrong(
                f"it returned several rows of the key {_key(keys, number)}",
                "Return one, or say so: service(unique=False).",
            )

    def _wrong(self, there: str, todo: str) -> TableInvalid:
        return TableInvalid(
            self.name,
            "its function's answer cannot be used",
            there=there,
            todo=todo.format(columns=self.schema.names) if todo is _FORMS else todo,
        )


def _key(keys: Sequence[pa.Array], number: int) -> str:
    values = [column[int(number)].as_py() for column in keys]
    return repr(values[0]) if len(values) == 1 else repr(tuple(values))


def _shown(value: Any) -> str:
    text = repr(value)
    kind = type(value).__name__
    return text if value is None else f"{kind} {text if len(text) <= 60 else text[:57] + '...'}"
