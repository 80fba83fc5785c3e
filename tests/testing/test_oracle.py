from __future__ import annotations

import math
import struct

import pytest
import shapely

import rivermouth as rm
from rivermouth.errors import ColumnError
from rivermouth.testing import oracle

SQUARE = shapely.box(0, 0, 4, 4)
HERE = rm.point("x", "y")


def event(x: object, y: object) -> dict[str, object]:
    return {"id": 1, "x": x, "y": y}


def zone(shape: shapely.Geometry | bytes | None, name: str = "a") -> dict[str, object]:
    return {"zone": name, "shape": shapely.to_wkb(shape) if shape is not None else None}


def names(rows: list[dict[str, object]]) -> list[object]:
    return [row["zone"] for row in rows]


@pytest.mark.parametrize(
    ("condition", "inside", "corner", "outside"),
    [
        (rm.within(HERE, "shape"), True, False, False),
        (rm.covered_by(HERE, "shape"), True, True, False),
        (rm.intersects(HERE, "shape"), True, True, False),
        (rm.touches(HERE, "shape"), False, True, False),
        (rm.disjoint(HERE, "shape"), False, False, True),
        (rm.equals(HERE, "shape"), False, False, False),
        (rm.crosses(HERE, "shape"), False, False, False),
        (rm.overlaps(HERE, "shape"), False, False, False),
        (rm.relate(HERE, "shape", "*F*******"), True, False, True),
        (rm.dwithin(HERE, "shape", distance=1), True, True, True),
        (rm.dwithin(HERE, "shape", distance=0.99), True, True, False),
    ],
)
def test_a_point_inside_on_a_corner_and_a_step_outside(condition, inside, corner, outside):
    for (x, y), expected in {(1, 1): inside, (4, 4): corner, (5, 2): outside}.items():
        assert bool(oracle.matches(event(x, y), [zone(SQUARE)], condition)) is expected


@pytest.mark.parametrize(
    ("predicate", "small", "same"),
    [
        (rm.contains, True, True),
        (rm.covers, True, True),
        (rm.within, False, True),
        (rm.equals, False, True),
        (rm.overlaps, False, False),
    ],
)
def test_the_event_is_the_first_of_the_pair(predicate, small, same):
    big = {"spot": shapely.to_wkb(SQUARE)}
    for shape, expected in {shapely.box(1, 1, 2, 2): small, SQUARE: same}.items():
        assert bool(oracle.matches(big, [zone(shape)], predicate("spot", "shape"))) is expected


NOWHERE = [(None, 1.0), (1.0, None), (math.nan, 1.0), (1.0, math.inf), (-math.inf, math.nan)]
NO_SHAPE = [
    None,
    b"",
    b"abc",
    shapely.to_wkb(shapely.Point()),
    shapely.to_wkb(shapely.Polygon()),
    struct.pack("<BII4d", 1, 2, 2, 0, 0, math.nan, 1),  # LINESTRING (0 0, NaN 1)
    struct.pack("<BI2d", 1, 1, math.inf, 0),
]


@pytest.mark.parametrize("predicate", [rm.intersects, rm.disjoint, rm.nearest])
def test_what_has_no_place_matches_nothing_not_even_disjoint(predicate):
    shapes = [zone(SQUARE), zone(shapely.Point(9, 9))]
    for x, y in NOWHERE:
        assert oracle.matches(event(x, y), shapes, predicate(HERE, "shape")) == []
    for wkb in NO_SHAPE:
        assert oracle.matches({"spot": wkb}, shapes, predicate("spot", "shape")) == []
        nowhere = [{"zone": "a", "shape": wkb}]
        assert oracle.matches(event(1, 1), nowhere, predicate(HERE, "shape")) == []


def test_spark_geometry_is_read_by_its_wkb():
    spot = {"spot": {"srid": 4326, "wkb": shapely.to_wkb(shapely.Point(1, 1))}}
    assert oracle.matches(spot, [zone(SQUARE)], rm.within("spot", "shape"))


def test_metres_are_great_circles_across_the_antimeridian_and_over_the_pole():
    stops = [{"stop": "east", "lon": -179.999, "lat": 0.0}, {"stop": "pole", "lon": 90, "lat": 90}]
    near = rm.dwithin(HERE, rm.point("lon", "lat"), meters=250)
    assert [row["stop"] for row, _ in oracle.matches(event(179.999, 0), stops, near)] == ["east"]
    assert [row["stop"] for row, _ in oracle.matches(event(-33, 89.998), stops, near)] == ["pole"]


