"""Beside the stream: corrections when they are due, and changes on their way to the sink."""

from __future__ import annotations

import math
import threading
import time
from collections.abc import Callable

from pyspark.sql import DataFrame
from pyspark.sql import functions as F  # noqa: N812  (as everybody writes it)
from pyspark.sql.streaming.query import StreamingQuery

from rivermouth.spark.exact.results import Results
from rivermouth.spark.exact.sink import Sink
from rivermouth.spark.exact.store import EMITTED, Store

_POLL_SECONDS = 1.0


class Corrector(threading.Thread):
    """Corrects a running query's results until the query ends.

    Late records are corrected when their event times span more than `span`, or when the oldest has
    waited for `wait`; both in microseconds. What is due is read off the store, so that a corrector
    that was killed is resumed by the next one.
    """

    def __init__(
        self, query: StreamingQuery, store: Store, results: Callable[[], Results], *,
        span: int, wait: int, sink: Sink | None,
    ) -> None:  # fmt: skip
        super().__init__(name=f"rivermouth-exact-{query.runId}", daemon=True)
        self._query, self._store, self._results = query, store, results
        self._span, self._wait, self._sink = span, wait, sink
        self._due = math.inf  # when the oldest late record will have waited long enough
        self.error: BaseException | None = None
        self.finished = False

    def run(self) -> None:
        """Work until the query has ended; an error here ends the query, too."""
        batch: int | None = None
        try:
            while self._query.isActive:
                progress = self._query.lastProgress
                before, batch = batch, None if progress is None else progress["batchId"]
                if batch != before or time.time() >= self._due:
                    self._correct_late()
                time.sleep(_POLL_SECONDS)
        except BaseException as error:  # raised by whoever waits for the query
            self.error = error
            self._query.stop()

    def finish(self) -> None:
        """Correct everything that is left."""
        results = self._results()
        upto = results.progress()["upto"]
        if upto is not None:
            self._correct(results, results.new_windows(), upto, final=True)
        self._emit()
        self.finished = True

    def _correct_late(self) -> None:
        results = self._results()
        progress = results.progress()
        self._due = (progress["oldest"] + self._wait) / 1e6 if progress["records"] else math.inf
        if progress["span"] > self._span or time.time() >= self._due:
            self._correct(results, results.late_windows(), progress["upto"], final=False)
            self._due = math.inf
        self._emit()

    def _correct(
        self, results: Results, affected: DataFrame | None, upto: int, *, final: bool
    ) -> None:
        emitted = F.timestamp_micros(F.lit(upto))
        rows = results.differences(affected).withColumn(EMITTED, emitted)
        self._store.correct(rows.select(*results.columns), upto=upto, final=final)

    def _emit(self) -> None:
        """Give the sink the changes since the last time, at least once."""
        if self._sink is None:
            return
        results, offset = self._results(), self._store.sink_offset()
        upto, corrections = results.progress()["upto"], len(self._store.corrections())
        if upto is not None and (upto, corrections) != offset:
            self._sink(results.changes(None if offset is None else offset[0] - 1))
            self._store.commit_sink(upto, corrections)
