"""What all stores have in common: the compliance check, answers against the oracle, filters."""

import datetime as dt
import math
import operator
from collections import defaultdict
from decimal import Context, Decimal

import numpy as np
import pyarrow as pa
import pytest
from tests.support.servers import PASSWORD
from tests.support.stores import DATABASES, QUERYABLE, STORES, store_of

import rivermouth as rm
from rivermouth.errors import (
    ColumnError,
    ConditionError,
    DefinitionError,
    PlanError,
    TableInvalid,
)
from rivermouth.tables import Queryable, Source
from rivermouth.testing import oracle

UTC = dt.UTC
ROWS = pa.table(
    {
        "id": pa.array(range(12), pa.int64()),
        "word": pa.array(
            ["a", "A", "a ", "é", "e", "E", "", None, "北京", 'it\'s \\ "q" %s', "a", "ß"]
        ),
        "number": pa.array([1, -1, 0, None, 2**63 - 1, -(2**63), 7, 7, 7, 8, 9, 10], pa.int64()),
        "small": pa.array([1, -1, 0, None, 2**31 - 1, -(2**31), 7, 7, 7, 8, 9, 10], pa.int32()),
        "share": pa.array([0.1, -0.0, 0.0, None, 1e300, -1e-300, 0.5, 0.5, 1 / 3, 2, 3, 4]),
        "open": pa.array([True, False, None] * 4),
        "raw": pa.array(
            [b"a", b"A", b"a ", None, b"", b"\x00", b"\xff", b"a", b"b", b"c", b"d", b"e"]
        ),
        "day": pa.array([dt.date(2024, 2, 29), None, dt.date(1969, 12, 31)] * 4),
        "at": pa.array(
            [
                dt.datetime(2024, 2, 29, 12, 30, 0, 1),
                dt.datetime(1969, 12, 31, 23, 59, 59, 999999),
                None,
                dt.datetime(2024, 2, 29, 12, 30),
            ]
            * 3,
            pa.timestamp("us"),
        ),
        "seen": pa.array(
            [dt.datetime(2024, 7, 1, 12, tzinfo=UTC), None, dt.datetime(1999, 1, 1, tzinfo=UTC)]
            * 4,
            pa.timestamp("us", "UTC"),
        ),
        "price": pa.array(
            [Decimal("1.500"), Decimal("-0.001"), None, Decimal("999999999.999")] * 3,
            pa.decimal128(12, 3),
        ),
    }
)


def stores(kinds):
    marks = {"mysql": pytest.mark.server, "postgres": pytest.mark.server}
    params = [pytest.param(kind, marks=marks.get(kind, ())) for kind in kinds]
    return pytest.fixture(scope="module", params=params)


@stores(STORES)
def store(request, tmp_path_factory):
    return store_of(request.param, request, tmp_path_factory.mktemp("store"))


@stores(QUERYABLE)
def queryable(request, tmp_path_factory):
    return store_of(request.param, request, tmp_path_factory.mktemp("store"))


@stores(DATABASES)
def database(request, tmp_path_factory):
    return store_of(request.param, request, tmp_path_factory.mktemp("store"))


def listed(answer, *columns):
    numbers, rows = answer
    return list(zip(numbers.tolist(), *(rows[name].to_pylist() for name in columns), strict=True))


# -- the public check


def test_every_store_passes_the_public_check(store):
    rows = store.columns(ROWS)
    table = store.put("everything", rows)
    assert isinstance(table, Source)
    assert isinstance(table, Queryable) == (store.kind in QUERYABLE)
    # a Shapefile has no empty text, no blanks at the end, and no room for large numbers
    expected = rows.select(["id", "open", "day"]) if store.kind == "shapefile" else rows
    rm.testing.check_table(table, expected=expected, secrets=[PASSWORD])
    others = {"fid", "geometry"} - {*rows.schema.names}
    assert [name for name in table.schema().names if name not in others] == rows.schema.names


def test_an_empty_table_passes_too(store):
    if store.kind == "geojson":
        pytest.skip("its columns are those of its features")
    rows = store.columns(ROWS).slice(0, 0)
    rm.testing.check_table(store.put("no_rows", rows), expected=rows)


# -- equality


