"""The checks of a session's settings: as they are, and what to do where it matters."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING

from rivermouth.cli.checks import Check
from rivermouth.spark.runtime.session import MOST_BUCKETS, ROCKSDB
from rivermouth.spark.runtime.versions import number

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

STORE = "spark.sql.streaming.stateStore.providerClass"
CHANGELOG = "spark.sql.streaming.stateStore.rocksdb.changelogCheckpointing.enabled"
PARTITIONS = "spark.sql.shuffle.partitions"
PIPELINED = "spark.python.udf.pipelined.enabled"
SOCKETS = "spark.python.unix.domain.socket.enabled"
#: what they are where nobody has set them
DEFAULTS = {STORE: "", CHANGELOG: "false", PARTITIONS: "200", PIPELINED: "false", SOCKETS: "false"}


def settings_of(spark: SparkSession) -> dict[str, str | None]:
    """What a session has of these settings."""
    return {name: spark.conf.get(name, default) for name, default in DEFAULTS.items()}


def session_settings(settings: Mapping[str, str | None], *, version: str) -> Iterator[Check]:
    """What `settings_of` has found in a session of a version of Spark."""
    yield state_store(settings[STORE] or "")
    yield changelog(settings[CHANGELOG] or "")
    yield partitions(int(settings[PARTITIONS] or 200))
    yield switch("Pipelined functions", settings[PIPELINED], version, since=(4, 3))
    yield switch("Unix domain sockets", settings[SOCKETS], version, since=(4, 1))
    found = "an option of each query without state, asyncProgressTrackingEnabled"
    yield Check("Asynchronous progress", "ok", found)


def state_store(store: str) -> Check:
    """Whether stateful operators can keep their state."""
    name = store.rpartition(".")[2] or "Spark's default"
    if store == ROCKSDB:
        return Check("State store", "ok", name)
    todo = f"Stateful operators need RocksDB: set {STORE}={ROCKSDB}"
    return Check("State store", "warning", name, todo)


def changelog(value: str) -> Check:
    """Whether a micro-batch writes what has changed, or the state's files."""
    if value.lower() == "true":
        return Check("Changelog checkpointing", "ok", "on")
    upload = "Micro-batches upload new files of RocksDB without it, not their changes alone"
    todo = f"{upload}: set {CHANGELOG}=true"
    return Check("Changelog checkpointing", "warning", "off", todo)


def partitions(count: int) -> Check:
    """Whether stateful operators have a use for so many tasks.

    Examples
    --------
    >>> partitions(8)
    Check(name='Shuffle partitions', state='ok', found='8', todo='')
    """
    if count <= MOST_BUCKETS:
        return Check("Shuffle partitions", "ok", str(count))
    todo = (
        f"Each micro-batch of a stateful operator opens as many state stores, and uses "
        f"{MOST_BUCKETS} at most: set {PARTITIONS} to the number of cores before a query's first "
        "start"
    )
    return Check("Shuffle partitions", "warning", str(count), todo)


def switch(name: str, value: str | None, version: str, *, since: tuple[int, int]) -> Check:
    """A setting that is on or off, and off by default.

    Examples
    --------
    >>> switch("Unix domain sockets", "true", "4.3.0", since=(4, 1)).found
    'on'
    >>> switch("Unix domain sockets", "", "4.0.5", since=(4, 1)).found
    'not before Spark 4.1'
    """
    if number(version) < since:
        return Check(name, "absent", f"not before Spark {since[0]}.{since[1]}")
    return Check(name, "ok", "on" if (value or "").lower() == "true" else "off")
