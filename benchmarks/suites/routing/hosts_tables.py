"""The tables and plots about routing on hosts of their own: a result -> cells, or a figure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from benchmarks.harness.formatting import Cells, Document, number, only
from benchmarks.suites.routing.routing_tables import LABELS as ROUTINGS
from benchmarks.suites.routing.routing_tables import standing

LABELS = ROUTINGS | {
    "pkg": "partial key grouping",
    "wchoices": "W-Choices",
    "packed_hash": "a hash, sent as messages",
    "stay": "`rm.by_hotspot()` with partitions that stay",
}
COLOURS = {"none": "#52606d", "hash": "#9aa5b1", "algorithm2": "#d9822b", "ours": "#0b7a75",
           "cost": "#4c63b6", "pkg": "#ab091e", "wchoices": "#e668a7"}  # fmt: skip


def speed(result: Document) -> Cells:
    """Figure 12: throughput and latency by skew and way, beside a hash."""
    head = [
        _hosts(result), "z", "rows per second", "to hash", "latency, median", "99th percentile",
        "to hash", "to the end of its micro-batch, 99th",
    ]  # fmt: skip
    lines = [head]
    for row in result["rows"]:
        by_hash = only(result["rows"], case="hash", z=row["z"])
        lines.append(
            [
                LABELS[row["case"]],
                f"{row['z']:.2f}",
                number(row["rows_per_s"]),
                f"{row['rows_per_s'] / by_hash['rows_per_s']:.2f}",
                f"{row['p50_ms']:,.0f} ms",
                f"{row['p99_ms']:,.0f} ms",
                f"{row['p99_ms'] / by_hash['p99_ms']:.2f}",
                f"{row['p99_to_end_ms']:,.0f} ms",
            ]
        )
    return lines


def caches(result: Document) -> Cells:
    """Figure 11: load CV, what the hosts' caches hold and how often they answer."""
    head = [
        _hosts(result), "z", "load CV (DS)", "largest load", "hit ratio", "of the hosts",
        "rows cached by a host", "records of a host, CV", "cores used, of each host",
    ]  # fmt: skip
    lines = [head]
    for row in result["rows"]:
        hosts = list(row["hosts"].values())
        is_routed = row["case"] != "none"
        lines.append(
            [
                LABELS[row["case"]],
                f"{row['z']:.2f}",
                f"{row['load_cv']:.3f}" if is_routed else "",
                f"{row['largest_load']:.0%}" if is_routed else "",
                f"{row['hit_ratio']:.3f}",
                _range([host["hit_ratio"] for host in hosts], "{:.3f}"),
                _range([host["cached_rows"] for host in hosts], "{:,}"),
                f"{row['host_load_cv']:.3f}",
                _range(row["worker_cores"], "{:.2f}"),
            ]
        )
    return lines


def bars(result: Document) -> Cells:
    """What routing by hotspots was to reach beside a hash, and which way is the fastest."""
    skews = sorted({row["z"] for row in result["rows"]})
    lines = [["the bar", "", *(f"z = {z:.2f}" for z in skews)]]
    for label, bar, key in (
        ("to `rm.by_hash()`: rows per second", "at least 1.4", "rows_per_s"),
        ("to `rm.by_hash()`: 99th percentile of latency", "at most 0.7", "p99_ms"),
        ("what even tasks would make of `rm.by_hash()`", "", "even_gain"),
    ):
        for case in ("ours", "stay") if bar else ("hash",):
            ratios = []
            for z in skews:
                row, by_hash = (only(result["rows"], z=z, case=one) for one in (case, "hash"))
                ratios.append(row[key] / by_hash[key] if bar else row[key])
            name = f"{LABELS[case]} {label}" if bar else label
            lines.append([name, bar, *(f"{ratio:.2f}" for ratio in ratios)])
    for label, key, best in (
        ("most rows per second", "rows_per_s", max),
        ("lowest 99th percentile", "p99_ms", min),
    ):
        first = [
            best((row for row in result["rows"] if row["z"] == z), key=lambda row: row[key])["case"]
            for z in skews
        ]
        lines.append([label, "", *(LABELS[case] for case in first)])
    return lines


def waits(result: Document) -> Cells:
    """What a micro-batch waits for, by skew and way, and how much of it is uneven tasks."""
    head = [
        _hosts(result), "z", "thousand rows per second", "latency, 99th percentile",
        "a micro-batch", "driver alone", "longest tasks", "mean tasks", "of it fetching",
        "with even tasks", "hit ratio", "cores used of a host",
    ]  # fmt: skip
    return [
        head,
        *(
            [
                LABELS[row["case"]],
                f"{row['z']:.2f}",
                _median(row, "rows_per_s", 1000, "{:,.0f}"),
                _median(row, "p99_ms", 1000, "{:.1f}") + " s",
                *(
                    f"{row[key]:.2f} s"
                    for key in ("batch_s", "driver_s", "longest_tasks_s", "mean_tasks_s", "load_s")
                ),
                f"{row['even_gain']:.2f} x",
                f"{row['hit_ratio']:.3f}",
                f"{row['worker_cores']:.2f}",
            ]
            for row in result["rows"]
        ),
    ]