@pytest.mark.parametrize("names", [["k"], ["k", "word"], ["k", "word", "part"]])
def test_ten_thousand_keys_at_once_find_all_their_rows(queryable, names):
    rng = np.random.default_rng(len(names))
    count = 20_000
    rows = pa.table(
        {
            "id": np.arange(count),
            "k": pa.array(rng.integers(0, 9_000, count), mask=rng.random(count) < 0.01),
            "word": pa.array([f"Word {n % 3}"[: 5 + n % 2] for n in range(count)]),
            "part": pa.array(rng.integers(0, 2, count) * 1.0),
        }
    )
    table = queryable.put("many", rows, index="k")
    left = {
        "k": pa.array(rng.permutation(10_000)),
        "word": pa.array(["Word ", "Word", "word"] * 3_333 + [None]),
        "part": pa.array([0.0, 1.0, math.nan, -0.0] * 2_500),
    }
    wanted = defaultdict(list)
    columns = [rows[name].to_pylist() for name in names]
    for number, key in enumerate(zip(*columns, strict=True)):
        wanted[key].append(number)
    keys = zip(*(left[name].to_pylist() for name in names), strict=True)
    expected = [
        (record, row) for record, key in enumerate(keys) if None not in key for row in wanted[key]
    ]
    assert len(expected) > 1_000
    assert listed(table.lookup(rm.keys(names), ["id"], left), "id") == expected


def test_a_column_that_came_or_went_since_the_last_lookup(queryable):
    """What is remembered of a table may be older than the condition."""
    rows = pa.table({"id": [0, 1], "old": pa.array([7, 8], pa.int64())})
    probe = {name: pa.array([8], pa.int64()) for name in ("old", "new")}
    table = queryable.put("renamed", rows)
    assert listed(table.lookup(rm.keys("old"), ["id"], probe), "id") == [(0, 1)]
    table = queryable.put("renamed", rows.rename_columns(["id", "new"]))
    assert listed(table.lookup(rm.keys("new"), ["id"], probe), "id") == [(0, 1)]
    with pytest.raises(TableInvalid, match=r"no column 'old'.*define the join again"):
        table.lookup(rm.keys("old"), ["id"], probe)


@pytest.mark.parametrize("kind", [pa.int8(), pa.int16(), pa.int32(), pa.int64()])
def test_integers_of_any_width_are_equal(queryable, kind):
    table = queryable.put("everything", queryable.columns(ROWS))
    for column in ("small", "number"):
        found = table.lookup(rm.keys({"k": column}), ["id"], {"k": pa.array([7, 0, None], kind)})
        assert listed(found, "id") == [(0, 6), (0, 7), (0, 8), (1, 2)]


def test_keys_of_another_family_are_refused(queryable):
    table = queryable.put("everything", queryable.columns(ROWS))
    with pytest.raises(ConditionError) as caught:
        table.lookup(rm.keys("number"), ["id"], {"number": pa.array(["1"])})
    assert str(caught.value) == (
        f"tables.{queryable.kind}: keys compares keys of type string with a column read as int64. "
        "Cast one of them."
    )


@pytest.mark.parametrize("condition", [rm.within("shape", "word"), rm.nearest("a", "word")])
def test_what_a_store_cannot_answer_is_said(queryable, condition):
    if queryable.kind == "postgres":
        pytest.skip("PostGIS can")
    table = queryable.put("everything", queryable.columns(ROWS))
    with pytest.raises(PlanError, match=r"Use cache=rm\.full\(\)"):
        table.lookup(condition, ["id"], {"shape": pa.array([b""]), "a": pa.array([b""])})


def test_files_answer_equality_only(tmp_path):
    table = store_of("parquet", None, tmp_path).put("everything", ROWS)
    with pytest.raises(PlanError) as caught:
        table.lookup(rm.asof("number", "number"), ["id"], {"number": pa.array([1])})
    assert str(caught.value).startswith("tables.parquet: Parquet files evaluate rm.keys only, not ")


# -- ranges

START = dt.datetime(2024, 3, 10)
DAY = START.date()


def moments(numbers):
    return [None if n is None else START + dt.timedelta(hours=n, microseconds=n) for n in numbers]


WIDE = Context(prec=60)
STEP = Decimal(f"{10**32 + 1}e-4")  # times 20: 34 digits


def days(numbers):
    return [None if n is None else DAY + dt.timedelta(days=n) for n in numbers]


