"""Functions of users as tables: what they are given, may answer, and may do wrong."""

import asyncio
import datetime as dt
import functools
import threading
import time

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.support.examples import examples
from tests.support.http_service import name_service, on_loop, plain

import rivermouth as rm
from rivermouth.errors import (
    ColumnError,
    DefinitionError,
    PlanError,
    TableInvalid,
    TableUnavailable,
)
from rivermouth.spark.runtime.pickling import pickle_roundtrip
from rivermouth.tables.cache.fetching import LookupSpec
from rivermouth.tables.cache.incremental import IncrementalCache
from rivermouth.tables.cache.retry import RetryPolicy

SCHEMA = {"uid": "int64", "name": "string"}
BY_UID = rm.keys("uid")


def service(function, **more):
    return rm.tables.service(function, **{"keys": "uid", "schema": SCHEMA, **more})


def ask(table, *uids, columns=("name",), on=BY_UID):
    """What each number meets, by one lookup."""
    numbers, rows = table.lookup(on, list(columns), {"uid": pa.array(uids, pa.int64())})
    met = [[] for _ in uids]
    for number, row in zip(numbers.tolist(), rows.to_pylist(), strict=True):
        met[number].append(tuple(row.values()))
    return met


def cache_of(table, retry=None, **settings):
    made = rm.incremental(**settings)
    spec = LookupSpec(
        table, BY_UID, None, ("name",), pa.schema([("uid", pa.int64())]), table.schema()
    )
    return IncrementalCache(spec, made, retry=retry)


def through(cache, *uids, now=0.0):
    rows = cache.lookup({"uid": pa.array(uids, pa.int64())}, now)
    values, met = rows.table["name"].to_pylist(), [None for _ in uids]
    for record, row in zip(rows.pairs.left.tolist(), rows.pairs.right.tolist(), strict=True):
        met[record] = values[row]
    return met


def even(uids):
    return [uid for uid in uids if uid % 2 == 0]


def listed(keys):
    return [{"uid": uid, "name": f"u{uid}", "more": 1} for uid in even(keys["uid"].to_pylist())]


def by_key(keys):
    return {
        uid: {"name": f"u{uid}"} if uid % 2 == 0 else None for uid in keys["uid"].to_pylist()
    }  # fmt: skip


def arrow(keys):
    uids = pa.array(even(keys["uid"].to_pylist()), pa.int32())
    return pa.table({"name": pa.array([f"u{uid}" for uid in uids]), "uid": uids})


async def awaited(keys):
    await asyncio.sleep(0)
    return listed(keys)


FORMS = {"list": listed, "dict": by_key, "arrow": arrow, "async": awaited,
         "lambda that is awaited": lambda keys: awaited(keys)}  # fmt: skip


# -- what it may answer


@pytest.mark.parametrize("form", FORMS)
def test_each_form_of_an_answer_gives_the_same_rows(form):
    table = service(FORMS[form])
    assert ask(table, 4, 3, 4, 0) == [[("u4",)], [], [("u4",)], [("u0",)]]


@pytest.mark.parametrize("form", ["list", "dict", "arrow", "async"])
@settings(max_examples=examples(30), deadline=None)
@given(
    uids=st.lists(st.one_of(st.none(), st.integers(-(2**63), 2**63 - 1), st.integers(0, 9))),
    batch=st.integers(1, 7),
    concurrency=st.integers(1, 4),
)
def test_any_batch_and_concurrency_gives_each_record_its_row(form, uids, batch, concurrency):
    if form == "arrow":
        uids = [uid if uid is None or abs(uid) < 2**31 else 1 for uid in uids]
    table = service(FORMS[form], batch=batch, concurrency=concurrency)
    expected = [[] if uid is None or uid % 2 else [(f"u{uid}",)] for uid in uids]
    assert ask(table, *uids) == expected


def test_the_function_gets_distinct_keys_in_parts():
    seen = []

    def noted(keys):
        assert isinstance(keys, pa.Table)
        seen.append(keys.to_pydict())
        return []

    ask(service(noted, batch=2, concurrency=1), 5, 5, 6, None, 7, 6)
    assert seen == [{"uid": [5, 6]}, {"uid": [7]}]


