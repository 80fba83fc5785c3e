"""Sessions over records out of order, compared with sessions recomputed from scratch."""

from __future__ import annotations

import datetime as dt
import itertools

import pyarrow as pa
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from tests.kernels.aggregation.test_processor import everything
from tests.support.examples import examples
from tests.support.micro_batches import processed

import rivermouth as rm
from rivermouth.errors import DefinitionError
from rivermouth.kernels.aggregation.session_processor import SessionProcessor
from rivermouth.kernels.aggregation.sessions import SessionPlan
from rivermouth.kernels.state.bucketing import Arrivals
from rivermouth.testing.recompute import by_window, differences, recompute

SECOND = 1_000_000
GAP = 5 * SECOND
FAST = settings(max_examples=examples(100), deadline=None, suppress_health_check=list(HealthCheck))
ROWS = st.lists(
    st.tuples(
        st.integers(-40, 80).map(lambda half: half * SECOND // 2),
        st.sampled_from(["a", "b", None]),
        st.one_of(st.none(), st.floats(-1e3, 1e3), st.just(float("nan"))),
    ),
    min_size=1,
    max_size=40,
)
SLACKS = [rm.fixed("0 seconds"), rm.fixed("3 seconds"), rm.max_delay()]
N = rm.summary(by="key", time="at", window=rm.session("5 seconds"), n=rm.count(), v=rm.sum("v"))


def table_of(rows):
    at, key, v = zip(*rows, strict=True)
    return pa.table(
        {
            "at": pa.array(at, pa.timestamp("us", "UTC")),
            "key": pa.array(key, pa.string()),
            "v": pa.array(v, pa.float64()),
            "i": pa.array(range(len(at)), pa.int64()),
            "d": pa.array([None] * len(at), pa.decimal128(10, 2)),
            "w": pa.array(["x"] * len(at), pa.string()),
        }
    )


def cut(table, ends):
    places = sorted({0, table.num_rows, *(int(end * table.num_rows) for end in ends)})
    return [table.slice(a, b - a) for a, b in itertools.pairwise(places)]


def records(tables):
    """(time, key) of late records, batch by batch."""
    found = []
    for table in tables:
        late = table.column("record").combine_chunks()
        times = late.field("at").cast(pa.int64()).to_pylist()
        found.append(list(zip(times, late.field("key").to_pylist(), strict=True)))
    return found


@FAST
@given(
    ROWS, st.sampled_from([("key",), (), ("key", "v")]), st.integers(1, 3), st.integers(1, 4),
    st.sampled_from(["rows", "count"]),
)  # fmt: skip
def test_a_batch_frame_gives_the_truth(rows, by, buckets, tasks, late):
    table, summary = table_of(rows), everything(rm.session("5 seconds"), by)
    found = processed(
        [table], summary, rm.max_delay(), last=True, buckets=buckets if by else 1, tasks=tasks,
        late=late, gathered=9,
    )  # fmt: skip
    assert differences(by_window(found.results(), summary), recompute(table, summary)) == []
    assert found.counts["on_time"] == len(rows)


@FAST
@given(
    ROWS, st.lists(st.floats(0, 1), max_size=8), st.sampled_from(SLACKS), st.booleans(),
    st.integers(1, 3), st.integers(1, 3),
)  # fmt: skip
def test_results_are_the_sessions_of_the_records_that_were_not_late(
    rows, ends, slack, with_cache, buckets, tasks
):
    table, summary = table_of(rows), everything(rm.session("5 seconds"))
    batches = cut(table, ends)
    how = {"last": True, "with_cache": with_cache, "buckets": buckets, "tasks": tasks}
    found = processed(batches, summary, slack, **how)
    late = [each for batch in records(found.late) for each in batch]
    on_time = list(zip(table.column("at").cast(pa.int64()).to_pylist(),
                       table.column("key").to_pylist(), strict=True))  # fmt: skip
    keep = []
    gone = list(late)
    for row in reversed(on_time):  # of equal records the last came late
        keep.append(row not in gone)
        if not keep[-1]:
            gone.remove(row)
    assert gone == []
    rest = table.filter(pa.array(keep[::-1]))
    assert found.counts["late"] == len(late)
    assert found.counts["on_time"] + len(late) == len(rows) == found.counts["rows_in"]
    if len(set(on_time)) == len(rows):  # else it is not known which of equal records was late
        truth = recompute(rest, summary) if rest.num_rows else {}
        assert differences(by_window(found.results(), summary), truth) == []
    counted = processed(batches, summary, slack, late="count", gathered=5, **how)
    assert counted.counts["late"] == len(late)
    one, two = (by_window(each.results(), summary) for each in (found, counted))
    assert differences(one, two) == []


@FAST
@given(ROWS, st.lists(st.floats(0, 1), max_size=8), st.integers(0, 9))
def test_a_run_is_late_if_it_reaches_into_a_session_that_has_closed(rows, ends, seconds):
    batches = cut(table_of(rows), ends)
    found = processed(batches, N, rm.fixed(dt.timedelta(seconds=seconds)))
    assert [sorted(batch, key=str) for batch in records(found.late)] == [
        sorted(batch, key=str) for batch in late_by_hand(batches, seconds * SECOND)
    ]


def late_by_hand(batches, k):
    """The late records of each batch, by a list of all sessions there ever were."""
    newest, largest, closed, horizon = None, 0, None, -(10**18)
    kept, found = {}, []  # the on-time times of each group
    for batch in batches:
        times = batch.column("at").cast(pa.int64()).to_pylist()
        found.append([])
        for key in set(batch.column("key").to_pylist()):
            mine = [t for t, of in zip(times, batch.column("key").to_pylist(), strict=True)
                    if of == key]  # fmt: skip
            known = runs_of(kept.get(key, []))
            for run in runs_of(mine):
                if closed is not None and is_late(run, known, closed, horizon):
                    found[-1] += [(t, key) for t in run]
                else:
                    kept.setdefault(key, []).extend(run)
        if newest is not None:
            largest = max([largest, *(newest - t for t in times)])
        newest = max([*times, *([] if newest is None else [newest])])
        closed = max([newest - k, *([] if closed is None else [closed])])
        horizon = max(horizon, min(closed, newest - largest) - GAP)
    return found


def runs_of(times):
    runs = []
    for t in sorted(times):
        if runs and t - runs[-1][-1] < GAP:
            runs[-1].append(t)
        else:
            runs.append([t])
    return runs


def is_late(run, known, closed, horizon):
    def touches(session):
        return any(abs(t - other) < GAP for t in run for other in session)

    has_closed = [each for each in known if each[-1] + GAP <= closed]
    is_open = [each for each in known if each[-1] + GAP > closed]
    if any(touches(each) and each[-1] + GAP > horizon for each in has_closed):
        return True
    if not any(touches(each) for each in is_open) and run[-1] + GAP <= closed:
        return True
    begins_inside = any(each[0] <= run[0] < each[-1] + GAP for each in is_open)
    return run[0] < horizon and not begins_inside


@FAST
@given(ROWS, st.randoms())
def test_sessions_without_a_late_record_are_exact_already(rows, random):
    table = table_of(rows)
    found = processed(
        cut(table, [random.random() for _ in range(5)]), N, rm.fixed("1 second"), last=True
    )
    late = [each for batch in records(found.late) for each in batch]
    truth = recompute(table, N)
    untouched = {
        key: value for key, value in truth.items()
        if not any(of == key[0] and key[1] <= time < key[2] for time, of in late)
    }  # fmt: skip
    results = by_window(found.results(), N)
    assert differences({k: results[k] for k in untouched if k in results}, untouched) == []
    for key in results.keys() - untouched.keys():  # the others lie inside a session of the truth
        assert any(key[0] == k[0] and k[1] <= key[1] and key[2] <= k[2] for k in truth)


def test_a_record_that_is_exactly_the_gap_later_begins_a_session():
    table = table_of([(0, "a", 1.0), (GAP - 1, "a", 1.0), (2 * GAP - 1, "a", 1.0)])
    found = by_window(processed([table], N, rm.max_delay(), last=True).results(), N)
    assert {key[1:]: value["n"] for key, value in found.items()} == {
        (0, 2 * GAP - 1): 2, (2 * GAP - 1, 3 * GAP - 1): 1
    }  # fmt: skip


def test_state_holds_open_sessions_and_forgets_closed_ones():
    """A session that never ends stays one row; short ones leave."""
    count = 400
    rows = [(k * SECOND, "long", 1.0) for k in range(count)]
    rows += [(k * SECOND, f"short {k // 3}", 1.0) for k in range(count)]
    rows.sort(key=lambda row: row[0])
    table = table_of(rows)
    batches = [table.slice(k, 2) for k in range(0, 2 * count, 2)]
    found = processed(batches, N, rm.fixed("2 seconds"), last=True)
    assert differences(by_window(found.results(), N), recompute(table, N)) == []
    assert max(report["state"]["entries"] for report in found.reports[:-1]) < 12


def test_an_idle_bucket_closes_its_sessions():
    table = table_of([(0, "a", 1.0)]).select(["at", "key", "v"])
    plan = SessionPlan(N, {name: table.schema.field(name).type for name in N.columns})
    schema = plan.schema(pa.struct(list(plan.types.items())))
    store = {}

    def process(rows, newest, now):
        processor = SessionProcessor(plan, rm.fixed("0 seconds"), schema, 10)
        side = (rows,) if rows is not None else ()
        return list(processor.process(store, Arrivals((side,), (newest,), now), {}))

    assert process(table, 0, 100) == []
    assert process(None, None, 109) == []
    assert [result.column("records").to_pylist() for result in process(None, None, 110)] == [[1]]
    assert process(None, None, 200) == []


def test_a_session_is_a_value_and_its_gap_a_length_of_time():
    assert str(N) == (
        "n=count(), v=sum('v') by ['key'] over sessions with pauses shorter than 0:00:05"
    )
    assert "pauses shorter than 0:00:05" in N._repr_html_()
    with pytest.raises(DefinitionError, match=r"^session: gap is 0 seconds\. Make it"):
        rm.session(dt.timedelta(0))
