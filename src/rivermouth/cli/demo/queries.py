"""The demo's three queries: one call each, with what it reads and where it writes."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import rivermouth as rm

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming.query import StreamingQuery

CABS, HAILS, CHARGES = "cabs", "hails", "charges"
_SCHEMAS = {
    CABS: "cab int, at timestamp, lon double, lat double",
    HAILS: "passenger int, at timestamp, lon double, lat double",
    CHARGES: "cab int, at timestamp, lon double, lat double, fare double",
}
_PACE = {"processingTime": "2 seconds"}

#: what is asked, as a reader would write it
CALLS = """\
placed = rm.join_table(cabs, rm.tables.sqlite("fleet.db", "drivers"), on=rm.keys("cab"),
                       how="left", cache=rm.incremental(rows=10_000))
placed = rm.join_table(placed, rm.tables.geojson("districts.geojson"),
                       on=rm.within(rm.point("lon", "lat"), "geometry"), how="left")

offers = rm.join_interval(hails, cabs, on=rm.dwithin(here, there, meters=300),
                          time="at", between=("-2 minutes", "0 seconds"))

earned = rm.exact(charges_with_district,
                  rm.summary(by="district", time="at", window=rm.tumbling("5 minutes"),
                             earned=rm.sum("fare"), rides=rm.count()),
                  slack=rm.quality(eps=0.1, delta=0.1), store="earnings")
"""


@dataclass(frozen=True)
class Started:
    """The queries at work, and the job that keeps the earnings."""

    placed: StreamingQuery
    offers: StreamingQuery
    earned: Any

    @property
    def all(self) -> dict[str, StreamingQuery]:
        """The queries by their names."""
        return {"offers": self.offers, "earnings": self.earned.query, "placed": self.placed}

    @property
    def watched(self) -> tuple[Any, ...]:
        """What the page shows: the earnings with their corrections."""
        return (self.offers, self.earned, self.placed)

    def stop(self) -> None:
        """End them; the earnings' last corrections are made."""
        self.placed.stop()
        self.offers.stop()
        self.earned.stop()


def start(spark: SparkSession, out: Path, work: Path) -> Started:
    """Start all three; they read files that appear under `work`, and write there, too."""
    cabs, hails, charges = (_arriving(spark, work, name) for name in _SCHEMAS)
    return Started(
        offers=_written(_offers(hails, cabs), work, "offers"),
        earned=_earnings(charges, out, work).start(**_PACE, name="earnings"),
        placed=_written(_placed(cabs, out, work), work, "placed"),
    )


def _arriving(spark: SparkSession, work: Path, name: str) -> DataFrame:
    return spark.readStream.schema(_SCHEMAS[name]).parquet(str(work / name))


def _written(frame: DataFrame, work: Path, name: str) -> StreamingQuery:
    return (
        frame.writeStream.format("parquet")
        .option("path", str(work / f"{name}.out"))
        .option("checkpointLocation", str(work / f"{name}.checkpoint"))
        .queryName(name)
        .trigger(**_PACE)
        .start()
    )


def _placed(cabs: DataFrame, out: Path, work: Path) -> DataFrame:
    """Each position with its cab's driver and its district."""
    driven = rm.join_table(
        cabs,
        rm.tables.sqlite(out / "fleet.db", "drivers"),
        on=rm.keys("cab"),
        how="left",
        columns=["driver", "company"],
        cache=rm.incremental(rows=10_000),
    )
    return _in_districts(driven, out, work)


def _in_districts(events: DataFrame, out: Path, work: Path) -> DataFrame:
    return rm.join_table(
        events,
        rm.tables.geojson(out / "districts.geojson"),
        on=rm.within(rm.point("lon", "lat"), "geometry"),
        how="left",
        columns=["district"],
        cache=rm.full(path=str(work / "snapshots")),
    )


def _offers(hails: DataFrame, cabs: DataFrame) -> DataFrame:
    """The cabs that were within 300 m of a passenger in the two minutes before the hail."""
    return rm.join_interval(
        hails,
        cabs,
        on=rm.dwithin(rm.point("lon", "lat"), rm.point("lon", "lat"), meters=300),
        time="at",
        between=("-2 minutes", "0 seconds"),
        columns={"cab": "cab", "seen": "at"},
        lateness="30 seconds",
    )


def _earnings(charges: DataFrame, out: Path, work: Path) -> Any:
    """What each district earns in five minutes: soon within ten percent, in the end exactly."""
    return rm.exact(
        _in_districts(charges, out, work),
        rm.summary(
            by="district",
            time="at",
            window=rm.tumbling("5 minutes"),
            earned=rm.sum("fare"),
            rides=rm.count(),
        ),
        slack=rm.quality(eps=0.1, delta=0.1),
        store=str(work / "earnings"),
    )
