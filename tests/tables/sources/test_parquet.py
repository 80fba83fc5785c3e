"""Parquet files written here, in each of the ways in which geometries are written."""

import contextlib
import json
import pickle
import time

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import shapely

import rivermouth as rm
from rivermouth.errors import ColumnError, TableError, TableInvalid, TableMissing
from rivermouth.tables.source import Source, srid_of

SHAPES = [shapely.Point(1, 2), None, shapely.box(0, 0, 1, 1), shapely.Polygon()]
WKB = pa.array(shapely.to_wkb(np.array(SHAPES, dtype=object), flavor="iso"), pa.binary())


def geo(encoding="WKB", **more):
    said = {
        "version": "1.1.0",
        "primary_column": "shape",
        "columns": {"shape": {"encoding": encoding, "geometry_types": [], **more}},
    }
    return {b"geo": json.dumps(said).encode()}


def write(path, columns, metadata=None, **how):
    table = pa.table(columns)
    pq.write_table(table.replace_schema_metadata(metadata), path, **how)
    return path


def srid(table, column="shape"):
    """What the schema says, which must be what the rows say."""
    read = table.read([column]).schema.field(column)
    assert table.schema().field(column).equals(read, check_metadata=True)
    return srid_of(read)


PROJJSON = {"type": "ProjectedCRS", "name": "x", "id": {"authority": "EPSG", "code": 25832}}


@pytest.mark.parametrize(
    ("crs", "expected"),
    [
        ({}, 4326),
        ({"crs": None}, 0),
        ({"crs": PROJJSON}, 25832),
        ({"crs": {"type": "GeographicCRS", "id": {"authority": "OGC", "code": "CRS84"}}}, 4326),
        ({"crs": {"type": "ProjectedCRS", "name": "of one's own"}}, 0),
    ],
)
def test_geoparquet_says_where_its_geometries_are(tmp_path, crs, expected):
    path = write(tmp_path / "a.parquet", {"n": [1, 2, 3, 4], "shape": WKB}, geo(**crs))
    table = rm.tables.parquet(path)
    assert table.schema() == pa.schema([("n", pa.int64()), ("shape", pa.binary())])
    assert srid_of(table.schema().field("n")) is None
    assert srid(table) == expected
    assert table.read(["shape"])["shape"].to_pylist() == WKB.to_pylist()


def lists(shape):
    """Coordinates as GeoArrow nests them."""
    if shape.geom_type in ("Point", "LineString"):
        spots = [dict(zip("xyz", spot, strict=False)) for spot in shape.coords]
        return spots[0] if shape.geom_type == "Point" else spots
    if shape.geom_type == "Polygon":
        rings = [] if shape.is_empty else [shape.exterior, *shape.interiors]
        return [lists(shapely.LineString(ring)) for ring in rings]
    return [lists(part) for part in shape.geoms]


NATIVE = {
    "point": ["POINT (1 2)", None, "POINT (3 4)"],
    "linestring": ["LINESTRING (0 0, 1 1)", None, "LINESTRING (2 2, 3 3, 4 5)"],
    "polygon": ["POLYGON ((0 0, 9 0, 9 9, 0 0), (5 1, 6 1, 6 2, 5 1))", "POLYGON EMPTY", None],
    "multipoint": ["MULTIPOINT (1 2, 3 4)", None, "MULTIPOINT (5 6)"],
    "multilinestring": [None, "MULTILINESTRING ((0 0, 1 1), (2 2, 3 3, 4 5))"],
    "multipolygon": [
        "MULTIPOLYGON (((0 0, 1 0, 1 1, 0 0)), ((5 5, 9 5, 9 9, 5 5), (8 6, 8 7, 7.5 6, 8 6)))",
        None,
    ],
}


