"""GeoJSON files written here, and the real ones where they are."""

import json
import pickle
from pathlib import Path

import pyarrow as pa
import pytest
import shapely

import rivermouth as rm
from rivermouth.errors import TableInvalid, TableMissing
from rivermouth.tables.source import Source, srid_of

SHARED = Path(__file__).parents[3] / ".." / "shared" / "data"


def feature(geometry, properties=None, **more):
    shape = None if geometry is None else json.loads(shapely.to_geojson(geometry))
    return {"type": "Feature", "properties": properties, "geometry": shape, **more}


def collection(*features, **more):
    return {"type": "FeatureCollection", "features": list(features), **more}


@pytest.fixture
def written(tmp_path):
    """Write a value (or several, one a line) as GeoJSON and give the table of it."""

    def write(*values, raw=None):
        path = tmp_path / "places.geojson"
        path.write_bytes(raw or "\n".join(map(json.dumps, values)).encode())
        return rm.tables.geojson(path)

    return write


def shapes(table):
    return shapely.from_wkb(table.read(["geometry"])["geometry"].to_pylist()).tolist()


POINT, BOX = shapely.Point(1, 2), shapely.box(0, 0, 1, 1)


def test_properties_become_columns_of_the_type_their_values_share(written):
    table = written(
        collection(
            feature(POINT, {"n": 1, "x": 1, "on": True, "name": "a", "tags": ["u"], "nil": None}),
            feature(BOX, {"n": None, "x": 2.5, "on": None, "name": "北京", "at": {"h": 1}}),
            feature(None, None),
        )
    )
    assert table.schema() == pa.schema(
        [
            ("n", pa.int64()),
            ("x", pa.float64()),
            ("on", pa.bool_()),
            ("name", pa.string()),
            ("tags", pa.list_(pa.string())),
            ("nil", pa.string()),
            ("at", pa.struct([("h", pa.int64())])),
            ("geometry", pa.binary()),
        ]
    )
    read = table.read(["x", "n", "tags", "nil", "at"])
    assert read.to_pydict() == {
        "x": [1.0, 2.5, None],
        "n": [1, None, None],
        "tags": [["u"], None, None],
        "nil": [None, None, None],
        "at": [None, {"h": 1}, None],
    }
    assert read.schema == pa.schema([table.schema().field(name) for name in read.schema.names])


def test_geometries_are_wkb_in_longitude_and_latitude_and_null_stays_null(written):
    table = written(collection(feature(BOX, {}), feature(None, {}), feature(POINT, {})))
    assert srid_of(table.schema().field("geometry")) == 4326
    assert srid_of(table.read(["geometry"]).schema.field("geometry")) == 4326
    assert shapes(table) == [BOX, None, POINT]
    assert table.read(["geometry"])["geometry"][2].as_py() == shapely.to_wkb(POINT, flavor="iso")


ALL_TYPES = [
    "POINT (1 2)",
    "POINT Z (1 2 3)",
    "POINT EMPTY",
    "LINESTRING (0 0, 1 1.5, 2 0)",
    "POLYGON ((0 0, 9 0, 9 9, 0 9, 0 0), (1 1, 2 1, 2 2, 1 1), (3 3, 4 3, 4 4, 3 3))",
    "POLYGON Z ((0 0 1, 9 0 1, 9 9 2, 0 0 1))",
    "POLYGON EMPTY",
    "MULTIPOINT (1 2, 3 4)",
    "MULTILINESTRING ((0 0, 1 1), (2 2, 3 3, 4 5))",
    "MULTIPOLYGON (((0 0, 1 0, 1 1, 0 0)), ((5 5, 9 5, 9 9, 5 5), (6 5.5, 7 5.5, 7 6, 6 5.5)))",
    "GEOMETRYCOLLECTION (POINT (1 2), LINESTRING (0 0, 1 1))",
    "GEOMETRYCOLLECTION EMPTY",
]


def test_each_type_of_geometry_is_read_alone_and_among_others(written):
    every = shapely.from_wkt(ALL_TYPES)
    for shape in every:
        assert shapely.equals_identical(shapes(written(collection(feature(shape, {}))))[0], shape)
    mixed = [*every, *every[::-1]]
    read = shapes(written(collection(*(feature(shape, {}) for shape in mixed))))
    assert shapely.equals_identical(read, mixed).all()


