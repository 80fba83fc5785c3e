"""The tables about keys, ranges and caches: a result -> cells."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from benchmarks.harness.formatting import Cells, Document, number, only, spread

LABELS = {
    "scan": "Spark reads, nothing else",
    "identity_with_name": "identity `mapInArrow` that adds a string column",
    "identity_fourfold": "identity `mapInArrow` that gives each row four times, with a number",
    "workers": '**rivermouth**, `plan="workers"`',
    "native": '**rivermouth**, `plan="native"`',
    "spark_cached": "Spark's stream-static join, table in its cache",
    "spark_broadcast": "the same, the table broadcast by a hint",
    "spark_jdbc": "Spark's stream-static join, table read by JDBC",
    "sorted": '**rivermouth**, `plan="workers"`, sorted (the default)',
    "skiplist": "the paper's random skip list, as our index",
    "ideal_skiplist": "the paper's ideal skip list, as our index",
    "by_record": "a query per record",
    "by_batch": "`rm.external()`: a statement per Arrow batch",
    "paper": "the paper: BS-Join on Flink",
    "paper_flink": "the paper: Flink 1.12.2",
    "ours": "**rivermouth**",
    "flink": "Flink's lookup join, partial cache of as many rows",
    "lru, present": '`rm.incremental(policy="lru")`',
    "s3fifo, present": '`rm.incremental(policy="s3fifo")`, the default',
    "s3fifo, mostly absent": "the same, nine keys of ten absent",
}
INDEXES = {
    "sorted": "**sorted** (the default)",
    "skiplist": "random skip list",
    "ideal_skiplist": "ideal skip list",
}
#: which of paper A's tables and figures a workload is
WORKLOADS = {
    "recall": ("Tables 1 and 2", "product recall"),
    "traffic": ("Tables 3 and 4", "traffic"),
}
FIGURES = {"recall": "Figure 9(b)", "traffic": "Figure 10(b)"}
WAYS = ("by_record", "skiplist", "ideal_skiplist", "sorted")


def equality(result: Document) -> Cells:
    """CPU and wall time by size of a micro-batch, beside the floor that any Python join has."""
    table = result["rows"][0]["table_rows"]
    lines = [
        [
            f"`keys`, {table:,} rows",
            "rows a batch",
            "CPU-s per million rows",
            "to identity",
            "to ours",
            "the store's CPU-s",
            "wall s per million",
            "to ours",
        ]
    ]
    for row in result["rows"]:
        same = [one for one in result["rows"] if one["batch_rows"] == row["batch_rows"]]
        floor, ours = only(same, case="identity_with_name"), only(same, case="workers")
        cpu = "cpu_s_per_million"
        lines.append(
            [
                LABELS[row["case"]],
                f"{row['batch_rows']:,}",
                f"{row[cpu]:.2f} {spread(row, cpu)}",
                number(row[cpu] / floor[cpu]),
                number(row[cpu] / ours[cpu]),
                f"{row['store_cpu_s']:.2f}" if "store_cpu_s" in row else "",
                f"{row['wall_s_per_million']:.2f}",
                number(row["wall_s_per_million"] / ours["wall_s_per_million"]),
            ]
        )
    return lines


def ranges(result: Document) -> Cells:
    """All ways at the size at which all were measured."""
    power = only(result["rows"], case="spark_cached")["power"]
    rows = [row for row in result["rows"] if row["power"] == power]
    ours, cpu = only(rows, case="sorted"), "cpu_s_per_million"
    return [
        [f"`between`, 2^{power} rows", "CPU-s per million rows", "to ours", "rows/s", "ours to it"],
        *(
            [
                LABELS[row["case"]],
                f"{row[cpu]:.2f} {spread(row, cpu)}",
                number(row[cpu] / ours[cpu]),
                number(row["rows_per_s"]),
                number(ours["rows_per_s"] / row["rows_per_s"]),
            ]
            for row in rows
        ),
    ]


def range_growth(result: Document) -> Cells:
    """Throughput against the table's rows, each probe meeting as many."""
    rows = [row for row in result["rows"] if row["case"] == "sorted"]
    first = rows[0]
    return [
        ["`between`, about four rows a probe", *(f"2^{row['power']}" for row in rows)],
        ["rows/s", *(number(row["rows_per_s"]) for row in rows)],
        ["to the first", *(f"{row['rows_per_s'] / first['rows_per_s']:.2f}" for row in rows)],
        ["CPU-s per million rows", *(f"{row['cpu_s_per_million']:.2f}" for row in rows)],
    ]


