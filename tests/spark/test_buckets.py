"""A table in buckets: cut as Spark hashes, any number of them, and the same rows."""

import datetime as dt
import functools
import math
import re
from decimal import Decimal

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyspark.sql import DataFrame
from pyspark.sql import functions as F

import rivermouth as rm
from rivermouth.errors import PlanError
from rivermouth.kernels.keys import murmur
from rivermouth.testing import assert_same_rows, oracle, replay, rows

pytestmark = pytest.mark.spark

HOWS = ["inner", "left", "semi", "anti"]
DAY = dt.datetime(2026, 3, 29, 1, 30, 0, 7)

#: a key of each kind: the events' type, the table's, and values at odds
KEYS = {
    "whole": ("int", pa.int64(), [0, 1, -1, 2**31 - 1, -(2**31), None, 77]),
    "long": ("long", pa.int32(), [0, 1, -1, 2**31 - 1, -(2**31), None, 77]),
    "real": ("float", pa.float64(), [0.0, -0.0, 1.5, math.inf, math.nan, None, -7.25]),
    "text": ("string", pa.string(), ["", "a", "abc", "abcd", "höéß", None, "abcdefgh€"]),
    "raw": ("binary", pa.large_binary(), [b"", b"\xff", b"ab\xfe", b"abcd\x80", None, b"1", b"2"]),
    "price": (
        "decimal(20,4)",
        pa.decimal128(12, 2),
        [Decimal(n).scaleb(-2) for n in (0, -1, 128, -128, 99999, 127)] + [None],
    ),
    "day": ("date", pa.date32(), [DAY.date() + dt.timedelta(n) for n in (0, 1, -30_000)] + [None]),
    "time": ("timestamp_ntz", pa.timestamp("us"), [DAY, DAY.replace(year=1900), None]),
    "flag": ("boolean", pa.bool_(), [True, False, None]),
}
CONDITIONS = {
    **{name: rm.keys({name: f"w_{name}"}) for name in KEYS},
    "three": rm.keys({"text": "w_text", "whole": "w_whole", "flag": "w_flag"}),
    "between": rm.between("n", "w_n", lower=-9, upper=4, by={"text": "w_text"}),
    "asof": rm.asof("n", "w_n", by={"whole": "w_whole"}),
    "near": rm.keys({"flag": "w_flag"})
    & rm.nearest(rm.point("n", "n"), rm.point("w_n", "w_n"), k=2, distance=5),
}
STREAMED = ["text", "three", "asof"]


