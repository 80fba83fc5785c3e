"""Windows recomputed from scratch, record by record: a slow and obvious oracle."""

from __future__ import annotations

import functools
import math
import operator
from collections.abc import Mapping, Sequence
from fractions import Fraction
from typing import Any

import numpy as np
import pyarrow as pa

from rivermouth.spec.aggregates import Aggregate, Standard
from rivermouth.spec.preferences import Preference
from rivermouth.spec.summaries import END, RECORDS, START, Summary
from rivermouth.spec.windows import Session, Window

Row = Mapping[str, Any]
Key = tuple[Any, ...]


def recompute(rows: pa.Table, summary: Summary) -> dict[Key, dict[str, Any]]:
    """Each window that holds a record, by its group and start (microseconds since 1970).

    A session is known by its end, too, which is last. Its value has ``records`` and the
    aggregates. Times must not be null.

    Examples
    --------
    >>> import rivermouth as rm
    >>> rows = pa.table({"at": pa.array([0, 3, 9], pa.timestamp("us")), "v": [1, 2, 4]})
    >>> s = rm.summary(time="at", window=rm.tumbling("8 microseconds"), total=rm.sum("v"))
    >>> recompute(rows, s)
    {(0,): {'records': 2, 'total': 3}, (8,): {'records': 1, 'total': 4}}
    """
    micros = rows.column(summary.time).cast(pa.int64()).to_pylist()
    found: dict[Key, list[Row]] = {}
    at: dict[Key, list[tuple[int, Row]]] = {}
    for row, time in zip(rows.to_pylist(), micros, strict=True):
        key = tuple(_key(row[name]) for name in summary.by)
        if isinstance(summary.window, Session):
            at.setdefault(key, []).append((time, row))
            continue
        for start in starts(time, summary):
            found.setdefault((*key, start), []).append(row)
    for key, timed in at.items():
        found |= _sessions(key, sorted(timed, key=operator.itemgetter(0)), summary)
    return {
        key: {RECORDS: len(members)}
        | {name: _value(each, members) for name, each in summary.aggregates}
        for key, members in found.items()
    }


def _sessions(key: Key, timed: Sequence[tuple[int, Row]], summary: Summary) -> dict[Key, list[Row]]:
    """The sessions of a group's records, which are sorted by time."""
    assert isinstance(summary.window, Session)
    gap, runs = summary.window.gap_us, [[timed[0]]]
    for one in timed[1:]:
        if one[0] - runs[-1][-1][0] < gap:
            runs[-1].append(one)
        else:
            runs.append([one])
    return {(*key, run[0][0], run[-1][0] + gap): [row for _, row in run] for run in runs}


