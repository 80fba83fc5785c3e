"""The store of an exact aggregation: a folder that holds everything it knows.

    definition.json            what is computed; another summary is an error
    checkpoint/                Spark's
    log/kind=row/day=14200/    early answers, written by Spark's file sink, exactly once
    log/kind=late/...          records that came too late for some window; kind=future and so on
    log/kind=record/...        the backup of every record
    corrections/000001/        what the first correction found different
    corrections/000001.json    written last: a correction without it never happened
    told.json                  how far the changes were handed on to another store

Every row of the log bears the time of its micro-batch, `EMITTED`, which is the same when Spark
runs a batch again. A correction knows the log up to such a time.
"""

from __future__ import annotations

import time
from dataclasses import asdict, dataclass
from typing import Any

import pyarrow.fs
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812  (as everybody writes it)
from pyspark.sql import types as t

from rivermouth.errors import StateError
from rivermouth.spec.identity import identity, summary_v1
from rivermouth.spec.summaries import KIND, RECORD, Summary
from rivermouth.tables.files import read_json, write_json

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
        How many answers it wrote: put right, or given for the first time.
    final
        Whether it looked at all windows, not only at those that late records touch.
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

    path: str
    schema: t.StructType

    @property
    def log(self) -> str:
        """Where the stream writes."""
        return f"{self.path}/log"

    @property
    def checkpoint(self) -> str:
        """Where Spark keeps its place in the stream and its state."""
        return f"{self.path}/checkpoint"

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

    def logged(self, spark: SparkSession) -> DataFrame:
        """What the stream has written, as of now: later batches do not change the frame."""
        if not self._exists("log/_spark_metadata"):
            return spark.createDataFrame([], self.schema)
        return spark.read.schema(self.schema).parquet(self.log)

    def corrections(self) -> list[Correction]:
        """The corrections so far, in order."""
        files, root = self._files()
        found = files.get_file_info(pyarrow.fs.FileSelector(f"{root}/corrections", True, True))
        names = sorted(info.base_name for info in found if info.extension == "json")
        said = (self._read(f"corrections/{name}") for name in names)
        return [Correction(**each) for each in said if each is not None]

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

    def told(self) -> tuple[int, int] | None:
        """How far changes were handed on: the newest batch and the number of corrections."""
        found = self._read("told.json")
        return None if found is None else (found["upto"], found["corrections"])

    def tell(self, told: tuple[int, int]) -> None:
        """Note that changes were handed on so far."""
        self._write("told.json", {"upto": told[0], "corrections": told[1]})

    def _folder(self, number: int) -> str:
        return f"{self.path}/corrections/{number:06d}"

    def _files(self) -> tuple[Any, str]:
        files, root = pyarrow.fs.FileSystem.from_uri(self.path)
        return files, root

    def _exists(self, name: str) -> bool:
        files, root = self._files()
        kind = files.get_file_info(f"{root}/{name}").type
        return bool(kind != pyarrow.fs.FileType.NotFound)

    def _read(self, name: str) -> dict[str, Any] | None:
        return read_json(f"{self.path}/{name}")

    def _write(self, name: str, what: dict[str, Any]) -> None:
        write_json(f"{self.path}/{name}", what)


def backup_of(logged: DataFrame) -> DataFrame:
    """The records that were backed up."""
    return logged.where(F.col(KIND) == BACKUP).select(f"{RECORD}.*")
