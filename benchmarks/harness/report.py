"""The results as Markdown tables and plots: ``python -m benchmarks report [--check]``.

Between ``<!-- bench:NAME -->`` and ``<!-- /bench -->`` the README and pages of docs/ show what
the JSONs say; this command writes it there and draws the plots. With ``--check`` nothing is
written, and a page that says something else than the JSONs is a failure.
"""

from __future__ import annotations

import argparse
import json
import re
from collections.abc import Callable, Sequence
from pathlib import Path

from benchmarks.harness import bars, peers
from benchmarks.harness.experiment import RESULTS, ROOT
from benchmarks.harness.formatting import Cells, Document, number, only, spread
from benchmarks.papers import disorder_tables as disorder
from benchmarks.papers import promise_report
from benchmarks.papers.paper_b import tables as paper_b
from benchmarks.suites.fences import fence_tables
from benchmarks.suites.keys import key_tables as keyed
from benchmarks.suites.nexmark import nexmark_tables
from benchmarks.suites.reliability import fault_tables, soak_tables
from benchmarks.suites.routing import hosts_tables, routing_tables
from benchmarks.suites.settings import setting_tables
from benchmarks.suites.spatialbench import spatialbench_tables
from benchmarks.suites.stream_join import join_tables
from benchmarks.suites.table_join import plan_tables, shape_tables
from benchmarks.suites.trips import trip_tables

IMAGES = ROOT / "docs" / "img"
#: the pages, and where the plots are as seen from them
PAGES = {
    ROOT / "README.md": "docs/img",
    ROOT / "docs" / "benchmarks.md": "img",
    ROOT / "docs" / "caches.md": "img",
    ROOT / "docs" / "changes.md": "img",
    ROOT / "docs" / "cluster.md": "img",
    ROOT / "docs" / "corrections.md": "img",
    ROOT / "docs" / "fences.md": "img",
    ROOT / "docs" / "late-data.md": "img",
    ROOT / "docs" / "peers.md": "img",
    ROOT / "docs" / "paper-a.md": "img",
    ROOT / "docs" / "paper-b.md": "img",
    ROOT / "docs" / "plans.md": "img",
    ROOT / "docs" / "routing.md": "img",
    ROOT / "docs" / "settings.md": "img",
    ROOT / "docs" / "trips.md": "img",
}
#: tables that have a plot of their name, and what it shows
PICTURES = {
    "figure11": "Points per second of the plain loop, the R-tree and rivermouth",
    "routing_time": "Load CV and load per partition in each micro-batch, hot keys moving twice",
    "routing_hosts_caches": "Load CV, hit ratio, throughput and latency against the skew",
    "routing_hosts_moves": "Load CV and throughput in each micro-batch, hot keys moving once",
    "recall_hosts": "Speed-up against hosts",
    "traffic_hosts": "Speed-up against hosts",
    "slices_hosts": "Speed-up against hosts",
    "changes": "Freshness, points per second and memory over ten minutes of changes",
    "growth": "Points per second against the table's rows and the polygons' vertices",
    "phones_curve": "Mean latency against eps for the two streams of phones",
    "promise": "Share of windows missed on each stream, by slack, and mean K to max_delay's",
    "recall_growth": "Time per 10,000 records against the rows of each table",
    "traffic_growth": "Time per 10,000 records against the rows of each table",
    "hit_ratios": "Hit ratio against the part of the keys that is held",
    "paper_b_buffer": "K over event time, of four ways to wait",
    "paper_b_accuracy": "Share of the answers within eps over the time of the run",
    "paper_b_latency": "Mean latency of rm.exact and of MP-K-slack",
    "paper_b_scale": "Rows per second against hosts of a quarter core",
    "soak": "Time, CPU, state, memory and files over 2,000 micro-batches",
    "stream_stream_growth": "Input rows per second against cores, interval, cell, bin and batch",
}
BLOCK = re.compile(r"(<!-- bench:(\w+) -->\n).*?(<!-- /bench -->)", re.DOTALL)

