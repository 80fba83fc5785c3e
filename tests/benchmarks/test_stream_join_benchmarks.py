"""The tables and plots of joins of two streams say what was measured."""

import subprocess
import sys
import time

import matplotlib as mpl
import pytest
from benchmarks.harness import stacks
from benchmarks.harness.daytime import Daytime
from benchmarks.harness.experiment import DATA
from benchmarks.harness.tdrive import TDRIVE
from benchmarks.suites.stream_join import join_tables

mpl.use("svg")


def line(case, workload, rows, pairs, cpu):
    return {
        "case": case, "workload": workload, "rows": rows, "pairs": pairs,
        "rows_per_cpu_s": rows / cpu, "pairs_per_cpu_s": pairs / cpu,
    }  # fmt: skip


def test_each_is_compared_with_sparks_own_of_the_same_workload():
    rows = [
        line("join_interval", "sparse", 100, 500, 1),
        line("native_cells", "sparse", 100, 500, 20),
        line("join_interval", "dense", 100, 9000, 1),
        line("native_cells", "dense", 100, 9000, 50),
        line("flink_cells", "dense", 100, 9000, 25),
    ]
    head, *cells = join_tables.stream_stream({"rows": rows})
    assert head[-1] == "to Spark's"
    assert [row[-1] for row in cells] == ["20.0", "1.0", "50.0", "1.0", "2.0"]


def test_every_axis_has_a_panel():
    rows = [
        {"axis": axis, "case": "join_interval", "value": value, "rows_per_s": 10.0 * value}
        for axis in join_tables.AXES
        for value in (1, 2)
    ]
    figure = join_tables.growth_plot({"rows": rows})
    assert [axes.get_xlabel() for axes in figure.axes] == list(join_tables.AXES.values())
    assert all(len(axes.lines) == 1 for axes in figure.axes)


def test_cpu_seconds_of_python_are_those_of_its_parts():
    rows = [
        {"case": "join_interval", "jvm_s": 6.0, "python_s": 5.0},
        {"case": "rows_in", "jvm_s": 2.0, "python_s": 1.0},
        {"case": "python", "looks": 10, "shares": {"search": 0.2, "PySpark's own": 0.8}},
    ]
    assert join_tables.stream_stream_where({"rows": rows})[1:] == [
        [join_tables.LABELS["join_interval"], "6.0", "5.0"],
        [join_tables.LABELS["rows_in"], "2.0", "1.0"],
        ["of the join's Python: PySpark's own", "", "4.0"],
        ["of the join's Python: search", "", "1.0"],
    ]


def test_a_stack_is_of_the_part_that_its_innermost_known_frame_is_in():
    stacks_seen = {
        "main (daemon.py:1);process (kernels/state/bucketing.py:5);sort (numpy/sort.py:1)": 2,
        "main (daemon.py:1);process (kernels/state/bucketing.py:5);find (band_join.py:9)": 1,
        "main (daemon.py:1);read (serializers.py:3)": 1,
    }
    parts = {"band_join.py": "search", "state/bucketing.py": "messages"}
    assert stacks.by_part(stacks_seen, parts, "other") == {
        "search": 0.25, "messages": 0.5, "other": 0.25,
    }  # fmt: skip


def test_cpu_time_is_told_apart_by_program():
    spinning = subprocess.Popen([sys.executable, "-c", "while True: pass"])
    try:
        deadline = time.monotonic() + 30
        while sum(stacks.by_program(spinning.pid).values()) < 0.3:
            assert time.monotonic() < deadline
            time.sleep(0.05)
        (name,) = stacks.by_program(spinning.pid)
        assert name.startswith("python")
    finally:
        spinning.kill()
        spinning.wait()


@pytest.mark.skipif(not (DATA / TDRIVE).exists(), reason="needs the shared T-Drive data")
def test_the_daytime_is_inside_beijing_and_in_order_of_time():
    table = Daytime(1, minutes=2)._table()
    times = table["ts"].to_numpy()
    assert 2000 < table.num_rows < 10_000
    assert (times[1:] >= times[:-1]).all()
    assert 115 < table["lon"].to_numpy().min() < table["lon"].to_numpy().max() < 118
