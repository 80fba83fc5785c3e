"""Snapshots of Delta and Iceberg tables: refreshed when there is a new version, and rolled back."""

import pyarrow as pa
import pytest
from deltalake import DeltaTable, write_deltalake
from pyiceberg.catalog import load_catalog

import rivermouth as rm
from rivermouth.tables.cache.snapshot import Snapshot, SnapshotSpec

ROWS = pa.table({"id": [1, 2, 3], "value": ["a", "b", "c"]})


class Delta:
    def __init__(self, folder):
        self._path = folder / "zones"
        write_deltalake(self._path, ROWS)
        self.table = rm.tables.delta(self._path)

    def append(self, rows):
        write_deltalake(self._path, rows, mode="append")

    def roll_back(self):
        DeltaTable(self._path).restore(0)

    def close(self):
        pass


class Iceberg:
    def __init__(self, folder):
        where = {"uri": f"sqlite:///{folder}/catalog.db", "warehouse": f"file://{folder}"}
        catalog = {"type": "sql", **where}
        self._catalog = load_catalog("default", **catalog)
        self._catalog.create_namespace("city")
        self._written = self._catalog.create_table("city.zones", schema=ROWS.schema)
        self._written.append(ROWS)
        self._first = self._written.current_snapshot().snapshot_id
        self.table = rm.tables.iceberg(catalog, "city.zones")

    def append(self, rows):
        self._written.append(rows)

    def close(self):
        self._catalog.close()

    def roll_back(self):
        self._written.manage_snapshots().rollback_to_snapshot(self._first).commit()


@pytest.mark.parametrize("kind", [Delta, Iceberg])
def test_a_new_version_is_read_an_old_one_again_and_the_same_one_not(tmp_path, kind):
    written, now = kind(tmp_path), [1000.0]
    spec = SnapshotSpec(written.table, written.table.schema(), keys=rm.keys("id"))
    cache = rm.full(refresh="10 seconds", max_age="30 seconds")

    def ids():
        now[0] += 31  # older than max_age: it is refreshed before it is used
        version = Snapshot(spec, cache, str(tmp_path / "snapshots"), lambda: now[0]).open()
        return sorted(version.rows["id"].to_pylist()), version.number

    first, unchanged = ids(), ids()
    assert first == unchanged  # the same version, confirmed, not read again
    written.append(pa.table({"id": [4], "value": ["d"]}))
    more = ids()
    assert (first[0], more[0]) == ([1, 2, 3], [1, 2, 3, 4])
    written.roll_back()
    back = ids()
    assert back[0] == [1, 2, 3]
    assert back[1] > more[1] > first[1]
    written.close()