def _median(row: Mapping[str, Any], key: str, divisor: float, form: str) -> str:
    """A median with the smallest and largest of its runs."""
    low, high = (form.format(value / divisor) for value in row["spread"][key])
    return f"{form.format(row[key] / divisor)} ({low}-{high})"


def weight(result: Document) -> Cells:
    """Balance of counts and of time where a missed key comes from another host."""
    head = [
        _hosts(result), "z", "load CV of records", "load CV of seconds", "rows per second",
        "latency, 99th percentile",
    ]  # fmt: skip
    return [
        head,
        *(
            [
                LABELS[row["case"]],
                f"{row['z']:.2f}",
                f"{row['load_cv']:.3f}",
                f"{row['load_cv_of_seconds']:.3f}",
                number(row["rows_per_s"]),
                f"{row['p99_ms']:,.0f} ms",
            ]
            for row in result["rows"]
            if row["z"] in (1.10, 1.16) and row["case"] in ("hash", "ours", "cost")
        ),
    ]


def moves(result: Document) -> Cells:
    """Load CV and throughput before the hot keys move, and in the cycles after."""
    when = ("standing", "at the move", "one cycle later", "two", "three")
    lines = [
        [
            _hosts(result),
            *(f"load CV, {when[0]}" if not n else one for n, one in enumerate(when)),
            *(f"rows/s, {when[0]}" if not n else one for n, one in enumerate(when)),
            "hit ratio, standing",
            "at the end",
        ]
    ]
    for row in result["rows"]:
        series, moved = row["series"], row["moved"]
        load_cv, rows_per_s = (
            [standing(series, moved, key), *(one[key] for one in series[moved : moved + 4])]
            for key in ("load_cv", "rows_per_s")
        )
        lines.append(
            [
                LABELS[row["case"]],
                *(f"{one:.3f}" if row["case"] != "none" else "" for one in load_cv),
                *map(number, rows_per_s),
                f"{standing(series, moved, 'hit_ratio'):.3f}",
                f"{series[-1]['hit_ratio']:.3f}",
            ]
        )
    return lines


BOUND = {"": "move", "state": "stay, by state", "cache": "stay, by a cached frame"}


def binding(result: Document) -> Cells:
    """What caches answer where partitions move between executors, and where they stay."""
    head = [
        _hosts(result), "partitions", "they", "hit ratio", "keys fetched per 1,000 records",
        "statements per million", "rows cached", "rows per second",
    ]  # fmt: skip
    return [
        head,
        *(
            [
                LABELS[row["case"]],
                str(row["partitions"]) if row["case"] != "none" else "",
                "" if row["case"] == "none" else BOUND[row["bound"]],
                f"{row['hit_ratio']:.3f}",
                f"{1000 * row['missed_per_record']:.0f}",
                number(row["loads_per_million"]),
                f"{row['cached_rows']:,}",
                number(row["rows_per_s"]),
            ]
            for row in result["rows"]
        ),
    ]


def skews_plot(result: Document) -> Any:
    """Figures 11 and 12: four measures against the skew, a line a way."""
    import matplotlib.pyplot as plt

    panels = {
        "load_cv": "load CV (DS)", "hit_ratio": "hit ratio", "rows_per_s": "rows per second",
        "p99_ms": "latency, 99th percentile, ms",
    }  # fmt: skip
    figure, four = plt.subplots(1, 4, figsize=(11, 3), layout="constrained")
    for axes, (key, title) in zip(four, panels.items(), strict=True):
        for case, colour in COLOURS.items():
            line = {row["z"]: row[key] for row in result["rows"] if row["case"] == case}
            if line and not (key == "load_cv" and case == "none"):
                axes.plot([*line], [*line.values()], color=colour, marker="o", ms=3, label=case)
        axes.set_title(title, loc="left", fontsize=10)
        axes.set_xlabel("z")
        axes.set_ylim(bottom=0)
    four[2].legend(fontsize=7, frameon=False)
    return figure