@pytest.mark.parametrize("latitude", [90.0001, -91])
def test_a_latitude_beyond_the_poles_is_no_place_on_the_sphere(latitude):
    stops = [{"stop": "pole", "lon": 0, "lat": 90}]
    stop = rm.point("lon", "lat")
    assert oracle.matches(event(0, latitude), stops, rm.dwithin(HERE, stop, meters=1e8)) == []
    assert oracle.matches(event(0, latitude), stops, rm.dwithin(HERE, stop, distance=1e3)) != []


def test_nearest_takes_ties_in_the_tables_order_and_stops_at_the_bound():
    stops = [
        {"stop": "far", "at": shapely.to_wkb(shapely.Point(0, 5))},
        {"stop": "right", "at": shapely.to_wkb(shapely.Point(1, 0))},
        {"stop": "left", "at": shapely.to_wkb(shapely.Point(-1, 0))},
        {"stop": "top", "at": shapely.to_wkb(shapely.Point(0, 1))},
    ]

    def found(**options: object) -> list[tuple[object, object]]:
        rows = oracle.join_table([event(0, 0)], stops, on=rm.nearest(HERE, "at", **options))
        return [(row["stop"], row["distance"]) for row in rows]

    assert found() == [("right", 1.0)]
    assert found(k=2) == [("right", 1.0), ("left", 1.0)]
    assert found(k=9) == [("right", 1.0), ("left", 1.0), ("top", 1.0), ("far", 5.0)]
    assert found(k=9, distance=1) == [("right", 1.0), ("left", 1.0), ("top", 1.0)]
    assert found(distance=0.5) == []


def test_nearest_on_the_sphere_measures_metres():
    stops = [{"stop": "a", "lon": 0, "lat": 1}]
    on = rm.nearest(HERE, rm.point("lon", "lat"), metric="sphere")
    (row,) = oracle.join_table([event(0, 0)], stops, on=on)
    assert row == {"id": 1, "x": 0, "y": 0, "stop": "a", "distance": pytest.approx(111_195.08)}


def test_equality_comes_before_the_place():
    rows = [
        {"city": "b", "zone": "near", "shape": shapely.to_wkb(shapely.Point(0, 0))},
        {"city": "a", "zone": "mine", "shape": shapely.to_wkb(shapely.Point(3, 4))},
    ]
    taxi = {"town": "a", "x": 0, "y": 0}
    on = rm.keys({"town": "city"}) & rm.nearest(HERE, "shape")
    assert oracle.join_table([taxi], rows, on=on) == [{**taxi, "zone": "mine", "distance": 5.0}]


def test_null_and_nan_equal_nothing():
    for key in (None, math.nan):
        assert oracle.matches({"k": key}, [{"k": key}], rm.keys("k")) == []
    assert oracle.matches({"k": 0.0}, [{"k": -0.0}], rm.keys("k")) != []


def test_how():
    events = [event(1, 1), event(9, 9), event(None, 1)]
    zones = [zone(SQUARE, "a"), zone(shapely.box(0, 0, 2, 2), "b")]

    def joined(how):
        return oracle.join_table(events, zones, on=rm.within(HERE, "shape"), how=how)

    assert joined("inner") == [{**events[0], "zone": "a"}, {**events[0], "zone": "b"}]
    assert joined("left") == [
        {**events[0], "zone": "a"},
        {**events[0], "zone": "b"},
        {**events[1], "zone": None},
        {**events[2], "zone": None},
    ]
    assert joined("semi") == [events[0]]
    assert joined("anti") == [events[1], events[2]]


def test_left_of_a_nearest_that_finds_nothing_has_no_distance():
    on = rm.nearest(HERE, "shape")
    assert oracle.join_table([event(None, 1)], [zone(SQUARE)], on=on, how="left") == [
        {"id": 1, "x": None, "y": 1, "zone": None, "distance": None}
    ]


def test_columns():
    rows = [{"k": 1, "zone": "a", "size": 2, "shape": shapely.to_wkb(SQUARE)}]
    taxi = {"k": 1, "x": 1, "y": 1}
    on = rm.keys("k") & rm.within(HERE, "shape")

    def brought(columns):
        (row,) = oracle.join_table([taxi], rows, on=on, columns=columns)
        return {name: value for name, value in row.items() if name not in taxi}

    assert brought(None) == {"zone": "a", "size": 2}
    assert brought(["size"]) == {"size": 2}
    assert brought({"area": "size"}) == {"area": 2}
    assert brought([]) == {}
    with pytest.raises(ColumnError, match=r"both sides have \['k'\]. Rename with columns="):
        brought(["k"])


def test_a_whole_number_written_as_a_float_is_added_to_integers_exactly():
    on = rm.between("v", "w", lower=0, upper=3.0)
    rows = [{"w": -(2**63) + n} for n in (-1, 0, 3, 4)]
    assert [row for row, _ in oracle.matches({"v": -(2**63)}, rows, on)] == rows[1:3]
