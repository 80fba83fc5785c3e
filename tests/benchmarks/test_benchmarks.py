"""The benchmarks' own ground: what it counts, how it alternates, what it writes down."""

import json
import os
import signal
import subprocess
import sys
import time

import pyarrow.parquet as pq
import pyspark
import pytest
from benchmarks.harness import accounting, experiment, plots, report
from benchmarks.harness.runner import Runner, RunnerFailed
from benchmarks.papers import disorder_tables, shares
from benchmarks.suites.keys import keyed

BURN = """
import time
def burn(seconds):
    end = time.process_time() + seconds
    while time.process_time() < end: sum(range(1000))
"""


def python(code: str) -> subprocess.Popen[str]:
    """A process that runs `code`, with pipes to talk to it."""
    return subprocess.Popen(
        [sys.executable, "-c", BURN + code],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )


def used_when_ready(code: str) -> float:
    """CPU seconds of the tree of ``code`` when it says "ready", give or take some ticks."""
    with python(code + "\nprint('ready', flush=True)\ninput()") as process:
        assert process.stdout.readline() == "ready\n"
        used = accounting.cpu_seconds(process.pid)
        process.communicate("\n")
    return used


def test_a_child_that_burned_a_second_and_was_waited_for_is_counted():
    code = "import subprocess, sys\nsubprocess.run([sys.executable, '-c', BURN + 'burn(1)'])"
    assert 0.95 <= used_when_ready(f"BURN = {BURN!r}\n{code}") < 1.6


def test_a_grandchild_that_ended_under_a_child_that_lives_is_counted_once():
    code = """
import os, time
reader, writer = os.pipe()
if os.fork() == 0:                                   # the child: forks like Spark's daemon
    if os.fork() == 0:
        burn(0.5); os._exit(0)
    os.wait(); os.write(writer, b'x'); time.sleep(60)
os.read(reader, 1)
import atexit, signal; atexit.register(os.killpg, 0, signal.SIGKILL)
"""
    used = used_when_ready("import os; os.setpgid(0, 0)\n" + code)
    assert 0.45 <= used < 0.9


def test_a_child_that_ended_and_was_not_waited_for_is_counted():
    code = """
import os, time
if os.fork() == 0:
    burn(0.5); os._exit(0)
os.waitid(os.P_ALL, 0, os.WEXITED | os.WNOWAIT)      # it has ended, and stays a zombie
"""
    assert 0.45 <= used_when_ready(code) < 0.9


def test_a_child_that_nobody_is_told_of_is_counted_by_a_meter():
    code = """
import os, signal, time
signal.signal(signal.SIGCHLD, signal.SIG_IGN)        # as Spark's Python daemon has it
if os.fork() == 0:
    burn(0.5); time.sleep(2); os._exit(0)
print('forked', flush=True); input()
"""
    with python(code) as process:
        assert process.stdout.readline() == "forked\n"
        meter = accounting.Meter(process.pid)
        deadline = time.monotonic() + 30
        while len(accounting.tree(process.pid)) > 1 and time.monotonic() < deadline:
            time.sleep(0.1)
        assert accounting.cpu_seconds(process.pid) < 0.4
        assert 0.45 <= meter.seconds() < 0.9
        process.communicate("\n")


def test_an_orphan_stays_in_the_tree_of_an_ancestor_that_adopts():
    code = """
import os, sys
sys.path.insert(0, os.getcwd())
from benchmarks.harness.accounting import adopt_orphans
adopt_orphans()
reader, writer = os.pipe()
if os.fork() == 0:
    if os.fork() == 0:
        burn(0.5); os.write(writer, b'x'); os._exit(0)
    os._exit(0)                                      # leaves the grandchild alone
os.wait(); os.read(reader, 1)
"""
    assert 0.45 <= used_when_ready(code) < 1.2


def look(**ticks):
    """What a look at a parent and perhaps its child finds."""
    pids = {"parent": 1, "child": 2}
    return [
        accounting.Process(pids[name], pids[name] - 1, 0, name, used)
        for name, used in ticks.items()
    ]


@pytest.mark.parametrize(
    "torn",
    [
        pytest.param(look(parent=150, child=50), id="seen, then its parent had its time too"),
        pytest.param(look(parent=100), id="its parent was seen, then it was gone"),
    ],
)
def test_a_look_during_which_a_child_was_reaped_does_not_count(torn, monkeypatch):
    whole = look(parent=150)
    looks = iter([look(parent=100, child=40), torn, whole, whole, whole])
    monkeypatch.setattr(accounting, "tree", lambda _: next(looks))
    assert accounting.cpu_seconds(1) == 150 / accounting.TICKS_PER_SECOND


