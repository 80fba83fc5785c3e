"""GeoPackage, Shapefile and FlatGeobuf files, written here by GDAL and by SQLite."""

import datetime as dt
import pickle
import sqlite3
import sys
import zipfile
from contextlib import closing

import numpy as np
import pyarrow as pa
import pyogrio
import pytest
import shapely
from tests.support.stores import OGR, write_ogr

import rivermouth as rm
from rivermouth.errors import ColumnError, SessionError, TableInvalid, TableMissing
from rivermouth.tables import Source
from rivermouth.tables.source import srid_of

SUFFIXES = {"geopackage": "gpkg", "shapefile": "shp", "flatgeobuf": "fgb"}
POINT, BOX = shapely.Point(1, 2), shapely.box(0, 0, 1, 1)
UTC = dt.UTC


@pytest.fixture(params=OGR)
def ogr(request, tmp_path):
    """Writes rows and shapes in one of the three formats, and gives the table of them."""

    class Format:
        name = request.param
        path = tmp_path / f"city #1.{SUFFIXES[request.param]}"

        def write(self, rows, shapes=None, where=None, **how):
            rows = pa.table(rows)
            shapes = [POINT] * rows.num_rows if shapes is None else shapes
            write_ogr(self.path, OGR[self.name], rows, shapes, **how)
            return self.table(where=where)

        def table(self, **how):
            return getattr(rm.tables, self.name)(self.path, **how)

    return Format()


def execute(path, *statements):
    with closing(sqlite3.connect(path)) as file, file:
        triggers = (
            "SELECT 'DROP TRIGGER \"' || replace(name, '\"', '\"\"') || '\"' FROM sqlite_master"
        )
        for (drop,) in file.execute(f"{triggers} WHERE type = 'trigger'").fetchall():
            file.execute(drop)  # it calls functions of GDAL's own
        for statement in statements:
            file.execute(*([statement] if isinstance(statement, str) else statement))


# -- columns and rows

VALUES = {
    "b": pa.array([True, None]),
    "i2": pa.array([300, None], pa.int16()),
    "i4": pa.array([70_000, None], pa.int32()),
    "i8": pa.array([5_000_000_000, None], pa.int64()),
    "f4": pa.array([0.5, None], pa.float32()),
    "f8": pa.array([0.1, None]),
    "t": pa.array(["北京", None]),
    "x": pa.array([b"\x00\xff", None]),
    "d": pa.array([dt.date(1969, 7, 20), None]),
    "at": pa.array([dt.datetime(2024, 2, 29, 12, 30, 0, 125_000, tzinfo=UTC), None]).cast(
        pa.timestamp("us", "UTC")
    ),
}
READ_AS = {
    "geopackage": {},
    "flatgeobuf": {"d": pa.timestamp("us", "UTC")},
    "shapefile": {"i2": pa.int32(), "f4": pa.float64(), "x": None, "at": None},
}


def test_columns_are_of_the_types_of_the_file(ogr):
    read_as = {name: READ_AS[ogr.name].get(name, values.type) for name, values in VALUES.items()}
    rows = {name: VALUES[name] for name, type_ in read_as.items() if type_ is not None}
    table = ogr.write(rows, [POINT, None])
    types = {name: read_as[name] for name in rows}
    first = {"fid": pa.int64()} if ogr.name == "geopackage" else {}
    assert table.schema() == pa.schema({**first, **types, "geometry": pa.binary()})
    one, two = table.read([*rows, "geometry"]).to_pylist()
    expected = {name: values[0].as_py() for name, values in rows.items()}
    if ogr.name == "flatgeobuf":  # which has no dates
        expected["d"] = dt.datetime(1969, 7, 20, tzinfo=UTC)
    assert one == {**expected, "geometry": shapely.to_wkb(POINT)}
    assert two == dict.fromkeys(one)


