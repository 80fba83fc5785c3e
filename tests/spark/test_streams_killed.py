"""A stream join that salts skewed cells, killed again and again: each pair once in the end."""

import os

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from tests.support.killing import KILLS, kill_and_finish, output

import rivermouth as rm
from rivermouth.tables.skew.salting_store import SaltingStore
from rivermouth.testing.stream_joins import join_interval

pytestmark = [pytest.mark.spark, pytest.mark.slow]

FILES, ROWS = 4 * KILLS + 8, 60  # a kill lets one to three batches pass
ON = 'rm.dwithin(rm.point("x", "y"), rm.point("x", "y"), distance=DISTANCE)'

BETWEEN = ("-20 seconds", "5 seconds")
QUERY = f"""
import sys
import rivermouth as rm
from rivermouth.testing import session

folder = sys.argv[1]
spark = session("killed", memory="1g")

def read(side):
    schema = f"{{side}} long, at timestamp, x double, y double"
    source = spark.readStream.schema(schema).option("maxFilesPerTrigger", 1)
    return source.parquet(f"{{folder}}/{{side}}")

joined = rm.join_interval(
    read("l"), read("r"), on={ON}, time="at", between={BETWEEN}, how=HOW,
    columns=COLUMNS, lateness="5 seconds", buckets=4,
    grid=rm.grid(skew_path=f"{{folder}}/skew") if DISTANCE else None,  # a full join takes none
)
query = (
    joined.select("l", *(COLUMNS or [])).writeStream.format("parquet")
    .option("path", f"{{folder}}/out").option("checkpointLocation", f"{{folder}}/checkpoint")
    .trigger(availableNow=True).start()
)
print("started", flush=True)
query.awaitTermination()
print("ended", flush=True)
"""


def side(name, seed):
    """Ten seconds a file, out of order by up to five; the last row moves the clock past all."""
    rng = np.random.default_rng(seed)
    count = FILES * ROWS
    seconds = np.arange(count) / ROWS * 10
    arrived = np.argsort(seconds + rng.uniform(0, 4.9, count), kind="stable")
    xy = rng.integers(0, 12, (count, 2)).astype(float)
    table = pa.table(
        {
            name: pa.array(arrived),
            "at": pa.array((seconds[arrived] * 1e6).astype(np.int64)).cast(
                pa.timestamp("us", "UTC")
            ),
            "x": xy[arrived, 0],
            "y": xy[arrived, 1],
        }
    )
    last = {name: [-1], "at": [10**12], "x": [500.0 * seed], "y": [0.0]}
    return pa.concat_tables([table, pa.table(last).cast(table.schema)])


@pytest.fixture
def folder(tmp_path):
    for name, seed in (("l", 1), ("r", 2)):
        (tmp_path / name).mkdir()
        rows = side(name, seed)
        for number in range(FILES):
            size = ROWS + 1 if number == FILES - 1 else ROWS
            part = rows.slice(number * ROWS, size)
            file = tmp_path / name / f"{number:04}.parquet"
            pq.write_table(part, file)
            os.utime(file, (number, number))  # Spark reads files by age, not by name
    return tmp_path


@pytest.mark.timeout(3600)
@pytest.mark.parametrize(("how", "distance"), [("left", 2), ("full", 0), ("semi", 0), ("anti", 0)])
def test_killed_again_and_again_each_row_comes_once(how, distance, folder):
    """Within 2 cells are salted and all rows have partners; at the same point many have none."""
    columns = None if how in ("semi", "anti") else ["r"]
    given = f"HOW, COLUMNS, DISTANCE = {how!r}, {columns!r}, {distance}\n"
    kill_and_finish(given + QUERY, folder, seed=1)
    sides = [side(name, seed).to_pylist() for name, seed in (("l", 1), ("r", 2))]
    truth = join_interval(
        *sides, on=eval(ON, {"rm": rm, "DISTANCE": distance}), time="at", between=BETWEEN,
        how=how, columns=columns,
    )  # fmt: skip
    last = (-1, None)  # the rows that close all: nothing closes their own times
    expected = [row for each in truth if (row := _ids(each)) not in (last, last[::-1], last[:1])]
    found = [_ids(row) for row in output(folder / "out")]
    assert len(found) > (100 if columns is None else 1000)
    if distance:
        store = SaltingStore(str(folder / "skew"), 4, where="test")
        assert store.schedule(FILES).changes  # some cells were salted
    assert sorted(found, key=str) == sorted(expected, key=str)


def _ids(row):
    """The numbers of the rows that a joined one is made of."""
    return tuple(row[name] for name in ("l", "r") if name in row)
