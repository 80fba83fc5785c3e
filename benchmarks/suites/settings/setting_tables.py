"""The tables of settings: each beside the baseline of its micro-batches."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from benchmarks.harness.formatting import Cells, Document
from benchmarks.suites.reliability import soak_tables
from benchmarks.suites.settings.setting_cases import (
    BASELINES,
    LARGE,
    OPERATORS,
    SMALL,
    STATELESS,
    WITH_STATE,
)

Row = Mapping[str, Any]

LABELS = {plan: f'`rm.join_table`, `plan="{plan}"`' for plan in STATELESS} | soak_tables.LABELS
_MEASURES = {"cpu_ms": "CPU, ms", "batch_ms": "time, ms"}


def changelog(result: Document) -> Cells:
    """With the changelog and without: CPU, time, files and bytes."""
    kinds = {"with": BASELINES[SMALL], "without": "no changelog"}
    measures = _MEASURES | {"files": "files", "bytes": "KB"}
    return _beside(result, WITH_STATE, kinds, measures, SMALL)


def partitions(result: Document) -> Cells:
    """Two shuffle partitions, and more."""
    kinds = {"2": BASELINES[SMALL], "8": "8 partitions", "32": "32 partitions"}
    return _beside(result, WITH_STATE, kinds, _MEASURES, SMALL)


def python(result: Document) -> Cells:
    """How rows reach the workers: as Spark does it, pipelined, by Unix domain sockets."""
    kinds = {"default": BASELINES[LARGE]} | {name: name for name in ("pipelined", "domain sockets")}
    return _beside(result, OPERATORS, kinds, _MEASURES, LARGE)


def asynchronous(result: Document) -> Cells:
    """Progress written before a micro-batch ends, and beside it; what Spark refuses."""
    kinds = {"default": BASELINES[SMALL], "asynchronous": "asynchronous"}
    measures = _MEASURES | {"files": "files"}
    return _beside(result, OPERATORS, kinds, measures, SMALL)


def _beside(
    result: Document,
    operators: Sequence[str],
    kinds: Mapping[str, str],
    measures: Mapping[str, str],
    rows: int,
) -> Cells:
    """A line an operator; each measure in each setting, the first being what others are to."""
    of = {(row["setting"], row["operator"]): row for row in result["rows"]}
    first, *others = kinds.values()
    head = [f"a micro-batch of {rows:,} rows"]
    head += [f"{name}: {kind}" for name in measures.values() for kind in kinds]
    lines = []
    for operator in operators:
        base = of.get((first, operator))
        if base is None:
            continue
        line = [LABELS[operator]]
        for name in measures:
            line.append(_figure(base, name))
            line += [_to(of.get((other, operator)), base, name) for other in others]
        lines.append(line)
    return [head, *lines]


def _figure(row: Row, name: str) -> str:
    """The median, and the smallest and the largest run where there are several."""
    low, high = row["spread"][name]
    brackets = f" ({_number(low, name)}-{_number(high, name)})" if low < high else ""
    return f"{_number(row[name], name)}{brackets}"


def _to(row: Row | None, base: Row, name: str) -> str:
    """A figure, and how much more it is than the baseline's."""
    if row is None:
        return ""
    if "refused" in row:
        return "refused by Spark"
    if name not in row:
        return ""
    return f"{_figure(row, name)} {100 * (row[name] / base[name] - 1):+.0f} %"


def _number(value: float, name: str) -> str:
    if name == "bytes":
        return f"{value / 1000:,.0f}" if value >= 10_000 else f"{value / 1000:.1f}"
    return f"{value:.1f}" if name == "files" else f"{value:,.0f}"
