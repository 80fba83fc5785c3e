"""The identity of what is persisted: canonical JSON, independent of names in the code.

State, snapshots, routing rules, caches and stores belong to a definition: a condition, a summary,
a table's columns. `describe` says what a value means in tags that never change, `identity` makes
one text of it, `digest` a short name for folders. Renaming a class or a field changes none of them.

The first version used ``repr()`` instead. `text_v1` writes what it wrote, so that a checkpoint or
a store of that time is still recognised as this query's own; snapshots and routing rules of that
time are made anew.
"""

from __future__ import annotations

import datetime as dt
import hashlib
import json
from decimal import Decimal
from typing import Any, NamedTuple

from rivermouth.spec.aggregates import Standard
from rivermouth.spec.conditions import (
    All,
    AsOf,
    Between,
    DWithin,
    Keys,
    Nearest,
    Point,
    Topology,
)
from rivermouth.spec.preferences import Preference
from rivermouth.spec.summaries import Summary
from rivermouth.spec.windows import Session, Window

#: raised when the same definition is described in other words
VERSION = 2

_MICROSECOND = dt.timedelta(microseconds=1)
_SHOWN = 3  # differences in a message

#: tag -> the class and the fields by which the first version's ``repr()`` showed it
_V1 = {
    "aggregate": ("Standard", "kind column share"),
    "dwithin": ("Near", "left right limit metric"),
    "grid": ("Grid", "buckets cell spread"),
    "interval": ("Interval", "lower upper"),
    "keys": ("Equal", "pairs"),
    "nearest": ("Nearest", "left right k metric limit"),
    "point": ("Point", "x y"),
    "routing": ("Routing", "grid single reach"),
    "summary": ("Summary", "by time window aggregates"),
    "topology": ("Topology", "predicate left right pattern"),
    "window": ("Window", "size every"),
    "windows": ("Windows", "size every early"),
}


class Described(NamedTuple):
    """A value as a tag and its parts, in a fixed order."""

    tag: str
    parts: tuple[Any, ...]


def describe(value: Any) -> Any:
    """What `value` means: scalars and tuples as they are, definitions as `Described`."""
    match value:
        case Described(tag, parts):
            return Described(tag, tuple(map(describe, parts)))
        case Point(x, y):
            return Described("point", (x, y))
        case Keys(pairs):
            return Described("keys", (pairs,))
        case Topology():
            named = (value.predicate, describe(value.left), describe(value.right), value.pattern)
            return Described("topology", named)
        case DWithin():
            sides = (describe(value.left), describe(value.right))
            return Described("dwithin", (*sides, value.limit, value.metric))
        case Nearest():
            sides = (describe(value.left), describe(value.right))
            return Described("nearest", (*sides, value.k, value.metric, value.limit))
        case Between():
            return Described("between", (value.left, value.right, value.lower, value.upper))
        case AsOf(left, right):
            return Described("asof", (left, right))
        case All(keys, search):
            return Described("all", (describe(keys), describe(search)))
        case Window(size, every, start) if start:
            return Described("window_from", (size, every, start))
        case Window(size, every):
            return Described("window", (size, every))
        case Session(gap):
            return Described("session", (gap,))
        case Standard():
            return Described("aggregate", (value.kind, value.column, value.share))
        case Preference(by, columns, k):
            return Described("preference", (by, columns, k))
        case Summary(by, time, window, aggregates):
            made = tuple((name, _aggregate(each)) for name, each in aggregates)
            return Described("summary", (by, time, describe(window), made))
        case tuple() | list():
            return type(value)(map(describe, value))
    return value


def _aggregate(value: Any) -> Any:
    """An aggregate of the user's own is known by its ``repr()``, which is the user's to keep."""
    is_ours = isinstance(value, (Standard, Preference))
    return describe(value) if is_ours else Described("udaf", (repr(value),))


