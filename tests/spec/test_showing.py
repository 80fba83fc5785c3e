"""What notebooks show of conditions, summaries and tables: the words, escaped."""

from __future__ import annotations

import re
import sqlite3
from contextlib import closing
from pathlib import Path

import pytest

import rivermouth as rm


def cells(value: object) -> list[tuple[str, str]]:
    return re.findall(r"<tr><th>(.*?)</th><td>(.*?)</td></tr>", value._repr_html_())  # type: ignore[attr-defined]


HERE = rm.point("x", "y")


@pytest.mark.parametrize(
    ("condition", "shown"),
    [
        (rm.keys({"uid": "user_id"}), [("uid", "= user_id")]),
        (rm.within(HERE, "shape"), [("point(x, y)", "within shape")]),
        (rm.relate("a", "b", "T********"), [("a", "relate b (T********)")]),
        (rm.dwithin("a", "b", distance=2.5), [("a", "at most 2.5 from b")]),
        (rm.dwithin(HERE, HERE, meters=300), [("point(x, y)", "at most 300 m from point(x, y)")]),
        (rm.nearest("a", "b", k=3), [("a", "3 nearest b, planar")]),
        (
            rm.nearest(HERE, HERE, meters=500),
            [("point(x, y)", "1 nearest point(x, y), at most 500 m")],
        ),
        (
            rm.between("at", "slot", lower="-5 minutes", upper="0 seconds"),
            [("at", "slot from -0:05:00 to +0:00:00, both included")],
        ),
        (
            rm.asof("at", "since", by="city"),
            [("city", "= city"), ("at", "newest since at or before")],
        ),
        (rm.keys("<b>") & rm.within("a", "b"), [("&lt;b&gt;", "= &lt;b&gt;"), ("a", "within b")]),
    ],
)  # fmt: skip
def test_conditions(condition: object, shown: list[tuple[str, str]]) -> None:
    assert cells(condition) == shown


def test_summaries() -> None:
    said = rm.summary(
        by=["city", "road"],
        time="at",
        window=rm.sliding("1 hour", every="10 minutes"),
        total=rm.sum("cars"),
        n=rm.count(),
    )
    assert cells(said) == [
        ("by", "city, road"),
        ("time", "at"),
        ("window", "1:00:00, one every 0:10:00"),
        ("total", "sum(&#x27;cars&#x27;)"),
        ("n", "count()"),
    ]
    whole = rm.summary(time="at", window=rm.tumbling("1 minute"), n=rm.count())
    assert cells(whole)[:3] == [("by", "all"), ("time", "at"), ("window", "0:01:00")]


def test_tables(tmp_path: Path) -> None:
    with closing(sqlite3.connect(tmp_path / "a.db")) as database, database:
        database.execute('CREATE TABLE t (id INTEGER, "<script>" TEXT)')
    database.close()
    assert cells(rm.tables.sqlite(tmp_path / "a.db", "t")) == [
        ("id", "int64"),
        ("&lt;script&gt;", "string"),
    ]
    feature = '{"type": "Feature", "properties": {"name": "x"}, "geometry": null}'
    (tmp_path / "z.geojson").write_text(f'{{"type": "FeatureCollection", "features": [{feature}]}}')
    table = rm.tables.geojson(tmp_path / "z.geojson")
    assert cells(table) == [("name", "string"), ("geometry", "geometry, SRID 4326")]
    (tmp_path / "z.geojson").unlink()
    ((what, why),) = cells(rm.tables.geojson(tmp_path / "z.geojson"))
    assert what == "not readable now"
    assert "z.geojson" in why


def test_a_password_is_not_shown() -> None:
    table = rm.tables.postgres("postgresql://ann:s3cr3t@127.0.0.1:1/city", "public.zones")
    assert "s3cr3t" not in table._repr_html_()