LABELS = {
    "scan": "Spark reads, nothing else",
    "identity": "identity `mapInArrow`",
    "identity_with_district": "identity `mapInArrow` that adds a string column",
    "workers": '**rivermouth**, `plan="workers"`',
    "native": '**rivermouth**, `plan="native"`',
    "rtree": "the paper's two-level R-tree, as our index",
    "loop_over_batch": "plain loop, each polygon over a batch (shapely)",
    "loop_over_records": "plain loop, each record over the polygons (shapely)",
    "subdivided": "Sedona, polygons subdivided",
    "whole": "Sedona, polygons whole",
    "paper_rtree": "the paper: two-level R-tree on Flink",
    "paper_loop": "the paper: plain loop on Flink (a ninth of its R-tree)",
    "question": "**rivermouth**, one mapped snapshot",
    "own_copy": "a table and a shapely tree in each worker",
}


def stream_table(result: Document) -> Cells:
    """CPU time on two cores, beside the floor that any Python join has."""
    rows = [row for row in result["rows"] if row["cores"] == 2]
    floor = only(rows, case="identity_with_district")["cpu_s_per_million"]
    size = number(rows[0]["rows"] / rows[0]["batches"])
    return [
        [
            f"T-Drive x 16 districts, 2 cores, {size} rows a micro-batch",
            "CPU-s per million rows",
            "to identity",
            "points/s",
        ],
        *(
            [
                LABELS[row["case"]],
                f"{row['cpu_s_per_million']:.2f} {spread(row, 'cpu_s_per_million')}",
                f"{row['cpu_s_per_million'] / floor:.2f}",
                number(row["points_per_s"]),
            ]
            for row in rows
            if not row["case"].startswith(("loop", "rtree"))
        ),
    ]


def figure11(result: Document) -> Cells:
    """Throughput on one core and on two, and the paper's own."""
    cases = ("paper_loop", "loop_over_records", "loop_over_batch", "paper_rtree", "rtree")
    head = ["Paper C, Figure 11: points/s", "1 core", "2 cores", "speed-up"]
    return [head, *(_cores(result, case) for case in (*cases, "workers", "native"))]


def _cores(result: Document, case: str) -> list[str]:
    of = {row["cores"]: row["points_per_s"] for row in result["rows"] if row["case"] == case}
    speedup = f"{of[2] / of[1]:.2f}" if len(of) == 2 else ""
    return [LABELS[case], *(number(of.get(cores)) for cores in (1, 2)), speedup]


def shapes_in_spark(result: Document) -> Cells:
    """The same as streams."""
    return [
        ["as a stream, two cores", "CPU-s per million points", "points/s"],
        *(
            [
                LABELS.get(row["case"], row["case"]),
                f"{row['cpu_s_per_million']:.2f} {spread(row, 'cpu_s_per_million')}",
                number(row["points_per_s"]),
            ]
            for row in result["rows"]
        ),
    ]


def memory(result: Document) -> Cells:
    """What the workers of a session hold together."""
    polygons = result["rows"][0]["table_rows"]
    return [
        [f"two workers, {polygons:,} polygons", "together (PSS)", "private", "RSS, summed"],
        *(
            [
                LABELS[row["case"]],
                *(f"{row[f'{kind}_mb']:,.0f} MB" for kind in ("pss", "private", "rss")),
            ]
            for row in result["rows"]
        ),
    ]


def changes(result: Document) -> Cells:
    """A table that follows changes beside one that stays, and one that is read anew."""
    first = result["rows"][0]
    return [
        [
            f"{first['table_rows']:,} polygons, 1,000 changes/s", "points/s", "to one that stays",
            "a micro-batch", "freshness, median", "95th percentile", "workers' memory",
        ],
        *(
            [
                row["case"],
                f"{row['rows_per_s']:,.0f}",
                f"{row['rows_per_s'] / first['rows_per_s']:.2f}",
                f"{row['batch_s']:.2f} s",
                *(
                    f"{row[name]:.1f} s" if row["versions"] > 2 else ""
                    for name in ("freshness_s", "freshness_p95_s")
                ),
                f"{row['memory_first_mb']:,.0f} to {row['memory_last_mb']:,.0f} MB",
            ]
            for row in result["rows"]
        ),
    ]  # fmt: skip


