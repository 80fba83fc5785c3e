"""The versions of Spark that run rivermouth, and what each of them lacks.

A version's own limits are told apart here and nowhere else. With Spark Connect two versions count:
the client's, which is the installed PySpark's, and the server's. What one of them lacks cannot be
used.
"""

from __future__ import annotations

import importlib
import importlib.util
import os
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow as pa

from rivermouth.errors import SessionError

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.types import StructType

OLDEST, NEWEST = (4, 0), (4, 3)
RANGE = f"{OLDEST[0]}.{OLDEST[1]} to {NEWEST[0]}.{NEWEST[1]}"


@dataclass(frozen=True)
class Feature:
    """Something that not every version has.

    Parameters
    ----------
    name
        As in "the type GEOMETRY".
    since
        The first version that has it.
    instead
        What to do without it, a sentence.
    """

    name: str
    since: tuple[int, int]
    instead: str


GEOMETRY = Feature(
    "the type GEOMETRY", (4, 2), "Keep geometries as WKB, in a binary column: geometry columns of "
    "tables and frames may always be binary.",
)  # fmt: skip
REAL_TIME = Feature(
    "real-time mode from Python", (4, 2), "Use micro-batches: trigger(processingTime=...).",
)  # fmt: skip
ARROW_FUNCTIONS = Feature(
    "a function over Arrow arrays (arrow_udf)", (4, 1),
    "Join with rm.join_table(..., plan='workers').",
)  # fmt: skip
FEATURES = (GEOMETRY, REAL_TIME, ARROW_FUNCTIONS)


def number(version: str) -> tuple[int, int]:
    """Major and minor version.

    Examples
    --------
    >>> [number(text) for text in ("4.3.0", "4.1.0.dev2", "4.10.0-SNAPSHOT")]
    [(4, 3), (4, 1), (4, 10)]
    """
    major, minor = re.findall(r"\d+", version)[:2]
    return int(major), int(minor)


def lacking(*versions: str) -> list[Feature]:
    """What at least one of these versions lacks.

    Examples
    --------
    >>> [feature.name for feature in lacking("4.0.5")]
    ['the type GEOMETRY', 'real-time mode from Python', 'a function over Arrow arrays (arrow_udf)']
    >>> lacking("4.3.0")
    []
    """
    return [each for each in FEATURES if min(map(number, versions)) < each.since]


def newest_java() -> int | None:
    """The newest Java that the installed Spark runs on; None: no limit is known, or no Spark.

    The Hadoop of Spark 4.0 and 4.1 calls what Java 24 has taken away.
    """
    if importlib.util.find_spec("pyspark") is None:
        return None
    return 23 if number(installed()) < (4, 2) else None


def common(spark: SparkSession) -> tuple[int, int]:
    """The older of the session's two versions, the client's and the server's."""
    return min(number(installed()), number(spark.version))


#: what makes batches of a group's key and batches; at least one
GroupWork = Callable[
    [tuple[pa.Scalar, ...], Iterator[pa.RecordBatch]],
    Iterator[pa.RecordBatch],
]


def apply_in_arrow(frame: DataFrame, by: str, work: GroupWork, schema: StructType) -> DataFrame:
    """What `work` makes of the rows of each group, batch by batch.

    Spark 4.0 has no form of ``applyInArrow`` that takes and gives batches: a group's whole result
    is held in memory there.
    """
    if common(frame.sparkSession) >= (4, 1):
        return frame.groupBy(by).applyInArrow(work, schema)

    def whole(key: tuple[pa.Scalar, ...], rows: pa.Table) -> pa.Table:
        return pa.Table.from_batches(list(work(key, iter(rows.to_batches()))))

    return frame.groupBy(by).applyInArrow(whole, schema)


def require(spark: SparkSession, feature: Feature, *, where: str) -> None:
    """See that the session has a feature.

    Raises
    ------
    SessionError
        With the version that lacks it, the client's or the server's, and what to do instead.
    """
    here, there = installed(), spark.version
    if feature not in lacking(here, there):
        return
    first = ".".join(map(str, feature.since))
    found = f"this is {there}" if here == there else f"the server is {there}, the client {here}"
    raise SessionError(
        where,
        f"{feature.name} needs Spark {first} or newer",
        there=found,
        todo=feature.instead,
    )


def installed() -> str:
    """The version of the PySpark that can be imported.

    Raises
    ------
    SessionError
        When there is none, or one that is too old. A newer one than was tried is not refused.
    """
    if importlib.util.find_spec("pyspark") is None:
        raise SessionError(
            "rivermouth",
            "there is no PySpark to run on",
            there="rivermouth leaves it to you, so as not to replace a platform's own",
            todo=f"That of SPARK_HOME: export PYTHONPATH={path}"
            if (path := os.pathsep.join(_of_spark_home()))
            else 'Where there is no Spark: pip install "rivermouth[spark]". As a client of Spark '
            'Connect: pip install "rivermouth[client]". On a platform, use its own Python.',
        )
    version: str = importlib.import_module("pyspark").__version__
    if number(version) < OLDEST:
        raise SessionError(
            "rivermouth",
            f"PySpark {version} is too old",
            there=f"it runs on Spark {RANGE}",
            todo='Install a newer one: pip install "rivermouth[spark]", in an environment of its '
            "own where the platform's Spark is older.",
        )
    return version


def _of_spark_home() -> list[str]:
    """PySpark and Py4J of the Spark that ``SPARK_HOME`` names, as ``spark-submit`` finds them."""
    home = os.environ.get("SPARK_HOME")
    return sorted(map(str, Path(home, "python", "lib").glob("*.zip"))) if home else []


def check_local() -> None:
    """See that the installed PySpark can start a Spark, which a mere client cannot.

    Raises
    ------
    SessionError
        As `installed`, and where PySpark is a client of Spark Connect.
    """
    installed()
    if importlib.util.find_spec("pyspark.core") is None:
        raise SessionError(
            "rivermouth",
            "the installed PySpark is a client of Spark Connect and starts no Spark",
            todo='Connect to a server: SparkSession.builder.remote("sc://HOST:PORT"); or replace '
            'it: pip uninstall pyspark-client, then pip install "rivermouth[spark]".',
        )