def test_counting_while_children_come_and_go_never_goes_back():
    code = """
import os
print('ready', flush=True)
while True:
    if os.fork() == 0:
        burn(0.03); os._exit(0)
    os.wait()
"""
    with python(code) as process:
        process.stdout.readline()
        looks = [accounting.cpu_seconds(process.pid) for _ in range(50)]
        process.send_signal(signal.SIGKILL)
    assert looks == sorted(looks)
    assert looks[-1] > looks[0]


def test_there_is_no_time_in_a_tree_that_is_gone():
    process = python("")
    process.communicate("")
    assert accounting.cpu_seconds(process.pid) == 0


def test_a_name_with_blanks_and_parentheses_is_read():
    stat = "7 (a) (b c)) S 3 7 7 0 -1 0 1 2 3 4 100 200 300 400 20 0 1 0 55 0 0"
    process = accounting._parse(stat)
    assert (process.pid, process.parent, process.started) == (7, 3, 55)
    assert process.name == "a) (b c)"
    assert process.ticks == 1000


def test_memory_tells_private_pages_from_shared_ones():
    kept = bytearray(os.urandom(1 << 20) * 32)
    found = accounting.memory(os.getpid())
    assert found["private"] >= len(kept)
    assert found["rss"] == found["private"] + found["shared"]
    assert found["private"] <= found["pss"] <= found["rss"]


def test_rounds_alternate_and_warm_up_is_thrown_away():
    order = []

    def case(name):
        def run():
            order.append(name)
            return {"s": float(len(order))}

        return run

    rows = experiment.interleave({"a": case("a"), "b": case("b")}, runs=3, warmup=1)
    assert "".join(order) == "ab" + "ab" + "ba" + "ab"
    assert rows[0]["s"] == 6.0
    assert rows[0]["spread"]["s"] == [3.0, 7.0]
    assert rows[1]["runs"] == 3


def test_what_a_peer_runs_on_is_not_taken_for_our_own_version(tmp_path):
    peers = {"pyspark": "0.1", "sedona": "1.8.0"}
    found = json.loads(experiment.save("it", [], folder=tmp_path, peers=peers).read_text())
    assert found["versions"]["pyspark"] == pyspark.__version__
    assert found["versions"]["peer pyspark"] == "0.1"


def test_no_round_is_begun_once_the_time_is_up_but_one_is_measured():
    rows = experiment.interleave({"a": lambda: {"s": 1.0}}, runs=5, warmup=1, minutes=0)
    assert rows[0]["runs"] == 1


def test_a_result_carries_all_that_is_needed_to_repeat_it(tmp_path):
    path = experiment.save(
        "it", [{"case": "a", "s": 1}], folder=tmp_path, peers={"sedona": "1.8.0"}, seed=7, data="d"
    )
    found = json.loads(path.read_text())
    assert found["rows"] == [{"case": "a", "s": 1}]
    assert {found["seed"], found["data"], found["name"]} == {7, "d", "it"}
    assert found["machine"].keys() == {"cpu", "cores", "memory_gb", "kernel", "load_before"}
    assert {"python", "java", "pyspark", "shapely", "geos", "sedona"} <= found["versions"].keys()
    assert found["command"]
    assert found["commit"]
    assert found["date"]


def test_a_quick_run_never_lands_among_the_results(tmp_path, monkeypatch):
    monkeypatch.setattr(experiment, "CACHE", tmp_path)
    path = experiment.save("it", [], quick=True)
    assert path == tmp_path / "quick" / "it.json"
    assert json.loads(path.read_text())["quick"] is True


