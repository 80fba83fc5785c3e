"""An index for equality of one or several columns: every distinct key of the table is a group."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numba
import numpy as np
import numpy.typing as npt
import pyarrow as pa

from rivermouth.errors import TableInvalid
from rivermouth.kernels.arrays import Codes, Ints, stable_order
from rivermouth.kernels.keys import dictionaries
from rivermouth.kernels.keys.dictionaries import (
    NONE,
    BytesDictionary,
    DenseDictionary,
    Dictionary,
    IntDictionary,
)
from rivermouth.kernels.keys.values import are_bytes, decoded, key_bytes, key_ints, missing

__all__ = ["NONE", "KeyIndex", "build", "from_arrays", "missing"]

Arrays = Mapping[str, npt.NDArray[np.generic]]

_HALF = 32  # bits: a group and a code, side by side in one number
_MOST = 2**31 - 2  # groups and rows are numbered in 32 bits


@dataclass(frozen=True)
class KeyIndex:
    """The groups of a table's keys; all arrays can be memory-mapped.

    Parameters
    ----------
    group
        The group of each table row, `NONE` where a key is null or NaN. Groups are numbered in
        the order in which their keys are first met.
    rows, start
        The rows of each group, in the table's order, and where each group starts in them.
    kinds
        The types of the table's key columns.
    columns
        The distinct values of each key column.
    steps
        The distinct pairs (group so far, value of the next column), one for each column but
        the first.
    """

    group: Codes
    rows: Codes
    start: Codes
    kinds: tuple[pa.DataType, ...]
    columns: tuple[Dictionary, ...]
    steps: tuple[DenseDictionary | IntDictionary, ...]

    @property
    def count(self) -> int:
        """How many distinct keys there are."""
        return len(self.start) - 1

    def arrays(self) -> dict[str, npt.NDArray[np.generic]]:
        """The index as named arrays."""
        kept: dict[str, npt.NDArray[np.generic]] = {
            "group": self.group, "rows": self.rows, "start": self.start
        }  # fmt: skip
        for what, forms in (("column", self.columns), ("step", self.steps)):
            for number, form in enumerate(forms):
                kept |= {f"{what}{number}.{name}": a for name, a in vars(form).items()}
        return kept

    def lookup(self, columns: Sequence[pa.Array]) -> Codes:
        """The group of each row of `columns`, `NONE` where no table row has that key."""
        group = np.empty(0, np.int32)
        for number, column in enumerate(columns):
            code = _lookup(self.columns[number], decoded(column), self.kinds[number])
            if number:
                code = self.steps[number - 1].lookup(_pairs(group, code))
            group = code
        group[missing(columns)] = NONE
        return group

    def expand(self, group: Codes) -> tuple[Ints, Ints]:
        """All pairs (position in `group`, table row) of the same key, by position then row."""
        if self.count == len(self.rows):
            known = np.flatnonzero(group >= 0)
            found = group[known]
            # where every row has a key of its own, it is numbered as its row is
            rows = found if self.count == len(self.group) else self.rows[found]
            return known, rows.astype(np.int64)
        return _expand(group, self.start, self.rows)


def build(columns: Sequence[pa.Array]) -> KeyIndex:
    """The groups of these key columns, row by row."""
    columns = [decoded(column) for column in columns]
    gone = missing(columns)
    if len(gone) > _MOST:
        raise TableInvalid(
            "keys", f"{len(gone):,} rows are more than one index can number",
            todo="Cut the table by its keys: cache=rm.full(buckets=...).",
        )  # fmt: skip
    there = np.flatnonzero(~gone)
    forms: list[Dictionary] = []
    steps: list[DenseDictionary | IntDictionary] = []
    code = np.empty(0, np.int32)
    kinds = tuple(column.type for column in columns)
    for number, column in enumerate(columns):
        form, one = _build(column if len(there) == len(column) else column.take(pa.array(there)))
        forms.append(form)
        if number:
            step, one = dictionaries.build_ints(_pairs(code, one))
            steps.append(step)
        code = one
    count = int(code.max(initial=NONE)) + 1
    order, start = stable_order(code, count)
    group = np.full(len(gone), NONE, np.int32)
    group[there] = code
    rows = there[order].astype(np.int32)
    return KeyIndex(group, rows, start.astype(np.int32), kinds, tuple(forms), tuple(steps))


def from_arrays(arrays: Arrays, kinds: Sequence[pa.DataType]) -> KeyIndex:
    """The index that `KeyIndex.arrays` was taken from, over key columns of these types."""
    plain = tuple(kind.value_type if pa.types.is_dictionary(kind) else kind for kind in kinds)

    def form(what: str) -> Dictionary:
        head = f"{what}."
        return dictionaries.from_arrays(
            {name.removeprefix(head): a for name, a in arrays.items() if name.startswith(head)}
        )

    return KeyIndex(
        arrays["group"], arrays["rows"], arrays["start"], plain,  # type: ignore[arg-type]
        tuple(form(f"column{number}") for number in range(len(plain))),
        tuple(form(f"step{number}") for number in range(len(plain) - 1)),  # type: ignore[misc]
    )  # fmt: skip


def _build(column: pa.Array) -> tuple[Dictionary, Codes]:
    if are_bytes(column.type):
        return dictionaries.build_bytes(*key_bytes(column))
    return dictionaries.build_ints(key_ints(column, column.type)[0])


def _lookup(form: Dictionary, column: pa.Array, kind: pa.DataType) -> Codes:
    if isinstance(form, BytesDictionary):
        return form.lookup(*key_bytes(column))
    values, has_form = key_ints(column, kind)
    code = form.lookup(values)
    if has_form is not None:
        code[~has_form] = NONE
    return code


def _pairs(group: Codes, code: Codes) -> Ints:
    """One number for a group and a code, `NONE` where either is."""
    both = (group.astype(np.int64) << _HALF) | code
    both[(group < 0) | (code < 0)] = NONE
    return both


@numba.njit(cache=True)
def _expand(group: Codes, start: Codes, rows: Codes) -> tuple[Ints, Ints]:
    total = 0
    for key in group:
        if key >= 0:
            total += start[key + 1] - start[key]
    left, right = np.empty(total, np.int64), np.empty(total, np.int64)
    at = 0
    for k in range(len(group)):
        key = group[k]
        if key >= 0:
            for place in range(start[key], start[key + 1]):
                left[at], right[at] = k, rows[place]
                at += 1
    return left, right
