"""Rows written into a real PostgreSQL by key: the later answer stays, whatever comes last."""

import datetime as dt
from decimal import Decimal

import psycopg
import pyarrow as pa
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from tests.support.examples import examples

import rivermouth as rm
from rivermouth.errors import TableInvalid, TableUnavailable

pytestmark = pytest.mark.server
KEYS, ORDER = ["place", "start"], ["emitted", "revision"]


def rows(*answers):
    """Answers (place, start, total, emitted, revision)."""
    names = ["place", "start", "total", "emitted", "revision"]
    kinds = [pa.string(), pa.int64(), pa.float64(), pa.int64(), pa.int32()]
    columns = list(zip(*answers, strict=True)) if answers else [[]] * len(names)
    return pa.table([pa.array(c, k) for c, k in zip(columns, kinds, strict=True)], names)


def held(url, table):
    with psycopg.connect(url, autocommit=True) as connection:
        return sorted(connection.execute(f"SELECT * FROM {table}").fetchall(), key=str)


@pytest.fixture
def table(postgres_url, request):
    name = f"written_{abs(hash(request.node.name))}"
    yield name
    with psycopg.connect(postgres_url, autocommit=True) as connection:
        connection.execute(f"DROP TABLE IF EXISTS {name}")


def test_a_table_is_made_and_written_over_by_key(postgres_url, table):
    to = rm.tables.postgres(postgres_url, table)
    to.upsert(rows(("a", 1, 2.5, 10, 0), (None, 1, 1.0, 10, 0)), keys=KEYS, order=ORDER)
    to.upsert(rows((None, 1, 3.0, 11, 0), ("b", 1, 4.0, 11, 0)), keys=KEYS, order=ORDER)
    kept = [("a", 1, 2.5, 10, 0), ("b", 1, 4.0, 11, 0), (None, 1, 3.0, 11, 0)]
    assert held(postgres_url, table) == kept
    to.delete(rows((None, 1, 0.0, 0, 0)).select(KEYS))
    assert held(postgres_url, table) == kept[:2]


answers = st.tuples(
    st.sampled_from(["a", "b", None]), st.integers(0, 1), st.just(1.0),
    st.integers(0, 3), st.integers(0, 2),
)  # fmt: skip


@given(batches=st.lists(st.lists(answers, max_size=3), max_size=4))
@settings(
    max_examples=examples(30),
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture],
)
def test_the_latest_answer_stays_whatever_order_they_come_in(postgres_url, table, batches):
    to = rm.tables.postgres(postgres_url, table)
    with psycopg.connect(postgres_url, autocommit=True) as connection:
        connection.execute(f"DROP TABLE IF EXISTS {table}")
    latest = {}
    to.upsert(rows(("z", 0, 0.0, 0, 0)), keys=KEYS, order=ORDER)
    for batch in batches:
        to.upsert(rows(*batch), keys=KEYS, order=ORDER)
        for place, start, total, *order in batch:
            latest[place, start] = max(
                latest.get((place, start), ((-1,), total)), (tuple(order), total)
            )
    expected = {(*key, total, *order) for key, (order, total) in latest.items()}
    assert set(held(postgres_url, table)) == expected | {("z", 0, 0.0, 0, 0)}


def test_every_type_of_a_summary_has_a_column(postgres_url, table):
    now = dt.datetime(2026, 11, 16, 3, 0, tzinfo=dt.UTC)
    row = pa.table(
        {
            "place": ["a"], "start": pa.array([now], pa.timestamp("us", "UTC")),
            "local": pa.array([now.replace(tzinfo=None)], pa.timestamp("us")),
            "day": pa.array([now.date()], pa.date32()),
            "money": pa.array([Decimal("1.25")], pa.decimal128(20, 2)),
            "n": pa.array([3], pa.int64()), "ok": [True],
        }
    )  # fmt: skip
    to = rm.tables.postgres(postgres_url, table)
    to.upsert(row, keys=KEYS, order=["n"])
    (found,) = held(postgres_url, table)
    assert found == ("a", now, now.replace(tzinfo=None), now.date(), Decimal("1.25"), 3, True)
    nested = row.append_column("parts", pa.array([[1, 2]]))
    with pytest.raises(TableInvalid, match="'parts' is of type list"):
        to.upsert(nested, keys=KEYS, order=["n"])


def test_lists_of_records_are_written_as_json(postgres_url, table):
    now = dt.datetime(2026, 11, 16, 3, 0, tzinfo=dt.UTC)
    record = {"at": now, "day": now.date(), "v": float("nan"), "d": Decimal("1.25"), "b": b"\x01"}
    record |= {"up": float("inf"), "n": None, "w": "é"}
    lists = [[record, record], None]
    row = pa.table({"place": ["a", "b"], "start": [1, 1], "n": [3, 3], "best": lists})
    to = rm.tables.postgres(postgres_url, table)
    to.upsert(row, keys=KEYS, order=["n"])
    first, second = (each[-1] for each in sorted(held(postgres_url, table)))
    shown = {"at": "2026-11-16T03:00:00+00:00", "day": "2026-11-16", "v": "NaN", "d": "1.25"}
    shown |= {"b": "AQ==", "up": "Infinity", "n": None, "w": "é"}
    assert first == [shown, shown]
    assert second is None


def test_a_server_that_is_gone_is_said_without_the_password():
    to = rm.tables.postgres("postgresql://ann:hush@127.0.0.1:1/city", "answers")
    with pytest.raises(TableUnavailable, match="does not answer") as caught:
        to.upsert(rows(("a", 1, 2.5, 10, 0)), keys=KEYS, order=ORDER)
    assert "hush" not in str(caught.value)
