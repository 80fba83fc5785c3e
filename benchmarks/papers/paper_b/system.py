"""The system: games from Kafka, through rm.exact and its baselines, into PostgreSQL.

A game is replayed in the order of its arrival, each record at its time. Four queries read it at
once: ours, which corrects, and three that do not. What each writes into its table of PostgreSQL
is kept with the time of writing by a trigger of the database, so that every answer that a reader
of the table could have seen is known.
"""

from __future__ import annotations

import subprocess
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar
from uuid import uuid4

import psycopg
import pyarrow as pa

import rivermouth as rm
from benchmarks.harness.kafka import client_python, connector_jars
from benchmarks.papers.paper_b.games import DELTA, EPS, SUMMARY, microseconds
from rivermouth.spark.runtime.session import local_session

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming.query import StreamingQuery

T = TypeVar("T")

_HARNESS = Path(__file__).resolve().parents[2] / "harness"
CLIENT = _HARNESS / "kafka_client.py"
QUIET = _HARNESS / "quiet.log4j2.properties"  #: a query that is stopped prints pages of errors
CONF = {
    # a Python worker has ten seconds to start, which on a busy machine may need a second try
    "spark.master": "local[2,4]",
    "spark.sql.shuffle.partitions": "1",  # one group: one bucket
    "spark.sql.streaming.numRecentProgressUpdates": "10000",
    "spark.driver.memory": "3g",
    "spark.scheduler.mode": "FAIR",
}
EXACT = "exact"
#: the paper's mean buffer, as if a user had known it
FIXED = "2.7 seconds"
BASELINES = {
    "aq": partial(rm.quality, EPS, DELTA, controller="pd"),
    "mp": rm.max_delay,
    "k": partial(rm.fixed, FIXED),
}
CASES = (EXACT, *BASELINES)
_SQL_TYPES = {"timestamp": "timestamptz", "double": "double precision", "bigint": "bigint",
              "int": "bigint", "string": "text", "boolean": "boolean"}  # fmt: skip
_KEYS, _ORDER = ["window_start", "window_end"], ["revision"]
_TRIES = 8
_HISTORY = """
CREATE TABLE history (
    answers text, start timestamptz, total double precision, records bigint,
    slack double precision, revision bigint, written timestamptz);
CREATE FUNCTION remember() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN
    INSERT INTO history VALUES (TG_TABLE_NAME, NEW.window_start, NEW.total, NEW.records,
        NEW.slack, NEW.revision, clock_timestamp());
    RETURN NULL;
END $$;
"""


@dataclass(frozen=True)
class Answer:
    """What a table said of a window from a time on; `start` in microseconds, else seconds."""

    start: int
    total: float
    records: int
    slack: float
    revision: int
    written: float


@dataclass
class Replayed:
    """A game that has gone through the system.

    Parameters
    ----------
    began, ended
        When the first record was sent, and when the stream was stopped; seconds since 1970.
    overdue
        The longest time that the producer was behind.
    history
        By case, what its table said, in the order of writing.
    store
        Ours as its store has it in the end: the sum of each window, by its start.
    batches
        By case, of each micro-batch with records: when it began and how long it took, in seconds.
    emitted
        Ours as its store had it: when the micro-batch began that gave a window's early answer.
    corrections
        When they were made, and the answers that they wrote.
    """

    began: float = 0.0
    ended: float = 0.0
    overdue: float = 0.0
    history: dict[str, list[Answer]] = field(default_factory=dict)
    store: dict[int, float] = field(default_factory=dict)
    batches: dict[str, list[tuple[float, float]]] = field(default_factory=dict)
    emitted: dict[int, float] = field(default_factory=dict)
    corrections: list[tuple[float, int]] = field(default_factory=list)


def session() -> SparkSession:
    """A session on two cores that knows Kafka."""
    silence = f"-Dlog4j2.configurationFile={QUIET.as_uri()}"
    conf = {"spark.jars": connector_jars(), "spark.driver.extraJavaOptions": silence}
    return local_session("paper_b", cores=2, conf=CONF | conf)


