"""The tables and plots of joins of two streams say what was measured."""

import matplotlib as mpl
import pytest
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


@pytest.mark.skipif(not (DATA / TDRIVE).exists(), reason="needs the shared T-Drive data")
def test_the_daytime_is_inside_beijing_and_in_order_of_time():
    table = Daytime(1, minutes=2)._table()
    times = table["ts"].to_numpy()
    assert 2000 < table.num_rows < 10_000
    assert (times[1:] >= times[:-1]).all()
    assert 115 < table["lon"].to_numpy().min() < table["lon"].to_numpy().max() < 118
