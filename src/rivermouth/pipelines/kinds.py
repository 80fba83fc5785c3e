"""What a parameter takes, read off its annotation: in words, as JSON schema, and by shape."""

from __future__ import annotations

import collections.abc
import datetime as dt
import os
import types
import typing
from collections.abc import Mapping
from dataclasses import dataclass
from decimal import Decimal
from typing import Any

from rivermouth.pipelines.nodes import Node


@dataclass(frozen=True)
class Scalar:
    """A value of one of Python's own types; `name` is JSON schema's."""

    name: str
    word: str


TEXT = Scalar("string", "text")
WHOLE = Scalar("integer", "a whole number")
NUMBER = Scalar("number", "a number")
FLAG = Scalar("boolean", "true or false")
NULL = Scalar("null", "nothing")
DURATION = Scalar("string", "a length of time, such as '5 minutes'")
PATH = Scalar("string", "a path")
FUNCTION = Scalar("string", "a function, written as module:name")
ANYTHING = Scalar("", "a value")


@dataclass(frozen=True)
class Choice:
    """One of some words."""

    values: tuple[Any, ...]


@dataclass(frozen=True)
class Items:
    """A list of any length."""

    of: Kind


@dataclass(frozen=True)
class Several:
    """A list of a fixed length."""

    of: tuple[Kind, ...]


@dataclass(frozen=True)
class Named:
    """A mapping of names."""

    of: Kind


@dataclass(frozen=True)
class Either:
    """One of several kinds, the first that fits."""

    of: tuple[Kind, ...]


@dataclass(frozen=True)
class Reference:
    """The name of something that is declared elsewhere in the file: a frame, table or summary."""

    to: str


@dataclass(frozen=True)
class Call:
    """A call of one of a group's functions."""

    group: str


Kind = Scalar | Choice | Items | Several | Named | Either | Reference | Call

#: by the name of a class in an annotation
_CLASSES: dict[str, Kind] = {
    "str": TEXT,
    "int": WHOLE,
    "float": NUMBER,
    "bool": FLAG,
    "NoneType": NULL,
    "Any": ANYTHING,
    "Condition": Call("condition"),
    "Keys": Call("condition"),
    "Topology": Call("condition"),
    "DWithin": Call("condition"),
    "Nearest": Call("condition"),
    "Full": Call("cache"),
    "Incremental": Call("cache"),
    "External": Call("cache"),
    "Cheapest": Call("plan"),
    "ByHash": Call("routing"),
    "ByHotspot": Call("routing"),
    "Fixed": Call("slack"),
    "MaxDelay": Call("slack"),
    "Quality": Call("slack"),
    "Window": Call("window"),
    "Session": Call("window"),
    "Grid": Call("grid"),
    "Changes": Call("changes"),
    "Point": Call("geometry"),
    "Standard": Call("aggregate"),
    "Preference": Call("aggregate"),
    "Summary": Either((Reference("summary"), Call("summary"))),
    "DataFrame": Reference("frame"),
    "Source": Either((Reference("table"), Call("table"))),
    "Upserting": Either((Reference("table"), Call("table"))),
}
#: what a file cannot hold, and another member of the union can
_LEFT_OUT = (dt.timedelta, Decimal, bytes, type(Ellipsis))
_UNIONS = (typing.Union, types.UnionType)
_CALLABLE: tuple[Any, ...] = (collections.abc.Callable,)


def kind_of(hint: Any) -> Kind:
    """The kind that an annotation means; an unknown one is a `LookupError`."""
    origin, parts = typing.get_origin(hint), typing.get_args(hint)
    if origin in _UNIONS:
        return _union(parts)
    if origin is typing.Literal:
        return Choice(parts)
    if origin is tuple:
        if len(parts) == 2 and parts[1] is Ellipsis:
            return Items(kind_of(parts[0]))
        return Several(tuple(map(kind_of, parts)))
    if origin in _CALLABLE or hint in _CALLABLE:
        return FUNCTION
    if isinstance(origin, type) and issubclass(origin, collections.abc.Mapping):
        return Named(kind_of(parts[1]))
    if isinstance(origin, type) and issubclass(origin, collections.abc.Sequence):
        return Items(kind_of(parts[0]))
    return _CLASSES[getattr(hint, "__name__", str(hint))]


