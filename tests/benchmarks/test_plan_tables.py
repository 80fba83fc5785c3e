"""The tables of join_table's plans, from rows made by hand, and costs that are fitted."""

import json
from dataclasses import replace

from benchmarks.suites.table_join import plan_fit, plan_tables

from rivermouth.spark.engines.plan_costs import COSTS, Cost


def row(condition, width, rows, plan, cost, kind="stream"):
    return {
        "condition": condition,
        "kind": kind,
        "width": width,
        "rows": rows,
        "plan": plan,
        "cpu_s_per_million": cost,
        "table_bytes": 1000,
    }


def test_a_cell_names_its_best_plan_and_how_far_from_it_the_chosen_one_is():
    rows = [
        row("keys", 12, 450_000, "workers", 6.0),
        row("keys", 12, 450_000, "udf", 5.0),
        row("keys", 12, 450_000, "native", 4.0),
        row("keys", 12, 1_350_000, "workers", 6.0, "batch"),
        row("keys", 12, 1_350_000, "native", 4.0, "batch"),
        row("nearest", 4, 2000, "workers", 3.0),
        row("nearest", 4, 2000, "udf", 2.0),
    ]
    assert plan_tables.plans({"rows": rows})[1:] == [
        [
            "keys, stream, 12, 450,000",
            "6.00",
            "5.00",
            "4.00",
            "`native`",
            "`native`",
            "1.00",
            "1.50",
        ],
        ["keys, batch, 12, 1,350,000", "6.00", "", "4.00", "`native`", "`native`", "1.00", "1.00"],
        ["nearest, stream, 4, 2,000", "3.00", "2.00", "", "`udf`", "`workers`", "1.50", "1.50"],
    ]
    assert [line[1:] for line in plan_tables.choice({"rows": rows})[1:]] == [
        ["3", "2", "1.50"],  # by rows
        ["3", "1", "1.50"],  # by default
        ["3", "0", "1.50"],  # always workers
    ]


def test_the_costs_are_those_that_were_measured():
    assert plan_fit.fitted(json.loads(plan_fit.RUN.read_text())["rows"]) == COSTS


def test_a_fit_finds_what_batches_were_made_of_and_nothing_negative():
    made = {"stream": 200_000, "batch": 50_000}
    rows = [
        {"condition": condition, "kind": kind, "plan": plan, "width": width, "rows": count,
         "table_bytes": size,
         "cpu_ms_per_batch": (
             start + (kind == "batch") * 9000 * width
             + (plan == "native") * 0.5 * size + count * (1.5 + 0.25 * width)
         ) / 1000}
        for condition, size in (
            ("keys", 1e4), ("many_keys", 1e6), ("range", 1e4), ("within", 1e5), ("nearest", 1e4)
        )
        for kind, start in made.items()
        for plan in ("workers", "udf", "native")
        for width in (4, 24)
        for count in (1e3, 1e5, 1e6)
    ]  # fmt: skip
    found = plan_fit.fitted(rows)
    expected = Cost(
        stream=200_000, batch=50_000, batch_column=9_000, byte=0.5, row=1.5, column=0.25
    )
    assert found["keys"]["native"] == expected
    assert found["place"]["udf"] == replace(expected, byte=0)
    assert found["range"]["native"].byte == 0  # one table: its size has no axis
    assert "native" not in found["place"]
    for one in rows:
        one["cpu_ms_per_batch"] = 50 + (one["kind"] == "stream") * 100 - 1e-6 * one["rows"]
    assert min(vars(plan_fit.fitted(rows)["keys"]["udf"]).values()) == 0


def test_large_batches_stand_beside_rows_that_only_pass_through():
    kinds = [("none", "scan", 1), ("none", "identity", 4), ("none", "constant", 3)]
    kinds += [("within", plan, 3) for plan in ("workers", "udf", "native")]
    rows = [
        row(condition, width, 450_000, plan, cost * width)
        for condition, plan, cost in kinds
        for width in (4, 12, 24)
    ]
    found = plan_tables.floors({"rows": rows})
    assert found[1] == ["Spark reads, nothing else", "4.00 (0.25)", "12.00 (0.25)", "24.00 (0.25)"]
    assert found[3][1:] == ["12.00 (0.75)", "36.00 (0.75)", "72.00 (0.75)"]
    assert found[5] == ['`plan="udf"`', "12.00 (0.75)", "36.00 (0.75)", "72.00 (0.75)"]