@pytest.mark.parametrize("encoding", NATIVE)
@pytest.mark.parametrize("axes", ["xy", "xyz"])
def test_native_encodings_become_wkb(tmp_path, encoding, axes):
    shapes = [None if text is None else shapely.from_wkt(text) for text in NATIVE[encoding]]
    if axes == "xyz":
        shapes = [s if s is None or s.is_empty else shapely.force_3d(s, 7) for s in shapes]
    spot = pa.struct([(axis, pa.float64()) for axis in axes])
    kind = {"point": 0, "linestring": 1, "multipoint": 1, "polygon": 2, "multilinestring": 2}
    for _ in range(kind.get(encoding, 3)):
        spot = pa.list_(spot)
    values = [
        None if shape is None else lists(shape) for shape in shapes for _ in range(3)
    ]  # fmt: skip
    column = pa.array(values, spot)
    path = write(tmp_path / "a.parquet", {"shape": column}, geo(encoding), row_group_size=2)
    table = rm.tables.parquet(path)
    assert table.schema().field("shape").type == pa.binary()
    assert srid(table) == 4326
    read = shapely.from_wkb(table.read(["shape"])["shape"].to_pylist())
    expected = [shape for shape in shapes for _ in range(3)]
    for one, other in zip(read, expected, strict=True):
        same = one is None if other is None else shapely.equals_exact(one, other)
        assert same
        assert other is None or other.is_empty or shapely.has_z(one) == (axes == "xyz")


class GeoArrowWKB(pa.ExtensionType):
    """What geoarrow's package registers; pyarrow then writes Parquet's own geometry types."""

    def __init__(self, said):
        self.said = said
        super().__init__(pa.binary(), "geoarrow.wkb")

    def __arrow_ext_serialize__(self):
        return self.said

    @classmethod
    def __arrow_ext_deserialize__(cls, storage, said):
        return cls(said)


@pytest.fixture
def registered():
    pa.register_extension_type(GeoArrowWKB(b""))
    yield
    with contextlib.suppress(pa.ArrowKeyError):
        pa.unregister_extension_type("geoarrow.wkb")


@pytest.mark.parametrize(
    ("said", "stored", "expected"),
    [
        ('{"crs": "srid:5070"}', "Geometry(crs=srid:5070)", 5070),
        ('{"edges": "spherical"}', "Geography(crs=, algorithm=spherical)", 4326),
        ("{}", "Geometry(crs=)", 4326),
        ('{"crs": "projjson:mine"}', "Geometry(crs=projjson:mine)", 25832),
        ('{"crs": "local"}', "Geometry(crs=local)", 0),
    ],
)
@pytest.mark.parametrize("known_when_read", [True, False])
def test_parquets_own_geometry_types(tmp_path, registered, said, stored, expected, known_when_read):
    column = pa.ExtensionArray.from_storage(GeoArrowWKB(said.encode()), WKB)
    path, rows = tmp_path / "a.parquet", pa.table({"shape": column})
    with pq.ParquetWriter(path, rows.schema, store_schema=False) as writer:
        writer.write_table(rows)
        writer.add_key_value_metadata({"mine": json.dumps(PROJJSON)})
    assert str(pq.ParquetFile(path).schema.column(0).logical_type) == stored
    if not known_when_read:
        pa.unregister_extension_type("geoarrow.wkb")
    table = rm.tables.parquet(path)
    assert table.schema().field("shape").type == pa.binary()
    assert srid(table) == expected
    assert table.read(["shape"])["shape"].to_pylist() == WKB.to_pylist()


def test_the_arrow_extension_alone_is_enough(tmp_path):
    said = {
        b"ARROW:extension:name": b"geoarrow.wkb",
        b"ARROW:extension:metadata": json.dumps({"crs": PROJJSON}).encode(),
    }
    schema = pa.schema([pa.field("shape", pa.binary(), metadata=said)])
    pq.write_table(pa.table([WKB], schema=schema), tmp_path / "a.parquet")
    assert srid(rm.tables.parquet(tmp_path / "a.parquet")) == 25832


