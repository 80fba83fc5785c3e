"""GeoPackages written here with SQLite alone, as the standard says."""

import datetime as dt
import pickle
import sqlite3
import struct
from contextlib import closing

import pyarrow as pa
import pytest
import shapely

import rivermouth as rm
from rivermouth.errors import TableInvalid, TableMissing
from rivermouth.tables.source import Source, srid_of

SETUP = """
CREATE TABLE gpkg_spatial_ref_sys (srs_name TEXT, srs_id INTEGER PRIMARY KEY, organization TEXT,
    organization_coordsys_id INTEGER, definition TEXT);
CREATE TABLE gpkg_contents (table_name TEXT PRIMARY KEY, data_type TEXT, srs_id INTEGER);
CREATE TABLE gpkg_geometry_columns (table_name TEXT, column_name TEXT, geometry_type_name TEXT,
    srs_id INTEGER, z TINYINT, m TINYINT);
INSERT INTO gpkg_spatial_ref_sys VALUES
    ('Undefined Cartesian', -1, 'NONE', -1, 'undefined'),
    ('Undefined geographic', 0, 'NONE', 0, 'undefined'),
    ('WGS 84', 4326, 'EPSG', 4326, ''),
    ('ETRS89 / UTM 32N', 100001, 'EPSG', 25832, '');
"""
ENVELOPES = {0: "", 1: "<4d", 2: "<6d", 3: "<6d", 4: "<8d"}


def blob(shape, *, envelope=0, srid=4326, flags=0b1):
    """A GeoPackage geometry: magic, version, flags, SRID, envelope, then WKB."""
    sizes = struct.calcsize(ENVELOPES[envelope] or "<")
    empty = 0b1_0000 if shape.is_empty else 0
    header = b"GP\x00" + bytes([flags | envelope << 1 | empty]) + struct.pack("<i", srid)
    return header + bytes(range(sizes)) + shapely.to_wkb(shape, flavor="iso")


@pytest.fixture
def package(tmp_path):
    """A function that runs statements in a new GeoPackage and gives its path."""
    path = tmp_path / "city #1.gpkg"

    def make(*statements, many=None):
        with closing(sqlite3.connect(path)) as file, file:
            file.executescript(SETUP)
            for statement in statements:
                file.execute(statement) if isinstance(statement, str) else file.execute(*statement)
        return path

    return make


def layer(name, columns, *, geometry="geom", srs=4326, kind="features"):
    quoted = name.replace('"', '""')
    return (
        f'CREATE TABLE "{quoted}" ({columns})',
        ("INSERT INTO gpkg_contents VALUES (?, ?, ?)", (name, kind, srs)),
        (
            "INSERT INTO gpkg_geometry_columns SELECT ?, ?, 'GEOMETRY', ?, 0, 0 WHERE ? <> ''",
            (name, geometry, srs, geometry),
        ),
    )


POINT, BOX = shapely.Point(1, 2), shapely.box(0, 0, 1, 1)


def test_columns_are_of_the_types_that_are_declared(package):
    path = package(
        *layer(
            "zones",
            "fid INTEGER PRIMARY KEY, geom POLYGON, b BOOLEAN, i1 TINYINT, i2 SMALLINT,"
            " i4 MEDIUMINT, i8 INT, f4 FLOAT, f8 DOUBLE, r REAL, t TEXT(20), x BLOB, d DATE,"
            " at DATETIME",
        ),
        ("INSERT INTO zones (fid, geom) VALUES (2, NULL)",),
        (
            "INSERT INTO zones VALUES (1, ?, 1, -128, 300, 70000, 5000000000, 0.5, 0.1, 2, '北京',"
            " x'00ff', '1969-07-20', '2024-02-29T12:30:00.125Z')",
            (blob(BOX),),
        ),
    )
    table = rm.tables.geopackage(path)
    assert table.schema() == pa.schema(
        [
            ("fid", pa.int64()), ("geometry", pa.binary()), ("b", pa.bool_()), ("i1", pa.int8()),
            ("i2", pa.int16()), ("i4", pa.int32()), ("i8", pa.int64()), ("f4", pa.float32()),
            ("f8", pa.float64()), ("r", pa.float64()), ("t", pa.string()), ("x", pa.binary()),
            ("d", pa.date32()), ("at", pa.timestamp("us", "UTC")),
        ]
    )  # fmt: skip
    first, second = table.read(table.schema().names).to_pylist()
    assert first == {
        "fid": 1, "geometry": shapely.to_wkb(BOX), "b": True, "i1": -128, "i2": 300, "i4": 70000,
        "i8": 5_000_000_000, "f4": 0.5, "f8": 0.1, "r": 2.0, "t": "北京", "x": b"\x00\xff",
        "d": dt.date(1969, 7, 20),
        "at": dt.datetime(2024, 2, 29, 12, 30, 0, 125_000, tzinfo=dt.UTC),
    }  # fmt: skip
    assert second == {**dict.fromkeys(first), "fid": 2}


