"""Beside the stream: corrections when they are due, and changes on their way to the sink."""

from __future__ import annotations

import math
import threading
import time
from collections.abc import Callable

from pyspark.sql.streaming.query import StreamingQuery

from rivermouth.spark.exact.compaction import compact
from rivermouth.spark.exact.pieces import Commit
from rivermouth.spark.exact.results import Results
from rivermouth.spark.exact.sink import Sink
from rivermouth.spark.exact.snapshot import Snapshot
from rivermouth.spark.exact.store import Store

#: batches and corrections after which they are compacted
COMPACT_AFTER = 64
_POLL_SECONDS = 1.0


class Corrector(threading.Thread):
    """Corrects a running query's results until the query ends, and compacts its store.

    Late records are corrected when their event times span more than `span`, or when the oldest has
    waited for `wait`; both in microseconds; and before the store is compacted. What is due is read
    off the store, so that a corrector that was killed is resumed by the next one. A compaction
    deletes what is older than `retention`, in microseconds of event time.
    """

    def __init__(
        self, query: StreamingQuery, store: Store, results: Callable[[Snapshot], Results], *,
        span: int, wait: int, sink: Sink | None, retention: int | None,
    ) -> None:  # fmt: skip
        super().__init__(name=f"rivermouth-exact-{query.runId}", daemon=True)
        self._query, self._store, self._results_of = query, store, results
        self._span, self._wait, self._sink, self._retention = span, wait, sink, retention
        self._due = math.inf  # when the oldest late record will have waited long enough
        self._commits: dict[str, Commit] = {}  # that were read before
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
        snapshot = self._snapshot()
        if snapshot.upto is not None:
            self._correct(snapshot, final=True)
        self._emit()
        self._compact()
        self.finished = True

    def _correct_late(self) -> None:
        snapshot = self._snapshot()
        self._due = due_at(snapshot, span=self._span, wait=self._wait)
        is_full = self._is_full(snapshot)
        if time.time() >= self._due or (is_full and snapshot.pending):
            self._correct(snapshot, final=False)
            self._due = math.inf
        self._emit()
        if is_full:
            self._compact()

    def _correct(self, snapshot: Snapshot, *, final: bool) -> None:
        assert snapshot.upto is not None
        began = time.monotonic()
        written = self._results_of(snapshot).corrected(final=final)
        self._store.commit_correction(
            written, number=snapshot.number + 1, upto=snapshot.upto, final=final,
            seconds=time.monotonic() - began,
        )  # fmt: skip

    def _emit(self) -> None:
        """Give the sink the changes since the last time, at least once."""
        if self._sink is None:
            return
        snapshot, offset = self._snapshot(), self._store.sink_offset()
        upto = snapshot.upto
        if upto is not None and (upto, snapshot.number) != offset:
            results = self._results_of(snapshot)
            self._sink(results.changes_since(None if offset is None else offset[0]))
            self._store.commit_sink(upto, snapshot.number)

    def _compact(self) -> None:
        """Compact the store if it has many commits; of late records only what was corrected."""
        snapshot = self._snapshot()
        if self._is_full(snapshot) and not snapshot.pending:
            compact(self._results_of(snapshot), retention=self._retention)

    def _is_full(self, snapshot: Snapshot) -> bool:
        return len(snapshot.batches) + len(snapshot.corrections) > COMPACT_AFTER

    def _snapshot(self) -> Snapshot:
        return self._store.snapshot(self._commits)


def due_at(snapshot: Snapshot, *, span: int, wait: int) -> float:
    """When the pending late records are to be corrected, in seconds since 1970; inf: never.

    At once where their event times span more than `span` (the paper's gamma), else when the oldest
    has waited for `wait`; both in microseconds.
    """
    if not snapshot.pending:
        return math.inf
    if snapshot.span > span:
        return -math.inf
    return (min(each.emitted or 0 for each in snapshot.pending) + wait) / 1e6
