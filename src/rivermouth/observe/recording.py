"""A query's reports, written into a history from a thread of its own."""

from __future__ import annotations

import re
import threading
from typing import TYPE_CHECKING, Any

from rivermouth.errors import RivermouthError
from rivermouth.observe import reports, shapes
from rivermouth.observe.history import Writer
from rivermouth.observe.reports import Progress

if TYPE_CHECKING:
    from pyspark.sql.streaming.query import StreamingQuery

    from rivermouth.spark.exact.job import Running

_PAUSE = 0.5  # seconds between two looks
_LONGEST_FAILURE = 500  # characters
_SECRETS = re.compile(r"(?<=:)[^\s:/@]+(?=@)|(?<=password=)[^\s&;,]+", re.IGNORECASE)


class Recorder:
    """Looks at a query twice a second and writes down each batch, until the query ends.

    Spark hands over its newest report as one text, so a look costs little; all recent ones are
    asked for only when a batch was missed.
    """

    def __init__(self, watched: StreamingQuery | Running, writer: Writer) -> None:
        self._watched, self._writer = watched, writer
        self._query = reports.query_of(watched, where="watch")
        self._newest = -1  # the number of the newest batch that was written
        self._corrections: list[dict[str, Any]] | None = None
        self._known: dict[str, int | None] = {}  # operator: version of its table that was drawn
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, name="rivermouth watch", daemon=True)
        self._thread.start()

    def stop(self) -> None:
        """Write what is known by now, and look no more."""
        self._stop.set()
        self._thread.join()

    def _run(self) -> None:
        try:
            failure = self._record()
        except Exception as error:  # Spark was stopped under the query: there is no more to know
            failure = f"Spark no longer answers ({type(error).__name__})"
        self._writer.end(failure)

    def _record(self) -> str | None:
        """Look until the query ends; why it failed, if it did."""
        over = False
        while not over:
            stopped = self._stop.wait(_PAUSE)
            over = not self._watched.isActive or stopped  # asked before the last look
            self._look()
        return _failure(self._query)

    def _look(self) -> None:
        for report in self._news():
            batch = reports.batch(report)
            self._writer.batch(batch)
            self._newest = batch["batch"]
            self._draw(batch)
        made = reports.corrections_of(self._watched)
        if made is not None and made != self._corrections:
            self._corrections = made
            self._writer.corrections(made)
        self._writer.alive()

    def _news(self) -> list[Progress]:
        """The reports of the batches since the last look."""
        last = self._query.lastProgress
        if last is None:
            return []
        if last["batchId"] == self._newest + 1:
            return [last] if reports.ran(last) else []
        if last["batchId"] <= self._newest:
            return []
        recent = {report["batchId"]: report for report in self._query.recentProgress}
        return [
            report
            for number, report in sorted(recent.items())
            if number > self._newest and reports.ran(report)
        ]

    def _draw(self, batch: reports.Batch) -> None:
        """Write down the shapes of tables that are new, or have a new version."""
        for name, operator in batch["operators"].items():
            if operator["sketch"] is None or self._known.get(name, -1) == _version(operator):
                continue
            self._known[name] = _version(operator)
            try:
                drawn = shapes.of_operator(name)
            except RivermouthError:  # a table that is away for a while: the run goes on without
                continue
            if drawn is not None:
                self._writer.shapes(drawn)


def _version(operator: dict[str, Any]) -> int | None:
    return None if operator["table"] is None else int(operator["table"]["version"])


def _failure(query: StreamingQuery) -> str | None:
    """Why the query failed, in short and without passwords."""
    failure = query.exception()
    if failure is None:
        return None
    text = " ".join(str(failure).split())
    return _SECRETS.sub("***", text)[:_LONGEST_FAILURE]