def prepare(url: str) -> None:
    """Let the database remember what its tables say."""
    with psycopg.connect(url) as connection:
        connection.execute(_HISTORY)


class Game:
    """A game on its way: start the queries, replay the records, take the answers."""

    def __init__(
        self, spark: SparkSession, table: pa.Table, *,
        name: str, bootstrap: str, url: str, folder: Path, factor: float, trigger: str,
        cases: Sequence[str],
    ) -> None:  # fmt: skip
        self._spark, self._name, self._url, self._trigger = spark, name, url, trigger
        self._baselines = {case: BASELINES[case] for case in cases if case != EXACT}
        self._bootstrap, self._topic = bootstrap, f"{name}-{uuid4().hex[:8]}"
        self._folder = folder / name
        self._folder.mkdir(parents=True)
        self._client("create", self._topic).communicate()
        sent = _write(self._folder / "records.txt", table)
        self._producer = self._client(
            "replay", self._topic, f"--records={sent}", f"--factor={factor}"
        )
        self._queries: dict[str, StreamingQuery] = {}
        self._found = Replayed()

    def start(self) -> None:
        """Start all queries, one after the other; they wait for records."""
        events = self._events()
        rows = rm.aggregate(events, SUMMARY)
        self._declare(EXACT, [*rows.dtypes, ("emitted", "timestamp")])
        self._job = rm.exact(
            events, SUMMARY, store=self._folder / "store", slack=rm.quality(EPS, DELTA),
            sink=rm.tables.postgres(self._url, self._answers(EXACT)),
        )  # fmt: skip
        self._running = _ready(
            partial(self._job.start, processingTime=self._trigger), lambda made: made.query
        )
        self._queries[EXACT] = self._running.query
        for case, slack in self._baselines.items():
            self._declare(case, rows.dtypes)
            writer = rm.aggregate(events, SUMMARY, slack=slack()).writeStream
            writer = writer.foreachBatch(partial(_upsert, self._url, self._answers(case)))
            writer = writer.option("checkpointLocation", str(self._folder / case))
            writer = writer.trigger(processingTime=self._trigger)
            self._queries[case] = _ready(writer.start, lambda made: made)

    def replay(self) -> None:
        """Let the records go; returns at once."""
        assert self._producer.stdin is not None
        assert self._producer.stdout is not None
        self._producer.stdin.write("go\n")
        self._producer.stdin.flush()
        self._found.began = float(self._producer.stdout.readline())

    def finish(self) -> Replayed:
        """Wait for the end of the replay, let all queries end, and take what they left."""
        out, _ = self._producer.communicate()
        if self._producer.returncode:
            raise RuntimeError(f"the producer ended with {self._producer.returncode}")
        self._found.overdue = float(out)
        for query in self._queries.values():
            query.processAllAvailable()
        self._found.ended = time.time()
        self._running.stop()
        for case, query in self._queries.items():
            query.stop()
            self._found.batches[case] = list(_batches(query))
            self._found.history[case] = self._history(case)
        self._read_store()
        return self._found

    def close(self) -> None:
        """End whatever still runs."""
        self._producer.kill()
        self._producer.communicate()
        for query in self._queries.values():
            query.stop()

    def _read_store(self) -> None:
        results = self._running.results().select("window_start", "total").toArrow()
        starts = microseconds(results, "window_start").tolist()
        self._found.store = dict(zip(starts, results.column("total").to_pylist(), strict=True))
        made = self._running.changelog().where("revision = 0 AND change = 'insert'")
        early = made.select("window_start", "emitted").toArrow()
        times = (microseconds(early, "emitted") / 1e6).tolist()
        self._found.emitted = dict(
            zip(microseconds(early, "window_start").tolist(), times, strict=True)
        )
        self._found.corrections = [(each.at, each.rows) for each in self._running.corrections()]

    def _events(self) -> DataFrame:
        messages = (
            self._spark.readStream.format("kafka")
            .option("kafka.bootstrap.servers", self._bootstrap)
            .option("subscribe", self._topic)
            .option("startingOffsets", "earliest")
            .load()
        )
        fields = "from_json(CAST(value AS string), 'at bigint, sensor bigint, value double')"
        return messages.selectExpr(f"{fields} AS record").selectExpr(
            "timestamp_micros(record.at) AS at", "record.sensor", "record.value"
        )

    def _answers(self, case: str) -> str:
        return f"{self._name}_{case}"

    def _declare(self, case: str, columns: Iterable[tuple[str, str]]) -> None:
        """Make a case's table as the sink would, with the trigger that remembers."""
        listed = ", ".join(f'"{name}" {_SQL_TYPES[kind]}' for name, kind in columns)
        table = self._answers(case)
        with psycopg.connect(self._url) as connection:
            connection.execute(
                f"CREATE TABLE {table} ({listed},"
                " UNIQUE NULLS NOT DISTINCT (window_start, window_end));"
                f"CREATE TRIGGER remembers AFTER INSERT OR UPDATE ON {table}"
                " FOR EACH ROW EXECUTE FUNCTION remember()"
            )

    def _history(self, case: str) -> list[Answer]:
        query = (
            "SELECT round(extract(epoch FROM start) * 1000000)::bigint, total, records, slack,"
            " revision, extract(epoch FROM written)::double precision"
            " FROM history WHERE answers = %s ORDER BY written"
        )
        with psycopg.connect(self._url) as connection:
            return [Answer(*row) for row in connection.execute(query, [self._answers(case)])]

    def _client(self, *words: str) -> subprocess.Popen[str]:
        command = [str(client_python()), str(CLIENT), self._bootstrap, *words]
        pipe = subprocess.PIPE
        return subprocess.Popen(command, stdin=pipe, stdout=pipe, text=True)


