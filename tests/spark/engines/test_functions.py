"""plan="udf": the metrics of the workers, and each event looked up once, whatever Spark plans."""

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyspark.sql import functions as F

import rivermouth as rm
from rivermouth.testing import assert_same_rows, replay, rows

pytestmark = [pytest.mark.spark, pytest.mark.since("4.1")]


@pytest.fixture
def table(tmp_path):
    path = tmp_path / "table.parquet"
    pq.write_table(pa.table({"k": [1, 1, 2], "name": ["a", "b", None]}), path)
    return rm.tables.parquet(path)


@pytest.fixture
def events(spark):
    return spark.range(1000).selectExpr("id", "nullif(id % 5, 4) as k", "string(id) as text")


def numbers(joined):
    """What the operator of a stream says that it did, but for times."""
    query = joined.writeStream.format("noop").trigger(availableNow=True).start()
    query.awaitTermination()
    (found,) = rm.metrics(query)["operators"].values()
    return {
        name: found[name]
        for name in ("rows_in", "rows_out", "matched", "unmatched", "rejected", "rows_per_task")
    } | {"table": {name: found["table"][name] for name in ("rows", "version", "index")}}


@pytest.mark.parametrize("how", ["inner", "left", "semi", "anti"])
def test_the_metrics_are_those_of_the_workers(how, spark, events, table, tmp_path):
    stream = replay(events.coalesce(1), cuts=[300, 700], path=tmp_path / "events")
    cache = rm.full(path=tmp_path / "snapshots")
    asked = {
        plan: rm.join_table(stream, table, on=rm.keys("k"), how=how, cache=cache, plan=plan)
        for plan in ("workers", "udf")
    }
    found = {plan: numbers(joined) for plan, joined in asked.items()}
    assert found["udf"] == found["workers"]
    assert found["udf"]["rejected"] == {"null_key": 200}


def test_filters_and_projections_behind_it_change_neither_counts_nor_calls(
    spark, events, table, capsys, tmp_path
):
    stream = replay(events.coalesce(1), cuts=[1000], path=tmp_path / "events")
    joined = rm.join_table(stream, table, on=rm.keys("k"), how="left", plan="udf")
    used = joined.filter("k = 1 and name = 'a'").selectExpr("name", "upper(name) as n", "k + 1")
    assert numbers(used)["rows_in"] == 1000
    batch = rm.join_table(events, table, on=rm.keys("k"), how="left", plan="udf")
    batch.filter("name = 'a'").selectExpr("name", "upper(name) as n", "k + 1").explain()
    assert capsys.readouterr().out.count("ArrowEvalPython") == 1


def test_only_the_conditions_columns_go_to_python(events, table, capsys):
    rm.join_table(events, table, on=rm.keys("k"), plan="udf").select("k", "name").explain()
    plan = capsys.readouterr().out
    (call,) = [line for line in plan.splitlines() if "ArrowEvalPython" in line]
    assert "text" not in call, "what is not asked for is not even read"


def test_joins_follow_one_another(events, table):
    once = rm.join_table(events, table, on=rm.keys("k"), plan="udf", columns={"one": "name"})
    both = rm.join_table(
        once.withColumn("l", F.col("k") + 1), table, on=rm.keys({"l": "k"}), how="left", plan="udf"
    )
    same = rm.join_table(events, table, on=rm.keys("k"), plan="workers", columns={"one": "name"})
    same = rm.join_table(
        same.withColumn("l", F.col("k") + 1), table, on=rm.keys({"l": "k"}), how="left",
        plan="workers",
    )  # fmt: skip
    assert_same_rows(rows(both), rows(same))
