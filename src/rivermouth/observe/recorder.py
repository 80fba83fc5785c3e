"""A query's progress reports, taken while Spark still has them, by a thread of their own.

Spark keeps the newest 100 reports of a query. A recorder looks twice a second, so that counts are
those of all batches since it began; it starts with the first `rm.metrics` or `rm.watch` of a
query and ends with the query. What was gone by then is not counted, and `Totals` says so.
"""

from __future__ import annotations

import re
import threading
from collections import OrderedDict
from typing import TYPE_CHECKING, Any

from rivermouth.errors import RivermouthError
from rivermouth.observe import reports, shapes
from rivermouth.observe.history import Writer
from rivermouth.observe.log import Batch, Log

if TYPE_CHECKING:
    from pyspark.sql.streaming.query import StreamingQuery

    from rivermouth.spark.exact.job import Running

_PAUSE = 0.5  # seconds between two looks
_MOST = 64  # ended queries whose totals are kept
_LONGEST_FAILURE = 500  # characters
_SECRETS = re.compile(r"(?<=:)[^\s:/@]+(?=@)|(?<=password=)[^\s&;,]+", re.IGNORECASE)

_recorders: OrderedDict[str, Recorder] = OrderedDict()
_lock = threading.Lock()


def recorder_of(query: StreamingQuery) -> Recorder:
    """The one recorder of a query's run in this process, started if there is none yet."""
    with _lock:
        run = str(query.runId)
        if run not in _recorders:
            ended = [key for key, one in _recorders.items() if not one.is_running]
            for key in ended[: max(0, len(ended) - _MOST + 1)]:
                del _recorders[key]
            _recorders[run] = Recorder(query)
        return _recorders[run]


class Recorder:
    """Looks at a query twice a second and adds each batch to its log, until the query ends.

    Spark hands over its newest report as one text, so a look costs little; all recent ones are
    asked for only when a batch was missed. Of a query that has ended only the log is kept: the
    query itself would keep its last plan, and broadcast tables with it, in Spark's memory.
    """

    def __init__(self, query: StreamingQuery) -> None:
        self.log, self.lock = Log(), threading.RLock()
        self.is_running = False
        self._query: StreamingQuery | None = query
        self._failure: str | None = None  # of a query that has ended
        self._histories: list[HistoryFile] = []
        self.look()
        self._start()

    def look(self) -> None:
        """Add the batches since the last look."""
        with self.lock:
            for report in self._news():
                batch = reports.batch(report)
                for history in self._histories:
                    history.add(batch)
                self.log.add(batch)
            for history in self._histories:
                history.tick()

    def attach(self, history: HistoryFile) -> None:
        """Have a history written, the batches that are known by now included."""
        with self.lock:
            self.look()
            if self.log.totals.batches:
                history.writer.totals(self.log.totals)
            for batch in self.log.recent:
                history.add(batch)
            self._histories.append(history)
            if not self.is_running:
                self._start()

    def detach(self, history: HistoryFile) -> None:
        """End a history with what is known by now, unless it has ended."""
        with self.lock:
            if history in self._histories:
                self.look()
                self._histories.remove(history)
                history.writer.end(
                    self._failure if self._query is None else failure_of(self._query)
                )

    def _start(self) -> None:
        self.is_running = True
        threading.Thread(target=self._run, name="rivermouth recorder", daemon=True).start()

    def _run(self) -> None:
        failure, over, pause = None, False, threading.Event()
        try:
            while not over:
                pause.wait(_PAUSE)
                looked_at = [one.watched for one in self._histories]
                if self._query is not None:
                    looked_at.append(self._query)
                over = not any(one.isActive for one in looked_at)  # before the look
                self.look()
        except Exception as error:  # Spark was stopped under the query: there is no more to know
            failure = f"Spark no longer answers ({type(error).__name__})"
        with self.lock:
            if self._query is not None:
                self._failure, self._query = failure or failure_of(self._query), None
            for history in self._histories:
                history.writer.end(self._failure)
            self._histories.clear()
            self.is_running = False

    def _news(self) -> list[reports.Progress]:
        """The reports of the batches since the last look."""
        if self._query is None:
            return []
        last, newest = self._query.lastProgress, self.log.totals.newest
        if last is None or last["batchId"] <= newest:
            return []
        found = [last] if last["batchId"] == newest + 1 else self._query.recentProgress
        recent = {report["batchId"]: report for report in found if reports.ran(report)}
        return [report for number, report in sorted(recent.items()) if number > newest]


class HistoryFile:
    """A run's history as it is written: its batches, shapes and corrections."""

    def __init__(self, watched: StreamingQuery | Running, writer: Writer) -> None:
        self.writer, self.watched = writer, watched
        self._corrections: list[dict[str, Any]] | None = None
        self._drawn: dict[str, int] = {}  # operator: version of its table that was drawn

    def add(self, batch: Batch) -> None:
        """Write a batch, and the shapes of tables that are new or have a new version."""
        self.writer.batch(batch)
        for name, operator in batch["operators"].items():
            version = (operator["table"] or {"version": -1})["version"]
            has_map = operator["sketch"] is not None or operator["events"] is not None
            if not has_map or self._drawn.get(name) == version:
                continue
            self._drawn[name] = version
            try:
                drawn = shapes.of_operator(name)
            except RivermouthError:  # a table that is away for a while: the run goes on without
                continue
            if drawn is not None:
                self.writer.shapes(drawn)

    def tick(self) -> None:
        """Write corrections that are new, and that the run goes on."""
        made = reports.corrections_of(self.watched)
        if made is not None and made != self._corrections:
            self._corrections = made
            self.writer.corrections(made)
        self.writer.alive()


def failure_of(query: StreamingQuery) -> str | None:
    """Why the query failed, in short and without passwords."""
    failure = query.exception()
    if failure is None:
        return None
    text = " ".join(str(failure).split())
    return _SECRETS.sub("***", text)[:_LONGEST_FAILURE]
