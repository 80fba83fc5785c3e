"""Windows over records out of order, compared with windows recomputed from scratch."""

from __future__ import annotations

import datetime as dt
import itertools
from dataclasses import dataclass
from decimal import Decimal

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from tests.support.examples import examples
from tests.support.micro_batches import processed

import rivermouth as rm
from rivermouth.kernels.aggregation.plan import AggPlan
from rivermouth.kernels.aggregation.processor import AggregateProcessor
from rivermouth.kernels.aggregation.routing import PartialsRouter, thinned
from rivermouth.kernels.state.bucketing import Arrivals
from rivermouth.testing.recompute import by_window, differences, recompute, starts

SECOND = 1_000_000
WINDOWS = [
    rm.tumbling("4 seconds"),
    rm.sliding("6 seconds", every="2 seconds"),
    rm.sliding("5 seconds", every="3 seconds"),  # panes of a second, shorter than both
    rm.sliding("5 seconds", every="3 seconds", start="1234 milliseconds"),
]
SLACKS = [
    rm.fixed("0 seconds"),
    rm.fixed("3 seconds"),
    rm.max_delay(),
    rm.quality(eps=0.2),
    rm.quality(eps=0.2, controller="pd"),
]


@dataclass(frozen=True)
class Span:
    """The distance between extremes; nothing that was combined can be taken out again."""

    column: str
    result: str = "double"

    def lift(self, values):
        return values.astype(float), values.astype(float)

    def combine(self, one, other):
        return np.fmin(one[0], other[0]), np.fmax(one[1], other[1])

    def lower(self, state):
        return state[1] - state[0]


@dataclass(frozen=True)
class Parity:
    """How many integers are odd; this can be inverted."""

    column: str
    result: str = "bigint"

    def lift(self, values):
        return (values.astype(np.int64) % 2,)

    def combine(self, one, other):
        return (one[0] + other[0],)

    def invert(self, whole, part):
        return (whole[0] - part[0],)

    def lower(self, state):
        return state[0]


def everything(window, by=("key",)):
    return rm.summary(
        by=by, time="at", window=window,
        n=rm.count(), n_v=rm.count("v"), total=rm.sum("v"), whole=rm.sum("i"), exact=rm.sum("d"),
        mean=rm.mean("v"), mean_i=rm.mean("i"), low=rm.min("v"), high=rm.max("v"),
        first=rm.min("at"), low_i=rm.min("i"), high_d=rm.max("d"),
        var=rm.var("v"), std=rm.std("i"), mid=rm.median("v"), p9=rm.quantile("i", 0.9),
        kinds=rm.count_distinct("v"), words=rm.count_distinct("w"), span=Span("i"), odd=Parity("i"),
        top=rm.top(3, by="v", columns=["w", "i", "v"]), one=rm.top(1, by={"d": "min", "i": "max"}),
        sky=rm.skyline({"v": "max", "i": "min"}, columns=["d", "v", "w"]),
    )  # fmt: skip


DOUBLES = st.one_of(
    st.none(),
    st.floats(-1e3, 1e3),
    st.sampled_from([0.0, -0.0, 1e300, -1e300, 5e-324, float("inf"), float("nan")]),
)
ROWS = st.lists(
    st.tuples(
        st.integers(-30 * SECOND, 60 * SECOND),
        st.sampled_from(["a", "b", None]),
        DOUBLES,
        st.one_of(st.none(), st.integers(-(2**40), 2**40)),
        st.one_of(st.none(), st.decimals(-1000, 1000, places=2)),
        st.sampled_from(["x", "y", "", None]),
    ),
    min_size=1,
    max_size=40,
)
#: how records come to the buckets
WAYS = st.one_of(
    st.fixed_dictionaries({"late": st.just("rows"), "buckets": st.integers(1, 3)}),
    st.fixed_dictionaries(
        {
            "late": st.just("count"),
            "buckets": st.integers(1, 3),
            "tasks": st.integers(1, 3),
            "gathered": st.sampled_from([1, 8, 1 << 20]),
        }
    ),
)
FAST = settings(max_examples=examples(60), deadline=None, suppress_health_check=list(HealthCheck))


def table_of(rows):
    at, key, v, i, d, w = zip(*rows, strict=True)
    return pa.table(
        {
            "at": pa.array(at, pa.timestamp("us", "UTC")),
            "key": pa.array(key, pa.string()),
            "v": pa.array(v, pa.float64()),
            "i": pa.array(i, pa.int64()),
            "d": pa.array([None if x is None else Decimal(x) for x in d], pa.decimal128(10, 2)),
            "w": pa.array(w, pa.string()),
        }
    )