def test_several_keys_come_together_and_in_the_order_of_keys():
    def function(keys):
        assert keys.column_names == ["day", "city"]
        return {
            (day, city): {"t": 1.5} for day, city in zip(*keys.to_pydict().values(), strict=True)
        }

    table = rm.tables.service(
        function, keys=["day", "city"], schema={"city": "string", "day": "date", "t": "double"}
    )
    day = dt.date(2026, 1, 1)
    left = {"where": pa.array(["Bern", None, "Ulm"]), "on": pa.array([day, day, day])}
    numbers, rows = table.lookup(rm.keys({"where": "city", "on": "day"}), ["city", "t"], left)
    assert numbers.tolist() == [0, 2]
    assert rows.to_pylist() == [{"city": "Bern", "t": 1.5}, {"city": "Ulm", "t": 1.5}]


def test_several_rows_of_a_key_are_possible_where_it_is_said():
    def pairs(keys):
        return {uid: [{"name": "a"}, {"name": "b"}] for uid in keys["uid"].to_pylist()}

    assert ask(service(pairs, unique=False), 1) == [[("a",), ("b",)]]
    with pytest.raises(
        TableInvalid,
        match=r"pairs: its function's answer cannot be used; it returned several rows of the key 1"
        r"\. Return one, or say so: service\(unique=False\)\.",
    ):
        ask(service(pairs), 1)


@pytest.mark.parametrize(
    ("answer", "said"),
    [
        (None, r"it returned None\. Return a pyarrow\.Table, a list of dicts with the columns "
               r"\['uid', 'name'\], or a dict of such rows by key\."),
        ("text", r"it returned str 'text'"),
        ([1], r"it returned int 1 as a row"),
        ([{"uid": 1}], r"it returned a row without the columns \['name'\]; its columns are "
                       r"\['uid'\]\. Return them, null where there is no value"),
        (pa.table({"uid": [1]}), r"it returned a table without the columns \['name'\]"),
        ([{"uid": 2, "name": "x"}], r"it returned a row of the key 2, which it was not asked for"),
        ([{"uid": None, "name": "x"}], r"a row of the key None, which it was not asked for"),
        ({2: {"name": "x"}}, r"it returned a row of the key 2, which it was not asked for"),
        ({(1, 2): {"name": "x"}}, r"a dict with the key \(1, 2\)\. A key has the values of"),
        ({1: "x"}, r"it returned str 'x' for the key 1\. Return a dict"),
        ({1: {}}, r"a row without the columns \['name'\]"),
        ([{"uid": 1, "name": 7}], r"values of column 'name' that are no string: "),
        ([{"uid": "1", "name": "x"}], r"values of column 'uid' that are no int64: "),
        (pa.table({"uid": [1.5], "name": ["x"]}), r"values of column 'uid' that are no int64: "),
    ],
)  # fmt: skip
def test_a_wrong_answer_is_a_clear_error(answer, said):
    table = service(lambda _: answer, name="prices")
    with pytest.raises(
        TableInvalid, match=r"prices: its function's answer cannot be used; .*" + said
    ):
        ask(table, 1)


# -- what it may be joined by


def test_it_cannot_be_read():
    with pytest.raises(
        PlanError,
        match=r"tables\.service: listed answers keys and cannot be read whole\. Use "
        r"cache=rm\.incremental\(\), or rm\.external\(\)\.",
    ):
        service(listed).read(["name"])


@pytest.mark.parametrize(
    "on", [rm.keys("name"), rm.keys(["uid", "name"]), rm.within("shape", "shape"),
           rm.asof("at", "since")],
)  # fmt: skip
def test_a_condition_without_just_its_keys_is_refused(on):
    said = r"tables\.service: listed is asked by \['uid'\], all of them and by equality; the cond"
    with pytest.raises(PlanError, match=said):
        service(listed).lookup(on, [], {})


def test_a_range_is_the_incremental_caches():
    on = rm.asof("at", "since", by="uid")
    with pytest.raises(PlanError, match=r"listed answers keys, not ranges"):
        service(listed).lookup(on, [], {})
    service(listed).check_condition(on)


@pytest.mark.parametrize(
    ("more", "error", "said"),
    [
        ({"function": 1}, DefinitionError, r"the first argument is not a function; it is of type"),
        ({"batch": 0}, DefinitionError, r"batch is 0\. Give at least one"),
        ({"concurrency": 0}, DefinitionError, r"concurrency is 0\. Give at least one"),
        ({"keys": ()}, DefinitionError, r"keys names no column"),
        ({"keys": "uiid"}, ColumnError, r"'uiid', which is not among schema's .* mean 'uid'\?"),
        ({"timeout": "soon"}, DefinitionError, r"timeout=\): 'soon' is not a length of time"),
        ({"schema": {"uid": "int46"}}, DefinitionError, r"'int46', the type of column 'uid', is"),
    ],
)
def test_what_cannot_be_is_said_at_definition(more, error, said):
    given = {"function": listed, "keys": "uid", "schema": SCHEMA, **more}
    with pytest.raises(error, match=said):
        rm.tables.service(given.pop("function"), **given)


