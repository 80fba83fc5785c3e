"""Windows recomputed from scratch, record by record: the slow and obvious truth."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from fractions import Fraction
from typing import Any

import numpy as np
import pyarrow as pa

from rivermouth.spec.aggregates import Aggregate, Standard
from rivermouth.spec.summaries import END, RECORDS, START, Summary

Row = Mapping[str, Any]
Key = tuple[Any, ...]


def recompute(rows: pa.Table, summary: Summary) -> dict[Key, dict[str, Any]]:
    """Each window that holds a record, by its group and start (microseconds since 1970).

    Its value has ``records`` and the aggregates. Times must not be null.

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
    for row, time in zip(rows.to_pylist(), micros, strict=True):
        key = tuple(_key(row[name]) for name in summary.by)
        for start in starts(time, summary):
            found.setdefault((*key, start), []).append(row)
    return {
        key: {RECORDS: len(held)} | {name: _value(each, held) for name, each in summary.aggregates}
        for key, held in found.items()
    }


def starts(time: int, summary: Summary) -> list[int]:
    """Where the windows that hold a time start."""
    every, size = summary.window.every_us, summary.window.size_us
    last = time // every * every
    return [start for start in range(last, last - size - every, -every) if start + size > time][
        ::-1
    ]


def answered(results: pa.Table, summary: Summary) -> dict[Key, dict[str, Any]]:
    """Rows that `aggregate` gave, in the form of `recompute`."""
    start = results.column(START).cast(pa.int64()).to_pylist()
    found = {}
    for row, begin in zip(results.to_pylist(), start, strict=True):
        key = (*(_key(row[name]) for name in summary.by), begin)
        assert key not in found, f"{key} was answered twice"
        found[key] = {name: row[name] for name in (RECORDS, *(n for n, _ in summary.aggregates))}
        assert END in row
    return found


def differences(
    found: Mapping[Key, Row], truth: Mapping[Key, Row], *, within: float = 1e-12
) -> list[str]:
    """Where two sets of windows differ, in words; doubles may by `within`, relatively."""
    said = [f"{key}: not answered" for key in truth if key not in found]
    said += [f"{key}: there is no such window" for key in found if key not in truth]
    for key in found.keys() & truth.keys():
        for name, value in truth[key].items():
            if not _equal(found[key][name], value, within):
                said.append(f"{key}: {name} is {found[key][name]!r}, not {value!r}")
    return said


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
    return bool(one == two)


def _value(aggregate: Aggregate, rows: Sequence[Row]) -> Any:
    if aggregate.column is None:
        return len(rows)
    values = [row[aggregate.column] for row in rows if row[aggregate.column] is not None]
    if isinstance(aggregate, Standard):
        return _STANDARD[aggregate.kind](values, aggregate.share)
    if not values:
        return None
    state = aggregate.lift(np.array(values[:1]))
    for value in values[1:]:
        state = aggregate.combine(state, aggregate.lift(np.array([value])))
    return aggregate.lower(state)[0].item()


def _sum(values: Sequence[Any]) -> Any:
    return sum(values) if values and not isinstance(values[0], float) else _fraction(values, 1)


def _mean(values: Sequence[Any]) -> float | None:
    return _fraction(values, len(values))


def _fraction(values: Sequence[Any], divisor: int) -> float | None:
    """The sum over a divisor, as the nearest double."""
    odd = [value for value in values if not math.isfinite(value)]
    if odd or not values:
        return sum(odd) if odd else None
    return _double(sum(map(Fraction, values), Fraction()) / divisor)


def _double(value: Fraction) -> float:
    try:
        return float(value)
    except OverflowError:
        return math.inf if value > 0 else -math.inf


def _variance(values: Sequence[Any]) -> float | None:
    doubles = [float(value) for value in values]
    if len(doubles) < 2:
        return None
    if not all(map(math.isfinite, doubles)):
        return math.nan
    exact, n = list(map(Fraction, doubles)), len(doubles)
    whole = sum(exact, Fraction())
    squares = sum((value * value for value in exact), Fraction())
    return _double((n * squares - whole * whole) / (n * (n - 1)))


def _deviation(values: Sequence[Any]) -> float | None:
    variance = _variance(values)
    return None if variance is None else math.sqrt(variance)


def _quantile(values: Sequence[Any], share: float) -> float | None:
    if not values:
        return None
    ordered = sorted((float(value) for value in values), key=_order)
    position = share * (len(ordered) - 1)
    lower = math.floor(position)
    part = position - lower
    if part == 0:
        return ordered[lower]
    return ordered[lower] * (1 - part) + ordered[lower + 1] * part


def _order(value: Any) -> Any:
    """A key that puts NaN behind all numbers."""
    is_nan = isinstance(value, float) and math.isnan(value)
    return (is_nan, 0 if is_nan else value)


def _extreme(choose: Callable[..., Any]) -> Callable[[Sequence[Any], Any], Any]:
    return lambda values, _: choose(values, key=_order) if values else None


def _distinct(values: Iterable[Any]) -> int:
    return len({_key(value) for value in values})


_STANDARD: dict[str, Callable[[Sequence[Any], Any], Any]] = {
    "sum": lambda values, _: _sum(values),
    "count": lambda values, _: len(values),
    "mean": lambda values, _: _mean(values),
    "min": _extreme(min),
    "max": _extreme(max),
    "var": lambda values, _: _variance(values),
    "std": lambda values, _: _deviation(values),
    "quantile": _quantile,
    "count_distinct": lambda values, _: _distinct(values),
}
