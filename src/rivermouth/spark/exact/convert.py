"""Stores of earlier versions, whose log was written by Spark's file sink, made ones of today."""

from __future__ import annotations

from dataclasses import asdict
from typing import Any

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812  (as everybody writes it)
from pyspark.sql import types as t

from rivermouth.kernels.aggregation.processor import ROW
from rivermouth.spark.exact.pieces import EMITTED, WRITTEN_DDL
from rivermouth.spark.exact.results import Schemas
from rivermouth.spark.exact.snapshot import Head
from rivermouth.spark.exact.store import Correction, Store
from rivermouth.spark.exact.tasks import converter
from rivermouth.spec.summaries import KIND, REASON, RECORD


def convert(spark: SparkSession, store: Store, schemas: Schemas, *, max_future: int) -> None:
    """Write the log and the corrections of the file sink as one batch; this runs a Spark job.

    The batch has the number of the sink's last, after which the query goes on. Nothing is deleted:
    the folders ``log`` and ``corrections/<number>`` are not read any more. A process that ends
    within it has changed nothing that counts; it begins anew.
    """
    batches = [int(name.split(".")[0]) for name in store.files.names("log/_spark_metadata")]
    if not batches:
        return
    made = _corrections(store)
    log = _log(spark, store, schemas)
    for each in made:
        if each.rows:
            log = log.unionByName(_rows(spark, store, schemas, each), allowMissingColumns=True)
    upto = log.agg(F.unix_micros(F.max(EMITTED))).first()
    assert upto is not None
    record = {field.name: field.type for field in schemas.arrow_record}
    work = converter(store.path, schemas.plan, record, max_future)
    written = log.mapInArrow(work, WRITTEN_DDL).toArrow()
    last = max(batches)
    store.write_converted(last, written, upto[0])
    store.archive(asdict(each) for each in made)
    final = [each.upto for each in made if each.final]
    store.write_head(
        Head(
            batch=last - 1,
            correction=len(made),
            late_upto=made[-1].upto if made else None,
            all_upto=final[-1] if final else None,
        )
    )


def _log(spark: SparkSession, store: Store, schemas: Schemas) -> DataFrame:
    results = [each for each in schemas.results if each.name != EMITTED]
    schema = t.StructType([t.StructField(KIND, t.StringType()), *results])
    schema = schema.add(RECORD, schemas.record).add(REASON, t.StringType())
    schema = schema.add(EMITTED, t.TimestampType())
    return spark.read.schema(schema).parquet((store.path / "log").for_spark)


def _rows(spark: SparkSession, store: Store, schemas: Schemas, made: Correction) -> DataFrame:
    folder = (store.path / f"corrections/{made.number:06d}").for_spark
    return spark.read.schema(schemas.results).parquet(folder).withColumn(KIND, F.lit(ROW))


def _corrections(store: Store) -> list[Correction]:
    names = store.files.names("corrections")
    found: list[dict[str, Any] | None] = [
        store.files.json(f"corrections/{name}")
        for name in names
        if name.endswith(".json") and not name.startswith("archive-")
    ]
    return [Correction(**each) for each in found if each is not None]