SHAPES = [
    "POINT (1 2)",
    "POINT Z (1 2 3)",
    "LINESTRING (0 0, 1 1.5, 2 0)",
    "POLYGON ((0 0, 0 9, 9 9, 9 0, 0 0), (1 1, 2 1, 2 2, 1 1))",
    "MULTIPOINT (1 2, 3 4)",
    "MULTILINESTRING ((0 0, 1 1), (2 2, 3 3, 4 5))",
    "MULTIPOLYGON (((0 0, 0 1, 1 1, 0 0)), ((5 5, 5 9, 9 9, 5 5)))",
    "GEOMETRYCOLLECTION (POINT (1 2), LINESTRING (0 0, 1 1))",
    "POLYGON EMPTY",
]


@pytest.mark.parametrize("text", SHAPES)
def test_shapes_are_iso_wkb_and_null_stays_null(ogr, text):
    shape = shapely.from_wkt(text)
    if ogr.name == "shapefile" and shape.geom_type == "GeometryCollection":
        pytest.skip("a Shapefile has no collections")
    kind = shape.geom_type + (" Z" if shape.has_z else "")
    shapes = [shape, None, shape, None]
    table = ogr.write({"n": [1, 2, 3, 4]}, shapes, geometry_type=kind)
    found = table.read(["geometry"])["geometry"].to_pylist()
    if shape.is_empty and ogr.name != "geopackage":  # only a GeoPackage tells it from null
        assert found == [None] * 4
    elif ogr.name == "shapefile":  # which keeps rings and parts in an order of its own
        read = [None if wkb is None else shapely.from_wkb(wkb).normalize() for wkb in found]
        assert read == [None if shape is None else shape.normalize() for shape in shapes]
    else:
        wkb = shapely.to_wkb(shape, flavor="iso")
        assert found == [wkb, None, wkb, None]


def test_a_null_geometry_leaves_the_others_as_they_are(ogr):
    """GDAL's own Arrow reader of FlatGeobuf writes one shape over another where one is null."""
    shapes = [shapely.Point(n, n) if n % 3 else None for n in range(2_000)]
    table = ogr.write({"n": np.arange(2_000)}, shapes, geometry_type="Point")
    found = table.read(["geometry"])["geometry"].to_pylist()
    assert shapely.from_wkb(found).tolist() == shapes


CUSTOM = 'LOCAL_CS["harbour grid",UNIT["metre",1],AXIS["Easting",EAST],AXIS["Northing",NORTH]]'


@pytest.mark.parametrize(
    ("crs", "srid"), [("EPSG:4326", 4326), ("EPSG:25832", 25832), (CUSTOM, 0), (None, 0)]
)
@pytest.mark.filterwarnings("ignore:'crs' was not provided:UserWarning")
def test_the_srid_is_the_code_that_the_files_system_has_at_epsg(ogr, crs, srid):
    table = ogr.write({"n": [1]}, crs=crs)
    assert srid_of(table.schema().field("geometry")) == srid
    assert srid_of(table.read(["geometry"]).schema.field("geometry")) == srid


def test_only_the_columns_asked_for_come_in_that_order(ogr):
    table = ogr.write({"a": [1, 2], "b": ["x", "y"], "c": [0.5, 1.5]})
    read = table.read(["c", "geometry", "a"])
    assert read.schema.names == ["c", "geometry", "a"]
    assert read["a"].to_pylist() == [1, 2]
    assert table.read(["geometry"]).schema.names == ["geometry"]


def test_many_rows_come_in_batches_in_the_files_order(ogr):
    table = ogr.write({"n": np.arange(150_000)}, geometry_type="Point")
    batches = table.scan(["n"], list)
    assert len(batches) > 1
    assert table.read(["n"])["n"].to_pylist() == list(range(150_000))
    none = ogr.table(where=("n", "<", 0))
    assert [batch.num_rows for batch in none.scan(["n"], list)] == [0]


