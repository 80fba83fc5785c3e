"""Which plan a join takes where its user leaves it open, and that its rows are the same."""

from dataclasses import dataclass
from decimal import Decimal
from typing import Any, get_args

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import shapely

import rivermouth as rm
from rivermouth.errors import DefinitionError
from rivermouth.spark.engines import plan_costs
from rivermouth.spark.engines.plan_costs import Cost, cheapest_plan
from rivermouth.spark.plan_choice import chosen
from rivermouth.spark.runtime import versions
from rivermouth.spark.validation.join_table import check
from rivermouth.spec.plans import Plan
from rivermouth.testing import assert_same_rows, replay, rows

pytestmark = pytest.mark.spark

THRESHOLD = "spark.sql.autoBroadcastJoinThreshold"
KEYS, RANGE = rm.keys("k"), rm.asof("v", "since")
PLACE = rm.within(rm.point("v", "v"), "shape")
BOXES = shapely.box([0, 1, 0], [0, 1, 0], [2, 2, 2], [2, 9, 9])


@pytest.fixture
def table(tmp_path):
    columns = {
        "k": pa.array([1, 2, 2, None], pa.int64()),
        "since": [0.0, 1.0, 5.0, 2.0],
        "name": ["a", "b", "c", "d"],
        "exact": pa.array([Decimal(n) for n in range(4)], pa.decimal128(9, 2)),
        "shape": shapely.to_wkb([*BOXES, None]).tolist(),
    }
    pq.write_table(pa.table(columns), tmp_path / "table.parquet")
    return rm.tables.parquet(tmp_path / "table.parquet", geometry="shape")


@pytest.fixture
def events(spark):
    columns = "k bigint, v double, exact decimal(9, 2)"
    values = [(1, 0.5, 1), (2, 3.0, 2), (2, 9.0, 3), (3, 1.0, 4), (None, None, None)]
    typed = [(k, v, None if e is None else Decimal(e)) for k, v, e in values]
    return spark.createDataFrame(typed, columns)


@dataclass(frozen=True)
class Elsewhere:
    """A table whose size nobody knows."""

    table: Any
    name: str = "elsewhere"
    identity: str = "elsewhere"

    def schema(self):
        return self.table.schema()

    def read(self, columns):
        return self.table.read(columns)


def plan_of(events, table, on=KEYS, wanted=None, cache=None, routing=None, columns=("name",)):
    join = check(events.schema, table, on=on, how="inner", columns=list(columns), suffixes=None)
    return chosen(events, join, cache or rm.full(), routing, wanted)


@pytest.mark.parametrize("on", [KEYS, RANGE, rm.between("v", "since", lower=0, upper=2)])
def test_large_batches_of_keys_and_ranges_need_no_python_and_small_ones_no_broadcast(
    events, table, on
):
    stream = replay(events)
    for frame in (events, stream):
        assert plan_of(frame, table, on, rm.cheapest(1000)) == "workers"
    assert plan_of(events, table, KEYS, rm.cheapest(10_000_000)) == "native"
    assert plan_of(stream, table, KEYS, rm.cheapest(10_000_000)) == "native"


def test_where_nobody_says_how_many_rows_there_are_a_frame_has_a_million(events, table):
    assert plan_of(events, table) == plan_of(events, table, wanted=rm.cheapest(1_000_000))
    assert plan_of(replay(events), table) == "workers"  # whose metrics are more


def test_what_only_workers_are_known_to_do_is_theirs(spark, events, table):
    def plan(*args, **more):
        return plan_of(*args, wanted=rm.cheapest(10_000_000), **more)

    assert plan(events, table) == "native"
    assert plan(events, table, PLACE & KEYS) == "workers"  # not measured
    assert plan(events, table, rm.asof("v", "since", by="k")) == "workers"  # not measured
    assert plan(events, table, rm.asof("exact", "exact")) == "workers"  # of any number of digits
    assert plan(events, table, cache=rm.incremental(rows=10)) == "workers"
    assert plan(events, table, cache=rm.external()) == "workers"
    assert plan(events, table, cache=rm.full(buckets=2)) == "workers"
    assert plan(events, table, RANGE, cache=rm.full(index="skiplist")) == "workers"
    assert plan(events, table, routing=rm.by_hash(2)) == "workers"
    wide = events
    for number in range(80):
        wide = wide.withColumn(f"c{number}", wide.v)
    assert plan(wide, table) == "workers"  # Spark would not compile it
    assert plan(events, rm.tables.frame(events.select("k", "v").toDF("k", "name"))) == "native"


