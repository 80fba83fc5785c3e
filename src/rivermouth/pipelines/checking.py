"""A file against the catalog: every mistake with its line, and what is to be called."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from rivermouth.errors import DefinitionError, did_you_mean
from rivermouth.pipelines import kinds
from rivermouth.pipelines.catalog import Catalog, Function, Parameter, catalog
from rivermouth.pipelines.kinds import (
    DURATION,
    FLAG,
    NUMBER,
    PATH,
    TEXT,
    Call,
    Choice,
    Either,
    Items,
    Kind,
    Named,
    Reference,
    Scalar,
    Several,
    fits,
    words,
)
from rivermouth.pipelines.nodes import Entry, Mark, Mistake, Node, Parsed
from rivermouth.spec.durations import microseconds

#: section -> what it declares; frames are declared in two
SECTIONS = {
    "sources": "source", "tables": "table", "summaries": "summary", "steps": "step",
    "sinks": "sink",
}  # fmt: skip
#: what is said of the whole pipeline besides
SETTINGS: dict[str, Kind] = {
    "name": TEXT,
    "trigger": DURATION,
    "checkpoints": PATH,
    "spark": Named(Either((TEXT, NUMBER, FLAG))),
}
_REFERRED = {"frame": ("sources", "steps"), "table": ("tables",), "summary": ("summaries",)}


@dataclass(frozen=True)
class Name:
    """A reference to something that is declared in the file."""

    to: str
    name: str
    mark: Mark


@dataclass(frozen=True)
class Made:
    """A call that the file declares; `node` is where its arguments are."""

    function: Function
    arguments: Mapping[str, Any]
    mark: Mark
    node: Node


@dataclass
class Declared:
    """A pipeline as its file declares it: settings, and calls by section and name."""

    settings: dict[str, Any] = field(default_factory=dict)
    sections: dict[str, dict[str, Made]] = field(
        default_factory=lambda: {section: {} for section in SECTIONS}
    )

    def find(self, to: str, name: str) -> tuple[str, Made] | None:
        """The section and the call that a reference means."""
        for section in _REFERRED[to]:
            if name in self.sections[section]:
                return section, self.sections[section][name]
        return None


def check(parsed: Parsed, folder: Path) -> tuple[Declared, list[Mistake]]:
    """What a file declares, and all that is wrong with it as far as it can be seen in the file."""
    checker = _Checker(catalog(), folder)
    if parsed.root is not None:
        checker.document(parsed.root)
        checker.references()
    return checker.declared, sorted([*parsed.mistakes, *checker.mistakes])


class _Checker:
    def __init__(self, known: Catalog, folder: Path) -> None:
        self._known, self._folder = known, folder
        self.declared, self.mistakes = Declared(), list[Mistake]()
        self._names: dict[str, dict[str, Mark]] = {}  # of every section, also of wrong entries

    # -- the document

    def document(self, root: Node) -> None:
        if not root.is_mapping:
            self._wrong(root.mark, f"a pipeline has the sections {list(SECTIONS)}")
            return
        allowed = [*SETTINGS, *SECTIONS]
        for entry in root.entries:
            if entry.key in SETTINGS:
                kind = SETTINGS[entry.key]
                self.declared.settings[entry.key] = self._value(entry.value, kind, entry.key)
            elif entry.key in SECTIONS:
                self._section(entry)
            else:
                self._unknown(entry, allowed, "a pipeline")
        if not root.value.get("sinks"):
            self._wrong(root.mark, "it has no sinks, so that nothing would run")

    def _section(self, section: Entry) -> None:
        group = SECTIONS[section.key]
        self._names[section.key] = {}
        if not section.value.is_mapping:
            said = f"{section.key} is a mapping of names, but is {section.value.described()}"
            self._wrong(section.value.mark, said)
            return
        for entry in section.value.entries:
            self._names[section.key][entry.key] = entry.mark
            made = self._call(entry.value, group, entry.key, entry.mark)
            if made is not None:
                self.declared.sections[section.key][entry.key] = made
        both = set(self._names.get("sources", {})) & set(self._names.get("steps", {}))
        for name in both if section.key in _REFERRED["frame"] else ():
            mark = self._names[section.key][name]
            self._wrong(mark, f"{name!r} is a source and a step. Rename one of them.")

    # -- calls

    def _call(self, node: Node, group: str, at: str, mark: Mark) -> Made | None:
        """A call of one of the group's functions: ``name: arguments``, or the bare name."""
        functions = self._known[group]
        only = next(iter(functions.values())) if len(functions) == 1 else None
        if node.is_mapping and len(node.value) == 1:
            entry = node.entries[0]
            if entry.key in functions:
                return self._arguments(functions[entry.key], entry.value, entry.mark)
            if only is None:
                self._unknown(entry, functions, at, of=f"{group}s")
                return None
        if only is not None:
            return self._arguments(only, node, mark)
        if isinstance(node.value, str):
            if node.value in functions:
                return self._arguments(functions[node.value], Node({}, node.mark), node.mark)
            todo = did_you_mean(node.value, functions) or f"Use one of {sorted(functions)}."
            self._wrong(node.mark, f"{at} is {node.value!r}, which is not a {group}. {todo}")
            return None
        said = f"{at} is to be one of {sorted(functions)}, with its arguments"
        there = [entry.key for entry in node.entries] or node.described()
        self._wrong(node.mark, f"{said}, but is {there}")
        return None

    def _arguments(self, function: Function, node: Node, mark: Mark) -> Made | None:
        """The arguments of a call: by name, in a list by order, or only the first."""
        given: dict[str, tuple[Parameter, Node]] = {}
        for name, value, key_mark in self._bound(function, node):
            parameter = function.parameter(name)
            if parameter is None:
                entry = Entry(name, key_mark, value)
                self._unknown(entry, function.names, function.name, of="parameters")
            else:
                given[name] = parameter, value
        count = len(self.mistakes)
        for parameter in function.parameters:
            if parameter.is_required and parameter.name not in given:
                said = words(parameter.kind)
                self._wrong(mark, f"{function.name} needs {parameter.name!r}, {said}")
        arguments = {
            name: self._value(value, parameter.kind, f"{function.name}: {name}",
                              may_be_null=not parameter.is_required)
            for name, (parameter, value) in given.items()
        }  # fmt: skip
        return None if len(self.mistakes) > count else Made(function, arguments, mark, node)

    def _bound(self, function: Function, node: Node) -> Iterator[tuple[str, Node, Mark]]:
        names = function.names
        is_single = len(names) == 1 and function.others is None
        if node.is_mapping and not (is_single and node.value and names[0] not in node.value):
            for entry in node.entries:
                yield entry.key, entry.value, entry.mark
        elif node.is_list and not is_single:
            if len(node.value) > len(names):
                said = f"{function.name} takes at most {len(names)} values: {names}"
                self._wrong(node.value[len(names)].mark, said)
            for name, value in zip(names, node.value, strict=False):
                yield name, value, value.mark
        elif not node.is_null:
            if names:
                yield names[0], node, node.mark
            else:
                self._wrong(node.mark, f"{function.name} takes no arguments")

    # -- values

    def _value(self, node: Node, kind: Kind, at: str, *, may_be_null: bool = False) -> Any:
        if node.is_null and may_be_null:
            return None
        if isinstance(kind, Either):
            fitting = [each for each in kind.of if self._fits(each, node)]
            if fitting:
                return self._value(node, fitting[0], at)
        elif self._fits(kind, node):
            return self._fitting(node, kind, at)
        self._wrong(node.mark, f"{at} is to be {words(kind)}, but is {node.described()}")
        return None

    def _fits(self, kind: Kind, node: Node) -> bool:
        """Whether a value fits; a name that is declared is a reference, and no bare call."""
        if isinstance(kind, Call):
            is_single = len(self._known[kind.group]) == 1
            return fits(kind, node) or (is_single and node.is_list)
        return fits(kind, node)

    def _fitting(self, node: Node, kind: Kind, at: str) -> Any:
        """A value whose shape is right, its parts checked."""
        match kind:
            case Scalar():
                return self._scalar(node, kind, at)
            case Choice():
                return node.value
            case Items(of):
                return [self._value(each, of, at) for each in node.value]
            case Several(of):
                pairs = zip(node.value, of, strict=True)
                return tuple(self._value(each, kind, at) for each, kind in pairs)
            case Named(of):
                return {e.key: self._value(e.value, of, f"{at}.{e.key}") for e in node.entries}
            case Reference(to):
                return Name(to, node.value, node.mark)
            case Call(group):
                return self._call(node, group, at, node.mark)
        raise AssertionError(kind)

    def _scalar(self, node: Node, kind: Scalar, at: str) -> Any:
        if kind is DURATION:
            self._duration(node, at)
        if kind is PATH and "://" not in node.value:
            return os.fspath(self._folder / node.value)
        if kind is kinds.FUNCTION and node.value.count(":") != 1:
            self._wrong(node.mark, f"{at} is to be {kind.word}, but is {node.value!r}")
        if kind is kinds.ANYTHING:
            return _plain(node)
        return node.value

    def _duration(self, node: Node, at: str) -> None:
        try:
            microseconds(node.value, where=at)
        except DefinitionError as error:
            self._wrong(node.mark, str(error))

    # -- references

    def references(self) -> None:
        """Report names that nothing declares, and calls that need themselves."""
        for calls in self.declared.sections.values():
            for made in calls.values():
                for name in references_in(made):
                    self._reference(name)
        self._cycles()

    def _reference(self, name: Name) -> None:
        known = [each for section in _REFERRED[name.to] for each in self._names.get(section, ())]
        if name.name not in known:
            todo = did_you_mean(name.name, known)
            listed = f"The {name.to}s are {known}." if known else f"There are no {name.to}s."
            said = f"there is no {name.to} {name.name!r}. {todo or listed}"
            self._wrong(name.mark, said)

    def _cycles(self) -> None:
        done: set[tuple[str, str]] = set()

        def visit(section: str, name: str, path: tuple[tuple[str, str], ...]) -> None:
            here = (section, name)
            if here in path:
                names = [each for _, each in path[path.index(here) :]]
                mark = self._names[section][name]
                shown = " -> ".join([*names, name])
                self._wrong(mark, f"{name!r} needs itself: {shown}")
                done.update(path)
            if here in done:
                return
            for each in references_in(self.declared.sections[section][name]):
                found = self.declared.find(each.to, each.name)
                if found is not None:
                    visit(found[0], each.name, (*path, here))
            done.add(here)

        for section, calls in self.declared.sections.items():
            for name in calls:
                visit(section, name, ())

    # -- mistakes

    def _unknown(self, entry: Entry, allowed: Any, at: str, *, of: str = "keys") -> None:
        todo = did_you_mean(entry.key, allowed) or f"The {of} are {sorted(allowed)}."
        self._wrong(entry.mark, f"{at} has no {entry.key!r}. {todo}")

    def _wrong(self, mark: Mark, text: str) -> None:
        mistake = Mistake(mark, text if text.endswith((".", "?")) else f"{text}.")
        if mistake not in self.mistakes:
            self.mistakes.append(mistake)


def references_in(value: Any) -> Iterator[Name]:
    """The references in a call's arguments, also in calls among them."""
    match value:
        case Name():
            yield value
        case Made():
            yield from references_in(list(value.arguments.values()))
        case list() | tuple():
            for each in value:
                yield from references_in(each)
        case dict():
            yield from references_in(list(value.values()))


def _plain(node: Node) -> Any:
    if node.is_list:
        return [_plain(each) for each in node.value]
    if node.is_mapping:
        return {entry.key: _plain(entry.value) for entry in node.entries}
    return node.value