def moves_plot(result: Document) -> Any:
    """Load CV and throughput in each micro-batch; the move is dotted."""
    import matplotlib.pyplot as plt

    figure, both = plt.subplots(2, 1, figsize=(8, 4.6), sharex=True, layout="constrained")
    for row in result["rows"]:
        for axes, key in zip(both, ("load_cv", "rows_per_s"), strict=True):
            if key == "rows_per_s" or row["case"] != "none":
                line = [one[key] for one in row["series"]]
                axes.plot(line, color=COLOURS[row["case"]], marker="o", ms=3, label=row["case"])
            axes.axvline(row["moved"], color="black", ls=":", lw=1)
    both[0].set_ylabel("load CV")
    both[1].set_ylabel("rows per second")
    both[1].set_ylim(bottom=0)
    both[1].set_xlabel("micro-batch, one a cycle; dotted: the hot keys move")
    both[1].legend(fontsize=8, frameon=False, ncols=5)
    return figure


def _hosts(result: Document) -> str:
    return f"{result['hosts']} hosts of {result['cores']['worker']:g} core"


def _range(values: Sequence[Any], form: str) -> str:
    return f"{form.format(min(values))} to {form.format(max(values))}"


WORKLOADS = {
    "recall_hosts": "Tables 1 and 2, Figure 9(a): product recall",
    "traffic_hosts": "Tables 3 and 4, Figure 10(a): traffic",
    "slices_hosts": "Tables 6 to 8: slices of time",
}
FORMS = {
    "paper": "the paper: BS-Join on Flink",
    "paper_flink": "the paper: Flink 1.12.2",
    "by_record": "a query per record",
    "full": "**rivermouth**, `rm.full()`",
    "ideal_skiplist": "the paper's ideal skip list, as our index",
    "skiplist": "the paper's random skip list, as our index",
    "incremental": "**rivermouth**, `rm.incremental(rows=)`",
}


def workload(result: Document) -> Cells:
    """Results per second by hosts, the speed-up from one to four, and latencies in ms.

    A latency is a median and a 99th percentile; the paper's is one number.
    """
    hosts = sorted({row["hosts"] for row in result["rows"]})
    about = f"Paper A, {WORKLOADS[result['name']]}"
    most = max(count for count in hosts if count <= 4)
    counted = [f"{count} host{'s' * (count > 1)}" for count in hosts]
    rates, late = ([f"{what}, {counted[0]}", *counted[1:]] for what in ("results/s", "latency, ms"))
    lines = [[about, *rates, f"speed-up at {most}", *late]]
    for case, figures in _by_hosts(result).items():
        rate = figures["out_per_s"]
        lines.append(
            [
                FORMS[case],
                *(number(rate.get(count)) for count in hosts),
                f"{rate[most] / rate[hosts[0]]:.2f}",
                *(_latency(figures, count) for count in hosts),
            ]
        )
    return lines


def _latency(figures: Mapping[str, Mapping[int, float]], count: int) -> str:
    of_it = (figures.get(key, {}).get(count) for key in ("ms", "p99_ms"))
    return " / ".join(number(ms) for ms in of_it if ms is not None)


def workload_plot(result: Document) -> Any:
    """Speed-up against hosts, the paper's and ours, and what proportion would be."""
    import matplotlib.pyplot as plt

    figure, axes = plt.subplots(figsize=(5, 3.2), layout="constrained")
    colours = {"paper": "#d9822b", "paper_flink": "#f0b429", "by_record": "#9aa5b1",
               "full": "#4c63b6", "incremental": "#0b7a75", "ideal_skiplist": "#d64545",
               "skiplist": "#8719e0"}  # fmt: skip
    hosts = sorted({row["hosts"] for row in result["rows"]})
    for case, figures in _by_hosts(result).items():
        rate, label = figures["out_per_s"], FORMS[case].translate(dict.fromkeys(map(ord, "*`")))
        axes.plot([*rate], [one / rate[1] for one in rate.values()], color=colours[case],
                  marker="o", label=label)  # fmt: skip
    axes.plot(hosts, hosts, color="black", lw=0.8, ls=":")
    axes.set_xticks(hosts)
    axes.set_xlabel("hosts (the paper: workers); dotted: in proportion")
    axes.set_ylabel("speed-up")
    axes.legend(fontsize=8, frameon=False)
    return figure


def _by_hosts(result: Document) -> dict[str, dict[str, dict[int, float]]]:
    found = {
        case: {key: {int(count): value for count, value in by.items()} for key, by in of.items()}
        for case, of in result["paper"].items()
    }
    for row in result["rows"]:
        of = found.setdefault(row["case"], {"out_per_s": {}, "ms": {}, "p99_ms": {}})
        for key, measure in (("out_per_s", "out_per_s"), ("ms", "p50_ms"), ("p99_ms", "p99_ms")):
            of[key][row["hosts"]] = row[measure]
    return found
