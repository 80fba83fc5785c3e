"""A table in buckets by place, without Spark: read once, cut evenly, later versions cut alike."""

from dataclasses import dataclass, field

import numpy as np
import pyarrow as pa
import pytest
import shapely
from tests.support.far_folder import share

import rivermouth as rm
from rivermouth.errors import TableInvalid
from rivermouth.tables.cache import place_buckets
from rivermouth.tables.cache.snapshot import Snapshot, SnapshotSpec
from rivermouth.tables.source import geometry_field

SCHEMA = pa.schema([("name", pa.string()), geometry_field("shape")])
ON = rm.intersects("here", "shape")


@dataclass(frozen=True)
class Scanned:
    """A table of batches that are made as they are asked for, which notes what is asked."""

    make: object
    count: int = 40
    scans: list = field(default_factory=list, compare=False, hash=False)
    lost: list = field(default_factory=list, compare=False, hash=False)
    alive: list = field(default_factory=list, compare=False, hash=False)
    name: str = "shapes"
    identity: str = "shapes"

    def schema(self):
        return SCHEMA

    def read(self, columns):
        raise AssertionError("a table that can be read in pieces is never held whole")

    def scan(self, columns, use):
        self.scans.append(0)
        try:
            return use(self._batches(columns))
        except ConnectionError:
            return use(self._batches(columns))

    def _batches(self, columns):
        for number in range(self.count):
            if self.lost and number == self.count // 2:
                raise self.lost.pop()
            self.scans[-1] += 1
            self.alive.append(pa.total_allocated_bytes())
            yield pa.RecordBatch.from_pylist(self.make(number), SCHEMA).select(columns)


def squares(number, shift=0.0):
    """Twenty squares, most of them near the origin and some of many bytes; the last has none."""
    rng = np.random.default_rng(number)
    low = shift + rng.exponential(1.0, (20, 2)) ** 2
    made = [
        {
            "name": f"{number}-{n}" + "x" * (int(rng.exponential(3)) ** 4),
            "shape": shapely.box(x, y, x + 0.05, y + 0.05).wkb,
        }
        for n, (x, y) in enumerate(low)
    ]
    return [*made, {"name": f"{number}-none", "shape": None}]


def spec(source, count):
    return SnapshotSpec(source, SCHEMA, spatial=ON, buckets=count)


def rows(found, count):
    """The rows of each bucket by name, each name's shape as often as it is there."""
    return {bucket: found.open(bucket).rows.to_pylist() for bucket in range(count)}


def everything(source):
    return [row for number in range(source.count) for row in source.make(number) if row["shape"]]


@pytest.mark.parametrize("count", [1, 3, 8])
def test_every_shape_is_in_each_bucket_that_it_meets(tmp_path, count):
    source = Scanned(squares)
    found = Snapshot(spec(source, count), rm.full(buckets=count), str(tmp_path))
    made, cut = everything(source), found.cut()
    boxes = shapely.bounds(shapely.from_wkb([row["shape"] for row in made]))
    of = {bucket: [made[row] for row in chosen] for bucket, chosen in cut.parts(boxes)}
    assert rows(found, count) == {bucket: of.get(bucket, []) for bucket in range(count)}
    assert source.scans == [40], "read once"
    assert not list(tmp_path.rglob("spill*"))
    sizes = [sum(len(r["name"]) + 97 for r in bucket) for bucket in of.values()]
    assert max(sizes) < 1.6 * np.mean(sizes)


def test_a_table_is_written_without_being_held(tmp_path, monkeypatch):
    """Neither what comes from the store nor what is spilled is in memory as a whole."""
    monkeypatch.setattr(place_buckets, "_PIECE", 200_000)

    def wide(number):
        return [{**row, "name": row["name"] + 4000 * "y"} for row in squares(number)]

    source = Scanned(wide, count=100)
    before = pa.total_allocated_bytes()
    Snapshot(spec(source, 4), rm.full(buckets=4), str(tmp_path))
    total = sum(len(row["name"]) for row in everything(source))
    assert total > 8_000_000
    assert max(source.alive) - before < 2_000_000
    assert source.scans == [100]


def test_a_scan_that_begins_again_writes_each_row_once(tmp_path, monkeypatch):
    monkeypatch.setattr(place_buckets, "_PIECE", 1000)
    whole = Scanned(squares)
    expected = rows(Snapshot(spec(whole, 3), rm.full(buckets=3), str(tmp_path / "a")), 3)
    source = Scanned(squares, lost=[ConnectionError()])
    cache = rm.full(max_age="10 seconds", buckets=3)
    found = Snapshot(spec(source, 3), cache, str(tmp_path / "b"), lambda: 1000.0)
    assert rows(found, 3) == expected
    source.lost.append(ConnectionError())  # and where the cut is known
    later = Snapshot(spec(source, 3), cache, str(tmp_path / "b"), lambda: 1011.0)
    assert later.open(0).number > found.open(0).number
    assert rows(later, 3) == expected


def test_a_later_version_is_cut_as_the_first_so_that_routes_stay(tmp_path):
    shift = [0.0]
    source = Scanned(lambda number: squares(number, shift[0]))
    cache = rm.full(max_age="10 seconds", buckets=4)
    first = Snapshot(spec(source, 4), cache, str(tmp_path), lambda: 1000.0)
    shift[0] = 3.0
    second = Snapshot(spec(source, 4), cache, str(tmp_path), lambda: 1011.0)
    assert second.cut().described() == first.cut().described()
    names = {row["name"] for bucket in rows(second, 4).values() for row in bucket}
    assert names == {row["name"] for row in everything(source)}
    moved = min(
        shapely.from_wkb(row["shape"]).bounds[0]
        for bucket in rows(second, 4).values()
        for row in bucket
    )
    assert moved >= 3.0


def test_a_host_fetches_the_cut_and_the_parts_it_needs(tmp_path, monkeypatch):
    far = share(tmp_path / "shared", monkeypatch)
    source, cuts = Scanned(squares), []
    for host, bucket in (("a", 1), ("b", 3)):
        monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / host))
        found = Snapshot(spec(source, 4), rm.full(buckets=4), far)
        cuts.append(found.cut().described())
        assert found.open(bucket).rows.num_rows
        here = [path.name for path in (tmp_path / host).rglob("0000?*")]
        assert all(name.startswith(f"{bucket:05d}") for name in here)
    assert cuts[0] == cuts[1]
    assert len(source.scans) == 1
    assert len(list((tmp_path / "shared").rglob("*.arrow"))) == 4


def test_a_table_without_rows_is_in_empty_buckets(tmp_path):
    found = Snapshot(spec(Scanned(squares, count=0), 5), rm.full(buckets=5), str(tmp_path))
    assert rows(found, 5) == {bucket: [] for bucket in range(5)}


def test_a_shape_that_is_not_valid_is_found_when_the_table_is_read(tmp_path, monkeypatch):
    monkeypatch.setattr(place_buckets, "_PIECE", 1)
    bow = shapely.from_wkt("POLYGON ((0 0, 1 1, 1 0, 0 1, 0 0))").wkb
    source = Scanned(lambda n: [{"name": "a", "shape": bow if n == 7 else None}] * 2, count=9)
    with pytest.raises(TableInvalid, match=r"2 geometries of column 'shape' .* row 14: Self-inter"):
        Snapshot(spec(source, 2), rm.full(buckets=2), str(tmp_path))
