"""Paper B's experiment: its streams, its truth, and what is made of what the system wrote."""

from __future__ import annotations

import json
import math

import pyarrow as pa
import pytest
from benchmarks.harness import plots, report
from benchmarks.papers.paper_b import games, measures
from benchmarks.papers.paper_b import plots as paper_b_plots
from benchmarks.papers.paper_b.games import EVERY_US, SIZE_US, Truth
from benchmarks.papers.paper_b.system import Answer, Replayed


@pytest.mark.parametrize("game", [1, 2])
def test_the_games_are_as_disordered_as_table_1_says(game):
    found, paper = games.measured(games.records(game)), games.TABLE1[game]
    assert found.records == paper.records
    assert found.late == pytest.approx(paper.late, abs=0.001)
    assert found.mean_delay_ms == pytest.approx(paper.mean_delay_ms, abs=0.5)
    assert found.max_delay_s == pytest.approx(paper.max_delay_s, abs=0.05)


def test_part_of_a_game_is_what_arrived_in_its_seconds():
    part, whole = games.records(1, 5.0, 3.0), games.records(1)
    arrival = games.microseconds(whole, "arrival")
    inside = (arrival >= arrival[0] + 5_000_000) & (arrival < arrival[0] + 8_000_000)
    assert part.equals(whole.filter(pa.array(inside)))


@pytest.mark.parametrize("game", [1, 2])
def test_the_longest_outage_is_where_it_is_said_to_be(game):
    begin, longest = games.outage(game), games.GAMES[game].longest_s
    around = games.records(game, begin - 1, longest + 2)
    assert games.measured(around).max_delay_s == pytest.approx(longest, abs=0.05)


def test_the_truth_is_each_windows_sum_over_all_records():
    table = games.records(2, 0.0, 4.0)
    times, values = games.microseconds(table, "at").tolist(), table["value"].to_pylist()
    first, last = min(times) // EVERY_US - 5, max(times) // EVERY_US
    expected = {}
    for start in (number * EVERY_US for number in range(first, last + 1)):
        inside = [at for at in range(len(times)) if start <= times[at] < start + SIZE_US]
        if inside:
            made = sum(times[at] for at in inside) / len(inside)
            expected[start] = (math.fsum(values[at] for at in inside), len(inside), made)
    truth = games.truth(table)
    assert truth.start.tolist() == sorted(expected)
    for start, total, count, made in zip(
        truth.start.tolist(), truth.total.tolist(), truth.records.tolist(), truth.made, strict=True
    ):
        assert (total, count) == expected[start][:2]
        assert made == pytest.approx(expected[start][2], abs=1)


S = 1_000_000
#: three windows of sums 100, 200, 400; the records of each are made 0.25 s after its start
TRUTH = Truth(
    *(
        pa.array(values).to_numpy()
        for values in (
            [0, S, 2 * S],
            [100.0, 200.0, 400.0],
            [10, 10, 20],
            [0.25 * S, 1.25 * S, 2.25 * S],
        )
    )
)


def answer(start, total, written, *, revision=0, slack=1.0):
    return Answer(start * S, total, 10, slack, revision, written)


@pytest.fixture
def found():
    """The first window was right at once, the second off by a tenth until it was corrected; the
    third was first given at the end."""
    history = [
        answer(0, 100.0, 1002.0, slack=1.0),
        answer(1, 180.0, 1003.0, slack=3.0),
        answer(1, 200.0, 1010.0, revision=1),
        answer(2, 400.0, 1030.0),
    ]
    return Replayed(
        began=1000.0, ended=1020.0, history={"exact": history, "mp": history[:2]},
        store={0: 100.0, S: 200.0, 2 * S: 400.0},
        batches={"exact": [(1001.0, 0.5), (1002.0, 0.5)], "mp": [(1001.0, 0.5), (1002.0, 0.5)]},
        emitted={0: 1001.01, S: 1002.01, 2 * S: 1025.0}, corrections=[(1010.0, 1), (1030.0, 1)],
    )  # fmt: skip


def test_before_is_what_was_said_first_and_after_what_is_said_in_the_end(found):
    row = measures.accuracy("exact", found, TRUTH)
    assert row["before"] == {"answers": 2, "within_eps": 0.5, "accuracy": 0.95, "exact": 0.5}
    assert row["after"] == {"answers": 3, "within_eps": 1.0, "accuracy": 1.0, "exact": 1.0}
    assert (row["mean_slack_s"], row["max_slack_s"]) == (2.0, 3.0)
    assert (row["corrections"], row["updates"], row["store_exact"]) == (2, 1, 1.0)