@pytest.mark.parametrize("kind", ["geopackage", "flatgeobuf"])
def test_a_time_is_utc_whatever_zone_it_is_written_in(kind, tmp_path):
    path = tmp_path / f"a.{SUFFIXES[kind]}"
    zone = dt.timezone(dt.timedelta(hours=2))
    noon = dt.datetime(2024, 2, 29, 12, tzinfo=zone)
    if kind == "flatgeobuf":
        at = pa.array([noon.replace(tzinfo=None), None], pa.timestamp("us"))
        zoned = pa.array([noon, None], pa.timestamp("us", "+02:00"))
        write_ogr(path, OGR[kind], pa.table({"at": at, "zoned": zoned}), [POINT, POINT])
        expected = {"at": [noon.replace(tzinfo=UTC), None], "zoned": [noon, None]}
    else:
        at = pa.array([noon] * 3, pa.timestamp("us", "UTC"))
        write_ogr(path, OGR[kind], pa.table({"at": at}), [POINT] * 3)
        texts = ["2024-02-29T12:00:00", "2024-02-29T12:00:00.000001Z", "2024-02-29 12:00:00+02:00"]
        execute(
            path, *[(f"UPDATE a SET at = ? WHERE fid = {n}", (t,)) for n, t in enumerate(texts, 1)]
        )
        utc = noon.replace(tzinfo=UTC)
        expected = {"at": [utc, utc.replace(microsecond=1), noon]}
    table = getattr(rm.tables, kind)(path)
    assert table.read(list(expected)).to_pydict() == expected


# -- which rows count


@pytest.mark.parametrize(
    ("where", "pushed"),
    [
        (("n", "=", 7), '"n" >= 7 AND "n" <= 7'),
        (("n", "in", [9, 7]), '"n" >= 7 AND "n" <= 9'),
        (("n", "<", 3), '"n" <= 3'),
        (("n", "!=", 7), None),
        (("n", "not in", [7]), None),
        (("share", ">=", 0.5), '"share" >= 0.4999999995'),
        (("share", "<", float("inf")), None),
        (("word", "=", "w7"), "\"word\" IN ('w7')"),
        (("word", "in", ["w7", "W8"]), "\"word\" IN ('w7', 'W8')"),
        (("word", "<", "w7"), None),
        (("word", "is not", None), '"word" IS NOT NULL'),
        (("word", "=", "' OR 1=1 --"), None),
        (("word", "=", "back\\"), None),
        (("word", "in", ["w7", 'quo"te']), None),
        (("geometry", "is", None), None),
        ([("n", ">", 90), ("word", ">", "w95")], '"n" >= 90'),
    ],
    ids=str,
)
def test_gdal_skips_rows_where_that_can_be_written_without_an_escape(
    ogr, monkeypatch, where, pushed
):
    words = [None if n % 5 == 4 else "' OR 1=1 --" if n == 3 else "back\\" if n == 5 else f"w{n}"
             for n in range(100)]  # fmt: skip
    rows = {"n": np.arange(100), "word": words, "share": np.arange(100) / 100}
    everything = ogr.write(rows).read(["n", "word", "share", "geometry"])
    asked = []
    opened = pyogrio.open_arrow
    monkeypatch.setattr(
        pyogrio, "open_arrow", lambda *a, **k: asked.append(k["where"]) or opened(*a, **k)
    )
    found = ogr.table(where=where).read(["n"])["n"].to_pylist()
    sign = "+" if ogr.name == "geopackage" else ""
    assert asked[-1] == (pushed.replace('"n"', f'{sign}"n"').replace('"word"', f'{sign}"word"')
                         .replace('"share"', f'{sign}"share"') if pushed else None)  # fmt: skip
    tests = where if isinstance(where, list) else [where]
    assert found == [row["n"] for row in everything.to_pylist() if all(map_tests(row, tests))]


def map_tests(row, tests):
    compared = {"=": "__eq__", "!=": "__ne__", "<": "__lt__", ">": "__gt__", ">=": "__ge__"}
    for column, operator, value in tests:
        found = row[column]
        if operator in ("is", "is not"):
            yield (found is None) == (operator == "is")
        elif operator in ("in", "not in"):
            yield found is not None and (found in value) == (operator == "in")
        else:
            yield found is not None and getattr(found, compared[operator])(value)