def tables6to8(result: Document) -> Cells:
    """Throughput as multiples of a query per record's, beside the paper's."""
    powers = sorted({row["power"] for row in result["rows"] if row["case"] == "by_record"})
    lines = [["Paper A, Tables 6 to 8", *(LABELS[way] for way in WAYS)]]
    for power in powers:
        of = {way: only(result["rows"], case=way, power=power) for way in WAYS}
        for who, key in (("the paper, 8 workers", "paper_rows_per_s"), ("here", "rows_per_s")):
            base = of["by_record"][key]
            shown = [of[way][key] for way in WAYS]
            cells = [f"{value / base:.1f}" if base and value else "" for value in shown]
            lines.append([f"2^{power} rows, {who}", *cells])
    return lines


def range_latency(result: Document) -> Cells:
    """Median and 99th percentile of each way, beside the paper's latency."""
    lines = [["Kafka to Kafka, 1,000 records/s, ms", *(LABELS[way] for way in WAYS), "no join"]]
    for power in sorted({row["power"] for row in result["rows"]}):
        rows = [only(result["rows"], case=case, power=power) for case in (*WAYS, "bare")]
        paper = [f"{row['paper_ms']:.0f}" if row["paper_ms"] else "" for row in rows]
        lines.append([f"2^{power} rows, the paper, 8 workers", *paper])
        for name, key in (("median", "median_ms"), ("99th percentile", "p99_ms")):
            figures = [f"{row[key]:.0f}" for row in rows]
            lines.append([f"2^{power} rows, here, {name}", *figures])
    return lines


def incremental(result: Document) -> Cells:
    """Hits, CPU and wall time with a cache and without."""
    base = only(result["rows"], case="by_record")["rows_per_s"]
    row = result["rows"][0]
    head = f"Zipf 1.10 over {row['table_rows']:,} keys, {row['kept_rows']:,} kept per worker"
    return [
        [head, "hit ratio", "CPU-s per million", "the store's", "records/s", "to a query each"],
        *(
            [
                LABELS[row["case"]],
                f"{row['hit_ratio']:.3f}" if "hit_ratio" in row else "",
                f"{row['cpu_s_per_million']:.2f}",
                f"{row['store_cpu_s']:.2f}" if "store_cpu_s" in row else "",
                number(row["rows_per_s"]),
                number(row["rows_per_s"] / base),
            ]
            for row in result["rows"]
        ),
    ]


def hit_ratios(result: Document) -> Cells:
    """Hit ratios of the policies by skew and size, the known best of that size in brackets."""
    rows = result["rows"]
    skews, parts = (sorted({row[name] for row in rows}) for name in ("z", "part"))
    policies = list(dict.fromkeys(row["case"] for row in rows))

    def cell(z: float, part: float) -> str:
        found = [only(rows, case=policy, z=z, part=part) for policy in policies]
        ratios = " / ".join(f"{row['hit_ratio']:.3f}" for row in found)
        return f"{ratios} ({found[0]['most']:.3f})"

    head = f"held, of the keys: {' / '.join(f'`{policy}`' for policy in policies)}"
    return [
        [head, *(f"z = {z:.2f}" for z in skews)],
        *([f"{100 * part:g} %", *(cell(z, part) for z in skews)] for part in parts),
    ]


def cache_store(result: Document) -> Cells:
    """One worker's cache on a PostgreSQL, no Spark: records per second of CPU and of the wall."""
    rate = "records_per_cpu_s_with_store"
    base = only(result["rows"], case="a statement per record")
    return [
        [
            "one worker",
            "hit ratio",
            "statements",
            "records per CPU-s, store included",
            "records/s",
            "to a statement per record",
        ],
        *(
            [
                row["case"],
                f"{row['hit_ratio']:.3f}",
                f"{row['statements']:,.0f}",
                number(row[rate]),
                number(row["records_per_s"]),
                number(row[rate] / base[rate]),
            ]
            for row in result["rows"]
        ),
    ]


def lookups(result: Document) -> Cells:
    """Keys found per second by our index and by pandas', and what they take to build."""
    names = list(dict.fromkeys(row["table"] for row in result["rows"]))
    lines = [["keys/s, one core", "rivermouth", "pandas", "built in", "pandas'", "mapped"]]
    for name in names:
        ours, theirs = (
            only(result["rows"], table=name, case=case) for case in ("rivermouth", "pandas")
        )
        lines.append(
            [
                f"{name}, {ours['rows']:,} rows",
                number(ours["keys_per_cpu_s"]),
                number(theirs["keys_per_cpu_s"]),
                f"{ours['build_s']:.1f} s",
                f"{theirs['build_s']:.1f} s",
                f"{ours['index_mb']:.0f} MB",
            ]
        )
    return lines


