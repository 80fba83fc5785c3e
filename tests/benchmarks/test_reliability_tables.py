"""What the soak and the fault campaign show of their results."""

import json

import pytest
from benchmarks.harness.experiment import save
from benchmarks.suites.reliability import fault_tables, soak, soak_tables


def found(*, grows):
    count = 400
    looks = [
        {
            "batch": 2 * (number + 1), "s": 60.0 * number, "java_mb": 500.0, "python_mb": 300.0,
            "heap_mb": 80.0, "cpu_s": 0.5 * number,
            "files": 100 + (number if grows else 0), "files_mb": 1.0, "store_mb": 2.0,
        }
        for number in range(count // 2)
    ]  # fmt: skip
    return {
        "looks": looks, "batch_ms": [400.0] * count, "state_rows": [50] * count,
        "state_mb": [2.0] * count, "rows_out": [10] * count,
        "corrections": [{"seconds": 0.5, "rows": 1, "upto": 1}] * 20,
    }  # fmt: skip


def test_the_last_tenth_is_compared_with_the_second():
    assert soak.tenths(range(100)) == (14.5, 94.5)
    row = soak.measured("exact", found(grows=True))
    assert row["files"] == (129.5, 289.5)
    assert row["cpu_ms"] == pytest.approx((250.0, 250.0)), "of a micro-batch, not of a look"
    assert row["correction_s"] == (0.5, 0.5)


def test_what_grows_is_shown_to_grow():
    rows = [soak.measured("exact", found(grows=True)), soak.measured("trips", found(grows=False))]
    head, trips, exact = soak_tables.table({"rows": rows})
    assert exact[head.index("files")] == "130 +124 %"
    assert trips[head.index("files")] == "100 +0 %"
    _, trips, exact = soak_tables.halves({"rows": rows})
    assert exact[head.index("files")] == "199 +50 %", "the most of each half, not of a tenth"
    assert trips[head.index("files")] == "100 +0 %"
    figure = soak_tables.picture({"rows": rows})
    (files,) = (axes for axes in figure.axes if axes.get_title(loc="left") == "files")
    assert files.get_ylim()[1] > 2.2, "the axis ends above its lines"


def test_campaigns_of_several_seeds_are_one_line():
    def row(workload, seed, **recovery):
        numbers = dict.fromkeys(("batches", "records", "rows"), 1000)
        return {
            "workload": workload, "seed": seed, "violations": 0, "restarts": 1,
            "recovery": recovery, **numbers,
        }  # fmt: skip

    result = {
        "rows": [
            row("window", 1, link_down=[2.0, 4.0], driver_kill=[20.0]),
            row("window", 2, link_down=[6.0]),
            row("spark_aggregate", 1, link_down=[3.0]),
        ]
    }
    _, window, spark = fault_tables.queries(result)
    assert window[1:] == ["4", "2,000", "2,000", "2,000", "0", "2", "5.0 s", "20.0 s"]
    assert spark[1] == "1"
    assert fault_tables.kinds(result)[1:] == [
        ["driver kill", "1", "20.0 s", "20.0 s", "0", "", ""],
        ["link down", "3", "4.0 s", "6.0 s", "1", "3.0 s", "3.0 s"],
    ]


def test_a_part_that_is_measured_again_leaves_the_others(tmp_path):
    def kept(*rows):
        path = save("soak", rows, folder=tmp_path, beside=("case",))
        return json.loads(path.read_text())["rows"]

    first, second = {"case": "trips", "files": 1}, {"case": "exact", "files": 2}
    assert kept(first, second) == [first, second]
    assert kept(first | {"files": 3}) == [second, first | {"files": 3}]
