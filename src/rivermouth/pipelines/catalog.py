"""What can be declared: the library's functions in groups, their parameters by their signatures."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import rivermouth as rm
from rivermouth.pipelines import sinks, sources, steps
from rivermouth.pipelines.kinds import Call, Kind, Reference, kind_of
from rivermouth.spec.durations import Duration
from rivermouth.spec.filters import Where

#: the operators, by group; other names of ``rm`` are grouped by what they return
_OPERATORS = {
    "step": (
        *("join_table", "join_interval", "join_window", "aggregate", "fence_events", "trips"),
        *("rejected", "compact", "correct"),
    ),
    "sink": ("exact",),
    "summary": ("summary",),
}
#: how several conditions are combined: ``all: [{keys: city}, {within: ...}]``
ALL = "all"
#: parameters that are the runner's and not the file's
_GIVEN = ("spark",)
#: what an annotation cannot say
_KINDS: dict[tuple[str, str], Kind] = {
    ("frame", "df"): Reference("frame"),
    ("exact", "sink"): Reference("table"),
    ("exact", "history"): Reference("frame"),
    ("summary", "aggregates"): Call("aggregate"),
}
#: names that modules import for type checkers alone
_NAMES: dict[str, Any] = {
    "DataFrame": type("DataFrame", (), {}),
    "Duration": Duration,
    "Where": Where,
    "Schema": Mapping[str, str],
    "Callable": Callable,
    "Sequence": Sequence,
    "Mapping": Mapping,
}


@dataclass(frozen=True)
class Parameter:
    """A parameter of a function that can be declared."""

    name: str
    kind: Kind
    is_required: bool
    about: str = ""


@dataclass(frozen=True)
class Function:
    """A function that can be declared.

    `others` is what any other name takes, where the function has such parameters.
    """

    name: str
    group: str
    parameters: tuple[Parameter, ...]
    others: Kind | None
    about: str
    call: Callable[..., Any]

    @property
    def names(self) -> list[str]:
        """The parameters' names, in the order in which a list gives them."""
        return [each.name for each in self.parameters]

    def parameter(self, name: str) -> Parameter | None:
        """The parameter of this name."""
        found = next((each for each in self.parameters if each.name == name), None)
        if found is None and self.others is not None:
            return Parameter(name, self.others, False)
        return found


Catalog = Mapping[str, Mapping[str, Function]]


@functools.cache
def catalog() -> Catalog:
    """All functions that can be declared, by group and name."""
    made: dict[str, dict[str, Function]] = {}
    for group, names in _OPERATORS.items():
        made[group] = {name: _function(getattr(rm, name), group) for name in names}
    for name in rm.__all__:
        function = getattr(rm, name)
        if getattr(function, "__module__", "").startswith("rivermouth.spec."):
            returned = _hints(function)["return"]
            if isinstance(kind := kind_of(returned), Call):
                made.setdefault(kind.group, {})[name] = _function(function, kind.group)
    made["changes"] = {
        name: _function(getattr(rm.changes, name), "changes")
        for name in ("files", "delta", "debezium", "polling")  # feed() takes an object of Python
    }
    made["condition"][ALL] = _function(steps.both, "condition", name=ALL)
    made["table"] = {
        name: _function(getattr(rm.tables, name), "table")
        for name in rm.tables.__all__
        if name.islower() and name != "geometry_field"
    }
    made["source"] = {name: _function(getattr(sources, name), "source") for name in sources.NAMES}
    made["step"] |= {name: _function(getattr(steps, name), "step") for name in steps.NAMES}
    made["sink"] |= {name: _function(getattr(sinks, name), "sink") for name in sinks.NAMES}
    return made


def _function(function: Callable[..., Any], group: str, *, name: str | None = None) -> Function:
    name = name or function.__name__
    hints = _hints(function)
    parameters, others, said = [], None, _said(function)
    for each in inspect.signature(function).parameters.values():
        if each.name in _GIVEN:
            continue
        try:
            kind = _KINDS.get((name, each.name)) or kind_of(hints[each.name])
        except LookupError:  # what only Python can give, such as a class of another's
            continue
        if each.kind is inspect.Parameter.VAR_KEYWORD:
            others = kind
        else:
            is_required = each.default is inspect.Parameter.empty
            parameters.append(Parameter(each.name, kind, is_required, said.get(each.name, "")))
    about = inspect.cleandoc(function.__doc__ or "").partition("\n")[0]
    return Function(name, group, tuple(parameters), others, about, function)


def _hints(function: Callable[..., Any]) -> dict[str, Any]:
    return inspect.get_annotations(function, locals=_Names(function), eval_str=True)


class _Names(dict[str, Any]):
    """Names of annotations that a module does not have when it runs; what none has is Any."""

    def __init__(self, function: Callable[..., Any]) -> None:
        self._known = inspect.unwrap(function).__globals__

    def __missing__(self, name: str) -> Any:
        if name in self._known or name in self._known["__builtins__"]:
            raise KeyError(name)
        return _NAMES.get(name, Any)


def _said(function: Callable[..., Any]) -> dict[str, str]:
    """What a docstring in numpy's style says of each parameter."""
    lines = inspect.cleandoc(function.__doc__ or "").splitlines()
    found: dict[str, str] = {}
    if "Parameters" not in lines:
        return found
    names: list[str] = []
    for number in range(lines.index("Parameters") + 2, len(lines)):
        line = lines[number]
        if number + 1 < len(lines) and lines[number + 1].startswith("---"):
            break
        if line and not line.startswith(" "):
            names = [name.strip() for name in line.split(",")]
        for name in names if line.startswith(" ") else ():
            found[name] = f"{found.get(name, '')} {line.strip()}".strip()
    return found