def latency(result: Document) -> Cells:
    """Milliseconds from Kafka to Kafka."""
    return [
        ["Kafka to Kafka, 1,000 records/s", "median", "99th percentile"],
        *(
            [row["case"], f"{row['median_ms']:,.1f} ms", f"{row['p99_ms']:,.1f} ms"]
            for row in result["rows"]
        ),
        [f"{result['ratio']['what']} (to be at most 2)", f"{result['ratio']['median']:.2f}", ""],
    ]


_KNOWN = {
    "unobserved": "the join alone: no counts, no reports",
    "observed": "with its metrics, as it always is",
    "watched": "and `rm.watch(query)`: history and page",
}


def observing(result: Document) -> Cells:
    """What knowing costs, beside the join that says nothing."""
    silent = only(result["rows"], case="unobserved")["cpu_s_per_million"]
    return [
        ["T-Drive x 16 districts, 2 cores", "CPU-s per million rows", "to the join alone"],
        *(
            [
                _KNOWN[row["case"]],
                f"{row['cpu_s_per_million']:.2f} {spread(row, 'cpu_s_per_million')}",
                f"{100 * (row['cpu_s_per_million'] / silent - 1):+.1f} %",
            ]
            for row in result["rows"]
        ),
    ]


def headline(results: Path) -> str:
    """The README's first figures, in one sentence; nothing where they are not measured yet."""
    stream, delay = _load(results, "stream_table"), _load(results, "latency")
    said = [say(found) for found, say in ((stream, _throughput), (delay, _delay)) if found]
    return f"{' '.join(said)}\n" if said else ""


def _throughput(result: Document) -> str:
    of = {row["case"]: row for row in result["rows"] if row["cores"] == 2}
    ours = min((of["workers"], of["native"]), key=lambda row: row["cpu_s_per_million"])
    cost = ours["cpu_s_per_million"]
    text = (
        f"Measured on {result['machine']['cores']} cores: taxis of Beijing placed in its 16 "
        f"districts at **{number(ours['points_per_s'])} points/s**, "
        f"{cost / of['identity_with_district']['cpu_s_per_million']:.2f} x the CPU time of "
        "passing the rows through Python unchanged"
    )
    if peer := of.get("subdivided"):
        text += f" and 1/{peer['cpu_s_per_million'] / cost:.1f} of Sedona's"
    return text + "."


def _delay(result: Document) -> str:
    row = only(result["rows"], case="native, real-time")
    return (
        f"Kafka to Kafka in real-time mode: **{row['median_ms']:.1f} ms** at the median, "
        f"{result['ratio']['median']:.2f} x that of a bare projection."
    )


def _load(results: Path, source: str) -> Document | None:
    path = results / f"{source}.json"
    return json.loads(path.read_text()) if path.exists() else None