def test_types_by_name():
    kinds = {
        "a": "long",
        "b": "timestamp",
        "c": "double",
        "d": "geometry",
        "e": pa.float32(),
    }
    schema = rm.tables.service(listed, keys="a", schema=kinds).schema()
    assert schema.types == [
        pa.int64(), pa.timestamp("us", "UTC"), pa.float64(), pa.binary(), pa.float32(),
    ]  # fmt: skip


# -- which function it is


def test_functions_of_one_name_have_caches_of_their_own():
    def made(word):
        return lambda keys: {uid: {"name": word} for uid in keys["uid"].to_pylist()}

    one, other = service(made("a")), service(made("b"))
    assert one.name == other.name == "<lambda>"
    assert one.identity != other.identity
    assert one.identity == service(made("a")).identity
    partial = service(functools.partial(lambda keys, word: [], word="x"))
    assert partial.identity != service(functools.partial(lambda keys, word: [], word="y")).identity


def test_it_travels():
    table = service(listed)
    copy = pickle_roundtrip(table)
    assert (copy, copy.identity, hash(copy)) == (table, table.identity, hash(table))
    closure = service(lambda keys: listed(keys))
    assert pickle_roundtrip(closure).identity == closure.identity
    assert repr(table) == "ServiceTable('listed' by ['uid'])"


# -- time, and what goes wrong


class Asked:
    """Counts calls, and how many are under way; some of the first fail."""

    def __init__(self, fails=0, error=None, delay=0.0):
        self.fails, self.error, self.delay = fails, error or ConnectionError("away"), delay
        self.calls, self.at_work, self.most = 0, 0, 0
        self.lock = threading.Lock()

    def __call__(self, keys):
        with self.lock:
            self.calls += 1
            self.at_work += 1
            self.most = max(self.most, self.at_work)
            fails, self.fails = self.fails > 0, self.fails - 1
        time.sleep(self.delay)
        with self.lock:
            self.at_work -= 1
        if fails:
            raise self.error
        return listed(keys)


def test_a_plain_function_that_takes_too_long_is_left_alone():
    gate = threading.Event()
    table = service(lambda _: gate.wait(), timeout="50 milliseconds", name="slow")
    with pytest.raises(
        TableUnavailable,
        match=r"slow: its function gave no answer within 0\.05 s\. See that the service answers, "
        r"or give service\(\) a longer timeout=\.",
    ):
        ask(table, 1)
    gate.set()


def test_an_async_function_that_takes_too_long_is_cancelled():
    ended = []

    async def slow(keys):
        try:
            await asyncio.sleep(60)
        except asyncio.CancelledError:
            ended.append(keys.num_rows)
            raise

    with pytest.raises(TableUnavailable, match=r"slow: its function gave no answer within 0\.05 s"):
        ask(service(slow, timeout="50 milliseconds"), 1, 2)
    assert ended == [2]


def test_all_async_calls_run_in_one_loop_with_so_many_under_way():
    loops, work = set(), {"now": 0, "most": 0}

    async def noted(keys):
        loops.add(id(asyncio.get_running_loop()))
        work["now"] += 1
        work["most"] = max(work["most"], work["now"])
        await asyncio.sleep(0.05)
        work["now"] -= 1
        return listed(keys)

    cache = cache_of(service(noted, batch=2, concurrency=3))
    assert through(cache, *range(20)) == [None if n % 2 else f"u{n}" for n in range(20)]
    assert ask(service(noted, batch=2, concurrency=3), *range(20))[4] == [("u4",)]
    assert len(loops) == 1
    assert work["most"] == 3


def test_a_call_that_fails_is_repeated_alone():
    asked = Asked(fails=1)
    pauses = []
    table = service(asked, batch=5, concurrency=2)
    retry = RetryPolicy("asked", 3, sleep=pauses.append)
    cache = cache_of(table, retry=retry)
    assert through(cache, *range(20)) == [None if n % 2 else f"u{n}" for n in range(20)]
    assert (asked.calls, len(pauses)) == (5, 1)
    assert asked.most <= 2
    assert {name: cache.counts[name] for name in ("loads", "retries", "entries")} == {
        "loads": 4, "retries": 1, "entries": 20,
    }  # fmt: skip