def cut(table, ends):
    """The table in pieces that end at these shares of it."""
    places = sorted({0, table.num_rows, *(int(end * table.num_rows) for end in ends)})
    return [table.slice(a, b - a) for a, b in itertools.pairwise(places)]


@FAST
@given(
    ROWS, st.sampled_from(WINDOWS), st.sampled_from([("key",), (), ("key", "v"), ("w", "d")]), WAYS
)
def test_a_batch_frame_gives_the_truth(rows, window, by, way):
    table, summary = table_of(rows), everything(window, by)
    found = processed([table], summary, rm.quality(), last=True, **way)
    assert differences(by_window(found.results(), summary), recompute(table, summary)) == []
    assert found.counts["on_time"] == len(rows)


@FAST
@given(
    ROWS,
    st.lists(st.floats(0, 1), max_size=8),
    st.sampled_from(WINDOWS),
    st.sampled_from(SLACKS),
    st.booleans(),
    WAYS,
)
def test_every_result_is_that_of_the_records_so_far(rows, ends, window, slack, with_cache, way):
    table, summary = table_of(rows), everything(window)
    batches = cut(table, ends)
    found = processed(batches, summary, slack, last=True, with_cache=with_cache, **way)
    gone = {}
    for number, emitted in enumerate(found.rows):
        so_far = recompute(pa.concat_tables(batches[: number + 1]), summary)
        results = by_window(emitted, summary)
        assert differences(results, {key: so_far[key] for key in results}) == []
        assert not results.keys() & gone.keys()
        gone |= results
    late = found.counts["late"]
    if way["late"] == "rows":
        assert sum(each.num_rows for each in found.late) == late
    assert found.counts["on_time"] + late == len(rows) == found.counts["rows_in"]


@FAST
@given(ROWS, st.lists(st.floats(0, 1), max_size=8), st.sampled_from(WINDOWS), st.integers(0, 9))
def test_a_record_is_late_if_any_of_its_windows_has_closed(rows, ends, window, seconds):
    table = table_of(rows)
    summary = rm.summary(by="key", time="at", window=window, n=rm.count())
    found = processed(cut(table, ends), summary, rm.fixed(dt.timedelta(seconds=seconds)))
    clock, expected = None, []
    for batch in cut(table, ends):
        times = batch.column("at").cast(pa.int64()).to_pylist()
        for time in times:
            ends_first = starts(time, summary)[0] + window.size_us
            if clock is not None and ends_first <= clock - seconds * SECOND:
                expected.append(time)
        clock = max([*times, *([] if clock is None else [clock])])
    late = pa.concat_tables(found.late).column("record").combine_chunks()
    assert late.field("at").cast(pa.int64()).to_pylist() == expected


@FAST
@given(ROWS, st.randoms(), st.sampled_from(WINDOWS))
def test_what_is_late_and_what_was_answered_make_the_truth(rows, random, window):
    """A result whose window has no late record is exact already."""
    table = table_of(rows)
    summary = everything(window)
    ends = [random.random() for _ in range(5)]
    found = processed(cut(table, ends), summary, rm.fixed("1 second"), last=True)
    truth = recompute(table, summary)
    late = pa.concat_tables(found.late).column("record").combine_chunks()
    touched = {
        (key, start)
        for key, time in zip(
            late.field("key").to_pylist(),
            late.field("at").cast(pa.int64()).to_pylist(),
            strict=True,
        )
        for start in starts(time, summary)
    }
    results = by_window(found.results(), summary)
    exact = {key: value for key, value in truth.items() if key not in touched}
    assert differences({key: v for key, v in results.items() if key not in touched}, exact) == []


@FAST
@given(ROWS, st.permutations(range(12)))
def test_the_order_of_records_does_not_matter(rows, order):
    rows = rows[:12]
    mixed = [rows[i] for i in order if i < len(rows)]
    summary = everything(WINDOWS[1])
    one, two = (
        processed([table_of(each)], summary, rm.fixed("0 seconds"), last=True).results()
        for each in (rows, mixed)
    )
    assert differences(by_window(one, summary), by_window(two, summary), within=0.0) == []


@FAST
@given(
    ROWS,
    st.lists(st.floats(0, 1), max_size=8),
    st.sampled_from(WINDOWS),
    st.sampled_from(SLACKS[:3]),
    st.integers(1, 3),
    st.integers(1, 3),
    st.sampled_from([1, 8, 1 << 20]),
)
def test_partials_give_what_records_give(rows, ends, window, slack, buckets, tasks, gathered):
    """The same results in the same micro-batch, the same K, the same counts."""
    batches, summary = cut(table_of(rows), ends), everything(window)
    by_rows = processed(batches, summary, slack, buckets=buckets)
    by_partials = processed(
        batches, summary, slack, late="count", buckets=buckets, tasks=tasks, gathered=gathered
    )
    assert by_partials.counts == by_rows.counts
    for one, two in zip(by_rows.rows, by_partials.rows, strict=True):
        assert differences(by_window(one, summary), by_window(two, summary), within=0.0) == []
        for name in ("slack", "window_end"):
            assert sorted(one.column(name).to_pylist()) == sorted(two.column(name).to_pylist())


