"""Product recall: what each customer who shows up clicked on, with the product and the customer.

    python examples/product_recall.py --rows 100000

A stream of customer ids meets three tables in turn: clicks by customer (none, one or several),
products by the click's product, customers by id. It is the first workload of paper A.
"""

from __future__ import annotations

import argparse
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

import rivermouth as rm

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

SEED = 20080203
CITIES = ("Aston", "Brigg", "Corve", "Derne", "Eyam")
SEGMENTS = ("automobile", "building", "furniture", "household", "machinery")
TABLES = {  #: each with the columns that a database would have an index on
    "clicks": ("customer",),
    "products": ("product",),
    "customers": ("customer",),
}


def recalled(ids: DataFrame, tables: dict[str, Any], cache: Any = None) -> DataFrame:
    """A row for each click of each customer: the click, its product, the customer.

    Parameters
    ----------
    ids
        A batch or streaming frame with a column ``customer``.
    tables
        ``clicks``, ``products`` and ``customers``, each one of `rm.tables`.
    cache
        Of all three.
    """
    clicked = rm.join_table(
        ids,
        tables["clicks"],
        on=rm.keys("customer"),
        columns=["product", "clicked_at"],
        cache=cache,
    )
    described = rm.join_table(
        clicked,
        tables["products"],
        on=rm.keys("product"),
        columns=["title", "price"],
        cache=cache,
    )
    return rm.join_table(
        described,
        tables["customers"],
        on=rm.keys("customer"),
        columns=["city", "segment"],
        cache=cache,
    )


def make(folder: Path, rows: int) -> None:
    """Write the three tables as Parquet, each of so many rows, the same each time."""
    random, number = np.random.default_rng((SEED, rows)), np.arange(rows)
    clicks = {
        "customer": random.integers(0, rows, rows),
        "product": random.integers(0, rows, rows),
        "clicked_at": pa.array(random.integers(0, 86_400_000_000, rows), pa.timestamp("us", "UTC")),
    }
    products = {
        "product": number,
        "title": pc.binary_join_element_wise("product", pa.array(number).cast("string"), " "),
        "price": random.integers(100, 100_000, rows) / 100,
    }
    customers = {
        "customer": number,
        "city": pa.array(CITIES).take(pa.array(random.integers(0, len(CITIES), rows))),
        "segment": pa.array(SEGMENTS).take(pa.array(random.integers(0, len(SEGMENTS), rows))),
    }
    folder.mkdir(parents=True, exist_ok=True)
    for name, columns in zip(TABLES, (clicks, products, customers), strict=True):
        pq.write_table(pa.table(columns), folder / f"{name}.parquet")


def customers_of(folder: Path, count: int, *, stream: int = 0) -> pa.Table:
    """Ids of so many customers who clicked on something, in the order in which they show up."""
    clicks = pq.read_table(folder / "clicks.parquet", columns=["customer"])
    random = np.random.default_rng((SEED, stream))
    return clicks.take(pa.array(random.integers(0, clicks.num_rows, count)))


def main(spark: SparkSession, folder: Path, rows: int) -> None:
    """Make tables of so many rows, send a tenth as many ids as a stream, and show what comes."""
    make(folder, rows)
    ids = rm.testing.replay(
        spark.createDataFrame(customers_of(folder, rows // 10)), cuts=rows // 50
    )
    tables = {name: rm.tables.parquet(str(folder / f"{name}.parquet")) for name in TABLES}
    query = (
        recalled(ids, tables)
        .writeStream.format("memory")
        .queryName("recalled")
        .trigger(availableNow=True)
        .start()
    )
    query.awaitTermination()
    found = spark.table("recalled")
    print(f"{rows // 10:,} ids recall {found.count():,} clicks; by segment and city:")
    found.groupBy("segment", "city").count().orderBy("segment", "city").show(5)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description="Product recall: a stream meets three tables.")
    parser.add_argument("--rows", type=int, default=100_000, help="of each table")
    with tempfile.TemporaryDirectory() as place:
        main(rm.testing.session("product recall"), Path(place), parser.parse_args().rows)