@pytest.mark.parametrize(
    "value", [feature(POINT, {}), json.loads(shapely.to_geojson(POINT))], ids=["feature", "bare"]
)
def test_a_feature_or_a_geometry_alone_is_a_table_of_one_row(written, value):
    assert shapes(written(value)) == [POINT]


def test_one_feature_a_line(written):
    lines = [feature(POINT, {"n": 1}), feature(None, {"n": 2}), feature(BOX, {"n": 3})]
    assert written(*lines).read(["n"]).to_pydict() == {"n": [1, 2, 3]}
    assert shapes(written(*lines)) == [POINT, None, BOX]
    marked = b"\n".join(b"\x1e" + json.dumps(line).encode() + b"\n" for line in lines)
    assert shapes(written(raw=marked)) == [POINT, None, BOX]


def test_an_empty_collection_is_a_table_without_rows(written):
    table = written(collection())
    assert table.schema().names == ["geometry"]
    assert table.read(["geometry"]).num_rows == 0


def test_a_byte_order_mark_is_no_matter(written):
    assert shapes(written(raw=b"\xef\xbb\xbf" + json.dumps(feature(POINT)).encode())) == [POINT]


def test_the_id_of_features_is_a_column_unless_a_property_has_its_name(written):
    table = written(collection(feature(POINT, {"n": 1}, id="06001"), feature(BOX, {"n": 2})))
    assert table.schema().names == ["n", "id", "geometry"]
    assert table.read(["id"])["id"].to_pylist() == ["06001", None]
    both = written(collection(feature(POINT, {"id": 7}, id="06001")))
    assert both.read(["id"])["id"].to_pylist() == [7]


@pytest.mark.parametrize(
    ("name", "srid"),
    [
        ("urn:ogc:def:crs:OGC:1.3:CRS84", 4326),
        ("urn:ogc:def:crs:EPSG::3857", 3857),
        ("EPSG:25832", 25832),
        ("http://www.opengis.net/def/crs/EPSG/0/3857", 3857),
    ],
)
def test_the_crs_of_older_files_is_honoured(written, name, srid):
    table = written(collection(crs={"type": "name", "properties": {"name": name}}))
    assert srid_of(table.schema().field("geometry")) == srid


POLYGON = {"type": "Polygon", "coordinates": [[[0, 0], [1, 0], [1, 1]]]}


@pytest.mark.parametrize(
    ("values", "sentence"),
    [
        (
            [collection(feature(None, {"v": 1}), feature(None, {"v": "one"}))],
            "tables.geojson: the values of property 'v' have no common type; Could not convert "
            "'one' with type str: tried to convert to int64. Give it one type in all features.",
        ),
        (
            [collection(feature(POINT, {"geometry": 1}))],
            "tables.geojson: a property is called 'geometry', as the column of geometries is. "
            "Rename the property.",
        ),
        (
            [collection(crs={"type": "name", "properties": {"name": "local"}})],
            "tables.geojson: the file's crs is 'local', which names no EPSG code. Write the file "
            "in longitude and latitude, without a crs, as RFC 7946 says.",
        ),
        (
            [{"type": "Topology", "objects": {}}],
            "tables.geojson: the file is JSON, but not GeoJSON; it holds a dict of type "
            "'Topology'. Give a FeatureCollection, a Feature or a geometry.",
        ),
        (
            [[1, 2]],
            "tables.geojson: the file is JSON, but not GeoJSON; it holds a list. Give a "
            "FeatureCollection, a Feature or a geometry.",
        ),
        (
            [collection("road")],
            "tables.geojson: a feature is not an object with properties; it is \"road\". Write "
            "it as RFC 7946 says.",
        ),
    ],
)  # fmt: skip
def test_what_cannot_be_a_table_is_said(written, values, sentence):
    table = written(*values)
    with pytest.raises(TableInvalid) as caught:
        table.schema()
    assert str(caught.value) == sentence