@FAST
@given(
    st.lists(st.tuples(st.integers(-(10**17), 10**17), st.integers(0, 3)), min_size=1),
    st.one_of(st.integers(1, 1000), st.integers(1, 10**14)),
)
def test_thinned_times_are_near_the_records_own(records, pane):
    times, bucket = (np.array(part) for part in zip(*records, strict=True))
    cells, of = thinned(times, bucket.astype(np.int32), pane)
    for number in range(4):
        here = np.sort(times[bucket == number])
        found = cells.filter(pa.array(of == number))
        oldest, count = (found.column(name).to_numpy() for name in ("oldest", "count"))
        order = np.argsort(oldest)
        near = np.repeat(oldest[order], count[order])
        assert len(near) == len(here)
        off, age = here - near, times.max() - here
        assert (off >= 0).all()
        assert (off <= np.maximum(np.minimum(age, pane) / 8, np.ptp(times) / 2**48) + 1).all()
        assert near[:1].tolist() == here[:1].tolist()


def test_many_records_are_sent_as_few_rows():
    random = np.random.default_rng(3)
    at = np.sort(random.integers(0, 100 * SECOND, 50_000))
    table = pa.table({"at": pa.array(at, pa.timestamp("us")), "v": random.random(len(at))})
    summary = rm.summary(time="at", window=rm.tumbling("1 second"), total=rm.sum("v"))
    plan = AggPlan(summary, {name: table.schema.field(name).type for name in summary.columns})
    combined = PartialsRouter(plan, 1, 0).combine(table)
    assert combined.rows.num_rows == 100
    assert combined.times.num_rows < 1000


def test_state_is_merged_and_dropped_as_time_goes_on():
    count = 120
    rows = [(k * SECOND, "abc"[k % 3], float(k), k, Decimal(k), "x") for k in range(count)]
    table = table_of(rows)
    summary = everything(rm.sliding("10 seconds", every="1 second"))
    batches = [table.slice(k, 1) for k in range(count)]
    found = processed(batches, summary, rm.fixed("2 seconds"), last=True)
    assert differences(by_window(found.results(), summary), recompute(table, summary)) == []
    assert found.reports[-2]["state"]["entries"] < 60


def test_a_stream_may_jump_over_years():
    year = 365 * 86_400 * SECOND
    rows = [(k * year, "a", 1.0, k, None, "x") for k in range(6)]
    summary = rm.summary(
        by="key", time="at", window=rm.sliding("1 second", every="100 milliseconds"), n=rm.count()
    )
    batches = [table_of([row]) for row in rows]
    found = processed(batches, summary, rm.quality(), last=True)
    assert found.results().num_rows == 10 * len(rows)


def test_a_sum_that_does_not_fit_is_an_error():
    table = pa.table(
        {"at": pa.array([0, 1], pa.timestamp("us")), "i": pa.array([2**63 - 1, 1], pa.int64())}
    )
    summary = rm.summary(time="at", window=rm.tumbling("1 second"), total=rm.sum("i"))
    with pytest.raises(rm.RivermouthError, match=r"a sum\('i'\) does not fit into bigint"):
        processed([table], summary, rm.fixed("0 seconds"), last=True)


def test_an_idle_bucket_closes_its_windows():
    table = table_of([(0, "a", 1.0, 1, None, "x")])
    summary = rm.summary(by="key", time="at", window=rm.tumbling("1 second"), n=rm.count())
    plan = AggPlan(summary, {name: table.schema.field(name).type for name in summary.columns})
    store = {}

    def process(rows, newest, now):
        processor = AggregateProcessor(plan, rm.fixed("0 seconds"), plan.schema(), 10)
        combined = None if rows is None else PartialsRouter(plan, 1, 0).combine(rows)
        side, times = ((), ()) if combined is None else ((combined.rows,), (combined.times,))
        return list(processor.process(store, Arrivals((side,), (newest,), now, times=times), {}))

    assert process(table, 0, 100) == []
    assert process(None, None, 109) == []
    assert [result.column("records").to_pylist() for result in process(None, None, 110)] == [[1]]
    assert process(None, None, 200) == []
