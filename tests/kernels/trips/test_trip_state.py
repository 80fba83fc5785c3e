"""State that an earlier version wrote is read: a bucket stopped half-way, and what came after.

``tests/fixtures/persisted/trips/v1.json`` was written by `write`; where the state's meaning changes
a FORMAT is raised, the fixture stays, and this test expects the error.
"""

import base64
import json
from pathlib import Path

import pyarrow as pa
from tests.kernels.trips.test_trip_fold import buckets_of, plain, truth
from tests.support.trajectories import positions

from rivermouth.kernels.trips.segmentation import Segmentation
from rivermouth.testing.tracks import Fleet, arrivals, tracks

FIXTURE = Path(__file__).parents[2] / "fixtures" / "persisted" / "trips" / "v1.json"
SECOND = 1_000_000
HOW = Segmentation(gap=240 * SECOND, radius=30.5, duration=120 * SECOND)
LATENESS = 60


def write(path=FIXTURE):
    """The state after eleven batches of positions, and all positions."""
    made = arrivals(tracks(Fleet(silent=0.5), objects=5, seconds=2400, seed=9), lateness=LATENESS)
    rows = [
        [row["object"], "a", row["at"].timestamp(), round(row["x"], 1), round(row["y"], 1)]
        for row in made.to_pylist()
    ]
    bucket, found = buckets_of(HOW, lateness=LATENESS), []
    cut = 50 * 11
    for start in range(0, cut, 50):
        found += bucket.feed(positions(rows[start : start + 50]))
    store = {name: base64.b64encode(value).decode() for name, value in bucket.stores[0].items()}
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps({"rows": rows, "cut": cut, "found": len(found), "store": store}))


def test_state_of_the_first_version_goes_on():
    kept = json.loads(FIXTURE.read_text())
    bucket = buckets_of(HOW, lateness=LATENESS)
    bucket.stores = [{name: base64.b64decode(each) for name, each in kept["store"].items()}]
    found = bucket.feed(positions(kept["rows"][kept["cut"] :]))
    found += bucket.feed(positions([[9, "z", 2e9, 0.0, 0.0]]))
    found = plain(row for row in found if row["id"] != 9)
    expected = plain(truth(pa.Table.from_batches([positions(kept["rows"])]), HOW))
    assert len(found) + kept["found"] == len(expected)
    assert set(found) <= set(expected)
    assert len(found) > 5 < kept["found"]
