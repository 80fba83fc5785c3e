"""Top and skyline: their partials merge in any way, and what early results missed is measured."""

from __future__ import annotations

import random

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from tests.support.examples import examples
from tests.support.micro_batches import processed

import rivermouth as rm
from rivermouth.errors import ColumnError, DefinitionError
from rivermouth.kernels.aggregation.evaluation import early_results, evaluate
from rivermouth.kernels.aggregation.plan import AggPlan
from rivermouth.kernels.aggregation.preferences import missing_shares
from rivermouth.kernels.aggregation.thresholds import WindowStats, of_set, required_coverage
from rivermouth.testing.recompute import by_window, differences, recompute

SECOND = 1_000_000
FAST = settings(max_examples=examples(60), deadline=None, suppress_health_check=list(HealthCheck))
ASKED = {
    "first": rm.top(1, by="a"),
    "some": rm.top(4, by={"b": "min", "a": "max"}, columns=["name", "b"]),
    "all": rm.top(1000, by={"c": "min"}, columns=["name", "a", "b"]),
    "line": rm.skyline({"a": "max"}, columns="name"),
    "two": rm.skyline({"a": "min", "c": "max"}, columns=["a", "c", "name"]),
    "three": rm.skyline({"a": "min", "b": "max", "c": "min"}),
}
SMALL = st.one_of(st.none(), st.integers(0, 5))
ROWS = st.lists(
    st.tuples(
        st.integers(-20 * SECOND, 40 * SECOND), SMALL, SMALL,
        st.one_of(st.none(), st.sampled_from([0.0, -0.0, 1.5, -1.5, float("nan"), float("inf")])),
        st.sampled_from([None, "", "z", "é", "zz"]),
    ),
    min_size=1, max_size=60,
)  # fmt: skip


def table_of(rows):
    at, a, b, c, name = zip(*rows, strict=True)
    return pa.table(
        {
            "at": pa.array(at, pa.timestamp("us")),
            "a": pa.array(a, pa.int64()),
            "b": pa.array(b, pa.int32()),
            "c": pa.array(c, pa.float64()),
            "name": pa.array(name, pa.string()),
        }
    )


def asked(window, **aggregates):
    return rm.summary(time="at", window=window, **(aggregates or ASKED))


@FAST
@given(
    ROWS, st.randoms(), st.integers(1, 20),
    st.sampled_from([rm.tumbling("20 seconds"), rm.sliding("24 seconds", every="1 second")]),
)  # fmt: skip
def test_any_order_and_any_cut_give_the_same_records(rows, random, size, window):
    table, summary = table_of(rows), asked(window)
    random.shuffle(rows)
    mixed = table_of(rows)
    batches = [mixed.slice(begin, size) for begin in range(0, mixed.num_rows, size)]
    found = processed(batches, summary, rm.fixed("1 hour"), last=True)
    assert differences(by_window(found.results(), summary), recompute(table, summary)) == []


@FAST
@given(ROWS, st.integers(1, 9))
def test_partials_of_partials_are_partials(rows, size):
    table, summary = table_of(rows), asked(rm.tumbling("20 seconds"))
    plan = AggPlan(summary, {name: table.schema.field(name).type for name in summary.columns})
    merged = None
    for begin in range(0, table.num_rows, size):
        part = table.slice(begin, size)
        lifted = plan.lift(part, plan.times(part))
        both = [lifted] if merged is None else [merged, lifted]
        merged = plan.merge(pa.concat_tables(both, promote_options="default").combine_chunks())
    found = plan.results(merged, -10, 10)
    truth = recompute(table, summary)
    for name, values in found.values.items():
        starts = (found.windows.window * 20 * SECOND).tolist()
        got = dict(zip(((start,) for start in starts), values.to_pylist(), strict=True))
        one = {key: {name: value} for key, value in got.items()}
        two = {key: {name: value[name]} for key, value in truth.items()}
        assert differences(one, two) == []


def test_a_partial_keeps_no_more_than_it_may():
    rng = random.Random(5)
    rows = [(k, rng.randrange(10**6), rng.randrange(10**6), rng.random(), "x") for k in range(5000)]
    table = table_of(rows)
    summary = asked(
        rm.tumbling("1 second"), best=rm.top(7, by="a", columns=["name"]),
        sky=rm.skyline({"a": "min", "b": "min"}),
    )  # fmt: skip
    plan = AggPlan(summary, {name: table.schema.field(name).type for name in summary.columns})
    partials = plan.lift(table, plan.times(table))
    kept = [len(partials.column(name)[0].as_py()) for name in partials.column_names if "." in name]
    assert kept[0] == 7
    assert kept[1] < 40  # about the logarithm of the records


def test_records_that_get_better_and_better_are_found_in_every_window():
    """Each record dominates all before it: no window's skyline may need all of them."""
    count = 3000
    for sign in (1, -1):
        rows = [(k * SECOND, sign * k, sign * k, 0.0, None) for k in range(count)]
        summary = asked(
            rm.sliding("500 seconds", every="1 second"), sky=rm.skyline({"a": "max", "b": "max"})
        )
        found = processed([table_of(rows)], summary, rm.fixed("0 seconds"), last=True).results()
        ends = found.column("window_end").cast(pa.int64()).to_numpy() // SECOND
        newest = np.minimum(ends - 1, count - 1) if sign > 0 else -np.maximum(ends - 500, 0)
        assert [row[0]["a"] for row in found.column("sky").to_pylist()] == newest.tolist()


