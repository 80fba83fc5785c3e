"""Beside the stream: corrections when they are due, and answers on their way to other stores."""

from __future__ import annotations

import math
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass

from pyspark.sql import DataFrame
from pyspark.sql import functions as F  # noqa: N812  (as everybody writes it)
from pyspark.sql.streaming.query import StreamingQuery

from rivermouth.spark.exact.results import Answers
from rivermouth.spark.exact.store import EMITTED, Store

Receiver = Callable[[DataFrame], None]
_LOOK = 1.0  # seconds between two looks at the query


@dataclass(frozen=True)
class Rules:
    """When late records are dealt with: their times span so much, or the oldest waited so long.

    Both in microseconds.
    """

    span: int
    wait: int


class Follower(threading.Thread):
    """Looks after a running query until it ends.

    Nothing that matters lives here: what is due is read off the store, so a follower that was
    killed is taken up by the next one where the store says.
    """

    def __init__(
        self,
        query: StreamingQuery,
        store: Store,
        answers: Callable[[], Answers],
        rules: Rules,
        receiver: Receiver | None,
    ) -> None:
        super().__init__(name=f"rivermouth-exact-{query.runId}", daemon=True)
        self._query, self._store, self._answers = query, store, answers
        self._rules, self._receiver = rules, receiver
        self._batch: int | None = None
        self._due = math.inf  # when the oldest late record will have waited long enough
        self.error: BaseException | None = None
        self.finished = False

    def run(self) -> None:
        """Work until the query has ended; an error here ends the query, too."""
        try:
            while self._query.isActive:
                if self._has_moved() or time.time() >= self._due:
                    self._look()
                time.sleep(_LOOK)
        except BaseException as error:  # told by whoever waits for the query
            self.error = error
            self._query.stop()

    def finish(self) -> None:
        """Correct everything that is left and tell of it."""
        answers = self._answers()
        upto = answers.seen()["upto"]
        if upto is not None:
            self._correct(answers, answers.new_windows(), upto, final=True)
        self._tell()
        self.finished = True

    def _has_moved(self) -> bool:
        progress = self._query.lastProgress
        before, self._batch = self._batch, None if progress is None else progress["batchId"]
        return self._batch != before

    def _look(self) -> None:
        answers = self._answers()
        seen = answers.seen()
        self._due = (seen["oldest"] + self._rules.wait) / 1e6 if seen["records"] else math.inf
        if seen["span"] > self._rules.span or time.time() >= self._due:
            self._correct(answers, answers.late_windows(), seen["upto"], final=False)
            self._due = math.inf
        self._tell()

    def _correct(
        self, answers: Answers, touched: DataFrame | None, upto: int, *, final: bool
    ) -> None:
        rows = answers.differences(touched).withColumn(EMITTED, F.timestamp_micros(F.lit(upto)))
        self._store.correct(rows.select(*answers.answered), upto=upto, final=final)

    def _tell(self) -> None:
        """Hand on the changes since the last time; told again after a crash, never left out."""
        if self._receiver is None:
            return
        answers = self._answers()
        upto, told = answers.seen()["upto"], self._store.told()
        corrections = len(self._store.corrections())
        if upto is not None and (upto, corrections) != told:
            self._receiver(answers.changes(None if told is None else told[0] - 1))
            self._store.tell((upto, corrections))
