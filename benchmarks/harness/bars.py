"""What was to be reached beside what was, and beside what could be: a result -> cells."""

from __future__ import annotations

from benchmarks.harness.formatting import Cells, Document, number, only

HEAD = ["the bar", "", "here", "a join that costs nothing: identity", "Spark reads, nothing else"]
CPU, RATE = "cpu_s_per_million", "rows_per_s"


def equality(result: Document) -> Cells:
    """CPU time at 100,000 rows a batch, the store's included where there is one."""
    rows = [row for row in result["rows"] if row["batch_rows"] == 100_000]
    of = {row["case"]: row[CPU] + row.get("store_cpu_s", 0.0) for row in rows}
    ours, floor, scan = of["workers"], of["identity_with_name"], of["scan"]
    return [
        HEAD,
        ["to the identity `mapInArrow`", "at most 1.35", f"{ours / floor:.2f}", "1", ""],
        *(
            [name, bar, *(number(of[case] / one) for one in (ours, floor, scan))]
            for name, bar, case in (
                ("Spark's join with the table cached, to ours", "at least 10", "spark_cached"),
                ("Spark's join by JDBC, to ours", "at least 50", "spark_jdbc"),
            )
        ),
    ]


def incremental(result: Document) -> Cells:
    """Hit ratios, and records per second beside Flink, a query each and absent keys."""
    of = {row["case"]: row for row in result["rows"]}
    ours, floor = of["s3fifo, present"][RATE], of["identity_with_name"][RATE]
    lines = [
        HEAD[:4],
        ["hit ratio, `lru`", "at least 0.81", f"{of['lru, present']['hit_ratio']:.3f}", ""],
        ["hit ratio, `s3fifo`", "at least 0.84", f"{of['s3fifo, present']['hit_ratio']:.3f}", ""],
    ]
    for name, bar, case in (
        ("records/s to Flink's", "at least 10", "flink"),
        ("records/s to a query per record", "or at least 20", "by_record"),
    ):
        if case in of:
            lines.append([name, bar, *(number(one / of[case][RATE]) for one in (ours, floor))])
    absent = of["s3fifo, mostly absent"][RATE] / ours
    lines.append(["nine keys of ten absent, to none", "at least 0.5", f"{absent:.2f}", ""])
    return lines


def ranges(result: Document) -> Cells:
    """Throughput beside Spark's best form, and from the smallest table to the largest."""
    rows = result["rows"]
    power = only(rows, case="spark_cached")["power"]
    ours = {row["power"]: row for row in rows if row["case"] == "sorted"}
    theirs = [only(rows, case=case, power=power) for case in ("spark_cached", "spark_broadcast")]
    best = max(theirs, key=lambda row: row[RATE])
    least = min(theirs, key=lambda row: row[CPU])
    first, last = ours[min(ours)], ours[max(ours)]
    return [
        HEAD[:3],
        [
            f"records/s to Spark's best form, 2^{power} rows",
            "at least 3",
            number(ours[power][RATE] / best[RATE]),
        ],
        ["CPU time of Spark's best form to ours", "", number(least[CPU] / ours[power][CPU])],
        [
            f"records/s at 2^{max(ours)} rows to 2^{min(ours)}",
            "at least 0.7",
            f"{last[RATE] / first[RATE]:.2f}",
        ],
    ]
