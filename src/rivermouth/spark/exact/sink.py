"""Answers kept in another store besides: rows written over by key."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from pyspark.sql import DataFrame

from rivermouth.errors import DefinitionError
from rivermouth.spark.correct import newest_answers, window_keys
from rivermouth.spark.exact.corrector import Receiver
from rivermouth.spark.exact.results import CHANGE
from rivermouth.spark.exact.store import EMITTED, WHERE
from rivermouth.spec.summaries import REVISION, Summary
from rivermouth.tables.source import Upserting


@dataclass(frozen=True)
class _IntoTable:
    """Hands the newest of each window's changes to a table that writes by key."""

    table: Upserting
    summary: Summary

    def __call__(self, changes: DataFrame) -> None:
        order = (EMITTED, REVISION)
        rows = newest_answers(changes, self.summary, order=order).toArrow()
        gone = rows.column(CHANGE).to_pylist()
        keep = [change != "delete" for change in gone]
        keys = window_keys(self.summary)
        answers = rows.drop_columns([CHANGE])
        self.table.upsert(answers.filter(keep), keys=keys, order=order)
        self.table.delete(answers.filter([not kept for kept in keep]).select(keys))


def receiver_of(into: Any, summary: Summary) -> Receiver | None:
    """What takes the changes: nothing, a table, or the user's function."""
    if into is None:
        return None
    if isinstance(into, Upserting):
        return _IntoTable(into, summary)
    if callable(into):
        receiver: Receiver = into
        return receiver
    raise DefinitionError(
        WHERE,
        f"into={into!r} takes no changes",
        todo="Give a table of rm.tables.postgres, or a function of one frame.",
    )