def test_names_are_taken_as_they_are_written(tmp_path):
    path = tmp_path / "a.gpkg"
    names = ['quo"te', "it's", "semi; --", "100%"]
    rows = pa.table({name: [n, 7] for n, name in enumerate(names)})
    write_ogr(path, "GPKG", rows, [POINT, POINT])
    for name in names:
        table = rm.tables.geopackage(path, where=(name, "=", 7))
        assert table.read(names).to_pylist() == [dict.fromkeys(names, 7)]


def test_a_filter_that_makes_no_sense_is_said_at_once(ogr):
    table = ogr.write({"n": [1]}, where=("m", "=", 1))
    with pytest.raises(ColumnError, match="where names column 'm', which is not among the table's"):
        table.schema()
    with pytest.raises(ColumnError, match="'geometry', which is a geometry, with b'x'"):
        ogr.table(where=("geometry", "=", b"x")).schema()


# -- GeoPackage's own


@pytest.fixture
def package(tmp_path):
    """A GeoPackage with two layers of shapes and a table without."""
    path = tmp_path / "city.gpkg"
    rows = pa.table({"name": ["z5", "z1", "z3"]})
    write_ogr(path, "GPKG", rows, [BOX] * 3, layer="zones")
    odd = pa.table({"n": [1], "geometry": pa.array([POINT.wkb])})
    pyogrio.write_arrow(
        odd, path, layer='odd "layer"', geometry_name="geometry", geometry_type="Point",
        crs="EPSG:4326", append=True,
    )  # fmt: skip
    execute(
        path,
        "CREATE TABLE owners (id INTEGER PRIMARY KEY, name TEXT)",
        "INSERT INTO gpkg_contents (table_name, data_type, identifier) "
        "VALUES ('owners', 'attributes', 'owners')",
        "INSERT INTO owners VALUES (1, 'ann')",
    )
    return path


def test_the_layer_is_named_where_there_are_several(package):
    with pytest.raises(TableMissing) as caught:
        rm.tables.geopackage(package).schema()
    assert str(caught.value) == (
        f"tables.geopackage: no layer is named; '{package}' has ['odd \"layer\"', 'owners', "
        "'zones']. Name one with layer=."
    )
    odd = rm.tables.geopackage(package, layer='odd "layer"')
    assert odd.read(["n"]).to_pydict() == {"n": [1]}
    owners = rm.tables.geopackage(package, layer="owners")
    assert owners.schema() == pa.schema({"id": pa.int64(), "name": pa.string()})
    assert owners.read(["name", "id"]).to_pylist() == [{"name": "ann", "id": 1}]
    with pytest.raises(TableMissing) as caught:
        rm.tables.geopackage(package, layer="zone").schema()
    assert str(caught.value).endswith("'owners', 'zones']. Did you mean 'zones'?")


def test_rows_come_by_primary_key_also_where_an_index_serves_the_filter(package):
    execute(
        package,
        "UPDATE zones SET fid = fid + 100 WHERE name = 'z5'",
        "CREATE INDEX by_name ON zones (name)",
    )
    table = rm.tables.geopackage(package, layer="zones")
    assert table.read(["fid", "name"]).to_pydict() == {
        "fid": [2, 3, 101], "name": ["z1", "z3", "z5"]
    }  # fmt: skip
    backwards = rm.tables.geopackage(package, "zones", where=("name", "in", ["z5", "z3", "z1"]))
    execute(package, "UPDATE zones SET name = 'z9' WHERE fid = 2")
    assert backwards.read(["name"])["name"].to_pylist() == ["z3", "z5"]
    key = rm.tables.geopackage(package, "zones", where=("fid", ">", 2))
    assert key.read(["fid"])["fid"].to_pylist() == [3, 101]


def test_a_column_called_geometry_besides_the_geometry_is_an_error(package):
    execute(package, "ALTER TABLE zones ADD COLUMN geometry TEXT")
    with pytest.raises(TableInvalid) as caught:
        rm.tables.geopackage(package, "zones").schema()
    assert str(caught.value) == (
        "tables.geopackage: layer 'zones' has a column 'geometry' besides its geometry. "
        "Rename the column."
    )


