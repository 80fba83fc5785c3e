"""The joins of two streams as slow, obvious code: what the fast ones must give.

All rows are taken to be on time. Meant to be read and believed.
"""

from __future__ import annotations

import datetime as dt
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Literal

from rivermouth.spec.conditions import Condition, Nearest, split
from rivermouth.spec.durations import Duration, microseconds
from rivermouth.spec.windows import Window
from rivermouth.testing.oracle import Row, matches

How = Literal["inner", "left", "right", "full", "semi", "anti"]
_US = dt.timedelta(microseconds=1)


def join_interval(
    left: Sequence[Row],
    right: Sequence[Row],
    *,
    on: Condition,
    time: str | tuple[str, str],
    between: tuple[Duration, Duration],
    how: How = "inner",
    columns: Sequence[str] | Mapping[str, str] = (),
) -> list[Row]:
    """The rows that ``rivermouth.join_interval`` must give, in no particular order.

    Examples
    --------
    >>> from rivermouth import dwithin, point
    >>> at = dt.datetime(2026, 1, 1, 12)
    >>> calls = [{"who": "ann", "at": at, "x": 0.0, "y": 0.0}]
    >>> cabs = [{"cab": cab, "at": at - dt.timedelta(minutes=cab), "x": 0.0, "y": 1.0}
    ...         for cab in (1, 2, 3)]
    >>> rows = join_interval(
    ...     calls, cabs, on=dwithin(point("x", "y"), point("x", "y"), distance=2), time="at",
    ...     between=("-2 minutes", "0 seconds"), columns=["cab"],
    ... )
    >>> [(row["who"], row["cab"]) for row in rows]
    [('ann', 2), ('ann', 1)]
    """
    ours, theirs = (time, time) if isinstance(time, str) else time
    lower, upper = (microseconds(end, where="between") for end in between)
    known = _in_order(right, theirs)
    joined = []
    for row in left:
        if row[ours] is not None:
            there = [r for r in known if lower <= (r[theirs] - row[ours]) // _US <= upper]
            joined += _joined(row, there, on, how, columns, {})
    if how in ("right", "full"):
        for other in known:
            here = [
                row for row in left
                if row[ours] is not None and lower <= (other[theirs] - row[ours]) // _US <= upper
            ]  # fmt: skip
            joined += _right_alone(left, here, other, on, columns, {})
    return joined


def join_window(
    left: Sequence[Row],
    right: Sequence[Row],
    *,
    on: Condition,
    time: str | tuple[str, str],
    window: Window,
    how: How = "inner",
    columns: Sequence[str] | Mapping[str, str] = (),
) -> list[Row]:
    """The rows that ``rivermouth.join_window`` must give, in no particular order."""
    ours, theirs = (time, time) if isinstance(time, str) else time
    known = _in_order(right, theirs)
    joined = []
    for row in left:
        if row[ours] is not None:
            for start in _starts(row[ours], window):
                end = start + window.size
                there = [r for r in known if start <= r[theirs] < end]
                bounds = {"window_start": start, "window_end": end}
                joined += _joined(row, there, on, how, columns, bounds)
    if how in ("right", "full"):
        for other in known:
            for start in _starts(other[theirs], window):
                end = start + window.size
                here = [row for row in left if row[ours] is not None and start <= row[ours] < end]
                bounds = {"window_start": start, "window_end": end}
                joined += _right_alone(left, here, other, on, columns, bounds)
    return joined


def _starts(time: dt.datetime, window: Window) -> list[dt.datetime]:
    """The starts of all windows that contain `time`, newest first."""
    zero = dt.datetime(1970, 1, 1, tzinfo=time.tzinfo) + window.start
    start = zero + (time - zero) // window.every * window.every
    starts = []
    while time < start + window.size:
        starts.append(start)
        start -= window.every
    return starts


def _in_order(rows: Iterable[Row], time: str) -> list[Row]:
    """Rows that have a time: older ones first, those of the same time by their values, nulls last.

    That is the order in which `nearest` takes rows at the same distance.
    """

    def rank(row: Row) -> list[Any]:
        return [
            row[time],
            *((value is None, 0 if value is None else value) for value in row.values()),
        ]

    return sorted((row for row in rows if row[time] is not None), key=rank)


def _right_alone(
    left: Sequence[Row],
    here: Sequence[Row],
    other: Row,
    on: Condition,
    columns: Sequence[str] | Mapping[str, str],
    bounds: Row,
) -> list[Row]:
    """A right row that no left row here matches, with nulls; `left` has at least one row."""
    if any(matches(row, [other], on, only_points=False) for row in here):
        return []
    brought = {new: other[old] for new, old in _brought(columns).items()}
    return [{**dict.fromkeys(left[0]), **brought, **bounds}]


def _brought(columns: Sequence[str] | Mapping[str, str]) -> Mapping[str, str]:
    """The right side's columns in the result, new name to old."""
    return columns if isinstance(columns, Mapping) else {name: name for name in columns}


def _joined(
    row: Row,
    there: Sequence[Row],
    on: Condition,
    how: How,
    columns: Sequence[str] | Mapping[str, str],
    bounds: Row,
) -> list[Row]:
    found: Sequence[tuple[Row, float | None]] = matches(row, there, on, only_points=False)
    if how in ("semi", "anti"):
        return [{**row, **bounds}] if bool(found) == (how == "semi") else []
    if how in ("left", "full") and not found:
        found = [({}, None)]
    spatial = split(on).spatial
    return [
        {
            **row,
            **{new: other.get(old) for new, old in _brought(columns).items()},
            **({spatial.name: distance} if isinstance(spatial, Nearest) else {}),
            **bounds,
        }
        for other, distance in found
    ]
