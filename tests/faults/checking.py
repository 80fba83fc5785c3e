"""Reads what a campaign's sink got, and compares it with the slow, obvious answer."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from tests.faults.inputs import END, table
from tests.faults.queries import DISTANCE, REACH

from rivermouth.observe.reports import batch

WINDOW = 10_000_000  # microseconds
Row = tuple[Any, ...]


@dataclass(frozen=True)
class Fed:
    """The records of both streams, but for those that close all windows."""

    events: pa.Table
    others: pa.Table


@dataclass(frozen=True)
class Verdict:
    """What was found: how many rows were compared, and what is wrong with them."""

    rows: int
    violations: list[str]


def check(workload: str, folder: Path, fed: Fed) -> Verdict:
    """Compare what is in `folder` with what the fed records give."""
    if workload == "exact":
        return _check_exact(folder, fed)
    by_batch = dict(rows_by_batch(folder / "out"))
    found = [row for rows in by_batch.values() for row in rows]
    violations = [
        *differences((_key(workload, row) for row in found), EXPECTED[workload](fed)),
        *check_metrics(folder, workload),
    ]
    if workload == "refresh":
        violations += check_versions(by_batch)
    return Verdict(len(found), violations)


def rows_by_batch(sink: Path) -> Iterator[tuple[int, list[dict[str, Any]]]]:
    """The rows of each micro-batch, by the sink's log, which is not compacted here."""
    for log in (sink / "_spark_metadata").iterdir():
        if log.name.isdigit():
            entries = [json.loads(line) for line in log.read_text().splitlines()[1:]]
            files = [sink / entry["path"].rpartition("/")[2] for entry in entries]
            yield int(log.name), [row for file in files for row in pq.read_table(file).to_pylist()]


def differences(found: Iterable[Row], expected: Iterable[Row]) -> list[str]:
    """What is missing, what is too many, and what should not be there at all."""
    have, want = Counter(found), Counter(expected)
    said = []
    for name, rows in (("missing", want - have), ("not expected", have - want)):
        if rows:
            examples = sorted(map(str, rows))[:5]
            said.append(f"{sum(rows.values())} rows {name}: {', '.join(examples)}")
    return said


def check_versions(by_batch: dict[int, list[dict[str, Any]]]) -> list[str]:
    """One version of the table in each micro-batch, later ones not older, and rows of that one."""
    said, newest = [], -1
    for number, rows in sorted(by_batch.items()):
        versions = {row["version"] for row in rows if row["version"] is not None}
        if len(versions) > 1:
            said.append(f"batch {number} has rows of versions {sorted(versions)}")
        if versions and min(versions) < newest:
            said.append(f"batch {number} has version {min(versions)} after {newest}")
        newest = max(newest, *versions) if versions else newest
        for row in rows:
            name = None if row["version"] is None else f"{row['key']}@{row['version']}"
            if row["name"] != name:
                said.append(f"batch {number} has {row}")
    return said


def check_metrics(folder: Path, workload: str) -> list[str]:
    """The metrics of each batch add up, and count the rows that its sink got."""
    if workload == "spark_aggregate":
        return []
    said = []
    written = {number: len(rows) for number, rows in rows_by_batch(folder / "out")}
    for file in (folder / "progress").glob("*.json"):
        report = json.loads(file.read_text())
        for source in report["sources"]:
            source.setdefault("metrics", {})  # Spark's JSON leaves out what is empty
        found = batch(report)
        for name, operator in found["operators"].items():
            counts, rejected = operator["counts"], sum(operator["rejected"].values())
            if report["numInputRows"] == 0 and not counts:
                continue  # started again, Spark leaves out the batch that its sink has already
            what = f"batch {found['batch']}, {name}: {counts}"
            if counts.get("late") or counts.get("future") or rejected:
                said.append(f"{what} and {rejected} rejected, where none should be")
            if "on_time" in counts and counts["on_time"] != counts["rows_in"]:
                said.append(f"{what}: rows in are not on time")
            if counts.get("rows_out", 0) != written.get(found["batch"], 0):
                said.append(f"{what}: {written.get(found['batch'], 0)} rows are in the sink")
    return said


def _key(workload: str, row: dict[str, Any]) -> Row:
    if workload == "refresh":
        return (row["id"], row["key"], row["name"] is not None)
    if workload in ("aggregate", "spark_aggregate"):
        return (row["key"], _micros(row["window_start"]), row["n"], row["total"])
    if workload == "hotspots":
        return (row["id"], row["key"], row["name"])
    return (row["id"], row["other"])


