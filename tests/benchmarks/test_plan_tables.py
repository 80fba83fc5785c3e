"""The tables of join_table's plans, from rows made by hand."""

from benchmarks.suites.table_join import plan_tables


def row(condition, width, rows, plan, cost):
    return {
        "condition": condition,
        "width": width,
        "rows": rows,
        "plan": plan,
        "cpu_s_per_million": cost,
    }


def test_a_cell_names_its_best_plan_and_the_defaults_distance_from_it():
    found = plan_tables.plans(
        {
            "rows": [
                row("keys", 24, 2000, "workers", 6.0),
                row("keys", 24, 2000, "udf", 4.0),
                row("keys", 24, 2000, "native", 5.0),
                row("nearest", 4, 2000, "workers", 2.0),
                row("nearest", 4, 2000, "udf", 3.0),
            ]
        }
    )
    assert found[1:] == [
        ["keys, 24, 2,000", "6.00", "4.00", "5.00", "`udf`", "1.50"],
        ["nearest, 4, 2,000", "2.00", "3.00", "", "`workers`", "1.00"],
    ]


def test_the_largest_batches_stand_beside_rows_that_only_pass_through():
    kinds = [("none", "scan", 1), ("none", "identity", 4), ("none", "constant", 3)]
    kinds += [("within", plan, 3) for plan in ("workers", "udf", "native")]
    rows = [
        row(condition, width, size, plan, cost * width)
        for condition, plan, cost in kinds
        for width in (4, 12, 24)
        for size in (2000, 450_000)
    ]
    found = plan_tables.floors({"rows": rows})
    assert found[1] == ["Spark reads, nothing else", "4.00 (0.25)", "12.00 (0.25)", "24.00 (0.25)"]
    assert found[3][1:] == ["12.00 (0.75)", "36.00 (0.75)", "72.00 (0.75)"]
    assert found[5] == ['`plan="udf"`', "12.00 (0.75)", "36.00 (0.75)", "72.00 (0.75)"]