@pytest.mark.parametrize("envelope", ENVELOPES)
@pytest.mark.parametrize(
    "shape", [POINT, BOX, shapely.Point(1, 2, 3), shapely.Polygon(), shapely.Point()]
)
def test_the_header_of_a_geometry_is_taken_off(package, envelope, shape):
    path = package(
        *layer("zones", "fid INTEGER PRIMARY KEY, geom GEOMETRY"),
        ("INSERT INTO zones VALUES (1, ?)", (blob(shape, envelope=envelope),)),
    )
    read = rm.tables.geopackage(path).read(["geometry"])
    assert read["geometry"].to_pylist() == [shapely.to_wkb(shape, flavor="iso")]
    assert srid_of(read.schema.field("geometry")) == 4326


@pytest.mark.parametrize(("srs", "srid"), [(4326, 4326), (100001, 25832), (0, 0), (-1, 0), (7, 0)])
def test_the_srid_is_the_code_that_the_layers_system_has_at_epsg(package, srs, srid):
    path = package(*layer("zones", "geom POINT", srs=srs))
    assert srid_of(rm.tables.geopackage(path).schema().field("geometry")) == srid


def test_rows_come_by_primary_key_and_only_the_columns_asked_for(package):
    rows = [f"INSERT INTO zones VALUES ({n}, NULL, 'z{n}')" for n in (5, 1, 3)]
    path = package(*layer("zones", "fid INTEGER PRIMARY KEY, geom POINT, name TEXT"), *rows)
    read = rm.tables.geopackage(path).read(["name"])
    assert read.to_pydict() == {"name": ["z1", "z3", "z5"]}


def test_many_rows_come_in_one_table(package):
    path = package(
        *layer("zones", "fid INTEGER PRIMARY KEY, geom POINT"),
        "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < 150000)"
        " INSERT INTO zones SELECT i, NULL FROM n",
    )
    assert rm.tables.geopackage(path).read(["fid"])["fid"].to_pylist() == list(range(1, 150_001))


def test_the_layer_is_named_where_there_are_several(package):
    path = package(
        *layer("zones", "fid INTEGER PRIMARY KEY, geom POLYGON"),
        *layer('odd "layer"', "fid INTEGER PRIMARY KEY, shape POINT", geometry="shape"),
        *layer("owners", "id INTEGER PRIMARY KEY, name TEXT", geometry="", kind="attributes"),
    )
    with pytest.raises(TableMissing) as caught:
        rm.tables.geopackage(path).schema()
    assert str(caught.value) == (
        "tables.geopackage: no layer is named; it has ['odd \"layer\"', 'zones']. Name one with "
        "layer=."
    )
    odd = rm.tables.geopackage(path, layer='odd "layer"')
    assert odd.schema().names == ["fid", "geometry"]
    assert odd.read(["fid"]).num_rows == 0
    assert rm.tables.geopackage(path, layer="owners").schema().names == ["id", "name"]
    with pytest.raises(TableMissing) as caught:
        rm.tables.geopackage(path, layer="zone").schema()
    assert str(caught.value).endswith("'owners', 'zones']. Did you mean 'zones'?")


def test_a_file_without_geometries_says_what_it_has(package):
    path = package(*layer("owners", "id INTEGER", geometry="", kind="attributes"))
    with pytest.raises(TableMissing) as caught:
        rm.tables.geopackage(path).schema()
    assert str(caught.value) == (
        "tables.geopackage: the file has no layer with geometries; it has ['owners']. Name one "
        "with layer=."
    )


