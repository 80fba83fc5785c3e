"""SpatialBench: its answers are compared, and a wrong one is shown to be wrong."""

from benchmarks.suites.spatialbench import spatialbench_tables
from benchmarks.suites.spatialbench.questions import PUBLISHED, QUERIES, SQL, same


def test_every_query_has_its_sql_and_its_published_answer():
    assert QUERIES.keys() == SQL.keys() == PUBLISHED.keys()


def test_a_key_that_differs_and_a_row_that_is_missing_are_seen():
    rows = PUBLISHED["q12"]
    assert same(rows, [list(row) for row in rows])
    assert not same(rows, rows[:2])
    assert not same(rows, [[rows[0][0] + 1, rows[0][1]], *rows[1:]])
    assert not same(rows, [[rows[0][0], rows[0][1] + 1e-6], *rows[1:]])


def test_the_cheapest_engine_comes_first_and_a_wrong_answer_says_so():
    def row(engine, cpu, *, agrees=True):
        return {
            "query": "q8", "engine": engine, "cpu_s": cpu, "wall_s": cpu / 2, "memory_gb": 1.0,
            "is_published": True, "agrees": agrees,
        }  # fmt: skip

    rows = [row("rivermouth", 8.0), row("sedonadb", 4.0), row("duckdb", 6.0, agrees=False)]
    rows.append({"query": "q8", "floor": "q8_read", "cpu_s": 2, "wall_s": 1, "memory_gb": 1.0})
    _, *lines = spatialbench_tables.table({"rows": rows})
    assert [line[1:4] + line[-1:] for line in lines] == [
        ["Spark reads the trips' places, no join", "2", "0.50", ""],
        ["SedonaDB", "4", "1.00", "as published"],
        ["DuckDB spatial", "6", "1.50", "wrong"],
        ["rivermouth, on Spark", "8", "2.00", "as published"],
    ]
