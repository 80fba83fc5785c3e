"""rivermouth: where streams meet tables, on Apache Spark.

Names are loaded when they are first used (PEP 562): workers import this package too, and need
only its lower layers.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from rivermouth import errors, tables, testing
    from rivermouth.errors import RivermouthError
    from rivermouth.observe import plot
    from rivermouth.observe.metrics import metrics
    from rivermouth.observe.notebook.show import show
    from rivermouth.observe.watch import watch
    from rivermouth.spark.aggregate import aggregate, rejected
    from rivermouth.spark.correct import correct
    from rivermouth.spark.correct_log import compact, correct_fence_events, correct_trips
    from rivermouth.spark.exact.job import exact
    from rivermouth.spark.fence_events import fence_events
    from rivermouth.spark.join_streams import join_interval, join_window
    from rivermouth.spark.join_table import join_table
    from rivermouth.spark.register import register
    from rivermouth.spark.snapshot import snapshot
    from rivermouth.spark.trips import trips
    from rivermouth.spec import changes
    from rivermouth.spec.aggregates import (
        count,
        count_distinct,
        max,  # noqa: A004
        mean,
        median,
        min,  # noqa: A004
        quantile,
        std,
        sum,  # noqa: A004
        var,
    )
    from rivermouth.spec.caches import external, full, incremental
    from rivermouth.spec.conditions import (
        asof,
        between,
        contains,
        covered_by,
        covers,
        crosses,
        disjoint,
        dwithin,
        equals,
        intersects,
        keys,
        nearest,
        overlaps,
        point,
        relate,
        touches,
        within,
    )
    from rivermouth.spec.grids import grid
    from rivermouth.spec.plans import cheapest
    from rivermouth.spec.preferences import skyline, top
    from rivermouth.spec.routing import by_hash, by_hotspot
    from rivermouth.spec.slack import fixed, max_delay, quality
    from rivermouth.spec.summaries import summary
    from rivermouth.spec.windows import session, sliding, tumbling

__version__ = "0.1.0"

_NAMES = {
    "RivermouthError": "rivermouth.errors",
    **dict.fromkeys(("aggregate", "rejected"), "rivermouth.spark.aggregate"),
    "correct": "rivermouth.spark.correct",
    **dict.fromkeys(
        ("compact", "correct_fence_events", "correct_trips"), "rivermouth.spark.correct_log"
    ),
    "exact": "rivermouth.spark.exact.job",
    "fence_events": "rivermouth.spark.fence_events",
    "grid": "rivermouth.spec.grids",
    **dict.fromkeys(("join_interval", "join_window"), "rivermouth.spark.join_streams"),
    "join_table": "rivermouth.spark.join_table",
    "metrics": "rivermouth.observe.metrics",
    "show": "rivermouth.observe.notebook.show",
    "register": "rivermouth.spark.register",
    "snapshot": "rivermouth.spark.snapshot",
    "trips": "rivermouth.spark.trips",
    "watch": "rivermouth.observe.watch",
    **dict.fromkeys(  # what %load_ext and %unload_ext look for
        ("load_ipython_extension", "unload_ipython_extension"),
        "rivermouth.observe.notebook.extension",
    ),
    **dict.fromkeys(("external", "full", "incremental"), "rivermouth.spec.caches"),
    **dict.fromkeys(
        (
            *("asof", "between"),
            *("contains", "covered_by", "covers", "crosses", "disjoint", "dwithin"),
            *("equals", "intersects", "keys", "nearest", "overlaps", "point", "relate", "touches"),
            "within",
        ),
        "rivermouth.spec.conditions",
    ),
    **dict.fromkeys(
        (
            *("count", "count_distinct", "max", "mean", "median", "min", "quantile", "std"),
            *("sum", "var"),
        ),
        "rivermouth.spec.aggregates",
    ),
    "cheapest": "rivermouth.spec.plans",
    **dict.fromkeys(("skyline", "top"), "rivermouth.spec.preferences"),
    **dict.fromkeys(("by_hash", "by_hotspot"), "rivermouth.spec.routing"),
    **dict.fromkeys(("fixed", "max_delay", "quality"), "rivermouth.spec.slack"),
    "summary": "rivermouth.spec.summaries",
    **dict.fromkeys(("session", "sliding", "tumbling"), "rivermouth.spec.windows"),
}
_MODULES = {
    "changes": "rivermouth.spec.changes",
    "errors": "rivermouth.errors",
    "plot": "rivermouth.observe.plot",
    "tables": "rivermouth.tables",
    "testing": "rivermouth.testing",
}

__all__ = [
    "RivermouthError",
    "aggregate",
    "asof",
    "between",
    "by_hash",
    "by_hotspot",
    "changes",
    "cheapest",
    "compact",
    "contains",
    "correct",
    "correct_fence_events",
    "correct_trips",
    "count",
    "count_distinct",
    "covered_by",
    "covers",
    "crosses",
    "disjoint",
    "dwithin",
    "equals",
    "errors",
    "exact",
    "external",
    "fence_events",
    "fixed",
    "full",
    "grid",
    "incremental",
    "intersects",
    "join_interval",
    "join_table",
    "join_window",
    "keys",
    "max",
    "max_delay",
    "mean",
    "median",
    "metrics",
    "min",
    "nearest",
    "overlaps",
    "plot",
    "point",
    "quality",
    "quantile",
    "register",
    "rejected",
    "relate",
    "session",
    "show",
    "skyline",
    "sliding",
    "snapshot",
    "std",
    "sum",
    "summary",
    "tables",
    "testing",
    "top",
    "touches",
    "trips",
    "tumbling",
    "var",
    "watch",
    "within",
]


def __getattr__(name: str) -> Any:
    if name in _MODULES:
        return importlib.import_module(_MODULES[name])
    if name in _NAMES:
        if _NAMES[name].startswith("rivermouth.spark."):
            importlib.import_module("rivermouth.spark.runtime.versions").installed()
        return getattr(importlib.import_module(_NAMES[name]), name)
    raise AttributeError(f"module 'rivermouth' has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
