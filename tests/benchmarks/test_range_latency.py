"""The benchmark of ranges between Kafka and Kafka: what it sends, and its table."""

import pyarrow.parquet as pq
from benchmarks.suites.keys import key_tables, keyed, range_latency


def test_each_record_knows_the_rows_it_meets(tmp_path, monkeypatch):
    monkeypatch.setattr(keyed, "CACHE", tmp_path)
    sample = range_latency.sample(10, "postgresql://nowhere", 300)
    table = pq.read_table(keyed.slices(10)).to_pylist()
    assert 200 < len(sample.bodies) <= 300
    for body, delays in zip(sample.bodies, sample.truth, strict=True):
        met = [
            row["delay"]
            for row in table
            if row["road"] == body["road"] and abs(row["slot"] - body["at"]) <= keyed.REACH
        ]
        assert sorted(met) == sorted(delays)
        assert body["meets"] == len(met) > 0
        assert "rows" not in body, "a query without a join gives one row, not as many"


def test_the_paper_s_latency_stands_above_ours():
    ways = {"by_record": 300.4, "skiplist": None, "ideal_skiplist": None, "sorted": None}
    rows = [
        {"case": case, "power": 21, "paper_ms": paper, "median_ms": 80.2, "p99_ms": 120.6}
        for case, paper in {**ways, "bare": None}.items()
    ]
    head, paper, median, high = key_tables.range_latency({"rows": rows})
    assert head[-1] == "no join"
    assert paper == ["2^21 rows, the paper, 8 workers", "300", "", "", "", ""]
    assert median == ["2^21 rows, here, median", *["80"] * 5]
    assert high == ["2^21 rows, here, 99th percentile", *["121"] * 5]
