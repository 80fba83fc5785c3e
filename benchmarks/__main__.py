"""One command for all benchmarks: ``python -m benchmarks [NAME [OPTIONS]]``; without one, a list.

Each writes ``benchmarks/results/NAME.json``; ``report`` puts the results into the pages.
"""

from __future__ import annotations

import importlib
import runpy
import sys

SUITES = {
    "table_join": (
        "stream_table",
        "shapes",
        "memory",
        "latency",
        "observing",
        "changes",
        "near_shapes",
        "plans",
        "plan_floors",
        "grids",
        "large_tables",
    ),
    "keys": ("equality", "ranges", "range_latency", "lookups", "ordered"),
    "cache": ("incremental", "cache"),
    "routing": ("routing", "routing_hosts"),
    "stream_join": ("stream_stream", "stream_latency"),
    "aggregation": ("sliding", "corrections"),
    "fences": ("fences", "fence_state"),
    "trips": ("second_opinion", "trip_state"),
    "reliability": ("soak",),
    "settings": ("settings",),
    "spatialbench": ("spatialbench",),
    "nexmark": ("nexmark",),
}
MODULES = {
    **{name: f"benchmarks.suites.{room}.{name}" for room in SUITES for name in SUITES[room]},
    **{
        name: f"benchmarks.papers.{name}"
        for name in ("shares", "workloads", "workload_hosts", "out_of_order", "paper_b", "promise")
    },
    "report": "benchmarks.harness.report",
}


def main() -> None:
    """Run the benchmark that the command line names."""
    if len(sys.argv) < 2 or sys.argv[1] not in MODULES:
        for name, module in MODULES.items():
            first = (importlib.import_module(module).__doc__ or "").partition("\n")[0]
            print(f"{name:16}{first}")
        sys.exit(0 if len(sys.argv) < 2 or sys.argv[1] in ("-h", "--help") else 2)
    name = sys.argv.pop(1)
    runpy.run_module(MODULES[name], run_name="__main__", alter_sys=True)


if __name__ == "__main__":
    main()
