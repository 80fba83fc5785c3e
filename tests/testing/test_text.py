from __future__ import annotations

import datetime as dt
import math
from decimal import Decimal

import pytest
import shapely

from rivermouth import testing
from rivermouth.errors import ColumnError, DefinitionError
from rivermouth.testing.text import parse

pytestmark = pytest.mark.spark

TYPES = """
    id long | name | at timestamp         | day date   | price decimal(5, 2) | v double | raw binary
    1       | x y  | 2024-02-29T12:00:00Z | 2024-02-29 | 1.25                | nan      | 00ff
    2       | null | null                 | null       | null                | null     | null
"""


def test_every_cell_becomes_a_value_of_its_type(spark):
    one, two = testing.rows(testing.frame(spark, TYPES))
    assert one == {
        "id": 1,
        "name": "x y",
        "at": dt.datetime(2024, 2, 29, 12, tzinfo=dt.UTC),
        "day": dt.date(2024, 2, 29),
        "price": Decimal("1.25"),
        "v": math.nan,
        "raw": b"\x00\xff",
    }
    assert two == dict.fromkeys(one) | {"id": 2}


def test_types_are_spark_types(spark):
    frame = testing.frame(spark, TYPES)
    assert [kind for _, kind in frame.dtypes] == [
        *("bigint", "string", "timestamp", "date", "decimal(5,2)", "double", "binary")
    ]


@pytest.mark.since("4.2")  # GEOMETRY
def test_geometry_is_wkb_and_with_an_srid_sparks_own(spark):
    frame = testing.frame(
        spark,
        """
        spot geometry | shape geometry(4326)
        POINT (1 2)   | LINESTRING (0 0, 1 1)
        null          | null
        """,
    )
    assert [kind for _, kind in frame.dtypes] == ["binary", "geometry(4326)"]
    one, two = testing.rows(frame)
    assert one["spot"] == shapely.to_wkb(shapely.Point(1, 2))
    line = shapely.LineString([(0, 0), (1, 1)])
    assert one["shape"] == {"srid": 4326, "wkb": shapely.to_wkb(line)}
    assert two == {"spot": None, "shape": None}


def test_arrival_sorts_the_rows_and_goes(spark):
    text = """
    arrival | id int
    10      | 1
    9       | 2
    9       | 3
    -1.5    | 4
    """
    frame = testing.frame(spark, text)
    assert frame.columns == ["id"]
    assert [row["id"] for row in testing.rows(frame)] == [4, 2, 3, 1]


def test_arrival_may_be_a_time():
    _, rows = parse("arrival|id\n10:05|a\n09:59|b")
    assert rows == [["b"], ["a"]]


@pytest.mark.since("4.2")  # GEOMETRY
def test_heads_alone_make_an_empty_frame(spark):
    frame = testing.frame(spark, "id int | spot geometry(4326)")
    assert testing.rows(frame) == []
    assert frame.dtypes == [("id", "int"), ("spot", "geometry(4326)")]


def test_a_row_that_is_too_short_is_shown():
    with pytest.raises(ColumnError) as error:
        parse("a | b\n1 | 2\n3")
    assert str(error.value) == (
        "testing.frame: a row of 1 cells under 2 heads; the row is '3'. "
        "Give each column a cell; write null for null."
    )


def test_no_text_is_no_frame():
    with pytest.raises(DefinitionError, match="the text is empty"):
        parse("\n  \n")