def test_what_early_lists_missed_is_a_share_of_the_true_ones():
    def lists(*rows):
        made = [None if row is None else [{"v": v, "w": None} for v in row] for row in rows]
        return pa.array(made, pa.list_(pa.struct([("v", pa.int64()), ("w", pa.string())])))

    early = lists([3, 2, 1], [5], None, [], [7, 7], [1])
    final = lists([4, 3, 2], [5], [1, 2], None, [7, 7, 7, 7], [])
    assert missing_shares(early, final).tolist() == [pytest.approx(1 / 3), 0, 1, 0, 0.5, 0]


def test_early_results_are_evaluated_by_the_share_that_was_missing():
    """Of the ten best of the first window two come late, of the second one, of the third none."""
    late = {(0, 15), (0, 19), (1, 11), (2, 3)}
    rows = [(s * SECOND + k, k, k, float(k), "x") for s in range(4) for k in range(20)]
    on_time = [row for row in rows if (row[0] // SECOND, row[1]) not in late and row[0] < 3e6]
    summary = asked(rm.tumbling("1 second"), best=rm.top(10, by="a"), n=rm.count())
    table = table_of(rows)
    types = {name: table.schema.field(name).type for name in summary.columns}
    plan = AggPlan(summary, types, with_stats=True)
    early, final = (
        plan.results(plan.lift(each, plan.times(each)), 0, 3) for each in (table_of(on_time), table)
    )
    kept = early_results(early, with_values=True)
    for eps, above in ((0.05, 3), (0.15, 2), (0.25, 1)):  # the last window was never emitted
        found = evaluate(rm.quality(eps=eps), kept, final)
        assert found.above_by["best"] == above


def test_the_required_coverage_of_a_set_is_that_of_a_binomial():
    assert of_set(0.05, 0.05, 1) == pytest.approx(0.95)  # as for a minimum
    rng = np.random.default_rng(1)
    for eps, delta, size in ((0.05, 0.05, 10), (0.2, 0.1, 25), (0.1, 0.05, 100)):
        missing = rng.binomial(size, 1 - of_set(eps, delta, size), 400_000) / size
        assert np.mean(missing >= eps) == pytest.approx(delta, rel=0.05)
    summary = asked(rm.tumbling("1 second"), best=rm.top(10, by="a"))
    stats = {None: WindowStats(500)}
    assert required_coverage(summary, rm.quality(), stats) == of_set(0.05, 0.05, 10)
    few = {None: WindowStats(3)}
    assert required_coverage(summary, rm.quality(), few) == of_set(0.05, 0.05, 3)
    sky = asked(rm.tumbling("1 second"), sky=rm.skyline({"a": "min", "b": "max"}))
    worst = max(of_set(0.05, 0.05, size) for size in range(1, 200))
    assert required_coverage(sky, rm.quality(), stats) == worst


@pytest.mark.parametrize(
    ("make", "sentence"),
    [
        (lambda: rm.top(0, by="v"), r"^top: k is 0\. Give a whole number of records, 1 or more"),
        (lambda: rm.top(True, by="v"), r"^top: k is True"),
        (lambda: rm.top(1, by={}), r"^top: by is \{\}\. Name columns and what is better"),
        (lambda: rm.top(1, by={"v": "most"}), r"^top: of column 'v' the 'most' is wanted\. Write"),
        (lambda: rm.skyline("v"), r"^skyline: by is 'v'\. Name columns and what is better of each"),
        (lambda: rm.skyline({"v": "min"}, columns=[]), r"^skyline: columns is \[\]\. Name the"),
        (
            lambda: rm.top(1, by="v", columns=["a", "A"]),
            r"^top: a record would have two columns called 'A'; columns names 'a', too\. Name each",
        ),
    ],
)
def test_what_makes_no_sense_is_refused(make, sentence):
    with pytest.raises(DefinitionError, match=sentence):
        make()


@pytest.mark.parametrize(
    ("aggregate", "sentence"),
    [
        (
            rm.top(1, by="name"),
            r"^summary: best=top\(1, by=\{'name': 'max'\}, columns=\['name'\]\) is asked of a "
            r"column of type string; top is of numbers",
        ),
        (
            rm.skyline({"a": "min"}, columns=["a", "both"]),
            r"is asked of a column of type struct<.*>; skyline is of columns that are not nested",
        ),
    ],
)  # fmt: skip
def test_columns_without_an_order_are_refused(aggregate, sentence):
    types = {"at": pa.timestamp("us"), "a": pa.int64(), "name": pa.string()}
    types["both"] = pa.struct([("x", pa.int64())])
    with pytest.raises(ColumnError, match=sentence):
        AggPlan(asked(rm.tumbling("1 second"), best=aggregate), types).schema()