@pytest.mark.parametrize("kind", [pa.binary(), pa.large_binary(), pa.binary_view()])
def test_columns_of_wkb_are_named(tmp_path, kind):
    path = write(tmp_path / "a.parquet", {"a": WKB.cast(kind), "b": WKB, "c": WKB})
    assert srid_of(rm.tables.parquet(path).schema().field("a")) is None
    table = rm.tables.parquet(path, geometry=["a", "b"])
    assert (srid(table, "a"), srid(table, "b"), srid(table, "c")) == (0, 0, None)
    assert table.read(["a"])["a"].to_pylist() == WKB.to_pylist()
    assert srid(rm.tables.parquet(path, geometry="b"), "b") == 0


def test_a_geometry_that_is_not_there_or_not_wkb_is_said(tmp_path):
    path = write(tmp_path / "a.parquet", {"shape": WKB, "n": [1, 2, 3, 4]})
    with pytest.raises(ColumnError) as caught:
        rm.tables.parquet(path, geometry="shap").schema()
    assert str(caught.value) == (
        "tables.parquet: geometry names column 'shap', which is not among the table's "
        "['n', 'shape']. Did you mean 'shape'?"
    )
    with pytest.raises(TableInvalid) as caught:
        rm.tables.parquet(path, geometry="n").schema()
    assert str(caught.value) == (
        "tables.parquet: geometry names column 'n', which is int64, not WKB. Name a binary column."
    )
    odd = write(tmp_path / "b.parquet", {"shape": WKB}, geo("WKT"))
    with pytest.raises(TableInvalid, match="geometry column 'shape' is encoded as 'WKT'; known"):
        rm.tables.parquet(odd).schema()


def test_files_of_a_folder_come_by_name_and_rows_as_they_lie(tmp_path):
    folder = tmp_path / "zones"
    folder.mkdir()
    for number in range(30, -1, -1):
        rows = np.arange(1000) + 1000 * number
        write(folder / f"part-{number:03}.parquet", {"n": rows}, row_group_size=100)
    (folder / "_SUCCESS").touch()
    read = rm.tables.parquet(folder).read(["n"])
    assert read["n"].to_pylist() == list(range(31_000))
    assert rm.tables.parquet(f"{folder}/").name == "zones"


def test_folders_named_by_values_add_a_column(tmp_path):
    pq.write_to_dataset(
        pa.table({"n": [1, 2, 3], "year": [2024, 2023, 2024], "city": ["b", "a", "a"]}),
        tmp_path / "t",
        partition_cols=["year", "city"],
    )
    table = rm.tables.parquet(tmp_path / "t")
    assert table.schema() == pa.schema(
        [("n", pa.int64()), ("year", pa.int32()), ("city", pa.string())]
    )
    assert table.read(["city", "n"]).to_pydict() == {"city": ["a", "a", "b"], "n": [2, 3, 1]}


def test_a_table_knows_what_its_files_take(tmp_path):
    (tmp_path / "all" / "city=b").mkdir(parents=True)
    files = [
        write(tmp_path / "all" / name, {"n": [*range(count)]})
        for name, count in (("a.parquet", 9), ("city=b/b.parquet", 999))
    ]
    sizes = [file.stat().st_size for file in files]
    assert rm.tables.parquet(files[1]).file_bytes() == sizes[1]
    whole, none = rm.tables.parquet(tmp_path / "all"), rm.tables.parquet(tmp_path / "none.parquet")
    assert (whole.file_bytes(), whole.file_rows()) == (sum(sizes), 1008)
    assert rm.tables.parquet(tmp_path / "all", where=("n", "=", 3)).file_rows() == 1008
    for asked in (none.file_bytes, none.file_rows):
        with pytest.raises(TableMissing):
            asked()


def test_a_row_group_of_few_wide_rows_does_not_cut_the_rest_into_small_batches(tmp_path):
    schema = pa.schema({"n": pa.int64(), "text": pa.string()})
    with pq.ParquetWriter(tmp_path / "a.parquet", schema) as file:
        file.write_table(pa.table([[0], ["x" * (12 << 20)]], schema))
        file.write_table(pa.table([[*range(1, 200_000)], ["y"] * 199_999], schema))
    table = rm.tables.parquet(tmp_path / "a.parquet")
    for columns, most in ((["n"], 4), (["n", "text"], 4_000)):
        sizes = table.scan(columns, lambda batches: [batch.num_rows for batch in batches])
        assert sum(sizes) == 200_000
        assert len(sizes) <= most