def test_a_column_called_geometry_besides_the_geometry_is_an_error(package):
    path = package(*layer("zones", "geom POINT, geometry TEXT"))
    with pytest.raises(TableInvalid) as caught:
        rm.tables.geopackage(path).schema()
    assert str(caught.value) == (
        "tables.geopackage: layer 'zones' has a column 'geometry' besides its geometry 'geom'. "
        "Rename the column, or leave it out with a view."
    )


def test_a_type_that_geopackage_does_not_have_is_named(package):
    path = package(*layer("zones", "geom POINT, price MONEY"))
    with pytest.raises(TableInvalid, match="'price' of layer 'zones' is declared as 'MONEY'"):
        rm.tables.geopackage(path).schema()


@pytest.mark.parametrize(
    ("declared", "value", "said"),
    [
        ("INTEGER", "many", "column 'v' is declared as int64, but not all its values are"),
        ("TINYINT", 300, "column 'v' is declared as int8, but not all its values are"),
        ("DATE", "29.2.2024", "column 'v' is declared as date32[day], but not all its values are"),
        ("TEXT", b"\xff", "column 'v' is declared as string, but not all its values are"),
    ],
)
def test_a_value_of_another_type_is_named_by_its_column(package, declared, value, said):
    path = package(
        *layer("zones", f"geom POINT, v {declared}"),
        ("INSERT INTO zones VALUES (NULL, ?)", (value,)),
    )
    with pytest.raises(TableInvalid) as caught:
        rm.tables.geopackage(path).read(["v"])
    assert str(caught.value).startswith(f"tables.geopackage: {said}; ")
    assert str(caught.value).endswith("SQLite lets any value into any column: correct these.")


@pytest.mark.parametrize(
    "value",
    [shapely.to_wkb(POINT), blob(POINT, flags=0b10_0001), blob(POINT, flags=0b1111), "text", b""],
)
def test_what_is_not_a_geopackage_geometry_is_an_error(package, value):
    path = package(*layer("zones", "geom POINT"), ("INSERT INTO zones VALUES (?)", (value,)))
    with pytest.raises(TableInvalid, match="a geometry is not in GeoPackage's binary form; it"):
        rm.tables.geopackage(path).read(["geometry"])


def test_the_file_is_opened_read_only(package, monkeypatch):
    path = package(*layer("zones", "geom POINT"))
    before = path.read_bytes()
    rm.tables.geopackage(path).read(["geometry"])
    assert path.read_bytes() == before
    assert [other.name for other in path.parent.iterdir()] == [path.name]
    asked = []
    connect = sqlite3.connect
    monkeypatch.setattr(sqlite3, "connect", lambda *a, **k: asked.append(a) or connect(*a, **k))
    rm.tables.geopackage(path).schema()
    assert all(uri.endswith("?mode=ro") for (uri,) in asked)


def test_other_files_are_refused_with_a_word(tmp_path):
    (tmp_path / "a.gpkg").write_text("not a database, but long enough to be taken for one" * 20)
    with pytest.raises(TableInvalid, match="cannot be read as a GeoPackage; file is"):
        rm.tables.geopackage(tmp_path / "a.gpkg").schema()
    sqlite3.connect(tmp_path / "b.gpkg").close()
    with pytest.raises(TableInvalid, match="no such table: gpkg_contents"):
        rm.tables.geopackage(tmp_path / "b.gpkg").schema()
    with pytest.raises(TableMissing, match=r"Did you mean 'a\.gpkg'\?"):
        rm.tables.geopackage(tmp_path / "aa.gpkg").schema()
    assert not (tmp_path / "aa.gpkg").exists()


def test_it_is_a_value(package):
    path = package(*layer("zones", "geom POINT"))
    table = rm.tables.geopackage(path, layer="zones")
    assert isinstance(table, Source)
    assert pickle.loads(pickle.dumps(table)) == table
    assert table.name == "city #1.gpkg/zones"
    assert table.identity == f"geopackage:{path}#zones" != rm.tables.geopackage(path).identity
