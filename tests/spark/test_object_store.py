"""Every folder of a query on S3, by a real server: Spark writes through s3a, workers through s3."""

from __future__ import annotations

import json
import subprocess
import sys

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from tests.support.object_store import KEY, SECRET, object_store

pytestmark = [pytest.mark.server, pytest.mark.spark]

QUERY = """
import json, sys
import rivermouth as rm
from rivermouth.testing import frame, replay, rows, session

folder, settings, uris = sys.argv[1], json.loads(sys.argv[2]), json.loads(sys.argv[3])
spark = session("s3", memory="1g", conf=settings)
calls = frame(spark, '''
    who | uid long | at timestamp        | x double | y double
    ann | 1        | 2026-01-01 12:00:10 | 0        | 0
    bob | 2        | 2026-01-01 12:00:20 | 5        | 5
    cyd | 9        | 2026-01-01 12:00:40 | 0        | 0
''')
out = {}

users = rm.tables.parquet(uris["users"])
caches = {"full": rm.full(path=uris["snapshots"], refresh="1 hour"),
          "buckets": rm.full(path=uris["snapshots"], buckets=2)}
for name, cache in caches.items():
    joined = rm.join_table(replay(calls), users, on=rm.keys("uid"), cache=cache)
    query = joined.writeStream.format("memory").queryName(name).trigger(availableNow=True).start()
    query.awaitTermination()
    out[name] = rows(spark.table(name).select("who", "name"))
    out[name + " metrics"] = rm.metrics(query)  # shown, to be searched for secrets
    query.explain(True)  # printed
routed = rm.join_table(
    replay(calls, cuts=1), users, on=rm.keys("uid"), cache=rm.incremental(),
    routing=rm.by_hotspot(path=uris["routing"], cycle=1, partitions=2),
)
query = routed.writeStream.format("memory").queryName("routed").trigger(availableNow=True).start()
query.awaitTermination()
out["routed"] = rows(spark.table("routed").select("who", "name"))

table = rm.snapshot(spark.createDataFrame([(1, "Ann"), (2, "Bob")], "uid long, name string"),
                    uris["published"])
out["table"] = repr(table)
out["published"] = rows(rm.join_table(calls, table, on=rm.keys("uid")).select("who", "name"))

near = rm.join_interval(
    replay(calls), replay(calls).withColumnsRenamed({"who": "other", "at": "then"}).drop("uid"),
    on=rm.dwithin(rm.point("x", "y"), rm.point("x", "y"), distance=1.0), time=("at", "then"),
    between=("-1 minute", "-1 second"), columns=["other"], lateness="0 seconds",
    grid=rm.grid(cell=1.0, skew_path=uris["skew"]),
)
query = near.writeStream.format("memory").queryName("near").trigger(availableNow=True).start()
query.awaitTermination()
out["near"] = rows(spark.table("near").select("who", "other"))

summary = rm.summary(time="at", window=rm.tumbling("1 minute"), n=rm.count(), total=rm.sum("uid"))
job = rm.exact(replay(calls, cuts=3), summary, store=uris["store"], slack=rm.fixed("0 seconds"))
running = job.start(availableNow=True)
running.awaitTermination()
out["job"] = repr(job)
out["exact"] = rows(running.results().select("n", "total", "status"))
again = job.start(availableNow=True)  # resumes from the store
again.awaitTermination()
out["again"] = rows(again.results().select("n", "total", "status"))
print(json.dumps(out, default=str))
"""


@pytest.mark.since("4.2")  # the jars are of that version's Hadoop
def test_every_folder_can_be_on_s3(tmp_path):
    with object_store() as (store, _):
        with store.files.open_output_stream(f"{store.bucket}/users/part.parquet") as file:
            pq.write_table(pa.table({"uid": [1, 2], "name": ["Ann", "Bob"]}), file)
        named = {name: store.uri(name) for name in ("users", "snapshots", "routing", "skew")}
        both = {name: store.uri(name, "s3a") for name in ("published", "store")}
        arguments = [str(tmp_path), store.spark_settings(), {**named, **both}]
        done = subprocess.run(
            [sys.executable, "-c", QUERY, arguments[0], *map(json.dumps, arguments[1:])],
            capture_output=True, text=True, timeout=500, check=False,
        )  # fmt: skip
        assert done.returncode == 0, done.stderr[-6000:]
        out = json.loads(done.stdout.splitlines()[-1])
        pairs = [{"who": "ann", "name": "Ann"}, {"who": "bob", "name": "Bob"}]
        for name in ("full", "buckets", "routed", "published"):
            assert sorted(out[name], key=str) == sorted(pairs, key=str), name
        assert out["near"] == [{"who": "cyd", "other": "ann"}]
        assert out["exact"] == out["again"] == [{"n": 3, "total": 12, "status": "exact"}]
        assert any(name.endswith("/rule.json") for name in store.names("routing"))
        assert {"CURRENT.json"} < set(store.names("published"))
        written = store.names("store")
        assert "definition.json" in written
        assert "batches/000000000000.arrow" in written
        assert any(name.startswith("checkpoint/commits/") for name in written)
        shown = done.stdout + done.stderr
        assert not any(secret in shown for secret in (KEY, SECRET, SECRET.replace("/", "%2F")))