def test_only_the_columns_asked_for_are_read(tmp_path):
    """A column whose bytes are spoilt is no matter until it is asked for."""
    path = write(tmp_path / "a.parquet", {"n": [1], "spoilt": ["x" * 99], "shape": WKB[:1]}, geo())
    chunk = pq.read_metadata(path).row_group(0).column(1)
    with path.open("r+b") as file:
        file.seek(chunk.dictionary_page_offset or chunk.data_page_offset)
        file.write(b"\xff" * chunk.total_compressed_size)
    table = rm.tables.parquet(path)
    assert table.read(["shape", "n"]).to_pydict() == {"shape": WKB[:1].to_pylist(), "n": [1]}
    with pytest.raises(TableError, match="cannot be read"):
        table.read(["spoilt"])


def test_rows_that_are_taken_slowly_are_not_held_in_memory(tmp_path):
    width, count = 8_000, 5_000  # 40 MB a file
    for name in "abcdef":
        bytes_ = pa.py_buffer(np.random.default_rng(ord(name)).bytes(width * count))
        wide = pa.Array.from_buffers(pa.binary(width), count, [None, bytes_])
        columns = {"n": np.arange(count), "shape": wide.cast(pa.binary())}
        write(tmp_path / f"{name}.parquet", columns, row_group_size=1_000)
    del bytes_, wide, columns

    def most_held(batches):
        most, before = 0, pa.total_allocated_bytes()
        for batch in batches:
            time.sleep(0.02)  # what reads ahead does it now
            most = max(most, pa.total_allocated_bytes() - before)
            del batch
        return most

    table = rm.tables.parquet(tmp_path, geometry="shape")
    assert table.read(["n"])["n"].to_pylist() == [*range(count)] * 6
    # 61 to 69 MB, by what the reader has begun; without any of its options 92 MB and more
    assert table.scan(["n", "shape"], most_held) < 80 << 20


def test_what_is_not_parquet_is_said(tmp_path):
    with pytest.raises(TableMissing, match=r"there is no '.*zones\.parquet'"):
        rm.tables.parquet(tmp_path / "zones.parquet").schema()
    (tmp_path / "a.parquet").write_text("n;name\n1;2")
    with pytest.raises(TableInvalid, match=r"a\.parquet' cannot be read as Parquet; "):
        rm.tables.parquet(tmp_path / "a.parquet").schema()
    (tmp_path / "empty").mkdir()
    with pytest.raises(TableMissing, match=r"empty' holds no Parquet file\. Check the path\."):
        rm.tables.parquet(tmp_path / "empty").schema()
    write(tmp_path / "empty" / "a.parquet", {"n": [1]})
    write(tmp_path / "empty" / "b.parquet", {"n": ["one"]})
    with pytest.raises(TableInvalid, match=r"cannot be read as Parquet; .*Give a Parquet file, or"):
        rm.tables.parquet(tmp_path / "empty").read(["n"])


def test_it_is_a_value_found_from_anywhere(tmp_path, monkeypatch):
    write(tmp_path / "a.parquet", {"shape": WKB})
    monkeypatch.chdir(tmp_path)
    table = rm.tables.parquet("a.parquet", geometry=["shape"])
    assert isinstance(table, Source)
    assert pickle.loads(pickle.dumps(table)) == table
    assert hash(table) == hash(rm.tables.parquet("a.parquet", geometry="shape"))
    assert table.name == "a.parquet"
    assert table.identity == f"parquet:{tmp_path}/a.parquet#shape"
    monkeypatch.chdir("/")
    assert table.read(["shape"]).num_rows == 4
    assert rm.tables.parquet(f"file://{table.path}").read(["shape"]).num_rows == 4
