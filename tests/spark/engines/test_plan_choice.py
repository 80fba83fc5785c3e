"""The plan that is taken where none is named: by what the condition does not need."""

from __future__ import annotations

import pytest

import rivermouth as rm
from rivermouth.spark.engines import plan_choice
from rivermouth.spark.runtime import versions

pytestmark = [pytest.mark.spark, pytest.mark.since("4.1")]


@pytest.fixture
def names(tmp_path, spark):
    path = tmp_path / "names.parquet"
    spark.createDataFrame([(1, "a"), (2, "b")], "k int, name string").toPandas().to_parquet(path)
    return rm.tables.parquet(str(path))


def wide(spark, columns):
    return spark.range(3).selectExpr("int(id) as k", *(f"id + {n} as c{n}" for n in range(columns)))


@pytest.mark.parametrize("how", ["inner", "left", "semi", "anti"])
def test_wide_events_stay_in_the_jvm_and_narrow_ones_do_not(how, spark, names, capsys):
    for columns, step in ((2, "MapInArrow"), (40, "ArrowEvalPython")):
        events = wide(spark, columns)
        joined = rm.join_table(events, names, on=rm.keys("k"), how=how)
        joined.explain()
        assert step in capsys.readouterr().out
        named = rm.join_table(events, names, on=rm.keys("k"), how=how, plan="workers")
        rm.testing.assert_same_rows(rm.testing.rows(joined), rm.testing.rows(named))


def test_routed_events_and_an_older_spark_take_whole_rows(spark, names, monkeypatch, capsys):
    events = wide(spark, 40)
    rm.join_table(events, names, on=rm.keys("k"), routing=rm.by_hash(partitions=2)).explain()
    assert "MapInArrow" in capsys.readouterr().out
    monkeypatch.setattr(versions, "common", lambda spark: (4, 0))
    rm.join_table(events, names, on=rm.keys("k")).explain()
    assert "MapInArrow" in capsys.readouterr().out


def test_texts_count_more_than_numbers():
    def least(cost):
        return next(n for n in range(1000) if cost(n) == "udf")

    texts = least(lambda n: plan_choice.cheaper(0, n, single=False))
    assert texts < least(lambda n: plan_choice.cheaper(n, 0, single=False))
