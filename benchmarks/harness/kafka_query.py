"""The query of a latency run: Kafka, one case, Kafka.

``python -m benchmarks.harness.kafka_query ...`` runs one in a process of its own, until killed.
"""

from __future__ import annotations

import argparse
import os
import sys
import threading
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from benchmarks.harness.kafka import connector_jars
from benchmarks.harness.kafka_traffic import Topics

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming.query import StreamingQuery

_QUIET = Path(__file__).with_name("quiet.log4j2.properties").resolve()

#: the columns of Kafka's source -> ``key`` and ``value``
Case = Callable[["DataFrame"], "DataFrame"]


def bare(records: DataFrame) -> DataFrame:
    """Records as they are: what Kafka and Spark cost without us."""
    return records.select("key", "value")


def joined(records: DataFrame, *, table: Path, plan: Literal["native", "workers"]) -> DataFrame:
    """Our join: a record's point with the ``district`` of a GeoJSON file that it lies within."""
    import rivermouth as rm

    return encoded(
        rm.join_table(
            decoded(records, "sent long, lon double, lat double"),
            rm.tables.geojson(str(table)),
            on=rm.within(rm.point("lon", "lat"), "geometry"),
            how="left",
            columns=["district"],
            plan=plan,
        )
    )


def named(records: DataFrame, *, table: Path, plan: Literal["native", "workers"]) -> DataFrame:
    """Our join: a record's ``item`` with the ``name`` that a Parquet file has for it."""
    import rivermouth as rm

    return encoded(
        rm.join_table(
            decoded(records, "sent long, item long"),
            rm.tables.parquet(str(table)),
            on=rm.keys({"item": "id"}),
            how="left",
            columns=["name"],
            plan=plan,
        )
    )


def cases(table: Path) -> dict[str, Case]:
    """The cases by name: places for a table of shapes, equal keys for one of Parquet."""
    join = named if table.suffix == ".parquet" else joined
    return {
        "bare": bare,
        "native": partial(join, table=table, plan="native"),
        "workers": partial(join, table=table, plan="workers"),
    }


def session(name: str) -> SparkSession:
    """A local session that knows Kafka, on two cores.

    It says nothing, not even errors: a query that is stopped in the middle of a batch prints
    pages of them. What fails is raised by the query.
    """
    from rivermouth.spark.runtime.session import local_session

    silence = f"-Dlog4j2.configurationFile={_QUIET.as_uri()}"
    conf = {"spark.jars": connector_jars(), "spark.driver.extraJavaOptions": silence}
    return local_session(name, cores=2, conf=conf)


def start(
    spark: SparkSession,
    case: Case,
    *,
    bootstrap: str,
    topics: Topics,
    checkpoint: Path,
    trigger: Mapping[str, Any],
    options: Mapping[str, str],
) -> StreamingQuery:
    """Start the query; `trigger` is what ``trigger()`` takes, `options` go to the sink."""
    kafka = {"kafka.bootstrap.servers": bootstrap}
    source = {"subscribe": topics.source, "startingOffsets": "earliest"}
    sink = {"topic": topics.target, "checkpointLocation": str(checkpoint)}
    records = spark.readStream.format("kafka").options(**kafka, **source).load()
    writer = case(records).writeStream.format("kafka").options(**kafka, **sink, **options)
    # real-time mode knows no other mode, and a query without aggregates means the same by it
    return writer.outputMode("update").trigger(**trigger).start()


def _end_with_parent() -> None:
    """Wait for the end of standard input, a pipe from the parent, and end with it."""
    sys.stdin.read()
    os._exit(1)


def decoded(records: DataFrame, fields: str) -> DataFrame:
    """Records with the fields of their JSON value as columns, beside the key."""
    from pyspark.sql import functions as sf

    value = sf.from_json(sf.col("value").cast("string"), fields)
    return records.select("key", value.alias("value")).select("key", "value.*")


def encoded(rows: DataFrame) -> DataFrame:
    """Rows as records for Kafka: the key, and all other columns as JSON."""
    from pyspark.sql import functions as sf

    names = [name for name in rows.columns if name != "key"]
    return rows.select("key", sf.to_json(sf.struct(*names)).alias("value"))


def main() -> None:
    """Run one case in real-time mode until this process is killed, or who started it is gone."""
    threading.Thread(target=_end_with_parent, daemon=True).start()
    parser = argparse.ArgumentParser(description="One query from Kafka to Kafka.")
    parser.add_argument("bootstrap")
    parser.add_argument("source")
    parser.add_argument("target")
    parser.add_argument("--case", required=True)
    parser.add_argument("--table", type=Path, required=True)
    parser.add_argument("--checkpoint", type=Path, required=True)
    parser.add_argument("--interval", required=True, help="seconds between checkpoints")
    words = parser.parse_args()
    query = start(
        session("kafka_query"),
        cases(words.table)[words.case],
        bootstrap=words.bootstrap,
        topics=Topics(words.source, words.target),
        checkpoint=words.checkpoint,
        trigger={"realTime": f"{words.interval} seconds"},
        options={},
    )
    query.awaitTermination()


if __name__ == "__main__":
    main()
