"""What PostGIS answers, against shapely asked about every pair."""

import contextlib
import datetime as dt
import re
from decimal import Decimal
from typing import Any

import numpy as np
import psycopg
import pyarrow as pa
import pytest
import shapely

import rivermouth as rm
from rivermouth.errors import ColumnError, ConditionError, TableInvalid
from rivermouth.kernels.spatial.sphere import RADIUS

pytestmark = pytest.mark.server

PREDICATES = (
    "within", "contains", "intersects", "covers", "covered_by",
    "touches", "crosses", "overlaps", "equals", "disjoint",
)  # fmt: skip
PATTERNS = ("T********", "FF*FF****", "T*F**F***", "****T****", "F***1****", "FF2FF1212")
with np.errstate(invalid="ignore"):  # numpy says so of each NaN
    NOWHERE = [
        None,
        shapely.Point(),
        shapely.Polygon(),
        shapely.MultiPoint(),
        shapely.Point(np.nan, 3),
        shapely.Point(np.inf, 3),
        shapely.LineString([(0, 0), (np.nan, 4), (8, 8)]),
        shapely.LineString([(0, 0), (8, -np.inf)]),
        shapely.Polygon([(0, 0), (8, 0), (np.nan, np.nan), (0, 8)]),
        shapely.Polygon([(0, 0), (8, 0), (np.inf, 8), (0, 8)]),
    ]