def test_text_that_is_not_utf8_and_times_that_are_none_are_errors(package):
    execute(package, "UPDATE zones SET name = CAST(x'ff' AS TEXT)")
    with pytest.raises(TableInvalid, match=r"cannot be read as a GeoPackage; .*UTF8"):
        rm.tables.geopackage(package, "zones").read(["name"])
    execute(package, "ALTER TABLE zones ADD COLUMN at DATETIME", "UPDATE zones SET at = 'noon'")
    with pytest.raises(TableInvalid, match=r"cannot be read as a GeoPackage; .*noon"):
        rm.tables.geopackage(package, "zones").read(["at"])


def test_a_column_that_is_gone_is_said(package):
    table = rm.tables.geopackage(package, "zones")
    with pytest.raises(TableInvalid, match="has no column 'size'; its columns are"):
        table.read(["size"])


def test_the_file_is_opened_read_only(package):
    before = package.read_bytes()
    rm.tables.geopackage(package, "zones").read(["geometry"])
    assert package.read_bytes() == before
    assert [other.name for other in package.parent.iterdir()] == [package.name]


# -- files that are not what they should be


def test_other_files_are_refused_with_a_word(ogr):
    suffix = SUFFIXES[ogr.name]
    text = ogr.path.with_name(f"a.{suffix}")
    text.write_text("not a table, but long enough to be taken for one" * 20)
    with pytest.raises(TableInvalid, match=f"'{text}' cannot be read as a"):
        getattr(rm.tables, ogr.name)(text).schema()
    with pytest.raises(TableMissing, match=rf"Did you mean 'a\.{suffix}'\?"):
        getattr(rm.tables, ogr.name)(text.with_name(f"aa.{suffix}")).schema()
    assert not text.with_name(f"aa.{suffix}").exists()


def test_a_file_of_another_format_is_named(ogr):
    ogr.write({"n": [1]})
    others = [getattr(rm.tables, name) for name in OGR if name != ogr.name]
    for other in others:
        with pytest.raises(TableInvalid, match=f"GDAL reads it as {OGR[ogr.name]}. Use the"):
            other(ogr.path).schema()


def test_a_zipped_shapefile_is_one(tmp_path):
    path = write_ogr(tmp_path / "zones.shp", OGR["shapefile"], pa.table({"n": [1, 2]}), [POINT] * 2)
    with zipfile.ZipFile(tmp_path / "zones.zip", "w") as archive:
        for part in tmp_path.glob("zones.*"):
            if part.suffix != ".zip":
                archive.write(part, part.name)
    zipped = rm.tables.shapefile(tmp_path / "zones.zip")
    assert zipped.read(["n"]) == rm.tables.shapefile(path).read(["n"])


def test_one_of_several_shapefiles_must_be_named(tmp_path):
    for name in ("a", "b"):
        write_ogr(tmp_path / f"{name}.shp", OGR["shapefile"], pa.table({"n": [1]}), [POINT])
    with pytest.raises(TableMissing, match=r"has \['a', 'b'\]. Name one file."):
        rm.tables.shapefile(tmp_path).schema()


def test_pyogrio_is_asked_for_by_name(ogr, monkeypatch):
    monkeypatch.delitem(sys.modules, "rivermouth.tables.sources.ogr", raising=False)
    monkeypatch.delattr("rivermouth.tables.sources.ogr", raising=False)
    monkeypatch.setitem(sys.modules, "pyogrio", None)
    with pytest.raises(SessionError) as caught:
        ogr.table()
    assert str(caught.value).startswith(f"tables.{ogr.name}: pyogrio cannot be imported; ")
    assert str(caught.value).endswith("Install it: pip install 'rivermouth[ogr]'.")


def test_it_is_a_value(ogr):
    table = ogr.write({"n": [1]})
    assert isinstance(table, Source)
    assert pickle.loads(pickle.dumps(table)) == table
    assert table.name == ogr.path.name
    assert table.identity == f"{ogr.name}:{ogr.path}"
    layer = rm.tables.geopackage(ogr.path, layer="zones")
    assert (layer.name, layer.identity) == (
        f"{ogr.path.name}/zones",
        f"geopackage:{ogr.path}#zones",
    )