def test_over_time_a_reader_sees_what_was_written_until_then(found):
    line = measures.accuracy("exact", found, TRUTH)["over_time"]
    assert line["run_s"] == [2.0, 3.0, 10.0, 30.0]
    assert line["within_eps"] == [1.0, 0.5, 1.0, 1.0]
    assert line["accuracy"] == [1.0, 0.95, 1.0, 1.0]
    assert (line["event_s"], line["slack_s"]) == ([0.0, 1.0], [1.0, 3.0])


def test_an_answer_that_should_not_be_there_is_no_answer(found):
    found.history["mp"].append(answer(7, 1.0, 1004.0))
    assert measures.accuracy("mp", found, TRUTH)["after"]["within_eps"] == pytest.approx(1 / 3)


def test_a_store_that_lacks_a_window_is_not_exact(found):
    del found.store[S]
    assert measures.accuracy("exact", found, TRUTH)["store_exact"] == pytest.approx(2 / 3)


def test_latency_is_wall_time_from_making_to_the_answer(found):
    row = measures.latency("exact", found, TRUTH, origin_us=0, factor=1.0)
    # made at 1000.25 and 1001.25, answered at 1002 and 1003
    assert row["postgres"]["mean_s"] == pytest.approx(1.75)
    assert row["postgres"]["after_window_s"] == pytest.approx(1.5)
    # the batches of the answers ended at 1001.5 and 1002.5; the third came after the stream's end
    assert row["store"]["mean_s"] == pytest.approx(1.25)
    assert (row["postgres"]["answers"], row["store"]["answers"]) == (2, 2)


def test_a_replay_at_twice_the_speed_makes_records_in_half_the_time(found):
    row = measures.latency("mp", found, TRUTH, origin_us=0, factor=2.0)
    assert row["postgres"]["mean_s"] == pytest.approx((2 - 0.125 + 3 - 0.625) / 2)


@pytest.fixture
def results(tmp_path, found):
    about = {
        "date": "2026-01-02T00:00:00+00:00",
        "machine": {"cpu": "a processor", "cores": 2, "memory_gb": 23.4},
        "versions": {"pyspark": "4.3.0", "python": "3.11.7", "geos": "3.14.0"},
    }
    every = {
        "accuracy": [{"game": 2} | measures.accuracy(c, found, TRUTH) for c in ("exact", "mp")],
        "latency": [
            {"game": 2} | measures.latency(c, found, TRUTH, origin_us=0, factor=1.0)
            for c in ("exact", "mp")
        ],
        "scale": [
            {
                "hosts": hosts,
                "grouped": grouped,
                "rows_per_s": 1000.0 * hosts**0.9,
                "worker_cores": [0.2] * hosts,
            }
            for hosts in (1, 2, 4)
            for grouped in (False, True)
        ],
    }
    more = {
        "accuracy": {"disorder": {"2": games.TABLE1[2]._asdict()}},
        "scale": {"cores": {"worker": 0.25}},
    }
    for part, rows in every.items():
        document = about | more.get(part, {}) | {"rows": rows}
        (tmp_path / f"paper_b_{part}.json").write_text(json.dumps(document))
    return tmp_path


def test_the_tables_stand_beside_the_papers_numbers(results):
    lines = report.render("paper_b_table1", results).splitlines()
    assert lines[2:4] == [
        "| Game 2, the paper | 559,211 | 66.82 % | 17.1 s | 64.0 ms |",
        "| Game 2, here | 559,211 | 66.82 % | 17.1 s | 64.0 ms |",
    ]
    ours = "| Game 2 | **`rm.exact`**, `rm.quality()` |"
    assert f"{ours} 2.00 s | 100 % | 3.00 s |" in report.render("paper_b_buffer", results)
    shown = report.render("paper_b_accuracy", results)
    assert f"{ours} 2 of 3 | 50.00 % | 95.00 % | 2 | 100.00 % | 100.00 % (of all" in shown
    shown = report.render("paper_b_latency", results)
    assert "| Game 2 | **`rm.exact`**, `rm.quality()`, in the store | 1.25 s | 71 % |" in shown
    shown = report.render("paper_b_scale", results)
    assert "| not grouped: speed-up | 1.00 | 1.87 | 3.48 |" in shown
    assert "| not grouped: cores used, of 0.25 of each host | 0.20 | 0.20 | 0.20 |" in shown


def test_every_figure_is_drawn(results, tmp_path):
    drawn = {path.stem for path in plots.draw_all(results, tmp_path / "img")}
    assert drawn == {f"paper_b_{name}" for name in ("buffer", "accuracy", "latency", "scale")}


def test_no_panel_of_figure_3_ends_below_its_lines():
    def row(game, slack):
        return {
            "game": game, "case": "exact", "over_time": {"event_s": [0.0, 1.0], "slack_s": slack}
        }  # fmt: skip

    figure = paper_b_plots.figure3({"rows": [row(1, [0.0, 1.0]), row(2, [0.0, 25.0])]})
    assert all(axes.get_ylim()[1] >= 25 for axes in figure.axes)
