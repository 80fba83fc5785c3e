"""between and asof: the oracle's rows, in both plans, of batches and streams."""

import datetime as dt
import functools
import itertools
import math
from decimal import Decimal

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyspark.sql import DataFrame
from pyspark.sql import functions as F

import rivermouth as rm
from rivermouth.errors import ConditionError, PlanError
from rivermouth.testing import assert_same_rows, oracle, replay, rows

pytestmark = pytest.mark.spark

HOWS = ["inner", "left", "semi", "anti"]
LEAST, MOST = -(2**63), 2**63 - 1
DAY = dt.datetime(2026, 3, 29, 1, 30)  # the hour that summer time skips in half of Europe

#: a column of each type: its Spark type, its Arrow type, and values that stand at odds
KINDS = {
    "whole": ("long", pa.int64(), [3, -4, 0, LEAST, MOST, None, 5, 5, 12]),
    "small": ("int", pa.int32(), [3, -4, 0, -(2**31), 2**31 - 1, None, 5, 5, 12]),
    "real": (
        "double",
        pa.float64(),
        [0.5, -0.0, 0.0, math.nan, None, math.inf, -math.inf, 0.30000000000000004, -7.25],
    ),
    "day": ("date", pa.date32(), [DAY.date() + dt.timedelta(d) for d in (0, 1, 1, 40, -20_000)]),
    "time": (
        "timestamp_ntz",
        pa.timestamp("us"),
        [DAY + dt.timedelta(minutes=m) for m in (0, 5, 5, 61, 240, -90_000_000)] + [None],
    ),
    "price": (
        "decimal(12,2)",
        pa.decimal128(14, 3),
        [Decimal(f"{cents}e-2") for cents in (-5, 0, 10, 11, 99_999_999_999)] + [None],
    ),
}
CONDITIONS = {
    "whole": rm.between("whole", "w_whole", lower=-1, upper=2),
    "whole, far": rm.between("whole", "w_whole", lower=-(2**62), upper=2**63 - 1, by={"key": "k"}),
    "whole, beyond": rm.between("whole", "w_whole", lower=3, upper=9),
    "whole, before": rm.between("whole", "w_whole", lower=-9, upper=-3),
    "whole, one side": rm.between("small", "w_small", lower=1, upper=9),
    "real": rm.between("real", "w_real", lower=-0.2, upper=0.1),
    "real, nothing": rm.between("real", "w_real", lower=0.0, upper=0.0, by={"key": "k"}),
    "day": rm.between("day", "w_day", lower="-1 day", upper="2 days"),
    "time": rm.between("time", "w_time", lower="-5 minutes", upper="0 seconds", by={"key": "k"}),
    "price": rm.between("price", "w_price", lower=Decimal("-0.005"), upper=1),
    "asof": rm.asof("time", "w_time"),
    "asof by key": rm.asof("time", "w_time", by={"key": "k"}),
    "asof, real": rm.asof("real", "w_real", by={"key": "k"}),
    "asof, whole": rm.asof("whole", "w_whole"),
    "asof, price": rm.asof("price", "w_price", by={"key": "k", "letter": "l"}),
}
STREAMED = ["time", "whole", "asof by key"]


def made(prefix, count, key, letter):
    """Rows that go through the values of each kind at strides of their own."""
    strides = {name: itertools.cycle(values) for name, (_, _, values) in KINDS.items()}
    found = []
    for number in range(count):
        row = {key: None if number % 7 == 6 else number % 3, letter: "ab"[number % 2]}
        found.append({**row, **{prefix + name: next(values) for name, values in strides.items()}})
    return found


@pytest.fixture(scope="module")
def event_rows():
    return [{"id": n, **row} for n, row in enumerate(made("", 45, "key", "letter"))]


@pytest.fixture(scope="module")
def table_rows():
    return [{"name": f"row {n}", **row} for n, row in enumerate(made("w_", 64, "k", "l"))]