def test_absent_data_is_a_skip_with_a_word(tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(experiment, "DATA", tmp_path)
    with pytest.raises(SystemExit) as left:
        experiment.data("points.parquet")
    assert left.value.code == 0
    said = capsys.readouterr().err
    assert said == f"skipped: this benchmark reads {tmp_path}/points.parquet, which is not there\n"


ECHO = """
from benchmarks.harness.runner import serve
def answer(request):
    print("noise on standard output")
    if request["burn"] < 0: raise ValueError("cannot burn less than nothing")
    import time
    end = time.process_time() + request["burn"]
    while time.process_time() < end: pass
    return {"burned": request["burn"]}
serve(answer, {"hello": "there"})
"""


@pytest.fixture
def echo(tmp_path, monkeypatch):
    (tmp_path / "echo_runner.py").write_text(ECHO)
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    with Runner("echo_runner", name="test-echo") as runner:
        yield runner


def test_a_runner_answers_past_any_noise_and_is_measured_from_outside(echo):
    assert echo.ready().hello == {"hello": "there"}
    assert echo.ask(burn=0) == {"burned": 0}
    found = echo.measure(burn=0.3)
    assert found["burned"] == 0.3
    assert 0.25 <= found["cpu_s"] < 0.5


def test_a_runner_that_fails_says_why(echo):
    with pytest.raises(RunnerFailed, match="ValueError: cannot burn less than nothing"):
        echo.ask(burn=-1)


def result(folder, name, rows, **more):
    """A result file as `save` writes it, with just what the tables look at."""
    where = {"cpu": "a processor", "cores": 2, "memory_gb": 23.4}
    with_ = {"python": "3.11.7", "pyspark": "4.3.0", "geos": "3.14.0"}
    document = {"name": name, "machine": where, "versions": with_, "rows": rows}
    document["date"] = "2026-01-02T03:04:05"
    (folder / f"{name}.json").write_text(json.dumps(document | more))


def stream_row(case, cores, cpu, rate):
    return {
        "case": case, "cores": cores, "runs": 5, "cpu_s_per_million": cpu, "points_per_s": rate,
        "rows": 1_200_000, "batches": 12,
        "spread": {"cpu_s_per_million": [cpu - 0.25, cpu + 0.25]},
    }  # fmt: skip


@pytest.fixture
def streams(tmp_path):
    result(
        tmp_path,
        "stream_table",
        [
            stream_row("identity_with_district", 2, 1.0, 1_500_000.0),
            stream_row("workers", 2, 1.25, 1_234_567.0),
            stream_row("native", 2, 1.5, 999_999.0),
            stream_row("subdivided", 2, 12.5, 150_000.0),
            stream_row("workers", 1, 1.25, 617_283.0),
            stream_row("loop_over_batch", 2, 25.0, 60_000.0),
            {"case": "paper_rtree", "cores": 1, "points_per_s": 60_000},
        ],
    )
    return tmp_path


def test_the_stream_table_shows_cpu_time_its_spread_and_its_ratio_to_the_floor(streams):
    assert report.render("stream_table", streams).splitlines() == [
        "| T-Drive x 16 districts, 2 cores, 100,000 rows a micro-batch | CPU-s per million rows "
        "| to identity | points/s |",
        "| --- | ---: | ---: | ---: |",
        "| identity `mapInArrow` that adds a string column | 1.00 (0.75-1.25) | 1.00 | 1,500,000 |",
        '| **rivermouth**, `plan="workers"` | 1.25 (1.00-1.50) | 1.25 | 1,230,000 |',
        '| **rivermouth**, `plan="native"` | 1.50 (1.25-1.75) | 1.50 | 1,000,000 |',
        "| Sedona, polygons subdivided | 12.50 (12.25-12.75) | 12.50 | 150,000 |",
        "",
        "*Medians of 5 alternating runs (smallest-largest); 2 x a processor, 23 GB, Spark 4.3.0, "
        "Python 3.11.7, GEOS 3.14.0, 2026-01-02.*",
    ]


def test_the_headline_is_a_sentence_about_the_better_plan(streams):
    assert report.render("headline", streams) == (
        "Measured on 2 cores: taxis of Beijing placed in its 16 districts at "
        "**1,230,000 points/s**, 1.25 x the CPU time of passing the rows through Python unchanged "
        "and 1/10.0 of Sedona's.\n"
    )
    row = {"case": "native, real-time", "median_ms": 1.84}
    result(streams, "latency", [row], ratio={"median": 1.333})
    assert report.render("headline", streams).endswith(
        " Kafka to Kafka in real-time mode: **1.8 ms** at the median, 1.33 x that of a bare "
        "projection.\n"
    )


def test_a_headline_that_is_not_measured_yet_is_not_there(tmp_path):
    assert report.render("headline", tmp_path) == ""


def test_figure_11_sets_one_core_beside_two(streams):
    lines = report.render("figure11", streams).splitlines()
    assert '| **rivermouth**, `plan="workers"` | 617,000 | 1,230,000 | 2.00 |' in lines
    assert "| the paper: two-level R-tree on Flink | 60,000 |  |  |" in lines
    assert any(line.endswith("](img/figure11.svg)") for line in lines)


def test_growth_sets_ours_beside_shapelys_by_size(tmp_path):
    def row(case, rows, rate):
        return {
            "title": f"dwithin, {rows} rows", "question": "dwithin", "case": case, "rows": rows,
            "vertices": None, "points_per_s": rate,
        }  # fmt: skip

    rows = [row("rivermouth", 100, 2e6), row("shapely", 100, 1e5), row("rivermouth", 1000, 1e6)]
    result(tmp_path, "growth", rows)
    assert report.render("growth", tmp_path).splitlines()[:3] == [
        "| points/s, ours / shapely's | 100 | 1,000 |",
        "| --- | ---: | ---: |",
        "| dwithin, rows | 2,000,000 / 100,000 | 1,000,000 /  |",
    ]


def keyed_row(case, cpu, rate, **more):
    return {
        "case": case, "runs": 3, "cpu_s_per_million": cpu, "rows_per_s": rate,
        "wall_s_per_million": 1e6 / rate, "spread": {"cpu_s_per_million": [cpu, cpu]}, **more,
    }  # fmt: skip


def test_equality_is_set_beside_the_floor_and_ours_of_the_same_batch_size(tmp_path):
    def both(batch, floor):
        about = {"table_rows": 1000, "batch_rows": batch}
        return [
            keyed_row("identity_with_name", floor, 1e6, **about),
            keyed_row("workers", 1.2 * floor, 5e5, **about),
            keyed_row("spark_jdbc", 120 * floor, 5e3, store_cpu_s=7.0, **about),
        ]

    result(tmp_path, "equality", [*both(100, 2.0), *both(1000, 1.0)])
    lines = report.render("equality", tmp_path).splitlines()
    workers = '| **rivermouth**, `plan="workers"` |'
    assert f"{workers} 100 | 2.40 (2.40-2.40) | 1.2 | 1 |  | 2.00 | 1 |" in lines
    assert f"{workers} 1,000 | 1.20 (1.20-1.20) | 1.2 | 1 |  | 2.00 | 1 |" in lines
    assert lines[-3].endswith("| 120.00 (120.00-120.00) | 120 | 100 | 7.00 | 200.00 | 100 |")


def test_bars_of_equality_stand_beside_what_the_floors_allow(tmp_path):
    costs = {"scan": 2.0, "identity_with_name": 4.0, "workers": 5.0, "spark_cached": 20.0}
    rows = [keyed_row(case, cpu, 1e6, batch_rows=100_000) for case, cpu in costs.items()]
    rows.append(keyed_row("spark_jdbc", 60.0, 1e4, batch_rows=100_000, store_cpu_s=40.0))
    result(tmp_path, "equality", rows)
    assert report.render("equality_bars", tmp_path).splitlines()[2:5] == [
        "| to the identity `mapInArrow` | at most 1.35 | 1.25 | 1 |  |",
        "| Spark's join with the table cached, to ours | at least 10 | 4 | 5 | 10 |",
        "| Spark's join by JDBC, to ours | at least 50 | 20 | 25 | 50 |",
    ]


def test_bars_of_ranges_are_taken_from_sparks_better_form_and_the_largest_table(tmp_path):
    at_headline = {"sorted": 9e5, "spark_cached": 3e5, "spark_broadcast": 2e5}
    rows = [keyed_row(case, 1e6 / rate, rate, power=21) for case, rate in at_headline.items()]
    rows += [keyed_row("sorted", 1.0, rate, power=power) for power, rate in ((18, 1e6), (23, 8e5))]
    result(tmp_path, "ranges", rows)
    shown = [line.split(" | ")[-1] for line in report.render("range_bars", tmp_path).splitlines()]
    assert shown[2:5] == ["3 |", "3 |", "0.80 |"]


def test_tables_6_to_8_are_multiples_of_a_query_per_record(tmp_path):
    ours = {"by_record": (1e3, 2e4), "skiplist": (5e3, 8e4), "ideal_skiplist": (6e3, 9e4)}
    rows = [
        keyed_row(case, 1.0, here, power=21, paper_rows_per_s=paper)
        for case, (here, paper) in (ours | {"sorted": (2e4, None)}).items()
    ]
    result(tmp_path, "ranges", rows)
    assert report.render("tables6to8", tmp_path).splitlines()[2:4] == [
        "| 2^21 rows, the paper, 8 workers | 1.0 | 4.0 | 4.5 |  |",
        "| 2^21 rows, here | 1.0 | 5.0 | 6.0 | 20.0 |",
    ]


def test_figure_13_says_by_how_much_the_ideal_list_compares_less(tmp_path):
    rows = [
        {"rows": 2**18, "case": case, "counting": "all", "mean": mean, "variance": variance}
        for case, mean, variance in (("skiplist", 40.0, 1.5), ("ideal_skiplist", 30.0, 0.0))
    ]
    result(tmp_path, "figure13", rows)
    lines = report.render("figure13", tmp_path).splitlines()
    assert "| all: fewer by (the paper: about 25 %) | 25% |" in lines
    assert "| all: ideal, variance of the builds | 0 |" in lines


def test_sliding_windows_are_set_beside_sparks_own_of_the_same_windows_and_groups():
    def row(case, ratio, by, rate, batch=500_000):
        found = {"rows_per_cpu_s": rate, "spread": {"rows_per_cpu_s": [rate, 2 * rate]}}
        return found | {"case": case, "ratio": ratio, "by": by, "batch": batch}

    rows = [
        row("ours", 5, "sensor", 400_000.0), row("spark", 5, "sensor", 200_000.0),
        row("ours", 500, "", 300_000.0), row("spark", 500, "", 1_000.0, 5_000),
        row("floor", 5, "sensor", 600_000.0),
    ]  # fmt: skip
    _, *lines = disorder_tables.sliding({"rows": rows})
    rates = [f"{n}00,000 rows/CPU-s ({n}00,000 to {2 * n}00,000)" for n in (4, 2)]
    assert lines[0] == ["5", "sensor", *rates, "500,000", "2.0"]
    assert lines[1][-2:] == ["5,000", "300.0"]
    assert (lines[2][0], lines[2][-1]) == ("5: a `mapInArrow` that counts the rows", "3.0")


def test_hit_ratios_stand_by_size_and_skew_beside_the_best_that_is_known(tmp_path):
    rows = [
        {"z": 1.1, "part": part, "most": 0.9, "case": case, "hit_ratio": ratio}
        for part, case, ratio in (
            (0.01, "lru", 0.8),
            (0.01, "s3fifo", 0.85),
            (0.001, "lru", 0.5),
            (0.001, "s3fifo", 0.6),
        )
    ]
    result(tmp_path, "cache_hits", rows)
    assert report.render("hit_ratios", tmp_path).splitlines()[:4] == [
        "| held, of the keys: `lru` / `s3fifo` | z = 1.10 |",
        "| --- | ---: |",
        "| 0.1 % | 0.500 / 0.600 (0.900) |",
        "| 1 % | 0.800 / 0.850 (0.900) |",
    ]


def workload_row(case, feed, cores, size, rate, batch_ms):
    return {
        "case": case, "feed": feed, "cores": cores, "table_rows": size, "rows_per_s": rate,
        "out_per_s": 2 * rate, "batch_ms": batch_ms,
    }  # fmt: skip


@pytest.fixture
def recall(tmp_path):
    rows = []
    for cores, size in ((1, 1000), (2, 100), (2, 1000)):
        rows += [
            workload_row("ours", "latency", cores, size, 1e4, 300.0 / cores),
            workload_row("ours", "full speed", cores, size, 1e5 * cores, 900.0),
            workload_row("by_record", "full speed", cores, size, 1e3 * cores, 9e3 / cores),
        ]
    theirs = {"out_per_s": {"1": 3267, "2": 6281}, "batch_ms": {"1": 3.81, "2": 4.21}}
    result(tmp_path, "recall", rows, paper={"paper": theirs})
    return tmp_path


def test_a_workload_sets_cores_side_by_side_beside_the_papers(recall):
    assert report.render("recall", recall).splitlines()[2:5] == [
        "| the paper: BS-Join on Flink | 3,270 | 6,280 | 1.92 |  |  |",
        "| a query per record | 2,000 | 4,000 | 2.00 | 9 s | 4.5 s |",
        "| **rivermouth** | 200,000 | 400,000 | 2.00 | 0.3 s | 0.15 s |",
    ]


def test_a_workload_grows_in_milliseconds_per_ten_thousand_records(recall):
    assert report.render("recall_growth", recall).splitlines()[:4] == [
        "| Paper A, Figure 9(b): ms per 10,000 records | 100 rows | 1,000 rows |",
        "| --- | ---: | ---: |",
        "| a query per record | 5,000 | 5,000 |",
        "| **rivermouth** | 50 | 50 |",
    ]


def test_table_5_is_what_zipfs_law_says_of_ten_million_keys():
    for z, paper in shares.PAPER.items():
        assert shares.shares(z, shares.KEYS) == pytest.approx(paper, abs=0.02)


def test_a_probe_of_the_range_benchmark_meets_the_rows_that_its_truth_counts(tmp_path, monkeypatch):
    monkeypatch.setattr(keyed, "CACHE", tmp_path)
    stream = keyed.probes(10, 200, 2)
    table, asked = (
        pq.read_table(path).to_pylist()
        for path in (keyed.slices(10), stream.folder / "part-001.parquet")
    )
    met = sum(
        row["road"] == one["road"] and abs(row["slot"] - one["at"]) <= keyed.REACH
        for row in table
        for one in asked
    )
    assert stream.out[1] == met


def test_only_what_stands_between_markers_is_replaced(streams):
    page = "before\n<!-- bench:figure11 -->\nold\n<!-- /bench -->\nafter\n"
    filled = report.fill(page, streams)
    assert filled.startswith("before\n<!-- bench:figure11 -->\n| Paper C")
    assert filled.endswith("*\n<!-- /bench -->\nafter\n")
    assert "old" not in filled
    assert report.fill(filled, streams) == filled


def test_what_is_not_measured_yet_says_so(tmp_path):
    assert report.render("memory", tmp_path) == (
        "*Not measured yet: `python -m benchmarks memory`.*\n"
    )


def test_an_unknown_table_is_named(tmp_path):
    with pytest.raises(SystemExit, match="no table is called 'speed'"):
        report.fill("<!-- bench:speed -->\n<!-- /bench -->", tmp_path)


def test_check_fails_on_a_page_that_says_something_else(streams, monkeypatch):
    page = streams / "README.md"
    monkeypatch.setattr(report, "PAGES", {page: "img"})
    monkeypatch.setattr(report, "render", lambda name, *_: f"{name}: 1\n")
    page.write_text("<!-- bench:figure11 -->\nfigure11: 2\n<!-- /bench -->\n")
    with pytest.raises(SystemExit, match=r"README\.md: not what the JSONs say"):
        report.main(["--check"])
    page.write_text("<!-- bench:figure11 -->\nfigure11: 1\n<!-- /bench -->\n")
    report.main(["--check"])


def test_the_pages_say_what_the_results_say():
    report.main(["--check"])


def test_the_same_result_draws_the_same_picture(streams, tmp_path):
    drawn = plots.draw_all(streams, tmp_path / "a")
    again = plots.draw_all(streams, tmp_path / "b")
    assert [path.name for path in drawn] == ["figure11.svg"]
    assert drawn[0].read_bytes() == again[0].read_bytes()


def test_peers_that_do_more_with_the_same_time_come_first(tmp_path):
    def line(case, cost, **about):
        return {"case": case, "cpu_s_per_million": cost, **about}

    ranges = [line("sorted", 8.0, power=21), line("spark_cached", 10.0, power=21)]
    stream = [
        line("workers", 2.0, cores=2, points_per_s=9e5, batch_ms=400, memory_gb=2.0, astray=0),
        line("subdivided", 1.0, cores=2, points_per_s=2e6, memory_gb=1.25, astray=20),
    ]
    store = [line("s3fifo, present", 2.0, store_cpu_s=2.0), line("flink", 2.0, store_cpu_s=6.0)]
    for name, rows in (("ranges", ranges), ("stream_table", stream), ("incremental", store)):
        document = {"date": "2026-11-17T00:00:00", "rows": rows}
        (tmp_path / f"{name}.json").write_text(json.dumps(document))
    lines = report.render("peers", tmp_path).splitlines()[2:]
    cells = [[cell.strip() for cell in line.split("|")[2:9]] for line in lines]
    assert [line[:3] for line in cells] == [
        ["Sedona on Spark, subdivided", "500,000 / 1,000,000", "0.5"],
        ["Spark's own, cached", "125,000 / 100,000", "1.2"],
        ["Flink 2.3, lookup join", "250,000 / 125,000", "2"],
    ]
    assert [line[3:] for line in cells] == [
        ["900,000 / 2,000,000", "400 / -", "2 / 1.25", "20 rows astray"],
        ["", "", "", "as many rows"],
        ["", "", "", "as many rows"],
    ]