def starts(time: int, summary: Summary) -> list[int]:
    """Where the windows that hold a time start."""
    assert isinstance(summary.window, Window)
    every, size, zero = summary.window.every_us, summary.window.size_us, summary.window.start_us
    last = (time - zero) // every
    possible = [zero + k * every for k in range(last - size // every, last + 1)]
    return [start for start in possible if start + size > time]


def by_window(results: pa.Table, summary: Summary) -> dict[Key, dict[str, Any]]:
    """Results of `aggregate`, in the form of `recompute`."""
    bounds = [results.column(name).cast(pa.int64()).to_pylist() for name in (START, END)]
    known_by = 2 if isinstance(summary.window, Session) else 1
    found = {}
    for row, *at in zip(results.to_pylist(), *bounds, strict=True):
        key = (*(_key(row[name]) for name in summary.by), *at[:known_by])
        assert key not in found, f"{key} was emitted twice"
        found[key] = {name: row[name] for name in (RECORDS, *(n for n, _ in summary.aggregates))}
    return found


def differences(
    found: Mapping[Key, Row], truth: Mapping[Key, Row], *, within: float = 1e-12
) -> list[str]:
    """Where two sets of windows differ, as text; doubles may by `within`, relatively."""
    texts = [f"{key}: not emitted" for key in truth if key not in found]
    texts += [f"{key}: there is no such window" for key in found if key not in truth]
    for key in found.keys() & truth.keys():
        for name, value in truth[key].items():
            if not _equal(found[key][name], value, within):
                texts.append(f"{key}: {name} is {found[key][name]!r}, not {value!r}")
    return texts


def _key(value: Any) -> Any:
    """A group's value such that equal groups are equal here, too: NaN is one, -0.0 is 0.0."""
    if isinstance(value, float):
        return "NaN" if math.isnan(value) else value + 0.0
    return value


def _equal(one: Any, two: Any, within: float) -> bool:
    if isinstance(one, float) and isinstance(two, float):
        if math.isnan(one) or math.isnan(two):
            return math.isnan(one) and math.isnan(two)
        return one == two or math.isclose(one, two, rel_tol=within)
    if isinstance(one, list) and isinstance(two, list):
        pairs = zip(one, two, strict=False)
        return len(one) == len(two) and all(_equal(a, b, within) for a, b in pairs)
    if isinstance(one, dict) and isinstance(two, dict):
        return one.keys() == two.keys() and all(_equal(one[n], two[n], within) for n in one)
    return bool(one == two)


def _value(aggregate: Aggregate, rows: Sequence[Row]) -> Any:
    if isinstance(aggregate, Preference):
        return _preferred(aggregate, rows)
    if aggregate.column is None:
        return len(rows)
    values = [row[aggregate.column] for row in rows if row[aggregate.column] is not None]
    if isinstance(aggregate, Standard):
        return _standard(aggregate, values)
    if not values:
        return None
    state = aggregate.lift(np.array(values[:1]))
    for value in values[1:]:
        state = aggregate.combine(state, aggregate.lift(np.array([value])))
    return aggregate.lower(state)[0].item()


def _preferred(aggregate: Preference, rows: Sequence[Row]) -> list[Row] | None:
    """The first k by all columns, or those that none dominates."""
    compared = [row for row in rows if all(row[name] is not None for name, _ in aggregate.by)]

    def is_worse(row: Row, other: Row, name: str, goal: str) -> bool:
        one, two = _order(row[name]), _order(other[name])
        return bool(one > two if goal == "min" else one < two)

    def dominates(one: Row, other: Row) -> bool:
        return any(is_worse(other, one, *each) for each in aggregate.by) and not any(
            is_worse(one, other, *each) for each in aggregate.by
        )

    def compare(one: Row, other: Row) -> int:
        for name, goal in aggregate.by:
            if is_worse(one, other, name, goal) or is_worse(other, one, name, goal):
                return 1 if is_worse(one, other, name, goal) else -1
        for name in aggregate.columns:
            if (one[name] is None) != (other[name] is None):
                return 1 if one[name] is None else -1
            if one[name] is not None and _order(one[name]) != _order(other[name]):
                return 1 if _order(one[name]) > _order(other[name]) else -1
        return 0

    if aggregate.k is None:
        compared = [row for row in compared if not any(dominates(other, row) for other in compared)]
    best = sorted(compared, key=functools.cmp_to_key(compare))[: aggregate.k]
    return [{name: row[name] for name in aggregate.columns} for row in best] or None


def _standard(aggregate: Standard, values: Sequence[Any]) -> Any:
    match aggregate.kind:
        case "count":
            return len(values)
        case "count_distinct":
            return len({_key(value) for value in values})
    if not values:
        return None
    match aggregate.kind:
        case "sum":
            return _quotient(values, 1) if isinstance(values[0], float) else sum(values)
        case "mean":
            return _quotient(values, len(values))
        case "min":
            return min(values, key=_order)
        case "max":
            return max(values, key=_order)
        case "var" | "std" if len(values) < 2:
            return None
        case "var":
            return _variance(list(map(float, values)))
        case "std":
            return math.sqrt(_variance(list(map(float, values))))
        case "quantile":
            return _quantile(sorted(map(float, values), key=_order), aggregate.share or 0.0)


def _quotient(values: Sequence[Any], divisor: int) -> float:
    """The sum over a divisor, as the nearest double."""
    if odd := [value for value in values if not math.isfinite(value)]:
        return float(sum(odd))
    return _double(sum(map(Fraction, values), Fraction()) / divisor)


def _double(value: Fraction) -> float:
    try:
        return float(value)
    except OverflowError:
        return math.inf if value > 0 else -math.inf


def _variance(values: Sequence[float]) -> float:
    if not all(map(math.isfinite, values)):
        return math.nan
    exact, n = list(map(Fraction, values)), len(values)
    squares = sum((value * value for value in exact), Fraction())
    return _double((n * squares - sum(exact, Fraction()) ** 2) / (n * (n - 1)))


def _quantile(ordered: Sequence[float], share: float) -> float:
    position = share * (len(ordered) - 1)
    lower = math.floor(position)
    part = position - lower
    if part == 0:
        return ordered[lower]
    return ordered[lower] * (1 - part) + ordered[lower + 1] * part


def _order(value: Any) -> Any:
    """A key that puts NaN behind all numbers."""
    if isinstance(value, str):
        value = value.encode()  # texts are ordered by their bytes
    is_nan = isinstance(value, float) and math.isnan(value)
    return (is_nan, 0 if is_nan else value)