@pytest.fixture
def cheap(monkeypatch):
    """Sets which plan costs next to nothing, whatever is joined."""

    def set_cheap(cheapest):
        for condition in plan_costs.COSTS:
            costs = {plan: Cost(1, 1, 0, 0, plan != cheapest, 0) for plan in get_args(Plan)}
            monkeypatch.setitem(plan_costs.COSTS, condition, costs)

    return set_cheap


@pytest.mark.parametrize("on", [KEYS, RANGE, PLACE])
def test_only_plans_that_certainly_can_do_a_join_are_compared(events, table, cheap, on):
    cheap("native")
    # there may be a line among the polygons, and the table may be larger than it seems
    assert plan_of(events, table, on) == ("workers" if on is PLACE else "native")
    assert plan_of(events, Elsewhere(table), on) == "workers"


@pytest.mark.parametrize("on", [KEYS, RANGE, PLACE])
def test_a_function_is_taken_where_spark_has_it(events, table, cheap, monkeypatch, on):
    cheap("udf")
    has_it = versions.common(events.sparkSession) >= (4, 1)
    for source in (table, Elsewhere(table)):
        assert plan_of(events, source, on) == ("udf" if has_it else "workers")
        assert plan_of(replay(events), source, on) == "workers"
    monkeypatch.setattr(versions, "common", lambda spark: (4, 0))
    assert plan_of(events, table, on) == "workers"


def test_a_table_that_spark_would_not_broadcast_is_not(spark, events, table):
    before = spark.conf.get(THRESHOLD)
    try:
        for value, plan in (("-1", "workers"), ("100b", "workers"), ("1MB", "native")):
            spark.conf.set(THRESHOLD, value)
            assert plan_of(events, table, wanted=rm.cheapest(10_000_000)) == plan
    finally:
        spark.conf.set(THRESHOLD, before)


@pytest.mark.parametrize("on", [KEYS, RANGE])
def test_a_table_whose_rows_are_much_larger_than_its_files_is_not_broadcast(
    events, cheap, tmp_path, on
):
    cheap("native")
    for count, plan in ((1_000, "native"), (5_000_000, "workers")):
        alike = pa.DictionaryArray.from_arrays(pa.repeat(pa.scalar(0, pa.int32()), count), ["name"])
        columns = {"k": pa.repeat(1, count), "since": pa.repeat(1.0, count), "name": alike}
        path = tmp_path / f"{count}.parquet"
        pq.write_table(pa.table(columns), path)
        assert path.stat().st_size < 1 << 20
        assert plan_of(events, rm.tables.parquet(path), on) == plan


def test_the_least_expected_cost_wins_but_by_little(monkeypatch):
    costs = {
        "workers": Cost(stream=100, batch=50, batch_column=20, byte=0, row=1, column=0.5),
        "native": Cost(stream=300, batch=200, batch_column=1, byte=2, row=0.5, column=0.1),
    }
    monkeypatch.setitem(plan_costs.COSTS, "keys", costs)

    def plan(kind, rows, columns=0, table_bytes=0):
        return cheapest_plan(
            "keys", kind, list(costs), rows=rows, columns=columns, table_bytes=table_bytes
        )

    # 100 + n to 300 + n / 2: ahead from 400 rows on, by a tenth from 525
    assert [plan("stream", n) for n in (399, 520, 530)] == ["workers", "workers", "native"]
    assert plan("batch", 400) == "native"
    assert plan("stream", 400, columns=4) == "native"
    assert plan("stream", 530, table_bytes=100) == "workers"
    assert [plan("batch", 1, columns=n) for n in (7, 11)] == ["workers", "native"]


@pytest.mark.parametrize("plan", get_args(Plan))
@pytest.mark.parametrize("on", [KEYS, RANGE, PLACE])
@pytest.mark.parametrize("how", ["inner", "left", "semi", "anti"])
def test_rows_do_not_depend_on_the_choice(events, table, cheap, on, how, plan):
    columns = {"columns": ["name"]} if how in ("inner", "left") else {}
    cheap(plan)
    joined = rm.join_table(events, table, on=on, how=how, **columns)
    truth = rm.join_table(events, table, on=on, how=how, plan="workers", **columns)
    assert_same_rows(rows(joined), rows(truth))


@pytest.mark.parametrize("count", [0, -1, 1.5, True, "many"])
def test_a_number_of_rows_is_a_whole_number(count):
    with pytest.raises(DefinitionError, match=r"cheapest: rows is .*Give a whole number above 0"):
        rm.cheapest(count)