RANGES = {
    "int": (pa.int64(), list, (-3, 2, -1)),
    "float": (pa.float64(), lambda ns: [n if n is None else n / 3 for n in ns], (-1.1, 0.4, -0.3)),
    "decimal": (
        pa.decimal128(12, 3),
        lambda ns: [n if n is None else Decimal(n) / 8 for n in ns],
        (Decimal("-0.25"), Decimal("0.125"), Decimal("-0.125")),
    ),
    "wide decimal": (
        pa.decimal128(38, 4),
        lambda ns: [n if n is None else WIDE.multiply(Decimal(n), STEP) for n in ns],
        (WIDE.multiply(Decimal(-3), STEP), Decimal("0.00001"), WIDE.minus(STEP)),
    ),
    "date": (pa.date32(), days, ("-3 days", "2 days", "-1 day")),
    "timestamp": (pa.timestamp("us"), moments, ("-3 hours", "2 hours 2 microseconds", "-1 hour")),
    "zoned": (
        pa.timestamp("us", "UTC"),
        lambda ns: [m if m is None else m.replace(tzinfo=UTC) for m in moments(ns)],
        ("-3 hours", "2 hours", "-1 hour"),
    ),
}


def ranged(seed, count, make, kind, gaps=0.1):
    rng = np.random.default_rng(seed)
    numbers = [None if rng.random() < gaps else int(n) for n in rng.integers(-20, 20, count)]
    words = [None if rng.random() < gaps else str(w) for w in rng.choice(["a", "A", "b"], count)]
    return pa.table({"id": range(count), "word": words, "value": pa.array(make(numbers), kind)})


@pytest.mark.parametrize("by", [None, {"word": "word"}])
@pytest.mark.parametrize("family", RANGES)
@pytest.mark.parametrize("how", ["between", "behind", "asof"])
def test_ranges_give_what_the_oracle_gives(database, family, by, how):
    kind, make, (lower, upper, behind) = RANGES[family]
    rows = ranged(1, 120, make, kind)
    if len(database.columns(rows).schema) < 3:
        pytest.skip("this store has no such type")
    table = database.put("ranged", rows, index="word, value")
    events = ranged(2, 60, make, kind).rename_columns(["n", "word", "v"])
    match how:
        case "between":
            condition = rm.between("v", "value", lower=lower, upper=upper, by=by)
        case "behind":
            condition = rm.between("v", "value", lower=lower, upper=behind, by=by)
        case "asof":
            condition = rm.asof("v", "value", by=by)
    left = {name: events[name].combine_chunks() for name in ("word", "v")}
    table_rows = rows.to_pylist()
    expected = [
        (record["n"], row["id"])
        for record in events.to_pylist()
        for row, _ in oracle.matches(record, table_rows, condition)
    ]
    assert len(expected) > 15
    assert sorted(listed(table.lookup(condition, ["id"], left), "id")) == sorted(expected)


def test_whole_numbers_are_exact_at_their_ends(database):
    ends = [-(2**63), -(2**63) + 1, -1, 0, 2**63 - 2, 2**63 - 1]
    table = database.put("ends", pa.table({"id": range(6), "value": ends}))
    records = [{"n": n, "v": v} for n, v in enumerate(ends)]
    rows = [{"id": n, "value": v} for n, v in enumerate(ends)]
    for lower, upper in ((-1, 1), (1 - 2**63, 0), (1, 1), (1, 2**70), (-(2**70), 2**70)):
        condition = rm.between("v", "value", lower=lower, upper=upper)
        expected = [
            (r["n"], row["id"]) for r in records for row, _ in oracle.matches(r, rows, condition)
        ]
        assert listed(table.lookup(condition, ["id"], {"v": pa.array(ends)}), "id") == expected


def test_infinite_floats_are_ordinary_ends(database):
    values = [-1e308, 0.0, 1e308]
    table = database.put("wide", pa.table({"id": range(3), "value": values}))
    asked = pa.array([math.inf, -math.inf, math.nan, 1e308])
    found = table.lookup(rm.between("v", "value", lower=-1e308, upper=1e308), ["id"], {"v": asked})
    assert listed(found, "id") == [(3, 1), (3, 2)]
    assert listed(table.lookup(rm.asof("v", "value"), ["id"], {"v": asked}), "id") == [
        (0, 2), (3, 2)
    ]  # fmt: skip


