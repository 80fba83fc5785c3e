"""The demo's four queries."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import rivermouth as rm
from rivermouth.cli.demo.story import Story
from rivermouth.testing.replaying import write_batches

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming.query import StreamingQuery

SECONDS = 3  # from one micro-batch to the next, at least: for those who watch the page
_SCHEMAS = {
    "cabs": "cab int, at timestamp, lon double, lat double",
    "hails": "passenger int, at timestamp, lon double, lat double",
    "charges": "cab int, at timestamp, lon double, lat double, fare double",
}
_PACE = f"{SECONDS} seconds"

#: the calls, as the demo shows them
CALLS = """\
placed = rm.join_table(cabs, rm.tables.sqlite("fleet.db", "drivers"), on=rm.keys("cab"),
                       how="left", cache=rm.incremental(rows=10_000))
placed = rm.join_table(placed, rm.tables.geojson("districts.geojson"),
                       on=rm.within(rm.point("lon", "lat"), "geometry"), how="left")

offers = rm.join_interval(hails, cabs, on=rm.dwithin(here, there, meters=300),
                          time="at", between=("-2 minutes", "0 seconds"))

visits = rm.fence_events(cabs, rm.tables.geojson("districts.geojson"), on=inside, by="cab",
                         time="at", events=["enter", "exit", "dwell"], dwell="10 minutes",
                         min_inside=2, min_outside=2)

earned = rm.exact(charges_with_district,
                  rm.summary(by="district", time="at", window=rm.tumbling("5 minutes"),
                             earned=rm.sum("fare"), rides=rm.count()),
                  slack=rm.quality(eps=0.1, delta=0.1), store="earnings")
"""
EPS = DELTA = 0.1


def streams(spark: SparkSession, told: Story, folder: Path) -> Iterator[DataFrame]:
    """Cabs, hails and charges as streams of files.

    All files are written first and each micro-batch reads one. So the content of a micro-batch
    does not depend on when it runs.
    """
    for name, schema in _SCHEMAS.items():
        write_batches(getattr(told, name), folder / name)
        reader = spark.readStream.schema(schema).option("maxFilesPerTrigger", 1)
        yield reader.parquet(str(folder / name))


def placed(cabs: DataFrame, out: Path, work: Path) -> StreamingQuery:
    """Start the query for the driver and the district of each position."""
    driven = rm.join_table(
        cabs,
        rm.tables.sqlite(out / "fleet.db", "drivers"),
        on=rm.keys("cab"),
        how="left",
        columns=["driver", "company"],
        cache=rm.incremental(rows=10_000),
    )
    return _start(_with_district(driven, out, work), work, "placed")


def offers(hails: DataFrame, cabs: DataFrame, work: Path) -> StreamingQuery:
    """Start the query for the cabs within 300 m of a hail, in the two minutes before it."""
    near = rm.join_interval(
        hails,
        cabs,
        on=rm.dwithin(rm.point("lon", "lat"), rm.point("lon", "lat"), meters=300),
        time="at",
        between=("-2 minutes", "0 seconds"),
        columns={"cab": "cab", "seen": "at"},
        lateness="30 seconds",
    )
    return _start(near, work, "offers")


def visits(cabs: DataFrame, out: Path, work: Path) -> StreamingQuery:
    """Start the query for who entered and left which district, and who stayed.

    A position in 300 is at longitude and latitude zero: it takes two to have left.
    """
    events = rm.fence_events(
        cabs,
        rm.tables.geojson(out / "districts.geojson"),
        on=rm.within(rm.point("lon", "lat"), "geometry"),
        by="cab",
        time="at",
        events=["enter", "exit", "dwell"],
        dwell="10 minutes",
        min_inside=2,
        min_outside=2,
        lateness="0 seconds",
        cache=rm.full(path=str(work / "snapshots")),
    )
    return _start(events, work, "visits")


def earnings(charges: DataFrame, out: Path, work: Path) -> Any:
    """Start the aggregation of charges per district and five minutes, with corrections."""
    job = rm.exact(
        _with_district(charges, out, work),
        rm.summary(
            by="district",
            time="at",
            window=rm.tumbling("5 minutes"),
            earned=rm.sum("fare"),
            rides=rm.count(),
        ),
        slack=rm.quality(eps=EPS, delta=DELTA),
        store=work / "earnings",
    )
    return job.start(processingTime=_PACE, name="earnings")


def _with_district(events: DataFrame, out: Path, work: Path) -> DataFrame:
    return rm.join_table(
        events,
        rm.tables.geojson(out / "districts.geojson"),
        on=rm.within(rm.point("lon", "lat"), "geometry"),
        how="left",
        columns=["district"],
        cache=rm.full(path=str(work / "snapshots")),
    )


def _start(frame: DataFrame, work: Path, name: str) -> StreamingQuery:
    writer = frame.writeStream.queryName(name).trigger(processingTime=_PACE)
    writer = writer.option("checkpointLocation", str(work / f"{name}.checkpoint"))
    return writer.start(str(work / f"{name}.out"), format="parquet")