#: the table's name -> the result it is made from, and how
TABLES: dict[str, tuple[str, Callable[[Document], Cells]]] = {
    "routing_cost": ("routing_cost", routing_tables.cost),
    "routing_skews": ("routing_skews", routing_tables.in_spark),
    "routing_partitions": ("routing_partitions", routing_tables.partitions),
    "routing_shared": ("routing_shared", routing_tables.shared),
    "routing_time": ("routing_time", routing_tables.over_time),
    "routing_weighed": ("routing_weighed", routing_tables.weighed),
    "routing_hosts": ("routing_hosts_skews", hosts_tables.speed),
    "routing_hosts_bars": ("routing_hosts_bar", hosts_tables.bars),
    "routing_hosts_waits": ("routing_hosts_bar", hosts_tables.waits),
    "routing_hosts_caches": ("routing_hosts_skews", hosts_tables.caches),
    "routing_hosts_weight": ("routing_hosts_skews", hosts_tables.weight),
    "routing_hosts_moves": ("routing_hosts_moves", hosts_tables.moves),
    "routing_hosts_binding": ("routing_hosts_binding", hosts_tables.binding),
    "recall_hosts": ("recall_hosts", hosts_tables.workload),
    "traffic_hosts": ("traffic_hosts", hosts_tables.workload),
    "slices_hosts": ("slices_hosts", hosts_tables.workload),
    "stream_table": ("stream_table", stream_table),
    "large_batches": ("large_batches", stream_table),
    "figure11": ("stream_table", figure11),
    "shapes": ("shapes", shape_tables.shapes),
    "shapes_in_spark": ("shapes_in_spark", shapes_in_spark),
    "near_shapes": ("near_shapes", shape_tables.near_shapes),
    "large_tables": ("large_tables", shape_tables.large_tables),
    "grids": ("grids", shape_tables.grids),
    "growth": ("growth", shape_tables.growth),
    "plans": ("plans", plan_tables.plans),
    "plan_choice": ("plans", plan_tables.choice),
    "plan_floors": ("plan_floors", plan_tables.floors),
    "memory": ("memory", memory),
    "changes": ("changes", changes),
    "latency": ("latency", latency),
    "observing": ("observing", observing),
    "equality": ("equality", keyed.equality),
    "equality_bars": ("equality", bars.equality),
    "equality_latency": ("equality_latency", latency),
    "incremental": ("incremental", keyed.incremental),
    "incremental_bars": ("incremental", bars.incremental),
    "hit_ratios": ("cache_hits", keyed.hit_ratios),
    "cache_store": ("cache_store", keyed.cache_store),
    "lookups": ("lookups", keyed.lookups),
    "ordered": ("ordered", keyed.ordered),
    "ranges": ("ranges", keyed.ranges),
    "range_bars": ("ranges", bars.ranges),
    "range_growth": ("ranges", keyed.range_growth),
    "tables6to8": ("ranges", keyed.tables6to8),
    "range_latency": ("range_latency", keyed.range_latency),
    "figure13": ("figure13", keyed.figure13),
    "table5": ("shares", keyed.table5),
    "recall": ("recall", keyed.workload),
    "recall_growth": ("recall", keyed.workload_growth),
    "traffic": ("traffic", keyed.workload),
    "traffic_growth": ("traffic", keyed.workload_growth),
    "stream_stream": ("stream_stream", join_tables.stream_stream),
    "stream_stream_growth": ("stream_stream_growth", join_tables.stream_stream_growth),
    "stream_stream_crowd": ("stream_stream_crowd", join_tables.stream_stream_crowd),
    "stream_stream_lattice": ("stream_stream_lattice", join_tables.stream_stream_lattice),
    "stream_stream_where": ("stream_stream_where", join_tables.stream_stream_where),
    "stream_stream_latency": ("stream_stream_latency", join_tables.stream_stream_latency),
    "out_of_order": ("out_of_order", disorder.out_of_order),
    "out_of_order_aggregates": ("out_of_order", disorder.aggregates),
    "out_of_order_seeds": ("out_of_order", disorder.seeds),
    "phones_curve": ("phones_curve", disorder.phones_curve),
    "promise": ("promise", promise_report.promise),
    "sliding": ("sliding", disorder.sliding),
    "corrections": ("corrections", disorder.corrections),
    "paper_b_table1": ("paper_b_accuracy", paper_b.table1),
    "paper_b_buffer": ("paper_b_accuracy", paper_b.buffer),
    "paper_b_accuracy": ("paper_b_accuracy", paper_b.accuracy),
    "paper_b_latency": ("paper_b_latency", paper_b.latency),
    "paper_b_scale": ("paper_b_scale", paper_b.scale),
    "second_opinion": ("second_opinion", trip_tables.second_opinion),
    "trip_state": ("trip_state", trip_tables.trip_state),
    "fences": ("fences", fence_tables.table),
    "fence_state": ("fence_state", fence_tables.state),
    "spatialbench": ("spatialbench", spatialbench_tables.table),
    "nexmark": ("nexmark", nexmark_tables.table),
    "soak_halves": ("soak", soak_tables.halves),
    "soak": ("soak", soak_tables.table),
    "settings_changelog": ("settings", setting_tables.changelog),
    "settings_partitions": ("settings", setting_tables.partitions),
    "settings_python": ("settings", setting_tables.python),
    "settings_asynchronous": ("settings", setting_tables.asynchronous),
    "faults": ("faults", fault_tables.queries),
    "fault_kinds": ("faults", fault_tables.kinds),
}


