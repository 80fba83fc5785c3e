"""Python workers that see another folder than the driver: each operator says so, none runs on."""

from __future__ import annotations

import json
import subprocess
import sys

import pytest

pytestmark = pytest.mark.spark

# the session is local, but is taken for a cluster's: workers have mounts of their own here
QUERY = """
import json, sys
import pyarrow as pa
import pyarrow.parquet as pq
import rivermouth as rm
from rivermouth.spark.runtime import folders
from rivermouth.testing import frame, replay, session

folder, hidden, sys.executable = sys.argv[1:]  # workers are started by it
spark = session("mounts", memory="1g")
folders._master = lambda spark: "spark://host:7077"
pq.write_table(pa.table({"uid": [1, 2], "name": ["Ann", "Bob"]}), f"{folder}/users.parquet")
users = rm.tables.parquet(f"{folder}/users.parquet")
calls = frame(spark, '''
    who | uid long | at timestamp        | x double | y double
    ann | 1        | 2026-01-01 12:00:10 | 0        | 0
    bob | 2        | 2026-01-01 12:00:20 | 5        | 5
''')
other = calls.withColumnsRenamed({"who": "other", "at": "then"}).drop("uid")
summary = rm.summary(time="at", window=rm.tumbling("1 minute"), n=rm.count())


def ran(frame):
    query = frame.writeStream.format("memory").queryName("q").trigger(availableNow=True).start()
    query.awaitTermination()
    return spark.table("q").count()


def join(**how):
    return rm.join_table(replay(calls), users, on=rm.keys("uid"), **how)


cases = {
    "full": lambda path: ran(join(cache=rm.full(path=path))),
    "buckets": lambda path: ran(join(cache=rm.full(path=path, buckets=2))),
    "native": lambda path: ran(join(cache=rm.full(path=path), plan="native")),
    "batch": lambda path: rm.join_table(
        calls, users, on=rm.keys("uid"), cache=rm.full(path=path)).count(),
    "hotspot": lambda path: ran(join(
        cache=rm.incremental(), routing=rm.by_hotspot(path=path, partitions=2))),
    "skew": lambda path: ran(rm.join_interval(
        replay(calls), replay(other), on=rm.dwithin(rm.point("x", "y"), rm.point("x", "y"),
        distance=1.0), time=("at", "then"), between=("-1 minute", "1 minute"), columns=["other"],
        lateness="0 seconds", grid=rm.grid(cell=1.0, skew_path=path))),
    "snapshot": lambda path: rm.snapshot(calls, path).read(["who"]).num_rows,
    "exact": lambda path: rm.exact(
        replay(calls), summary, store=path + "/store", slack=rm.fixed("0 seconds"),
    ).start(availableNow=True).awaitTermination(),
}
out = {}
for name, case in cases.items():
    for kind, path in (("shared", f"{folder}/shared/{name}"), ("hidden", f"{hidden}/{name}")):
        try:
            out[f"{name} {kind}"] = case(path)
        except Exception as error:
            out[f"{name} {kind}"] = str(error)
print(json.dumps(out))
"""


def test_every_operator_finds_a_folder_that_is_not_shared(tmp_path):
    if subprocess.run(["unshare", "-m", "true"], capture_output=True, check=False).returncode:
        pytest.skip("mount namespaces need root")
    hidden = tmp_path / "hidden"
    hidden.mkdir()
    python = tmp_path / "python"
    python.write_text(
        "#!/bin/sh\n"
        f"exec unshare -m sh -c 'mount -t tmpfs none {hidden} && exec {sys.executable} \"$@\"' "
        'sh "$@"\n'
    )
    python.chmod(0o755)
    done = subprocess.run(
        [sys.executable, "-c", QUERY, str(tmp_path), str(hidden), str(python)],
        capture_output=True, text=True, timeout=500, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr[-6000:]
    out = json.loads(done.stdout.splitlines()[-1])
    for name in ("full", "buckets", "native", "batch", "hotspot", "skew", "snapshot"):
        assert out[f"{name} shared"] == 2, (name, out[f"{name} shared"])
    assert out["exact shared"] is True
    for name in ("full", "buckets", "native", "batch", "hotspot", "skew", "snapshot", "exact"):
        said = out[f"{name} hidden"]
        assert f"{hidden}/{name}" in said, (name, said)
        assert "is not the folder that the driver sees on host" in said, (name, said)
        assert "there is no such folder" in said, (name, said)
    assert not list(hidden.glob("snapshot/v*")), "nothing was written"
    assert not (hidden / "exact" / "store" / "definition.json").exists()