def test_times_beyond_what_a_store_holds_are_ends_too(database):
    table = database.put(
        "times", pa.table({"id": [0], "value": pa.array([START], pa.timestamp("us"))})
    )
    far = pa.array([2**63 - 1, -(2**63), 0]).cast(pa.timestamp("us"))
    found = table.lookup(rm.asof("v", "value"), ["id"], {"v": far})
    assert listed(found, "id") == [(0, 0)]
    wide = rm.between("v", "value", lower="-1000000 days", upper="1000000 days")
    assert listed(table.lookup(wide, ["id"], {"v": far}), "id") == [(2, 0)]


# -- which rows count

COMPARED = {
    "=": operator.eq,
    "!=": operator.ne,
    "<": operator.lt,
    "<=": operator.le,
    ">": operator.gt,
    ">=": operator.ge,
    "in": lambda value, others: value in others,
    "not in": lambda value, others: value not in others,
}
FILTERS = [
    *[("word", op, "a") for op in ("=", "!=", "<", "<=", ">", ">=")],
    ("word", "=", "a "),
    ("word", "=", 'it\'s \\ "q" %s'),
    ("word", "in", ["A", "e", "nowhere"]),
    ("word", "not in", ["A", "e"]),
    *[("number", op, 7) for op in ("=", "!=", "<", "<=", ">", ">=")],
    ("number", "in", [7, 2**63 - 1]),
    ("number", "not in", [7]),
    *[("share", op, 0.5) for op in ("=", "!=", "<", "<=", ">", ">=")],
    ("share", "=", 0.0),
    ("share", "in", [0.0, 2.0]),
    ("share", "not in", [0.0, 2.0]),
    ("share", ">", 1 / 3),
    ("share", "in", [0.1, 1 / 3, 2.0]),
    ("open", "=", True),
    ("open", "!=", True),
    ("raw", "=", b"a"),
    ("raw", "in", [b"\x00", b""]),
    *[("day", op, dt.date(2024, 2, 29)) for op in ("=", "!=", "<", ">=")],
    *[("at", op, dt.datetime(2024, 2, 29, 12, 30)) for op in ("=", "!=", "<", "<=", ">")],
    *[("seen", op, dt.datetime(2024, 7, 1, 12, tzinfo=UTC)) for op in ("=", "!=", "<", ">=")],
    *[("price", op, Decimal("1.5")) for op in ("=", "!=", "<", "<=", ">")],
    ("price", "in", [Decimal("-0.001"), Decimal("1.5")]),
]


def passing(rows, *tests):
    def passes(row):
        for column, op, value in tests:
            found = row[column]
            if op in ("is", "is not"):
                holds = (found is None) == (op == "is")
            else:
                holds = found is not None and found == found and COMPARED[op](found, value)
            if not holds:
                return False
        return True

    return [row["id"] for row in rows.to_pylist() if passes(row)]


@pytest.mark.parametrize("test", FILTERS, ids=lambda test: " ".join(map(repr, test)))
def test_a_filter_lets_the_rows_through_that_python_lets_through(store, test):
    rows = store.columns(ROWS)
    if test[0] not in rows.schema.names:
        pytest.skip("this store has no such type")
    rows = store.put("sieved", rows).read(rows.schema.names)
    if test[0] == "number" and rows.schema.field("number").type == pa.float64():
        pytest.skip("a Shapefile has no room for such numbers")
    table = store.put("sieved", rows, where=test)
    expected = passing(rows, test)
    if store.kind != "shapefile":  # which drops blanks at the end
        assert 0 < len(expected) < rows.num_rows
    assert table.read(["id"])["id"].to_pylist() == expected
    if store.kind in QUERYABLE:
        answered = table.lookup(rm.keys({"k": "id"}), ["id"], {"k": pa.array(range(12))})
        assert listed(answered, "id") == [(n, n) for n in expected]


def test_several_comparisons_must_all_hold(store):
    tests = [
        ("word", "is not", None),
        ("small", ">", 0),
        ("share", "<=", 2.0),
        ("open", "is", None),
    ]
    rows = store.columns(ROWS)
    table = store.put("sieved", rows, where=tests)
    assert table.read(["id"])["id"].to_pylist() == passing(rows, *tests) == [8]
    rm.testing.check_table(table, expected=rows.slice(8, 1).select(["id", "word", "open"]))


