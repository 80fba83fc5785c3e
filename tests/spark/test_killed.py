"""A stream killed in mid-run and started again gives the same output, each row once."""

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import shapely
from tests.support.killing import KILLS, kill_and_finish, output

pytestmark = [pytest.mark.spark]

FILES, ROWS = 8 * KILLS + 4, 40  # a kill lets one to six batches pass

QUERY = """
import sys, time
import rivermouth as rm
from rivermouth.testing import session

folder = sys.argv[1]
spark = session("killed", memory="1g")
events = (
    spark.readStream.schema("id long, x double, y double")
    .option("maxFilesPerTrigger", 1).parquet(f"{folder}/events")
)
joined = rm.join_table(
    events, rm.tables.parquet(f"{folder}/zones.parquet", geometry="shape"),
    on=rm.intersects(rm.point("x", "y"), "shape"), how="left", columns=["zone"],
    cache=rm.full(path=f"{folder}/snapshots"),
)
query = (
    joined.writeStream.format("parquet").option("path", f"{folder}/out")
    .option("checkpointLocation", f"{folder}/checkpoint").trigger(availableNow=True).start()
)
print("started", flush=True)
query.awaitTermination()
print("ended", flush=True)
"""


@pytest.fixture
def folder(tmp_path):
    (tmp_path / "events").mkdir()
    zones = pa.table(
        {
            "zone": ["west", "east"],
            "shape": [shapely.box(0, 0, 5, 9).wkb, shapely.box(5, 0, 9, 9).wkb],
        }
    )
    pq.write_table(zones, tmp_path / "zones.parquet")
    for number in range(FILES):
        ids = range(number * ROWS, (number + 1) * ROWS)
        part = {"id": list(ids), "x": [float(i % 11) for i in ids], "y": [1.0] * ROWS}
        pq.write_table(pa.table(part), tmp_path / "events" / f"{number:04}.parquet")
    return tmp_path


@pytest.mark.timeout(3600)
def test_killed_and_started_again_each_row_comes_once(folder):
    kill_and_finish(QUERY, folder, seed=1)
    zones: dict[int, list[str | None]] = {0: ["west"], 1: ["west", "east"], 2: ["east"], 3: [None]}
    expected = sorted(
        (i, zone)
        for i in range(FILES * ROWS)
        for zone in zones[(i % 11 >= 5) + (i % 11 > 5) + (i % 11 > 9)]
    )
    found = [(row["id"], row["zone"]) for row in output(folder / "out")]
    assert sorted(found, key=str) == sorted(expected, key=str)