def identity(**parts: Any) -> str:
    """One line of canonical JSON: equal exactly where all parts mean the same.

    Examples
    --------
    >>> identity(on=Keys((("city", "city"),)), buckets=8)
    '{"buckets":8,"on":{"keys":[[["city","city"]]]},"version":2}'
    """
    return json.dumps(
        {"version": VERSION, **{name: _plain(describe(part)) for name, part in parts.items()}},
        sort_keys=True,
        separators=(",", ":"),
    )


def _plain(value: Any) -> Any:
    match value:
        case Described(tag, parts):
            return {tag: list(map(_plain, parts))}
        case tuple() | list():
            return list(map(_plain, value))
        case dt.timedelta():
            return {"us": value // _MICROSECOND}
        case Decimal():
            return {"decimal": str(value)}
    return value


def digest(text: str) -> str:
    """A name for a folder: 24 hexadecimal digits of the text's SHA-256."""
    return hashlib.sha256(text.encode()).hexdigest()[:24]


def text_v1(value: Any) -> str:
    """How the first version wrote `value`: the ``repr()`` of its classes.

    Examples
    --------
    >>> text_v1(Keys((("city", "city"),)))
    "Equal(pairs=(('city', 'city'),))"
    """
    match describe(value):
        case Described("udaf", (text,)):
            return str(text)
        case Described(tag, parts):
            if tag not in _V1:  # the first version had no such thing, and no text equals this one
                return f"{tag}{text_v1(parts)}"
            name, fields = _V1[tag]
            shown = zip(fields.split(), map(text_v1, parts), strict=True)
            return f"{name}({', '.join(f'{field}={text}' for field, text in shown)})"
        case tuple() as parts:
            inner = ", ".join(map(text_v1, parts))
            return f"({inner},)" if len(parts) == 1 else f"({inner})"
        case plain:
            return repr(plain)


def summary_v1(summary: Summary) -> str:
    """How the first version's stores showed a summary; it had no sessions and no `start`."""
    if isinstance(summary.window, Session) or summary.window.start:
        return str(summary)
    made = ", ".join(f"{name}={_shown_v1(each)}" for name, each in summary.aggregates)
    return f"{made} by {list(summary.by)} over {summary.window.size} every {summary.window.every}"


def _shown_v1(aggregate: Any) -> str:
    if not isinstance(aggregate, Standard):
        return repr(aggregate)
    column = "" if aggregate.column is None else repr(aggregate.column)
    return f"{aggregate.kind}({column}{'' if aggregate.share is None else f', {aggregate.share}'})"


def differences(found: str, wanted: str) -> str:
    """What two identities differ in, for a message: the parts' names, and both values.

    A text that is no identity, as the first version wrote them, is shown whole.

    Examples
    --------
    >>> differences(identity(on=Keys((("city", "city"),))), identity(on=Keys((("city", "town"),))))
    'its keys is "city", here "town"'
    """
    try:
        pairs = _unequal("definition", json.loads(found), json.loads(wanted))
    except ValueError:
        return f"it was made for {found}"
    return "; ".join(
        f"its {name} is {_shown(old)}, here {_shown(new)}" for name, old, new in pairs[:_SHOWN]
    ) + (" and more" if len(pairs) > _SHOWN else "")


def _unequal(name: str, old: Any, new: Any) -> list[tuple[str, Any, Any]]:
    """The smallest parts that differ, each with the name that is nearest to it."""
    if old == new:
        return []
    if isinstance(old, dict) and isinstance(new, dict) and old.keys() == new.keys() != {"us"}:
        return [each for key in old for each in _unequal(key, old[key], new[key])]
    if isinstance(old, list) and isinstance(new, list) and len(old) == len(new):
        return [each for pair in zip(old, new, strict=True) for each in _unequal(name, *pair)]
    return [(name, old, new)]


def _shown(value: Any) -> str:
    if isinstance(value, dict) and value.keys() == {"us"}:
        return str(value["us"] * _MICROSECOND)
    return json.dumps(value, ensure_ascii=False)
