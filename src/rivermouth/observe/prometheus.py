"""Metrics as Prometheus text, for those who gather numbers of many programs in one place."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

Metrics = Mapping[str, Any]
Sample = tuple[str, dict[str, str], float]

_SUMMED = ("rows_in", "rows_out", "matched", "unmatched", "late", "future", "seconds")
_QUERY_GAUGES = ("rows_per_second", "last_batch_seconds", "backlog")
#: which of a table's and a cache's numbers only grow
_TABLE = ("rows", "version", "age_seconds", "load_seconds")
_HELD = frozenset({"entries", "rows", "bytes", "workers", "hit_ratio"})


def text(numbers: Metrics, *, query: str) -> str:
    """The metrics of a query, one sample a line; `query` tells it from others.

    Examples
    --------
    >>> print(text({"batches": 2, "rows": 10, "operators": {}}, query="taxis"), end="")
    # TYPE rivermouth_batches counter
    rivermouth_batches{query="taxis"} 2
    # TYPE rivermouth_rows counter
    rivermouth_rows{query="taxis"} 10
    """
    return together([(query, numbers)])


def together(runs: Iterable[tuple[str, Metrics]]) -> str:
    """The metrics of several queries; samples of one name stand together, as the format asks."""
    lines: dict[str, list[str]] = {}
    kinds: dict[str, str] = {}
    for query, numbers in runs:
        for kind, (name, labels, value) in _samples(numbers):
            kinds[name] = kind
            lines.setdefault(name, []).append(_line(name, {"query": query, **labels}, value))
    return "".join(f"# TYPE {name} {kinds[name]}\n" + "".join(own) for name, own in lines.items())


def _samples(numbers: Metrics) -> Iterator[tuple[str, Sample]]:
    for name in ("batches", "rows"):
        yield "counter", (f"rivermouth_{name}", {}, numbers[name])
    for name in _QUERY_GAUGES:
        if numbers.get(name) is not None:
            yield "gauge", (f"rivermouth_{name}", {}, numbers[name])
    for quantile, seconds in (numbers.get("latency") or {}).items():
        labels = {"quantile": f"0.{quantile[1:]}"}
        yield "gauge", ("rivermouth_latency_seconds", labels, seconds)
    for name, value in (numbers.get("state") or {}).items():
        yield "gauge", (f"rivermouth_state_{name}", {}, value)
    for name in ("count", "answers") if numbers.get("corrections") else ():
        yield "counter", (f"rivermouth_corrections_{name}", {}, numbers["corrections"][name])
    for operator, entries in numbers["operators"].items():
        for kind, (name, labels, value) in _of_operator(entries):
            yield kind, (f"rivermouth_operator_{name}", {"operator": operator, **labels}, value)


def _of_operator(entries: Metrics) -> Iterator[tuple[str, Sample]]:
    for name in _SUMMED:
        if entries[name] is not None:
            yield "counter", (name, {}, entries[name])
    for reason, count in entries["rejected"].items():
        yield "counter", ("rejected", {"reason": reason}, count)
    for name, count in entries["counts"].items():
        yield "counter", ("count", {"name": name}, count)
    if entries["load_cv"] is not None:
        yield "gauge", ("load_cv", {}, entries["load_cv"])
    for name in _TABLE if entries["table"] else ():
        yield "gauge", (f"table_{name}", {}, entries["table"][name])
    cache = dict(entries["cache"] or {})
    for worker, held in cache.pop("per_worker", {}).items():
        for name, value in held.items():
            if value is not None:
                yield "gauge", (f"cache_worker_{name}", {"worker": worker}, value)
    for name, value in cache.items():
        if value is not None:
            yield "gauge" if name in _HELD else "counter", (f"cache_{name}", {}, value)
    for name, value in (entries["state"] or {}).items():
        yield "gauge", ("state", {"name": name}, value)
    for name, values in (entries["gauges"] or {}).items():
        for which, value in values.items():
            yield "gauge", ("gauge", {"name": name, "over": which}, value)


def _line(name: str, labels: Mapping[str, str], value: float) -> str:
    inside = ",".join(f'{key}="{_escaped(label)}"' for key, label in labels.items())
    return f"{name}{{{inside}}} {value}\n"


def _escaped(label: str) -> str:
    r"""A label's value as the format asks.

    Examples
    --------
    >>> print(_escaped('a "b"\n'))
    a \"b\"\n
    """
    return re.sub(r'[\\"]', r"\\\g<0>", label).replace("\n", r"\n")