@contextmanager
def replaying(spark: SparkSession, table: pa.Table, **how: Any) -> Iterator[Game]:
    """A game whose records are on their way; what is left of it ends with the block."""
    game = Game(spark, table, **how)
    try:
        game.start()
        game.replay()
        yield game
    finally:
        game.close()


def _ready(start: Callable[[], T], query: Callable[[T], StreamingQuery]) -> T:
    """What `start` gives, once its first batch is done.

    Spark gives a Python worker ten seconds to start, which on a busy machine are too few.
    """
    from pyspark.errors import StreamingQueryException

    for _ in range(_TRIES - 1):
        started = start()
        try:
            query(started).processAllAvailable()
        except StreamingQueryException as error:
            if "failed to connect back" not in str(error):
                raise
        else:
            return started
    started = start()
    query(started).processAllAvailable()
    return started


def _write(path: Path, table: pa.Table) -> Path:
    """The records as the producer takes them: microseconds since the first, and a JSON value."""
    arrival = microseconds(table, "arrival")
    columns = [
        (arrival - arrival[0]).tolist(), microseconds(table, "at").tolist(),
        *(table.column(name).to_pylist() for name in ("sensor", "value")),
    ]  # fmt: skip
    with path.open("w") as file:
        file.writelines(
            f'{due} {{"at":{at},"sensor":{sensor},"value":{value!r}}}\n'
            for due, at, sensor, value in zip(*columns, strict=True)
        )
    return path


def _upsert(url: str, table: str, rows: DataFrame, _: int) -> None:
    """A baseline's sink: the same table and statement as ours, within the micro-batch."""
    rm.tables.postgres(url, table).upsert(rows.toArrow(), keys=_KEYS, order=_ORDER)


def _batches(query: StreamingQuery) -> Iterator[tuple[float, float]]:
    from datetime import datetime

    for batch in query.recentProgress:
        if batch["numInputRows"]:
            began = datetime.fromisoformat(batch["timestamp"]).timestamp()
            yield began, batch["durationMs"]["triggerExecution"] / 1000