@pytest.mark.parametrize(
    ("geometry", "reason"),
    [
        (POLYGON, "Points of LinearRing do not form a closed linestring"),
        ({"type": "Point", "coordinates": [1]}, "Expected two or three coordinates found one"),
        ({"type": "Point", "coordinates": [1, 2, 3, 4]}, "found more than three"),
        ({"type": "Point", "coordinates": ["1", "2"]}, "type must be number, but is string"),
        ({"type": "Point", "coordinates": [float("nan"), 2]}, "Error parsing JSON"),
        ({"type": "LineString", "coordinates": [[0, 0]]}, "point array must contain 0 or >1"),
        ({"type": "LineString", "coordinates": [1, 2]}, "Error parsing JSON"),
        ({"type": "Circle"}, "Unknown geometry type"),
        ({"coordinates": [1, 2]}, "Error parsing JSON"),
        ("POINT (1 2)", "Error parsing JSON"),
    ],
)
def test_a_geometry_that_is_none_is_named_by_its_feature(written, geometry, reason):
    good = [feature(POINT), feature(shapely.LineString([(0, 0), (1, 1)])), feature(BOX)]
    table = written(collection(*good, {"type": "Feature", "geometry": geometry}))
    with pytest.raises(TableInvalid) as caught:
        table.read(["geometry"])
    said = str(caught.value)
    assert said.startswith("tables.geojson: feature 3 has a geometry that cannot be read; ")
    assert reason in said
    assert said.endswith("Correct it, or set it to null.")


def test_text_that_is_not_json_is_said_with_its_place(written):
    with pytest.raises(TableInvalid, match=r"the file is not JSON; .* line 1 column 1 \(char 0\)"):
        written(raw=b"shape;name\n1;2").schema()
    with pytest.raises(TableInvalid, match="line 3 is not JSON; Expecting"):
        written(raw=json.dumps(feature(POINT)).encode() + b'\n\n{"type": }').schema()
    with pytest.raises(TableInvalid, match=r"the file is not UTF-8; .* Save it as UTF-8; "):
        written(raw='{"name": "Zürich"}'.encode("latin-1")).schema()


def test_a_missing_file_is_said_with_the_nearest_name(tmp_path):
    (tmp_path / "districts.geojson").write_text("{}")
    table = rm.tables.geojson(tmp_path / "district.geojson")
    with pytest.raises(TableMissing) as caught:
        table.schema()
    assert str(caught.value) == (
        f"tables.geojson: there is no {str(tmp_path / 'district.geojson')!r}; its folder holds "
        "['districts.geojson']. Did you mean 'districts.geojson'?"
    )


def test_it_is_a_value_found_from_anywhere(written, tmp_path, monkeypatch):
    written(feature(POINT, {"n": 1}))
    monkeypatch.chdir(tmp_path)
    table = rm.tables.geojson("places.geojson")
    assert isinstance(table, Source)
    assert pickle.loads(pickle.dumps(table)) == table == rm.tables.geojson(table.path)
    assert hash(table) == hash(pickle.loads(pickle.dumps(table)))
    assert (table.name, table.identity) == ("places.geojson", f"geojson:{table.path}")
    monkeypatch.chdir("/")
    assert table.read(["n"]).num_rows == 1
    assert rm.tables.geojson(f"file://{table.path}").read(["n"]).num_rows == 1


@pytest.mark.parametrize(
    ("file", "rows", "column", "vertices"),
    [
        ("beijing_districts_wgs84.geojson", 16, "district", 50_914),
        ("nyc_taxi_zones.geojson", 263, "zone", None),
    ],
)
def test_real_files(file, rows, column, vertices):
    if not (SHARED / file).exists():
        pytest.skip("../shared/data is not here")
    table = rm.tables.geojson(SHARED / file)
    assert table.schema().field(column).type == pa.string()
    read = table.read([column, "geometry"])
    made = shapely.from_wkb(read["geometry"].to_pylist())
    assert len(read) == rows
    assert read[column].null_count == 0
    raw = json.loads((SHARED / file).read_text())["features"]
    slow = [shapely.from_geojson(json.dumps(one["geometry"])) for one in raw]
    assert shapely.equals_identical(made, slow).all()
    if vertices:
        assert shapely.get_num_coordinates(made).sum() == vertices