def _union(parts: tuple[Any, ...]) -> Kind:
    texts = {str: TEXT}
    if dt.timedelta in parts:
        texts = {str: DURATION}
    if any(typing.get_origin(part) is os.PathLike for part in parts):
        texts = {str: PATH}
    kinds: list[Kind] = []
    for part in parts:
        is_path = typing.get_origin(part) is os.PathLike
        is_protocol = getattr(part, "__name__", "") == "Aggregator"
        if part in _LEFT_OUT or is_path or is_protocol or typing.get_origin(part) in _CALLABLE:
            continue
        kind = texts[str] if part is str else kind_of(part)
        kinds += [each for each in _members(kind) if each not in kinds]
    if WHOLE in kinds and NUMBER in kinds:
        kinds.remove(WHOLE)
    return kinds[0] if len(kinds) == 1 else Either(tuple(kinds))


def _members(kind: Kind) -> tuple[Kind, ...]:
    return kind.of if isinstance(kind, Either) else (kind,)


def fits(kind: Kind, node: Node) -> bool:
    """Whether a value has the shape of a kind; what is inside it may still be wrong."""
    value = node.value
    match kind:
        case Scalar():
            return _is(kind, node)
        case Choice(values):
            return value in values and type(value) in {type(each) for each in values}
        case Items():
            return node.is_list
        case Several(of):
            return node.is_list and len(value) == len(of)
        case Named():
            return node.is_mapping
        case Either(of):
            return any(fits(each, node) for each in of)
        case Reference():
            return isinstance(value, str)
        case Call():
            return node.is_mapping or isinstance(value, str)
    raise AssertionError(kind)


def _is(kind: Scalar, node: Node) -> bool:
    value = node.value
    if kind is ANYTHING:
        return True
    if kind is WHOLE:
        return isinstance(value, int) and not isinstance(value, bool)
    if kind is NUMBER:
        return isinstance(value, (int, float)) and not isinstance(value, bool)
    if kind is FLAG:
        return isinstance(value, bool)
    if kind is NULL:
        return value is None
    return isinstance(value, str)


def words(kind: Kind) -> str:
    """What a kind is, as a message has it."""
    match kind:
        case Scalar():
            return kind.word
        case Choice(values):
            return "one of " + ", ".join(map(repr, values))
        case Items(of):
            return f"a list of {words(of)}"
        case Several(of):
            return f"a list of {len(of)}: " + ", ".join(map(words, of))
        case Named(of):
            return f"a mapping of names to {words(of)}"
        case Either(of):
            shown = [words(each) for each in of if each is not NULL]
            return " or ".join(dict.fromkeys(shown))
        case Reference(to):
            return f"the name of a {to}"
        case Call(group):
            return f"a {group}"
    raise AssertionError(kind)


def schema(kind: Kind) -> dict[str, Any]:
    """A kind as JSON schema; groups are definitions of their own."""
    match kind:
        case Scalar():
            return _described(kind)
        case Choice(values):
            return {"enum": list(values)}
        case Items(of):
            return {"type": "array", "items": schema(of)}
        case Several(of):
            parts = [schema(each) for each in of]
            return {"type": "array", "prefixItems": parts, "minItems": len(of),
                    "maxItems": len(of)}  # fmt: skip
        case Named(of):
            return {"type": "object", "additionalProperties": schema(of)}
        case Either(of):
            return {"anyOf": [schema(each) for each in of]}
        case Reference(to):
            return {"type": "string", "description": f"The name of a {to} of this file."}
        case Call(group):
            return {"$ref": f"#/$defs/{group}"}
    raise AssertionError(kind)


def _described(kind: Scalar) -> dict[str, Any]:
    if kind is ANYTHING:
        return {}
    said: Mapping[str, str] = (
        {"description": f"{kind.word[0].upper()}{kind.word[1:]}."}
        if kind in (DURATION, PATH, FUNCTION)
        else {}
    )
    return {"type": kind.name, **said}