@pytest.fixture(scope="module")
def table(table_rows, tmp_path_factory):
    schema = pa.schema(
        [("name", pa.string()), ("k", pa.int64()), ("l", pa.string())]
        + [(f"w_{name}", kind) for name, (_, kind, _) in KINDS.items()]
    )
    path = tmp_path_factory.mktemp("ranges") / "table.parquet"
    pq.write_table(pa.Table.from_pylist(table_rows, schema), path)
    return rm.tables.parquet(path)


@pytest.fixture(scope="module")
def events(spark, event_rows):
    kinds = ", ".join(f"{name} {kind}" for name, (kind, _, _) in KINDS.items())
    made = [tuple(row.values()) for row in event_rows]
    frame = spark.createDataFrame(made, f"id long, key long, letter string, {kinds}")
    return {"batch": frame, "stream": replay(frame, cuts=[1, 20, 24])}


@pytest.mark.parametrize(
    ("condition", "engine", "plan"),
    [
        *((name, "batch", plan) for name in CONDITIONS for plan in ("workers", "native")),
        *((name, "stream", plan) for name in STREAMED for plan in ("workers", "native")),
        *(
            pytest.param(*case, "udf", marks=pytest.mark.since("4.1"))
            for case in (("time", "batch"), ("asof, price", "batch"), ("asof by key", "stream"))
        ),
    ],
)
def test_ranges_give_the_oracles_rows(
    plan, condition, engine, events, event_rows, table, table_rows
):
    on = CONDITIONS[condition]
    joined = functools.reduce(
        DataFrame.unionByName, (one_how(events[engine], table, on, how, plan) for how in HOWS)
    )
    truth = [
        {"id": row["id"], "name": row.get("name"), "how": how}
        for how in HOWS
        for row in oracle.join_table(event_rows, table_rows, on=on, how=how, columns=["name"])
    ]
    assert_same_rows(rows(joined), truth)


def one_how(events, table, on, how, plan):
    brought = {"columns": ["name"]} if how in ("inner", "left") else {}
    joined = rm.join_table(events, table, on=on, how=how, plan=plan, **brought)
    name = F.col("name") if brought else F.lit(None).cast("string")
    return joined.select("id", name.alias("name"), F.lit(how).alias("how"))


@pytest.mark.parametrize(
    "plan", ["workers", "native", pytest.param("udf", marks=pytest.mark.since("4.1"))]
)
def test_a_range_without_columns_repeats_the_event_as_often_as_it_matches(
    plan, events, event_rows, table, table_rows
):
    on = CONDITIONS["whole"]
    joined = rm.join_table(events["batch"], table, on=on, columns=[], plan=plan).select("id")
    truth = oracle.join_table(event_rows, table_rows, on=on, columns=[])
    assert_same_rows(rows(joined), [{"id": row["id"]} for row in truth])


@pytest.mark.parametrize(
    ("on", "said"),
    [
        (rm.between("day", "w_whole", lower=-1, upper=1), "between compares 'day' (date) with"),
        (rm.asof("letter", "l"), "asof needs numbers, dates or times"),
        (rm.between("time", "w_time", lower=-1, upper=1), "Give a length of time"),
        (rm.between("whole", "w_whole", lower="-1 second", upper="1 second"), "Give a number"),
        (rm.between("whole", "w_whole", lower=-0.5, upper=1), "Give a whole number"),
        (rm.between("day", "w_day", lower="-1 hour", upper="0 seconds"), "Give whole days"),
        (rm.between("price", "w_price", lower=-0.5, upper=1), "Give a Decimal"),
    ],
)
def test_a_range_that_cannot_be_compared_is_refused_at_definition(on, said, events, table):
    with pytest.raises(ConditionError) as error:
        rm.join_table(events["batch"], table, on=on, columns=["name"])
    assert said in str(error.value)


def test_native_names_the_other_plan_for_decimals_too_long_for_it(events, table):
    wide = events["batch"].withColumn("price", F.col("price").cast("decimal(30,2)"))
    on = rm.asof("price", "w_price")
    with pytest.raises(PlanError, match="or use plan='workers'"):
        rm.join_table(wide, table, on=on, columns=["name"], plan="native")