def some_shapes(seed, count):
    """Valid shapes of all kinds on a small grid, so that boundaries meet; and some without place.

    Their vertices are whole numbers. GEOS before 3.13, which PostGIS may have, rounds where edges
    meet, and so takes a line that ends within a last digit of an edge for one that touches it.
    """
    rng = np.random.default_rng(seed)

    def spots(low, high):
        chosen = rng.permutation(81)[: rng.integers(low, high + 1)]
        return [(float(number % 9), float(number // 9)) for number in chosen]

    def hull():
        made = shapely.MultiPoint(spots(3, 6)).convex_hull
        return made if made.geom_type == "Polygon" else shapely.box(0, 0, 1, 1)

    def with_hole():
        (x, y), (w, h) = rng.integers(0, 4, 2), rng.integers(4, 6, 2)
        hole = [(x + 1, y + 1), (x + w - 1, y + 1), (x + 1, y + h - 1)]
        return shapely.Polygon(shapely.box(x, y, x + w, y + h).exterior, [hole])

    def several():
        x, y, w, h = rng.integers(1, 5, 4)
        return shapely.MultiPolygon(
            [shapely.box(x - 1, y - 1, x, y), shapely.box(x, y, x + w, y + h)]
        )

    kinds = (
        lambda: shapely.Point(spots(1, 1)[0]),
        lambda: shapely.MultiPoint(spots(1, 4)),
        lambda: shapely.LineString(spots(2, 4)),
        lambda: shapely.MultiLineString([spots(2, 3), spots(2, 3)]),
        hull,
        with_hole,
        several,
    )
    return array([*(kinds[rng.integers(len(kinds))]() for _ in range(count)), *NOWHERE])


def array(shapes):
    made = np.empty(len(shapes), dtype=object)
    made[:] = shapes
    return made


def has_place(shape):
    return (
        shape is not None
        and not shape.is_empty
        and bool(np.isfinite(shapely.get_coordinates(shape)).all())
    )


def pairs(left, right, holds):
    """The nested loop: every pair of places that `holds`, by left row, then right row."""
    usable = [(i, j) for i in range(len(left)) for j in range(len(right))
              if has_place(left[i]) and has_place(right[j])]  # fmt: skip
    i, j = np.array(usable).T
    keep = np.asarray(holds(left[i], right[j]))
    return list(zip(i[keep].tolist(), j[keep].tolist(), strict=True))


def wkb(shapes):
    return pa.array(shapely.to_wkb(shapes), pa.binary())


def answered(table, condition, left, column="id"):
    rows, found = table.lookup(condition, [column], left)
    return list(zip(rows.tolist(), found[column].to_pylist(), strict=True))


@pytest.fixture(scope="module")
def database(postgres_url):
    with psycopg.connect(postgres_url, autocommit=True, prepare_threshold=None) as connection:
        yield connection


def load(database, name, shapes, *, srid=3857, kind="geometry(Geometry, 3857)"):
    """A table of `shapes`, numbered, with an index and up-to-date statistics."""
    database.execute(f"DROP TABLE IF EXISTS {name}")
    database.execute(f"CREATE TABLE {name} (id int PRIMARY KEY, shape {kind})")
    with database.cursor() as cursor:
        cursor.executemany(
            f"INSERT INTO {name} VALUES (%s, ST_SetSRID(ST_GeomFromWKB(%s), {srid}))",
            [(row, None if s is None else shapely.to_wkb(s)) for row, s in enumerate(shapes)],
        )
    database.execute(f"CREATE INDEX ON {name} USING gist (shape)")
    database.execute(f"VACUUM ANALYZE {name}")


@pytest.fixture(scope="module")
def left_shapes():
    return some_shapes(seed=1, count=110)


@pytest.fixture(scope="module", params=["few", "many"])
def shapes_table(request, postgres_url, database):
    """A table that is walked, and one that is asked through its index."""
    shapes = some_shapes(seed=2, count=40 if request.param == "few" else 150)
    load(database, f"shapes_{request.param}", shapes)
    return shapes, rm.tables.postgres(postgres_url, f"shapes_{request.param}")


@pytest.fixture(scope="module")
def old_geos(database):
    """Whether PostGIS has a GEOS of the old kind, which rounds where edges meet."""
    (version,) = database.execute("SELECT postgis_geos_version()").fetchone()
    return tuple(map(int, version.split(".")[:2])) < (3, 13)


@pytest.mark.parametrize("predicate", PREDICATES)
def test_each_predicate_holds_for_the_pairs_that_shapely_says(
    shapes_table, left_shapes, predicate, old_geos
):
    shapes, table = shapes_table
    expected = pairs(left_shapes, shapes, getattr(shapely, predicate))
    found = answered(table, getattr(rm, predicate)("spot", "shape"), {"spot": wkb(left_shapes)})
    if predicate in ("crosses", "overlaps") and old_geos:
        # which takes some pairs of lines that share a piece for lines that meet in points

        def is_sure(pair):
            both = (left_shapes[pair[0]].geom_type, shapes[pair[1]].geom_type)
            return not all("Line" in kind for kind in both)

        expected, found = list(filter(is_sure, expected)), list(filter(is_sure, found))
    assert len(expected) > (5 if predicate == "equals" else 50)
    assert found == expected


@pytest.mark.parametrize("pattern", PATTERNS)
def test_relate_holds_for_the_pairs_that_shapely_says(shapes_table, left_shapes, pattern):
    shapes, table = shapes_table
    expected = pairs(left_shapes, shapes, lambda a, b: shapely.relate_pattern(a, b, pattern))
    assert expected
    found = answered(table, rm.relate("spot", "shape", pattern), {"spot": wkb(left_shapes)})
    assert found == expected


@pytest.mark.parametrize("distance", [0.0, 1.0, 2.5])
def test_dwithin_includes_its_bound(shapes_table, left_shapes, distance):
    shapes, table = shapes_table
    expected = pairs(left_shapes, shapes, lambda a, b: shapely.distance(a, b) <= distance)
    condition = rm.dwithin("spot", "shape", distance=distance)
    assert answered(table, condition, {"spot": wkb(left_shapes)}) == expected


@pytest.mark.parametrize("predicate", ["within", "intersects", "touches", "covered_by", "disjoint"])
def test_points_may_come_as_two_numbers(shapes_table, predicate):
    shapes, table = shapes_table
    x, y = (axis.ravel() for axis in np.meshgrid(np.arange(-1.0, 10), np.arange(-1.0, 10)))
    left = {
        "x": pa.array([*x, None, np.nan, np.inf, 3]),
        "y": pa.array([*y.astype(int).tolist(), 3, 3, 3, None]),
    }
    expected = pairs(array(shapely.points(x, y)), shapes, getattr(shapely, predicate))
    condition = getattr(rm, predicate)(rm.point("x", "y"), "shape")
    assert answered(table, condition, left) == expected


def test_records_without_a_sound_place_match_nothing_and_fail_nothing(shapes_table):
    _, table = shapes_table
    bowtie = shapely.Polygon([(0, 0), (8, 8), (8, 0), (0, 8)])
    elsewhere, here = (shapely.set_srid(shapely.box(2, 2, 4, 4), srid) for srid in (4326, 3857))
    spots = [None, b"", b"not WKB", shapely.to_wkb(bowtie), shapely.to_wkb(here)[:40]]
    spots += [shapely.to_wkb(shape, include_srid=True) for shape in (elsewhere, here)]
    for predicate in ("intersects", "disjoint"):
        condition = getattr(rm, predicate)("spot", "shape")
        rows, _ = table.lookup(condition, ["id"], {"spot": pa.array(spots, pa.binary())})
        assert set(rows.tolist()) == {6}
    rows, found = table.lookup(condition, ["id"], {"spot": pa.array(spots[:4], pa.binary())})
    assert rows.tolist() == []
    assert found.schema.names == ["id"]


@pytest.mark.parametrize("predicate", PREDICATES)
def test_a_collection_whose_parts_overlap_is_the_union_of_them(shapes_table, predicate):
    shapes, table = shapes_table
    parts = [shapely.box(0, 0, 4, 4), shapely.box(2, 2, 6, 6), shapely.Point(3, 3)]
    crossing = [shapely.LineString([(0, 0), (8, 8)]), shapely.LineString([(0, 8), (8, 0)])]
    left = array([shapely.GeometryCollection(parts), shapely.GeometryCollection(crossing)])
    expected = pairs(left[:1], shapes, getattr(shapely, predicate))
    found = answered(table, getattr(rm, predicate)("spot", "shape"), {"spot": wkb(left)})
    assert [pair for pair in found if pair[0] == 0] == expected


def test_a_shape_that_postgis_cannot_judge_is_an_error_that_says_so(
    postgres_url, database, old_geos
):
    if not old_geos:
        pytest.skip("this PostGIS can judge it")
    overlapping = [shapely.box(0, 0, 4, 4), shapely.box(2, 2, 6, 6)]
    load(database, "heaps", [shapely.GeometryCollection(overlapping)])
    table = rm.tables.postgres(postgres_url, "heaps")
    left = {"spot": wkb(array([shapely.box(1, 1, 3, 3)]))}
    with pytest.raises(TableInvalid) as caught:
        table.lookup(rm.overlaps("spot", "shape"), ["id"], left)
    said = str(caught.value)
    assert said.startswith(
        "tables.postgres: table 'heaps' holds shapes that PostGIS cannot evaluate;"
    )
    assert "TopologyException: side location conflict" in said
    assert said.endswith("unite the parts of collections that overlap with ST_UnaryUnion.")


def test_a_table_may_have_its_points_in_two_columns(postgres_url, database):
    database.execute("CREATE TABLE stops (id int PRIMARY KEY, lon real, lat numeric)")
    database.execute(
        "INSERT INTO stops VALUES (0, 1, 1), (1, 'NaN', 1), (2, 3, 3), (3, NULL, 1), (4, 1, 1)"
    )
    table = rm.tables.postgres(postgres_url, "stops")
    left = {"spot": wkb(array([shapely.box(0, 0, 2, 2), shapely.Point(3, 3)]))}
    assert answered(table, rm.contains("spot", rm.point("lon", "lat")), left) == [
        *((0, 0), (0, 4), (1, 2))
    ]
    nearest = rm.nearest("spot", rm.point("lon", "lat"), k=2, meters=400_000)
    assert answered(table, nearest, left) == [(1, 2), (1, 0)]


# -- nearest


def nearest_pairs(distance, k, limit):
    """(left, right) of the `k` smallest distances of each row, ties by the right row."""
    found = []
    for row, values in enumerate(distance):
        order = np.argsort(values, kind="stable")[:k]
        found += [(row, int(j)) for j in order if np.isfinite(values[j]) and values[j] <= limit]
    return found


def assert_as_near(distance, expected, rows, found):
    """As many rows, as far as they should be; which of two is nearer by a last digit is open."""
    assert rows.tolist() == [row for row, _ in expected]
    true = [distance[row, other] for row, other in zip(rows, found["id"].to_pylist(), strict=True)]
    np.testing.assert_allclose(found["distance"], true, rtol=1e-8)
    np.testing.assert_allclose(found["distance"], [distance[pair] for pair in expected], rtol=1e-8)


@pytest.mark.parametrize("k", [1, 3, 1000])
@pytest.mark.parametrize("limit", [None, 2.0])
def test_nearest_takes_equally_far_rows_in_the_tables_order(postgres_url, database, k, limit):
    rng = np.random.default_rng(5)
    points = array([*shapely.points(rng.integers(0, 6, (120, 2)).astype(float)), None])
    load(database, "dots", points[::-1], kind="geometry(Point, 3857)")
    table = rm.tables.postgres(postgres_url, "dots")
    asked = array([*shapely.points(rng.integers(-2, 8, (40, 2)).astype(float)), shapely.Point()])
    distance = shapely.distance(asked[:, None], points[::-1][None, :])
    condition = rm.nearest("spot", "shape", k=k, distance=limit)
    rows, found = table.lookup(condition, ["id"], {"spot": wkb(asked)})
    pairs = list(zip(rows.tolist(), found["id"].to_pylist(), strict=True))
    assert pairs == nearest_pairs(distance, k, np.inf if limit is None else limit)
    assert found.schema.names == ["id", "distance"]
    np.testing.assert_allclose(found["distance"], [distance[pair] for pair in pairs], rtol=1e-12)


def test_nearest_of_shapes_are_as_far_as_shapely_says(shapes_table, left_shapes):
    shapes, table = shapes_table
    distance = np.full((len(left_shapes), len(shapes)), np.inf)
    i, j = (np.flatnonzero(list(map(has_place, side))) for side in (left_shapes, shapes))
    distance[np.ix_(i, j)] = shapely.distance(left_shapes[i][:, None], shapes[j])
    condition = rm.nearest("spot", "shape", k=4)
    rows, found = table.lookup(condition, ["id"], {"spot": wkb(left_shapes)})
    assert_as_near(distance, nearest_pairs(distance, 4, np.inf), rows, found)


# -- great circles

AROUND = [
    (179.9, 10.0), (-179.95, 10.1), (180.0, -5.0), (-180.0, -5.0), (0.0, 90.0), (120.0, 89.9),
    (-60.0, 89.95), (0.0, -90.0), (77.0, -89.99), (0.0, 0.0), (116.4, 39.9), (116.5, 39.95),
    (190.0, 10.0), (-0.1, 0.1), (13.4, 52.5),
]  # fmt: skip
NOT_ON_SPHERE = [(10.0, 91.0), (10.0, -90.5), (np.nan, 1.0), (np.inf, 1.0)]


def great_circles(left, right):
    lon, lat = np.radians(np.array(left)[:, None, :]).transpose(2, 0, 1)
    other_lon, other_lat = np.radians(np.array(right)[None, :, :]).transpose(2, 0, 1)
    with np.errstate(invalid="ignore"):
        h = np.sin((other_lat - lat) / 2) ** 2
        h = h + np.cos(lat) * np.cos(other_lat) * np.sin((other_lon - lon) / 2) ** 2
        metres = 2 * RADIUS * np.arctan2(np.sqrt(h), np.sqrt(1 - h))
    out_of_range = (np.abs(lat) > np.pi / 2) | (np.abs(other_lat) > np.pi / 2)
    return np.where(out_of_range | ~np.isfinite(metres), np.inf, metres)


@pytest.fixture(scope="module", params=["geometry(Point, 4326)", "geography(Point)", "geometry"])
def ports(request, postgres_url, database):
    """Points around the antimeridian and the poles, in each type that can hold them."""
    rng = np.random.default_rng(3)
    spots = [*AROUND, *zip(rng.uniform(-180, 180, 60), rng.uniform(-90, 90, 60), strict=True)]
    if request.param != "geography(Point)":  # which coerces these into range
        spots += NOT_ON_SPHERE
    name = f"ports_{request.param.split('(')[0]}_{len(request.param)}"
    load(database, name, array([*shapely.points(spots), None]), srid=4326, kind=request.param)
    return spots, rm.tables.postgres(postgres_url, name)


def spots_asked(spots):
    return {"x": pa.array([x for x, _ in spots]), "y": pa.array([y for _, y in spots])}


@pytest.mark.parametrize("meters", [0.001, 20_000.0, 1_500_000.0, 21_000_000.0])
def test_meters_are_right_across_the_antimeridian_and_at_the_poles(ports, meters):
    spots, table = ports
    asked = [*AROUND, *NOT_ON_SPHERE, (-170.0, 10.0), (540.0, -5.0)]
    metres = great_circles(asked, spots)
    assert (np.abs(metres - meters) > 1e-6 * meters).all()  # no pair depends on a last digit
    expected = [(int(i), int(j)) for i, j in zip(*np.nonzero(metres <= meters), strict=True)]
    condition = rm.dwithin(rm.point("x", "y"), "shape", meters=meters)
    assert answered(table, condition, spots_asked(asked)) == expected


@pytest.mark.parametrize("meters", [None, 2_000_000.0])
def test_nearest_on_the_sphere(ports, meters):
    spots, table = ports
    rng = np.random.default_rng(4)
    asked = [*zip(rng.uniform(-180, 180, 50), rng.uniform(-90, 90, 50), strict=True)]
    asked += NOT_ON_SPHERE
    metres = great_circles(asked, spots)
    condition = rm.nearest(rm.point("x", "y"), "shape", k=3, metric="sphere", meters=meters)
    rows, found = table.lookup(condition, ["id"], spots_asked(asked))
    assert_as_near(metres, nearest_pairs(metres, 3, meters or np.inf), rows, found)


def test_great_circles_need_points(shapes_table):
    _, table = shapes_table
    with pytest.raises(TableInvalid) as caught:
        table.lookup(rm.dwithin("spot", "shape", meters=5), ["id"], {"spot": wkb(array([None]))})
    assert str(caught.value) == (
        "tables.postgres: column 'shape' holds shapes that are not points, and PostGIS is asked "
        "for great circles between points only. Use cache=rm.full(), which measures to every "
        "shape, or a column of points."
    )


def test_a_column_that_is_no_geometry_is_refused(postgres_url, database):
    database.execute("CREATE TABLE IF NOT EXISTS raw (id int, wkb bytea)")
    table = rm.tables.postgres(postgres_url, "raw")
    with pytest.raises(ColumnError) as caught:
        table.lookup(rm.within("spot", "wkb"), ["id"], {"spot": pa.array([], pa.binary())})
    assert str(caught.value) == (
        "tables.postgres: column 'wkb' is binary, which PostGIS has no index for. Make it a "
        "geometry, as in ST_GeomFromWKB(wkb), or keep the table near with cache=rm.full()."
    )


def test_records_that_are_not_points_match_nothing_on_the_sphere(ports):
    _, table = ports
    left = {"spot": wkb(array([shapely.box(-1, -1, 1, 1), shapely.Point(0, 0)]))}
    assert answered(table, rm.dwithin("spot", "shape", meters=1), left) == [(1, 9)]


# -- keys

KEYS: dict[str, tuple[pa.DataType, list[Any]]] = {
    "bool": (pa.bool_(), [True, False, None]),
    "int2": (pa.int64(), [1, -5, None, 2**40]),
    "int4": (pa.int8(), [1, -5, None]),
    "int8": (pa.int32(), [1, -5, None]),
    "float4": (pa.float64(), [0.5, -0.0, float("nan"), None, 1e300]),
    "float8": (pa.float32(), [0.5, 0.0, float("nan"), None]),
    "numeric(10, 3)": (pa.decimal128(12, 4), [Decimal("1.5"), Decimal("1.0001"), None]),
    "numeric": (pa.float64(), [1.5, 2.5, float("nan"), None]),
    "text": (pa.string(), ["a", "A", "é", "e\u0301", "", "a ", None]),
    "varchar(5)": (pa.large_string(), ["a", "A", "", None]),
    "char(5)": (pa.string(), ["a", "a    ", "b", None]),
    "mood": (pa.string(), ["sad", "Sad", None]),
    "uuid": (
        pa.string(),
        ["6b29fc40-ca47-1067-b31d-00dd010662da", "6B29FC40-CA47-1067-B31D-00DD010662DA", "x", None],
    ),
    "date": (pa.date32(), [dt.date(1969, 12, 31), dt.date(2024, 2, 29), None]),
    "timestamp": (
        pa.timestamp("us"),
        [dt.datetime(1969, 12, 31, 23), dt.datetime(2024, 1, 1, 0, 0, 0, 1), None],
    ),
    "timestamptz": (
        pa.timestamp("us", "Europe/Paris"),
        [dt.datetime(2024, 1, 1, tzinfo=dt.UTC), dt.datetime(2024, 7, 1, tzinfo=dt.UTC), None],
    ),
    "bytea": (pa.binary(), [b"a", b"", b"\x00", None]),
    "loose_text": (pa.string(), ["a", "A", "b", None]),
}


@pytest.mark.parametrize("kind", KEYS)
def test_keys_of_each_type_equal_what_is_read_of_the_table(postgres_url, database, kind):
    """The oracle is the table as it is read: the two ways to join must agree on each value."""
    arrow, values = KEYS[kind]
    if kind == "mood":
        database.execute("DROP TYPE IF EXISTS mood CASCADE")
        database.execute("CREATE TYPE mood AS ENUM ('sad', 'ok')")
    column = kind
    if kind == "loose_text":
        database.execute(
            "CREATE COLLATION IF NOT EXISTS loose"
            " (provider = icu, locale = 'und-u-ks-level2', deterministic = false)"
        )
        column = "text COLLATE loose"
    database.execute("DROP TABLE IF EXISTS keyed")
    database.execute(f"CREATE TABLE keyed (id serial PRIMARY KEY, key {column})")
    for value in values:
        with contextlib.suppress(psycopg.DataError):  # what the type cannot hold is asked for only
            database.execute("INSERT INTO keyed (key) VALUES (%s)", [value])
    table = rm.tables.postgres(postgres_url, "keyed")
    kept = table.read(["id", "key"]).to_pylist()
    left = pa.array([*values, *values], arrow)
    expected = [
        (row, other["id"])
        for row, value in enumerate(left.to_pylist())
        for other in kept
        if value is not None and value == other["key"]
    ]
    assert expected
    assert answered(table, rm.keys({"k": "key"}), {"k": left}) == expected


def test_keys_of_another_family_are_refused(postgres_url, database):
    database.execute("CREATE TABLE numbered (key int)")
    table = rm.tables.postgres(postgres_url, "numbered")
    with pytest.raises(ConditionError) as caught:
        table.lookup(rm.keys("key"), ["key"], {"key": pa.array(["1"])})
    assert str(caught.value) == (
        "tables.postgres: keys compares keys of type string with a column read as int32. "
        "Cast one of them."
    )


def test_keys_and_a_place_must_both_hold(postgres_url, database):
    database.execute("CREATE TABLE wards (id int, city text, lot int, area geometry)")
    database.execute(
        "INSERT INTO wards SELECT n, CASE n % 2 WHEN 0 THEN 'even' ELSE 'odd' END, n % 3,"
        " ST_MakeEnvelope(0, 0, n, n) FROM generate_series(1, 90) n"
    )
    table = rm.tables.postgres(postgres_url, "wards")
    left = {
        "city": pa.array(["even", "odd", "even", None, "even"]),
        "lot": pa.array([1, 1, 2, 1, None]),
        "x": pa.array([80.0, 80.0, 85.5, 80.0, 80.0]),
        "y": pa.array([1.0, 1.0, 1.0, 1.0, 1.0]),
    }
    both = rm.keys(["city", "lot"]) & rm.within(rm.point("x", "y"), "area")
    assert answered(table, both, left) == [(0, 82), (0, 88), (1, 85), (2, 86)]
    nearest = rm.keys(["city", "lot"]) & rm.nearest(rm.point("x", "y"), "area", k=2, distance=4)
    # no primary key: equally far rows come in the order in which they were written
    assert answered(table, nearest, left) == [
        (0, 82), (0, 88), (1, 85), (1, 79), (2, 86)
    ]  # fmt: skip


# -- how it is done


def plan(table, condition, left):
    relation = table._describe()
    made = table._statement(relation, condition, [relation.columns["id"]], left)
    rows = table._run(lambda c: c.execute(f"EXPLAIN {made.text}", made.parameters).fetchall())
    return "\n".join(row for (row,) in rows)


@pytest.fixture(scope="module")
def large(postgres_url, database):
    database.execute(
        "CREATE TABLE large (id int PRIMARY KEY,"
        " spot geometry(Point, 4326), area geometry(Polygon, 4326))"
    )
    database.execute(
        "INSERT INTO large SELECT n, p, ST_Expand(p, 0.2) FROM generate_series(1, 5000) n,"
        " LATERAL (SELECT ST_SetSRID(ST_MakePoint(n % 170, n % 83), 4326) AS p) AS spots"
    )
    database.execute("CREATE INDEX by_spot ON large USING gist (spot)")
    database.execute("CREATE INDEX by_area ON large USING gist (area)")
    database.execute("CREATE INDEX by_globe ON large USING gist (geography(spot))")
    database.execute("VACUUM ANALYZE large")
    return rm.tables.postgres(postgres_url, "large")


@pytest.mark.parametrize(
    ("condition", "index"),
    [
        *((getattr(rm, name)(rm.point("x", "y"), "area"), "by_area")
          for name in PREDICATES if name != "disjoint"),
        (rm.relate(rm.point("x", "y"), "area", "T********"), "by_area"),
        (rm.dwithin(rm.point("x", "y"), "area", distance=0.5), "by_area"),
        (rm.nearest(rm.point("x", "y"), "area", k=3), "by_area"),
        (rm.dwithin(rm.point("x", "y"), "spot", meters=500), "by_globe"),
        (rm.nearest(rm.point("x", "y"), "spot", metric="sphere"), "by_globe"),
        (rm.keys({"x": "id"}), "large_pkey"),
    ],
    ids=str,
)  # fmt: skip
def test_the_index_is_used(large, condition, index):
    numbers = pa.array(range(20), pa.int64() if index == "large_pkey" else pa.float64())
    shown = plan(large, condition, {"x": numbers, "y": numbers})
    assert re.search(f"Index (Only )?Scan using {index}", shown), shown


def test_an_answer_takes_one_statement(large, monkeypatch):
    large.schema()
    asked = []
    execute = psycopg.Cursor.execute
    monkeypatch.setattr(
        psycopg.Cursor, "execute", lambda *args, **how: asked.append(args) or execute(*args, **how)
    )
    left = {"x": pa.array([1.0, 2.0]), "y": pa.array([1.0, 2.0])}
    rows, _ = large.lookup(rm.within(rm.point("x", "y"), "area"), [], left)
    assert set(rows.tolist()) == {0, 1}
    assert len(asked) == 1


def test_what_is_brought_is_what_is_read(large):
    columns = ["area", "id", "spot"]
    left = {"k": pa.array([17, 4999])}
    _, found = large.lookup(rm.keys({"k": "id"}), columns, left)
    assert found == large.read(columns).take([16, 4998]).combine_chunks()
