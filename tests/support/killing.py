"""Queries in processes of their own, killed with -9 at random points and started again."""

from __future__ import annotations

import json
import os
import pathlib
import random
import signal
import subprocess
import sys
import time
from typing import Any

import pyarrow.parquet as pq

#: how often a test kills its query; `make test-kills` asks for more
KILLS = int(os.environ.get("RIVERMOUTH_KILLS", "1"))


def kill_and_finish(script: str, folder: pathlib.Path, *, seed: int, kills: int = KILLS) -> None:
    """Run `script` with `folder` as its argument, kill it `kills` times, then let it end.

    The script prints ``started`` once its query runs and ``ended`` at its end. The query's
    checkpoint is a folder ``checkpoint`` in `folder` or in a folder of it. A kill falls into the
    time after the next batch was committed, anywhere within a batch or so.
    """
    rng = random.Random(seed)
    for _ in range(kills):
        process = _start(script, folder)
        assert process.stdout is not None
        assert process.stdout.readline() == "started\n"
        target, deadline = committed_batches(folder) + 1, time.monotonic() + 120
        while (
            committed_batches(folder) < target
            and process.poll() is None
            and time.monotonic() < deadline
        ):
            time.sleep(0.02)
        time.sleep(rng.uniform(0, 1.5))
        assert process.poll() is None, "the kills must fall in the middle of the work"
        os.killpg(process.pid, signal.SIGKILL)
        process.wait()
        process.stdout.close()
    last = _start(script, folder)
    assert last.communicate(timeout=600)[0] == "started\nended\n"


def _start(script: str, folder: pathlib.Path) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-c", script, str(folder)],
        stdout=subprocess.PIPE,
        text=True,
        start_new_session=True,  # driver, JVM and workers die together
    )


def committed_batches(folder: pathlib.Path) -> int:
    """How many batches the query has committed."""
    # no deeper: folders of snapshots come and go while this looks
    found = (*folder.glob("checkpoint/commits/*"), *folder.glob("*/checkpoint/commits/*"))
    return sum(1 for file in found if file.name.isdigit())


def files_by_batch(checkpoint: pathlib.Path) -> list[list[str]]:
    """The names of the files that each micro-batch of a query over one folder of files read.

    A query that is killed between the file source's log and its own reads the file that the first
    one names together with the next: ``maxFilesPerTrigger`` does not bound what runs again.
    """
    names: dict[int, list[str]] = {}
    for entry in _log_entries(checkpoint / "sources" / "0"):
        name = entry["path"].rpartition("/")[2]
        if name not in (known := names.setdefault(entry["batchId"], [])):
            known.append(name)  # a compacted log repeats what it compacts
    found, begin = [], 0
    numbered = [file for file in (checkpoint / "offsets").iterdir() if file.name.isdigit()]
    for file in sorted(numbered, key=lambda file: int(file.name)):
        end = json.loads(file.read_text().splitlines()[-1])["logOffset"] + 1
        found.append([name for number in range(begin, end) for name in names.get(number, ())])
        begin = end
    return found


def output(sink: pathlib.Path) -> list[dict[str, object]]:
    """What a reader of a Parquet file sink sees: the rows of the files that its log names."""
    entries = _log_entries(sink / "_spark_metadata")
    names = {entry["path"].removeprefix("file://") for entry in entries}
    return pq.read_table(sorted(names)).to_pylist()


def _log_entries(log: pathlib.Path) -> list[dict[str, Any]]:
    """What a metadata log of Spark's says, compacted or not: a version, then an entry a line."""
    files = (file for file in log.iterdir() if file.name[0] != ".")
    return [json.loads(line) for file in files for line in file.read_text().splitlines()[1:]]
