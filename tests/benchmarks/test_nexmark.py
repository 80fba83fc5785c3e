"""Nexmark: the events have the published shape, and both sides give what plain SQL gives."""

import numpy as np
import pyarrow.compute as pc
import pytest
from benchmarks.harness import experiment, streams
from benchmarks.suites.nexmark import events as made
from benchmarks.suites.nexmark import nexmark_session as nexmark
from benchmarks.suites.nexmark import nexmark_tables
from benchmarks.suites.nexmark.events import AUCTIONS, BIDS, PERSONS, Events
from benchmarks.suites.nexmark.queries import ASKED, CLOSES, OURS, READS, SPARK, SQL

COUNT = 100_000


@pytest.fixture(scope="module")
def tables():
    return {entity: made.table(entity, COUNT) for entity in made.OF_GROUP}


def test_of_fifty_events_one_is_a_person_and_three_are_auctions(tables):
    sizes = {entity: table.num_rows * 50 // COUNT for entity, table in tables.items()}
    assert sizes == {PERSONS: 1, AUCTIONS: 3, BIDS: 46}


def test_the_same_seed_gives_the_same_events_and_a_longer_stream_begins_with_a_shorter(tables):
    for entity, table in tables.items():
        assert made.table(entity, COUNT).equals(table)
    longer = made.table(BIDS, 2 * COUNT)
    assert longer["at"].slice(0, tables[BIDS].num_rows).equals(tables[BIDS]["at"])


def test_ids_count_on_and_times_never_go_back(tables):
    for entity in (PERSONS, AUCTIONS):
        ids = tables[entity]["id"].to_numpy()
        assert (ids == 1000 + np.arange(len(ids))).all()
    for table in tables.values():
        assert (np.diff(table["at"].to_numpy().astype(np.int64)) >= 0).all()


def test_half_of_the_bids_are_for_a_hot_auction_and_three_of_four_by_a_hot_bidder(tables):
    bids = tables[BIDS]
    hot = pc.mean(pc.equal(_modulo(bids["auction"], 100), 0)).as_py()
    assert 0.50 < hot < 0.52  # one of a hundred of the others is for a hot one, too
    hot = pc.mean(pc.equal(_modulo(bids["bidder"], 100), 1)).as_py()
    assert 0.75 < hot < 0.77
    hot = pc.mean(pc.equal(_modulo(tables[AUCTIONS]["seller"], 100), 0)).as_py()
    assert 0.74 < hot < 0.78


def test_no_auction_is_open_for_longer_than_the_join_looks_ahead(tables):
    auctions = tables[AUCTIONS]
    took = pc.subtract(auctions["expires"], auctions["at"]).cast("int64").to_numpy()
    assert took.min() > 0
    assert took.max() <= 2 * made.OPEN_MS * 1000


def test_files_that_would_not_begin_together_are_refused():
    with pytest.raises(ValueError, match="1000 events are not 3 files of whole groups"):
        Events(1000, 3)


def test_every_query_has_all_its_forms():
    assert ASKED.keys() == OURS.keys() == SPARK.keys() == SQL.keys() == READS.keys()
    assert ASKED.keys() == CLOSES.keys()


@pytest.mark.spark
@pytest.mark.parametrize("query", ASKED)
def test_both_sides_answer_as_sql_does(query, spark, tmp_path, monkeypatch):
    for module in (experiment, made):
        monkeypatch.setattr(module, "CACHE", tmp_path)
    events = Events(200_000, 4)
    right = nexmark.truth(spark, query, events)
    assert right["rows"] > 0
    for case in nexmark.CASES:
        frame = nexmark.stream(spark, case, query, events)
        found = streams.drain(frame, tmp_path / "checkpoints", look=nexmark.digest)
        assert found["answer"] == right, case


def test_the_better_side_comes_first_and_a_wrong_answer_says_so():
    def row(case, rate, *, is_right=True):
        return {
            "query": "q13", "case": case, "rows_per_cpu_s": rate, "batch_rows": 5e5,
            "batch_ms": 700.0, "memory_gb": 1.25, "is_right": is_right,
        }  # fmt: skip

    rows = [row("ours", 2e5), row("spark", 4e5, is_right=False)]
    _, *lines = nexmark_tables.table({"rows": rows})
    assert [line[1:4] + line[-1:] for line in lines] == [
        ["Spark's own", "400,000", "1.00", "wrong"],
        ["**rivermouth**", "200,000", "0.50", "right"],
    ]


def _modulo(ids, by):
    return pc.subtract(ids, pc.multiply(pc.divide(ids, by), by))