def test_a_filter_holds_in_ranges_too(database):
    rows = pa.table({"id": range(6), "value": [1, 2, 3, 4, 5, 6], "word": ["a", "b"] * 3})
    table = database.put("sieved2", rows, where=("word", "=", "a"))
    left = {"v": pa.array([4, 6])}
    newest = table.lookup(rm.asof("v", "value"), ["id"], left)
    assert listed(newest, "id") == [(0, 2), (1, 4)]
    near = table.lookup(rm.between("v", "value", lower=-1, upper=0), ["id"], left)
    assert listed(near, "id") == [(0, 2), (1, 4)]


def test_nan_satisfies_no_comparison(store):
    if store.kind in ("sqlite", "mysql", "geopackage"):
        pytest.skip("has no NaN")
    rows = pa.table({"id": range(3), "share": [math.nan, 1.0, 2.0]})
    for test, expected in (
        (("share", ">=", 1.0), [1, 2]),
        (("share", "!=", 1.0), [2]),
        (("share", "not in", [1.0]), [2]),
        (("share", "<", 5.0), [1, 2]),
        (("share", "is not", None), [0, 1, 2]),
    ):
        assert store.put("not_numbers", rows, where=test).read(["id"])["id"].to_pylist() == expected


def test_two_filters_are_two_tables(store):
    all_rows = store.put("sieved", store.columns(ROWS))
    made = [
        store.put("sieved", store.columns(ROWS), where=("number", op, 7)) for op in ("=", "<", "<")
    ]
    assert len({table.identity for table in (all_rows, *made)}) == 3
    assert made[1] == made[2]
    assert "number < 7" in repr(made[1])
    assert "number < 7" in made[1].identity


@pytest.mark.parametrize(
    ("test", "said"),
    [
        (("nummer", "=", 7), "where names column 'nummer', which is not among the table's ["),
        (("id", "=", "7"), "where compares column 'id', which is int64, with '7'. "),
        (("id", ">", 2.5), "where compares column 'id', which is int64, with 2.5. "),
        (("id", "=", True), "where compares column 'id', which is int64, with True. "),
        (("small", "=", 2**40), "where compares column 'small', which is int"),
        (("word", "=", b"a"), "where compares column 'word', which is string, with b'a'. "),
        (("at", "=", dt.datetime(2024, 1, 1, tzinfo=UTC)), "where compares column 'at', which is "),
    ],
)
def test_a_filter_that_makes_no_sense_of_a_column_is_said(store, test, said):
    types = {field.name: field.type for field in store.put("sieved", store.columns(ROWS)).schema()}
    if test[0] == "small" and types["small"] == pa.int64():
        pytest.skip("its integers are of one width")
    if test[0] == "at" and "at" not in types:
        pytest.skip("this store has no such type")
    table = store.put("sieved", store.columns(ROWS), where=test)
    with pytest.raises(ColumnError) as caught:
        table.schema()
    assert str(caught.value).startswith(f"tables.{store.kind}: {said}")


@pytest.mark.parametrize(
    ("where", "said"),
    [
        (("city", "like", "B%"), "where compares 'city' by 'like'; known are ["),
        (("city", "=", None), "where holds ('city', '=', None), which compares nothing. Write "),
        (("city", "!=", None), "where holds ('city', '!=', None), which compares nothing. Write "),
        (("city", "=", math.nan), "where holds ('city', '=', nan), which compares nothing. "),
        (("city", "is", 3), "where holds ('city', 'is', 3), which compares nothing. Only None"),
        (("city", "in", "Bern"), "where holds ('city', 'in', 'Bern'), which compares nothing. "),
        (("city", "in", []), "where holds ('city', 'in', []), which compares nothing. Give a list"),
        (("city", "in", [None]), "where holds ('city', 'in', [None]), which compares nothing. "),
        ([("city", "=")], "where holds ('city', '='), which is not a comparison. Write "),
        (
            "city = 'Bern'",
            "where holds \"city = 'Bern'\", which is not a comparison. Write (column, operator",
        ),
    ],
)
def test_what_is_no_filter_is_refused_at_once(where, said):
    with pytest.raises(DefinitionError) as caught:
        rm.tables.sqlite("city.db", "zones", where=where)
    assert str(caught.value).startswith(f"tables.sqlite: {said}")
