"""The store of an exact aggregation: a folder with all of its data.

    definition.json            what is computed; another summary is an error
    checkpoint/                Spark's
    log/kind=row/day=14200/    early results, written by Spark's file sink, exactly once
    log/kind=late/...          records that came too late for some window; kind=future and so on
    log/kind=record/...        the backup of every record
    corrections/000001/        the rows of the first correction
    corrections/000001.json    written last: a correction without it is not committed
    sink_offset.json           up to where the sink has the changes (first version: told.json)

Every row of the log has the time of its micro-batch, `EMITTED`, which is the same when Spark runs
a batch again. A correction covers the log up to such a time.
"""

from __future__ import annotations

import time
from dataclasses import asdict, dataclass
from typing import Any

import pyarrow.fs
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import types as t

from rivermouth.errors import StateError
from rivermouth.spec.identity import identity, summary_v1
from rivermouth.spec.locations import Location
from rivermouth.spec.summaries import Summary
from rivermouth.tables.files import filesystem, read_json, write_json

WHERE = "exact"
FORMAT = 2
EMITTED, DAY = "emitted", "day"
#: the kind of the log's rows that are the backup
BACKUP = "record"


@dataclass(frozen=True)
class Correction:
    """A correction that has been written.

    Parameters
    ----------
    number
        Counts from 1.
    upto
        The log's rows emitted until then are accounted for; microseconds since 1970.
    rows
        How many results it wrote: corrected, or emitted for the first time.
    final
        Whether it covered all windows, not only those of late records.
    at
        When it was written, in seconds since 1970.
    """

    number: int
    upto: int
    rows: int
    final: bool
    at: float


@dataclass(frozen=True)
class Store:
    """The folder `path`, which Spark and pyarrow.fs both reach; `schema` is the log's."""

    path: Location
    schema: t.StructType

    @property
    def log_path(self) -> str:
        """Where the stream writes."""
        return (self.path / "log").for_spark

    @property
    def checkpoint_path(self) -> str:
        """Where Spark keeps its offsets and its state."""
        return (self.path / "checkpoint").for_spark

    def claim(self, summary: Summary, events: t.StructType) -> None:
        """Make this the store of `summary` over such events, or find that it is."""
        columns = events.simpleString()
        wanted = {"format": FORMAT, "identity": identity(summary=summary, columns=columns)}
        v1 = {"format": 1, "meaning": f"{summary_v1(summary)} of {columns}"}
        found = self._read("definition.json")
        if found is None or found == v1:
            self._write("definition.json", wanted)
        elif found != wanted:
            raise StateError(
                WHERE,
                f"the store {self.path!r} belongs to another aggregation",
                there=f"it was made for {found.get('identity') or found.get('meaning')}",
                todo="Give another store=, or the summary and events that it was made for.",
            )

    def log(self, spark: SparkSession) -> DataFrame:
        """What the stream has written, as of now: later batches do not change the frame."""
        files, root = self._files()
        committed = files.get_file_info(f"{root}/log/_spark_metadata")
        if committed.type == pyarrow.fs.FileType.NotFound:
            return spark.createDataFrame([], self.schema)
        return spark.read.schema(self.schema).parquet(self.log_path)

    def corrections(self) -> list[Correction]:
        """The corrections so far, in order."""
        files, root = self._files()
        found = files.get_file_info(pyarrow.fs.FileSelector(f"{root}/corrections", True, True))
        names = sorted(info.base_name for info in found if info.extension == "json")
        made = (self._read(f"corrections/{name}") for name in names)
        return [Correction(**each) for each in made if each is not None]

    def corrected(self, spark: SparkSession, schema: t.StructType) -> DataFrame:
        """The rows of all corrections."""
        paths = [self._folder(made.number) for made in self.corrections() if made.rows]
        if not paths:
            return spark.createDataFrame([], schema)
        return spark.read.schema(schema).parquet(*paths)

    def correct(self, rows: DataFrame, *, upto: int, final: bool) -> Correction:
        """Write a correction; this runs a Spark job."""
        number = len(self.corrections()) + 1
        folder = self._folder(number)
        rows.write.mode("overwrite").parquet(folder)
        count = rows.sparkSession.read.schema(rows.schema).parquet(folder).count()
        made = Correction(number, upto, count, final, time.time())
        self._write(f"corrections/{number:06d}.json", asdict(made))
        return made

    def sink_offset(self) -> tuple[int, int] | None:
        """Up to where the sink has the changes: the newest batch and the number of corrections."""
        found = self._read("sink_offset.json") or self._read("told.json")
        return None if found is None else (found["upto"], found["corrections"])

    def commit_sink(self, upto: int, corrections: int) -> None:
        """Write down that the sink has the changes up to here."""
        self._write("sink_offset.json", {"upto": upto, "corrections": corrections})

    def _folder(self, number: int) -> str:
        return (self.path / f"corrections/{number:06d}").for_spark

    def _files(self) -> tuple[Any, str]:
        return filesystem(self.path)

    def _read(self, name: str) -> dict[str, Any] | None:
        return read_json(self.path / name)

    def _write(self, name: str, what: dict[str, Any]) -> None:
        write_json(self.path / name, what)
