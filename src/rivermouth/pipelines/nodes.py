"""YAML with marks: every value and key with its line and column.

Scalars are read as YAML 1.2 has them, since ``on`` is a parameter here and no boolean. Only plain
values are made, never objects. ``${NAME}`` in a text is an environment variable.
"""

from __future__ import annotations

import datetime as dt
import os
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from rivermouth.errors import SessionError

_MOST_NODES = 50_000  # a file that a person wrote has fewer; aliases can make more of it
_VARIABLE = re.compile(r"\$(\$)?\{([A-Za-z_][A-Za-z0-9_]*)\}")
_WHOLE = re.compile(r"[-+]?(0|[1-9][0-9]*)")
_REAL = re.compile(r"[-+]?([0-9]+\.[0-9]*|\.[0-9]+|[0-9]+)([eE][-+]?[0-9]+)?")
_DATE = re.compile(r"\d{4}-\d\d-\d\d")
_TIME = re.compile(r"\d{4}-\d\d-\d\d[T ]\d\d:\d\d(:\d\d.*)?")
_TAGS = {
    f"tag:yaml.org,2002:{name}"
    for name in ("str", "int", "float", "bool", "null", "timestamp", "seq", "map", "merge", "value")
}
_WORDS = {"": None, "~": None, "null": None, "true": True, "false": False}


@dataclass(frozen=True, order=True)
class Mark:
    """A place in the file, both counted from 1."""

    line: int
    column: int


@dataclass(frozen=True, order=True)
class Mistake:
    """What is wrong, and where."""

    mark: Mark
    text: str

    def __str__(self) -> str:
        return f"{self.mark.line}:{self.mark.column}: {self.text}"


@dataclass(frozen=True)
class Entry:
    """A key of a mapping, and its value."""

    key: str
    mark: Mark
    value: Node


@dataclass(frozen=True)
class Node:
    """A value of the file: a scalar, a tuple of nodes, or a tuple of entries.

    `text` is a scalar as it was written, variables replaced.
    """

    value: Any
    mark: Mark
    text: str = ""

    @property
    def is_mapping(self) -> bool:
        """Whether it has entries."""
        return isinstance(self.value, dict)

    @property
    def is_list(self) -> bool:
        """Whether it has items."""
        return isinstance(self.value, tuple)

    @property
    def is_null(self) -> bool:
        """Whether nothing was written."""
        return self.value is None

    @property
    def entries(self) -> list[Entry]:
        """Of a mapping."""
        return list(self.value.values()) if self.is_mapping else []

    def walk(self) -> Iterator[Node]:
        """Itself and all nodes below."""
        yield self
        below = self.value if self.is_list else [each.value for each in self.entries]
        for node in below:
            yield from node.walk()

    def described(self) -> str:
        """What it is, in a word or two."""
        if self.is_mapping:
            return "a mapping"
        if self.is_list:
            return "a list"
        return "nothing" if self.is_null else repr(self.value)


@dataclass
class Parsed:
    """A file's root, what is wrong with it, and the variables whose values nobody may see."""

    root: Node | None = None
    mistakes: list[Mistake] = field(default_factory=list)
    secrets: dict[str, str] = field(default_factory=dict)

    def redacted(self, text: str) -> str:
        """`text` with every variable's value replaced by its name."""
        for name, value in sorted(self.secrets.items(), key=lambda item: -len(item[1])):
            if value:
                text = text.replace(value, f"${{{name}}}")
        return text


def parse(text: str, environment: Mapping[str, str] | None = None) -> Parsed:
    """The values of a YAML text, or why it is none."""
    try:
        import yaml
    except ImportError as error:
        raise SessionError(
            "run",
            "PyYAML cannot be imported",
            there=str(error),
            todo="Install it: pip install 'rivermouth[pipelines]'.",
        ) from error
    reader = _Reader(os.environ if environment is None else environment)
    mistakes = reader.parsed.mistakes
    try:
        composed = yaml.compose(text, Loader=yaml.SafeLoader)
        if composed is None:
            mistakes.append(Mistake(Mark(1, 1), "the file is empty"))
        else:
            reader.parsed.root = reader.node(composed)
    except yaml.MarkedYAMLError as error:
        found = error.problem_mark or error.context_mark
        mark = Mark(found.line + 1, found.column + 1) if found is not None else Mark(1, 1)
        said = "; ".join(part for part in (error.problem, error.context) if part)
        mistakes.append(Mistake(mark, f"this is no YAML: {said}"))
    except yaml.YAMLError as error:
        mistakes.append(Mistake(Mark(1, 1), f"this is no YAML: {error}"))
    except (_TooMuch, RecursionError):
        said = "it contains itself, or its aliases make it too large"
        mistakes.append(Mistake(Mark(1, 1), said))
    return reader.parsed


class _TooMuch(Exception):
    pass


class _Reader:
    def __init__(self, environment: Mapping[str, str]) -> None:
        self.parsed, self._environment, self._count = Parsed(), environment, 0

    def node(self, composed: Any) -> Node:
        self._count += 1
        if self._count > _MOST_NODES:
            raise _TooMuch
        mark = _mark(composed)
        if composed.tag not in _TAGS:
            self._wrong(mark, f"the tag {composed.tag} is not known. Leave it out.")
        if composed.id == "sequence":
            return Node(tuple(self.node(item) for item in composed.value), mark)
        if composed.id == "mapping":
            return Node(self._entries(composed), mark)
        text = self._substituted(composed.value, mark)
        return Node(_scalar(text) if composed.style is None else text, mark, text)

    def _entries(self, composed: Any) -> dict[str, Entry]:
        found: dict[str, Entry] = {}
        for key, value in composed.value:
            mark = _mark(key)
            name = key.value if key.id == "scalar" else None
            if name is None:
                self._wrong(mark, "a key must be a word.")
            elif name in found:
                there = found[name].mark.line
                self._wrong(mark, f"{name!r} is given twice, first in line {there}.")
            else:
                found[name] = Entry(name, mark, self.node(value))
        return found

    def _substituted(self, text: str, mark: Mark) -> str:
        def value(match: re.Match[str]) -> str:
            escaped, name = match.groups()
            if escaped:
                return f"${{{name}}}"
            if name not in self._environment:
                self._wrong(mark, f"the environment has no variable {name}. Set it.")
                return match[0]
            self.parsed.secrets[name] = self._environment[name]
            return self._environment[name]

        return _VARIABLE.sub(value, text)

    def _wrong(self, mark: Mark, text: str) -> None:
        self.parsed.mistakes.append(Mistake(mark, text))


def _mark(composed: Any) -> Mark:
    return Mark(composed.start_mark.line + 1, composed.start_mark.column + 1)


def _scalar(text: str) -> Any:
    """A plain scalar's value, by YAML 1.2's core schema, and dates."""
    if text.lower() in _WORDS:
        return _WORDS[text.lower()]
    if _WHOLE.fullmatch(text):
        return int(text)
    if _REAL.fullmatch(text) and not text.lstrip("-+").startswith("0" * 2):
        return float(text)
    try:
        if _DATE.fullmatch(text):
            return dt.date.fromisoformat(text)
        if _TIME.fullmatch(text):
            return dt.datetime.fromisoformat(text)
    except ValueError:
        pass
    return text