#: results that another program leaves beside its own
SCRIPTS = {
    "large_batches": "stream_table",
    "growth": "shapes",
    "shapes_in_spark": "shapes",
    "cache_hits": "cache",
    "cache_store": "cache",
    "figure13": "ordered",
    **{
        f"routing_{part}": f"routing {part}"
        for part in ("partitions", "shared", "skews", "cost", "weighed", "time")
    },
    **{
        f"routing_hosts_{part}": f"routing_hosts --only {part}"
        for part in ("skews", "bar", "moves", "binding")
    },
    **{
        f"{name}_hosts": f"workload_hosts --only {name}" for name in ("recall", "traffic", "slices")
    },
    "stream_stream": "stream_stream beside",
    "stream_stream_growth": "stream_stream growth",
    "stream_stream_crowd": "stream_stream crowd",
    "stream_stream_lattice": "stream_stream lattice",
    "stream_stream_where": "stream_stream where",
    "stream_stream_latency": "stream_latency",
    "equality_latency": "latency --table keys",
    "recall": "workloads recall",
    "traffic": "workloads traffic",
    "phones_curve": "out_of_order",
    **{f"paper_b_{part}": f"paper_b {part}" for part in ("accuracy", "latency", "scale")},
}


def render(name: str, results: Path = RESULTS, images: str = "img") -> str:
    """The Markdown of one table with the line that says what it was measured on."""
    if name == "headline":
        return headline(results)
    if name == "peers":
        return f"{_markdown(peers.table(results))}\n"
    if name not in TABLES:
        known = sorted(["headline", "peers", *TABLES])
        raise SystemExit(f"tables: no table is called {name!r}; there are {known}")
    source, make = TABLES[name]
    result = _load(results, source)
    if result is None:
        return f"*Not measured yet: `python -m benchmarks {SCRIPTS.get(source, source)}`.*\n"
    picture = f"![{PICTURES[name]}]({images}/{name}.svg)\n\n" if name in PICTURES else ""
    return f"{_markdown(make(result))}\n\n{picture}{_origin(result)}\n"


def fill(page: str, results: Path = RESULTS, images: str = "img") -> str:
    """A page with every block between markers made anew; `images` leads from it to the plots."""
    return BLOCK.sub(lambda block: block[1] + render(block[2], results, images) + block[3], page)


def _markdown(cells: Cells) -> str:
    head, *rows = cells
    rule = ["---", *["---:"] * (len(head) - 1)]
    return "\n".join(f"| {' | '.join(row)} |" for row in (head, rule, *rows))


def _origin(result: Document) -> str:
    where, with_ = result["machine"], result["versions"]
    runs = max((row.get("runs", 1) for row in result["rows"]), default=1)
    taken = f"Medians of {runs} alternating runs (smallest-largest)" if runs > 1 else "One run"
    return (
        f"*{taken}; {where['cores']} x {where['cpu']}, {where['memory_gb']:.0f} GB, "
        f"Spark {with_['pyspark']}, Python {with_['python']}, GEOS {with_['geos']}, "
        f"{result['date'][:10]}.*"
    )


def main(words: Sequence[str] | None = None) -> None:
    """Write the tables and plots, or check the tables."""
    parser = argparse.ArgumentParser(
        description="Turn the benchmarks' JSONs into tables and plots."
    )
    parser.add_argument("--check", action="store_true", help="only say whether the pages are right")
    check = parser.parse_args(words).check
    stale = []
    for path, images in PAGES.items():
        page = path.read_text()
        if (filled := fill(page, images=images)) != page:
            stale.append(path)
            if not check:
                path.write_text(filled)
    if check and stale:
        names = ", ".join(path.name for path in stale)
        raise SystemExit(f"{names}: not what the JSONs say; run python -m benchmarks report")
    if not check:
        from benchmarks.harness import plots

        plots.draw_all(RESULTS, IMAGES)


if __name__ == "__main__":
    main()