def made(prefix, count, step):
    """Rows that go through the values of each kind at strides of their own."""
    return [
        {
            f"{prefix}n": n % 50,
            **{
                prefix + name: values[(n * step + n // len(values)) % len(values)]
                for name, (_, _, values) in KEYS.items()
            },
        }
        for n in range(count)
    ]


@pytest.fixture(scope="module")
def event_rows():
    return [{"id": n, **row} for n, row in enumerate(made("", 60, 3))]


@pytest.fixture(scope="module")
def table_rows():
    return [{"name": f"row {n}", **row} for n, row in enumerate(made("w_", 90, 1))]


@pytest.fixture(scope="module")
def table(table_rows, tmp_path_factory):
    schema = pa.schema(
        [("name", pa.string()), ("w_n", pa.int64())]
        + [(f"w_{name}", kind) for name, (_, kind, _) in KEYS.items()]
    )
    path = tmp_path_factory.mktemp("buckets") / "table.parquet"
    pq.write_table(pa.Table.from_pylist(table_rows, schema), path, row_group_size=7)
    return rm.tables.parquet(path)


@pytest.fixture(scope="module")
def events(spark, event_rows):
    kinds = ", ".join(f"{name} {kind}" for name, (kind, _, _) in KEYS.items())
    made = [tuple(row.values()) for row in event_rows]
    frame = spark.createDataFrame(made, f"id long, n long, {kinds}")
    return {"batch": frame, "stream": replay(frame, cuts=[1, 20, 39])}


def one_how(events, table, on, how, cache):
    brought = {"columns": ["name"]} if how in ("inner", "left") else {}
    joined = rm.join_table(events, table, on=on, how=how, cache=cache, **brought)
    name = F.col("name") if brought else F.lit(None).cast("string")
    return joined.select("id", name.alias("name"), F.lit(how).alias("how"))


def test_the_tables_hash_is_sparks(events, event_rows):
    for name, (ours, theirs, values) in KEYS.items():
        kind = {"float": "double", "int": "bigint", "long": "bigint", "string": "binary"}
        column = F.col(name).cast(kind.get(ours, ours))
        column = column.cast("decimal(38,2)") if name == "price" else column
        column = column + F.lit(0.0) if name == "real" else column
        sparks = dict(events["batch"].select("id", F.hash(column)).collect())
        table = pa.array([row[name] for row in event_rows], theirs)
        found = murmur.hashes([table]).view(np.int32)
        assert list(found) == [sparks[row["id"]] for row in event_rows], (name, values)


@pytest.mark.parametrize(
    ("condition", "engine", "count"),
    [
        *((name, "batch", 1 + n % 5) for n, name in enumerate(CONDITIONS)),
        ("text", "batch", 37),
        *((name, "stream", 3) for name in STREAMED),
    ],
)
def test_any_number_of_buckets_gives_the_oracles_rows(
    condition, engine, count, events, event_rows, table, table_rows
):
    on, cache = CONDITIONS[condition], rm.full(buckets=count)
    joined = functools.reduce(
        DataFrame.unionByName, (one_how(events[engine], table, on, how, cache) for how in HOWS)
    )
    truth = [
        {"id": row["id"], "name": row.get("name"), "how": how}
        for how in HOWS
        for row in oracle.join_table(event_rows, table_rows, on=on, how=how, columns=["name"])
    ]
    assert_same_rows(rows(joined), truth)


def test_only_the_buckets_that_events_ask_for_are_indexed(spark, tmp_path):
    """The others stay files that nobody has looked at."""
    table = pa.table({"k": pa.array(range(1000)), "name": [f"row {n}" for n in range(1000)]})
    pq.write_table(table, tmp_path / "table.parquet")
    asked = [3, 500, 501]
    of = murmur.buckets([pa.array(asked)], 16)
    cache = rm.full(path=str(tmp_path / "store"), buckets=16, refresh="1 hour")
    joined = rm.join_table(
        replay(spark.createDataFrame([(n,) for n in asked], "k long")),
        rm.tables.parquet(tmp_path / "table.parquet"),
        on=rm.keys("k"),
        cache=cache,
    )
    query = joined.writeStream.format("noop").trigger(availableNow=True).start()
    query.awaitTermination()
    (version,) = (tmp_path / "store").glob("*/v*")
    made = {int(path.name) for path in version.iterdir() if re.fullmatch(r"\d{5}", path.name)}
    waiting = {int(path.stem) for path in (version / "parts").iterdir()}
    assert made == set(of.tolist())
    assert waiting == set(range(16)) - made
    seen = rm.metrics(query)["operators"]["join_table.table.parquet"]["table"]
    assert seen["buckets"] == sorted(made)
    assert seen["refresh_seconds"] == 3600 > seen["age_seconds"]
    every = murmur.buckets([table.column("k").combine_chunks()], 16)
    assert seen["rows"] == np.isin(every, list(made)).sum()


def test_what_cannot_be_cut_is_said_at_definition(spark, events, table):
    cache = rm.full(buckets=4)
    with pytest.raises(PlanError, match="cuts a table by its equality fields or its places"):
        rm.join_table(events["batch"], table, on=rm.asof("n", "w_n"), columns=["name"], cache=cache)
    with pytest.raises(PlanError, match="needs plan='workers' and a table that Python workers can"):
        rm.join_table(
            events["batch"], table, on=CONDITIONS["text"], columns=["name"], cache=cache,
            plan="native",
        )  # fmt: skip
    frame = rm.tables.frame(spark.createDataFrame([(1, "a")], "w_n long, w_text string"))
    with pytest.raises(PlanError, match=r"rm.snapshot\(df, path\) where the table is a frame"):
        rm.join_table(events["batch"], frame, on=rm.keys({"n": "w_n"}), cache=cache)