def _refreshed(fed: Fed) -> Iterator[Row]:
    for number, key in zip(*_columns(fed.events, "id", "key"), strict=True):
        yield number, key, key % 3 != 0
    yield _last_id(fed), -1, False


def _named(fed: Fed) -> Iterator[Row]:
    names = dict(zip(*(table(0).column(name).to_pylist() for name in ("key", "name")), strict=True))
    for number, key in zip(*_columns(fed.events, "id", "key"), strict=True):
        if key in names:
            yield number, key, names[key]


def _paired(fed: Fed, is_pair: Callable[[np.ndarray, np.ndarray], np.ndarray]) -> Iterator[Row]:
    """All pairs that are near each other and whose times pass; the closing records pair alone."""
    left, right = (
        {name: each.column(name).to_numpy() for name in ("id", "x", "y")} | {"at": _times(each)}
        for each in (fed.events, fed.others)
    )
    for at in range(len(left["id"])):
        near = np.hypot(right["x"] - left["x"][at], right["y"] - left["y"][at]) <= DISTANCE
        for k in np.flatnonzero(near & is_pair(left["at"][at], right["at"])):
            yield int(left["id"][at]), int(right["id"][k])


def _in_interval(fed: Fed) -> Iterator[Row]:
    yield from _paired(fed, lambda at, then: (then <= at) & (then >= at - REACH * 1_000_000))
    yield _last_id(fed), _last_id(fed)


def _in_window(fed: Fed) -> Iterator[Row]:
    yield from _paired(fed, lambda at, then: at // WINDOW == then // WINDOW)


def _summed(fed: Fed, time: str = "at") -> Iterator[Row]:
    sums: dict[tuple[int, int], list[int]] = {}
    keys, values = _columns(fed.events, "key", "value")
    for key, at, value in zip(keys, _times(fed.events, time).tolist(), values, strict=True):
        window = sums.setdefault((key, at // WINDOW * WINDOW), [0, 0])
        window[0] += 1
        window[1] += value
    for (key, start), (count, total) in sums.items():
        yield key, start, count, total


EXPECTED: dict[str, Callable[[Fed], Iterator[Row]]] = {
    "refresh": _refreshed,
    "hotspots": _named,
    "interval": _in_interval,
    "window": _in_window,
    "aggregate": _summed,
    "spark_aggregate": _summed,
}


def _check_exact(folder: Path, fed: Fed) -> Verdict:
    """Final results equal to recomputation, all exact; revisions rise by one."""
    results = pq.read_table(folder / "results").to_pylist()
    rows = [row for row in results if _micros(row["window_start"]) < END * 1_000_000 - WINDOW]
    found = ((row["key"], _micros(row["window_start"]), row["n"], row["total"]) for row in rows)
    said = differences(found, _summed(fed, "sent"))
    if early := [row for row in rows if row["status"] != "exact"]:
        said.append(f"{len(early)} results are not exact, as {early[0]}")
    return Verdict(len(rows), said + check_revisions(pq.read_table(folder / "changelog")))


def check_revisions(changes: pa.Table) -> list[str]:
    """Every window's revisions rise, and its first change is an insert."""
    said = []
    windows: dict[Row, list[dict[str, Any]]] = {}
    for row in changes.sort_by([("emitted", "ascending"), ("revision", "ascending")]).to_pylist():
        windows.setdefault((row["key"], row["window_start"]), []).append(row)
    for window, rows in windows.items():
        revisions = [row["revision"] for row in rows]
        if revisions != sorted(set(revisions)):
            said.append(f"{window} has the revisions {revisions}")
        if rows[0]["change"] != "insert":
            said.append(f"{window} begins with {rows[0]['change']}")
    return said


def _columns(rows: pa.Table, *names: str) -> tuple[list[int], ...]:
    return tuple(rows.column(name).to_pylist() for name in names)


def _times(rows: pa.Table, name: str = "at") -> np.ndarray:
    return np.asarray(pc.cast(rows.column(name), pa.int64()).to_numpy())


def _last_id(fed: Fed) -> int:
    """The number of the record that closes all windows."""
    return fed.events.num_rows


def _micros(time: Any) -> int:
    return int(np.datetime64(time.replace(tzinfo=None), "us").astype(np.int64))