def test_keys_that_are_not_in_the_answer_are_remembered():
    asked = Asked()
    cache = cache_of(service(asked), missing_ttl="1 minute")
    for now in (0.0, 1.0, 59.0):
        assert through(cache, 1, 2, now=now) == [None, "u2"]
    assert asked.calls == 1
    assert cache.counts["negative_hits"] == 2
    through(cache, 1, 2, now=60.0)
    assert asked.calls == 2


class Refused(Exception):
    def __init__(self, status):
        super().__init__(f"status {status}")
        self.response = type("Response", (), {"status_code": status})()


@pytest.mark.parametrize(
    ("error", "calls"),
    [
        (OSError("no route"), 3),
        (RuntimeError("pool is empty"), 3),
        (Refused(503), 3),
        (Refused(429), 3),
        (Refused(404), 1),
        (KeyError("uid"), 1),
        (ValueError("no JSON"), 1),
    ],
)
def test_what_another_attempt_may_mend_is_tried_again(error, calls):
    asked = Asked(fails=99, error=error)
    cache = cache_of(service(asked), retry=RetryPolicy("asked", 3, sleep=lambda _: None))
    kind = TableUnavailable if calls > 1 else TableInvalid
    with pytest.raises(kind, match=rf"Asked.*its function failed.*{type(error).__name__}|asked: "):
        through(cache, 1)
    assert asked.calls == calls


def test_an_error_of_ours_is_passed_on():
    def function(_):
        raise TableInvalid("shop", "it sold out")

    with pytest.raises(TableInvalid, match=r"^shop: it sold out\.$"):
        ask(service(function), 1)


# -- a call that fails for good


class Poisoned:
    """Fails whenever it is asked for one of some keys, and notes what it is asked for."""

    def __init__(self, *bad):
        self.bad, self.asked, self.lock = set(bad), [], threading.Lock()

    def __call__(self, keys):
        uids = keys["uid"].to_pylist()
        with self.lock:
            self.asked.append(uids)
        if self.bad & set(uids):
            raise ConnectionError("away")
        return listed(keys)


@settings(max_examples=examples(60), deadline=None)
@given(
    uids=st.lists(st.integers(0, 30), min_size=1),
    bad=st.integers(0, 30),
    batch=st.integers(1, 7),
    concurrency=st.sampled_from([1, 3]),
    attempts=st.integers(1, 2),
    reset_timeout=st.sampled_from([None, "1 hour"]),
)
def test_a_call_that_fails_for_good_costs_its_own_keys_alone(
    uids, bad, batch, concurrency, attempts, reset_timeout
):
    function = Poisoned(bad)
    table = service(function, batch=batch, concurrency=concurrency)
    seconds = None if reset_timeout is None else 3600.0
    retry = RetryPolicy("p", attempts, reset_timeout=seconds, sleep=lambda _: None)
    cache = cache_of(table, retry=retry, on_unavailable="miss", reset_timeout=reset_timeout)
    distinct = list(dict.fromkeys(uids))
    calls = [distinct[at : at + batch] for at in range(0, len(distinct), batch)]
    lost = {uid for call in calls if bad in call for uid in call}
    right = [None if uid % 2 else f"u{uid}" for uid in uids]
    assert through(cache, *uids) == [
        None if uid in lost else name for uid, name in zip(uids, right, strict=True)
    ]
    assert cache.counts["failed_lookups"] == sum(uid in lost for uid in uids)
    assert cache.counts["entries"] == len(distinct) - len(lost)
    function.bad.clear()
    if cache.counts["circuit_opens"] == 0:
        assert through(cache, *uids) == right
    else:
        assert len(calls) == 1  # no other call could tell that the service is there


@pytest.mark.parametrize("concurrency", [1, 2])
def test_where_a_query_may_not_miss_one_such_call_ends_it(concurrency):
    function = Poisoned(5)
    retry = RetryPolicy("p", 2, sleep=lambda _: None)
    cache = cache_of(service(function, batch=1, concurrency=concurrency), retry=retry)
    with pytest.raises(TableUnavailable, match=r"fetching one key failed 2 times"):
        through(cache, 5, 6)
    function.bad.clear()
    assert through(cache, 5, 6) == [None, "u6"]


