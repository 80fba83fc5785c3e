"""A Spark for tests."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from rivermouth.spark.runtime.session import SHORT_LIVED, local_session

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def session(
    name: str = "tests",
    *,
    cores: int = 2,
    memory: str = "2g",
    conf: Mapping[str, str] | None = None,
) -> SparkSession:
    """A running session on this machine, bound to loopback, which only speaks of errors.

    Its JVM compiles quickly rather than well: many small queries take half the processor time. To
    measure, start Spark yourself. A session that runs in this process already is returned as Spark
    does it: with the settings that can still be changed.

    Parameters
    ----------
    name
        The application's name.
    cores
        How many tasks run at once; also the number of shuffle partitions.
    memory
        The JVM's heap. Python workers come on top of it.
    conf
        Spark settings that go before ours.

    Raises
    ------
    SessionError
        When there is no Spark or Java to run it on.
    """
    return local_session(name, cores=cores, memory=memory, conf=SHORT_LIVED | dict(conf or {}))
