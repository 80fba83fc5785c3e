"""The calls that a file declares, made: frames, tables and sinks; errors get the file's lines."""

from __future__ import annotations

import importlib
import inspect
import re
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from rivermouth.errors import RivermouthError
from rivermouth.pipelines.checking import Declared, Made, Name, references_in
from rivermouth.pipelines.kinds import FUNCTION
from rivermouth.pipelines.nodes import Mark, Mistake
from rivermouth.spark.runtime.pickling import pickle_by_value

_QUOTED = re.compile(r"'([^']+)'|`([^`]+)`")


class _Failed(Exception):
    """A call whose mistake was noted, or that needs one such."""


class Builder:
    """Makes each call of a pipeline once, in the order in which they need each other.

    Nothing runs: Spark is asked for schemas only.

    Parameters
    ----------
    declared
        What the file declares, without mistakes.
    spark
        The session.
    folder
        The file's, from which functions are imported, too.
    """

    def __init__(self, declared: Declared, spark: Any, folder: Path) -> None:
        self._declared, self._spark, self._folder = declared, spark, folder
        self._built: dict[tuple[str, str], Any] = {}
        self.mistakes: list[Mistake] = []

    def all(self) -> dict[str, Any]:
        """The sinks by name, those without mistakes; every call of the file is made."""
        for section, calls in self._declared.sections.items():
            for name in calls:
                try:
                    self._made(section, name)
                except _Failed:
                    continue
        of_sinks = {name: ("sinks", name) for name in self._declared.sections["sinks"]}
        return {name: self._built[key] for name, key in of_sinks.items() if key in self._built}

    def _made(self, section: str, name: str) -> Any:
        key = section, name
        if key not in self._built:
            self._built[key] = _Failed  # until it is known to be none
            self._built[key] = self._value(self._declared.sections[section][name])
        if self._built[key] is _Failed:
            raise _Failed
        return self._built[key]

    def _value(self, value: Any) -> Any:
        match value:
            case Name():
                found = self._declared.find(value.to, value.name)
                assert found is not None
                return self._made(found[0], value.name)
            case Made():
                return self._called(value)
            case tuple() | list():
                return type(value)(map(self._value, value))
            case dict():
                return {key: self._value(each) for key, each in value.items()}
        return value

    def _called(self, made: Made) -> Any:
        arguments = {name: self._value(each) for name, each in made.arguments.items()}
        with self._at(made):
            for parameter in made.function.parameters:
                if parameter.kind is FUNCTION and parameter.name in arguments:
                    arguments[parameter.name] = self._imported(arguments[parameter.name])
            call = made.function.call
            if "spark" in inspect.signature(call).parameters:
                return call(self._spark, **arguments)
            return call(**arguments)

    def _imported(self, path: str) -> Any:
        """A function that is written as ``module:name``; a module beside the file travels along."""
        name, _, function = path.partition(":")
        sys.path.insert(0, str(self._folder))
        try:
            module = importlib.import_module(name)
        finally:
            sys.path.remove(str(self._folder))
        if self._folder in Path(getattr(module, "__file__", None) or "/").parents:
            pickle_by_value(module)
        return getattr(module, function)

    @contextmanager
    def _at(self, made: Made) -> Iterator[None]:
        try:
            yield
        except _Failed:
            raise
        except Exception as error:
            text = str(error) if isinstance(error, RivermouthError) else _first_line(error)
            used = [self._declared.find(name.to, name.name) for name in references_in(made)]
            calls = [made, *(found[1] for found in used if found is not None)]
            self.mistakes.append(Mistake(_place(calls, text), text))
            raise _Failed from error


def _place(calls: list[Made], text: str) -> Mark:
    """Where the file has what an error of the first call speaks of.

    That is the first quoted word that is in the call, or in those that it uses; a path may be
    quoted with the folders that the file leaves out.
    """
    made = calls[0]
    nodes = [node for each in calls for node in each.node.walk()]
    scalars = [node for node in nodes if isinstance(node.value, str)]
    for one, other in _QUOTED.findall(text):
        quoted = one or other
        for node in scalars:
            if node.value == quoted or quoted.endswith(f"/{node.value.removeprefix('./')}"):
                return node.mark
    for entry in made.node.entries:
        if re.search(rf"\b{entry.key}\b", text):
            return entry.mark
    return made.mark


def _first_line(error: Exception) -> str:
    text = str(error).strip().splitlines()
    return f"{type(error).__name__}: {text[0] if text else ''}".rstrip(": ")