def test_two_calls_in_a_row_that_fail_open_the_circuit():
    function = Poisoned(2, 4)
    retry = RetryPolicy("p", 1, reset_timeout=5.0, clock=lambda: 0.0)
    table = service(function, batch=1, concurrency=1)
    cache = cache_of(table, retry=retry, on_unavailable="miss")
    assert through(cache, 2, 6, 4, 8) == [None, "u6", None, "u8"]
    assert cache.counts["circuit_opens"] == 0
    assert through(cache, 2, 4, 10) == [None, None, None]
    assert function.asked[-2:] == [[2], [4]]  # 10 was not asked for
    assert (cache.counts["circuit_opens"], cache.counts["failed_lookups"]) == (1, 5)


# -- the circuit breaker


def test_a_store_that_is_down_is_left_alone_and_then_tried_by_one_call():
    asked, now = Asked(fails=6), [0.0]
    retry = RetryPolicy("asked", 2, reset_timeout=5.0, sleep=lambda _: None, clock=lambda: now[0])
    cache = cache_of(service(asked), retry=retry, on_unavailable="miss")
    assert through(cache, 2) == [None]
    assert (asked.calls, cache.counts["circuit_opens"]) == (2, 1)
    now[0] = 4.9
    assert through(cache, 2, 4) == [None, None]
    assert asked.calls == 2  # the circuit is open
    now[0] = 5.0
    assert through(cache, 2) == [None]
    assert asked.calls == 3  # one call, which failed
    now[0] = 9.9
    assert through(cache, 2) == [None]
    assert asked.calls == 3
    asked.fails, now[0] = 0, 10.0
    assert through(cache, 2, 3) == ["u2", None]
    asked.fails = 1
    assert through(cache, 6) == ["u6"]  # closed: as many attempts as ever
    assert cache.counts["circuit_opens"] == 1
    assert cache.counts["failed_lookups"] == 5


def test_of_many_callers_one_tries_the_store():
    asked = Asked(fails=99, delay=0.05)
    retry = RetryPolicy("asked", 1, reset_timeout=0.2)
    table = service(asked, batch=1, concurrency=8)
    cache = cache_of(table, retry=retry, on_unavailable="miss")
    through(cache, *range(8))
    first = asked.calls
    time.sleep(0.3)
    through(cache, *range(8))
    assert asked.calls == first + 1


def test_the_breakers_sentence():
    retry = RetryPolicy("shop", 1, reset_timeout=5.0, clock=lambda: 0.0)

    def away():
        raise ConnectionError("away")

    with pytest.raises(TableUnavailable, match=r"failed once"):
        retry.run(away, "one key")
    with pytest.raises(
        TableUnavailable,
        match=r"shop: fetching one key was not tried, the store being down; it is tried again in "
        r"5\.0 s\. Restore the store, or give incremental\(\) another reset_timeout=\.",
    ):
        retry.run(away, "one key")


def test_a_query_that_fails_asks_at_once_when_it_is_started_again():
    assert rm.incremental().reset_timeout is None
    assert rm.incremental(on_unavailable="miss").reset_timeout == 5.0
    assert rm.incremental(on_unavailable="miss", reset_timeout=None).reset_timeout is None


# -- a real service


@pytest.mark.parametrize("function", [plain, on_loop])
def test_an_http_service_that_fails_is_slow_stops_and_comes_back(function):
    with name_service() as names:
        table = service(function(names.port), batch=10, concurrency=4, timeout="1 second")
        now = [0.0]
        retry = RetryPolicy(
            "names", 2, reset_timeout=5.0, sleep=lambda _: None, clock=lambda: now[0]
        )
        cache = cache_of(table, retry=retry, on_unavailable="miss", rows=10_000)
        names.delay, names.fails = 0.05, 1
        expected = [None if n % 2 else f"user {n}" for n in range(100)]
        assert through(cache, *range(100)) == expected
        assert names.most_at_work == 4
        assert len(names.asked) == 11  # ten parts, one of them twice
        names.delay = 3.0
        assert through(cache, 200, 2) == [None, "user 2"]
        names.delay, now[0] = 0.0, 5.0
        assert through(cache, 200) == ["user 200"]
        names.stop()
        assert through(cache, 300, 2) == [None, "user 2"]
        names.start()
        assert through(cache, 300) == [None]  # the circuit is open
        now[0] = 11.0
        assert through(cache, 300) == ["user 300"]
        assert cache.counts["circuit_opens"] == 2
        assert np.isclose(cache.counts["failed_lookups"], 3)
