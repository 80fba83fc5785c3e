"""Streaming queries that are played: as much of a query as the recorder asks for."""

from __future__ import annotations

import uuid
from typing import Any


class PlayedQuery:
    """A query with a script: more reports each time somebody asks whether it runs.

    Parameters
    ----------
    looks
        The reports that come with each look; the query has ended with the last.
    failure
        What it ended with.
    kept
        How many of the newest reports it still has, as Spark.
    """

    name = None

    def __init__(
        self, *looks: list[Any], failure: Exception | None = None, kept: int = 100
    ) -> None:
        self.id, self.runId = uuid.uuid4(), uuid.uuid4()
        self._looks, self._at, self._failure, self._kept = looks, -1, failure, kept
        self.asked_for_all = 0

    @classmethod
    def ended(cls, *reports: Any) -> PlayedQuery:
        """A query that has ended with these reports."""
        query = cls(list(reports))
        query._at = 0
        return query

    @property
    def isActive(self) -> bool:  # noqa: N802  (Spark's name)
        self._at += 1
        return self._at < len(self._looks) - 1

    @property
    def _reports(self) -> list[Any]:
        reports = [one for look in self._looks[: self._at + 1] for one in look]
        return reports[-self._kept :]

    @property
    def lastProgress(self) -> Any:  # noqa: N802
        return self._reports[-1] if self._reports else None

    @property
    def recentProgress(self) -> list[Any]:  # noqa: N802
        self.asked_for_all += 1
        return self._reports

    def exception(self) -> Exception | None:
        return self._failure