def ordered(result: Document) -> Cells:
    """Probes a second of the ordered indexes alone, by the table's rows."""
    sizes = sorted({row["rows"] for row in result["rows"]})
    lines = [["probes/s, one core", *(f"2^{n.bit_length() - 1}" for n in sizes)]]
    for by_key, name in ((True, "with a key"), (False, "without")):
        for case in ("sorted", "skiplist", "ideal_skiplist"):
            of = [only(result["rows"], rows=n, case=case, by_key=by_key) for n in sizes]
            rates = (number(row["probes_per_cpu_s"]) for row in of)
            lines.append([f"{INDEXES[case]}, {name}", *rates])
    return lines


def table5(result: Document) -> Cells:
    """Shares of the most frequent keys, the paper's and ours."""
    shares = [f"{100 * share:g} %" for share in result["tops"]]
    return [
        ["Paper A, Table 5: accesses to the top", *shares],
        *(
            [f"z = {row['z']:.2f}, {who}", *(f"{share:.2f} %" for share in row[who])]
            for row in result["rows"]
            for who in ("paper", "here")
        ),
    ]


def figure13(result: Document) -> Cells:
    """Comparisons of one search, by way of counting."""
    sizes = sorted({row["rows"] for row in result["rows"]})
    ways = list(dict.fromkeys(row["counting"] for row in result["rows"]))
    lines = [["Paper A, Figure 13: comparisons", *(f"2^{n.bit_length() - 1}" for n in sizes)]]
    for way in ways:
        of = {
            case: [only(result["rows"], rows=n, case=case, counting=way) for n in sizes]
            for case in ("skiplist", "ideal_skiplist")
        }
        for case, name in (("skiplist", "random"), ("ideal_skiplist", "ideal")):
            lines.append([f"{way}: {name}", *(f"{row['mean']:.1f}" for row in of[case])])
            varied = (f"{row['variance']:.3g}" for row in of[case])
            lines.append([f"{way}: {name}, variance of the builds", *varied])
        fewer = (
            f"{1 - ideal['mean'] / random['mean']:.0%}"
            for random, ideal in zip(of["skiplist"], of["ideal_skiplist"], strict=True)
        )
        lines.append([f"{way}: fewer by (the paper: about 25 %)", *fewer])
    return lines


def workload(result: Document) -> Cells:
    """Results per second by cores, beside the paper's, and the time of a micro-batch.

    The paper's latency is that of a record, which is no such time.
    """
    tables, what = WORKLOADS[result["name"]]
    lines = [
        [
            f"Paper A, {tables}: {what}",
            "results/s, 1 worker",
            "2 workers",
            "speed-up",
            "a micro-batch, 1 worker",
            "2 workers",
        ]
    ]
    ours = _by_cores(result["rows"])
    for case, figures in (result["paper"] | ours).items():
        one, two = (figures["out_per_s"][cores] for cores in ("1", "2"))
        each = (
            f"{number(figures['batch_ms'][cores] / 1000)} s" if case in ours else ""
            for cores in ("1", "2")
        )
        lines.append([LABELS[case], number(one), number(two), f"{two / one:.2f}", *each])
    return lines


def _by_cores(rows: Sequence[Mapping[str, Any]]) -> dict[str, dict[str, dict[str, float]]]:
    """Our figures in the shape of the paper's: results at full speed, time of a small batch."""
    size = only(rows, case="ours", cores=1, feed="latency")["table_rows"]
    feeds = {"by_record": ("full speed", "full speed"), "ours": ("full speed", "latency")}
    return {
        case: {
            key: {
                str(cores): only(rows, case=case, cores=cores, feed=feed, table_rows=size)[key]
                for cores in (1, 2)
            }
            for key, feed in zip(("out_per_s", "batch_ms"), fed, strict=True)
        }
        for case, fed in feeds.items()
    }


def workload_growth(result: Document) -> Cells:
    """Milliseconds per 10,000 records by the rows of each table, at two cores."""
    rows = [row for row in result["rows"] if row["cores"] == 2 and row["feed"] == "full speed"]
    sizes = sorted({row["table_rows"] for row in rows})
    figure = FIGURES[result["name"]]
    return [
        [f"Paper A, {figure}: ms per 10,000 records", *(f"{size:,} rows" for size in sizes)],
        *(
            [
                LABELS[case],
                *(
                    number(1e7 / only(rows, case=case, table_rows=size)["rows_per_s"])
                    for size in sizes
                ),
            ]
            for case in ("by_record", "ours")
        ),
    ]
