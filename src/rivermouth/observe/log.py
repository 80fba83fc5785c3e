"""The micro-batches of a run: totals over its life, and the newest of them one by one."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable
from dataclasses import dataclass, field
from itertools import combinations
from typing import Any

from rivermouth.observe import operators

#: one micro-batch, as `reports.batch` makes it
Batch = dict[str, Any]

_RECENT = 2_000  # batches that are kept one by one
_SKETCHES = 8  # batches that keep their map sketch: what a map shows as dots
_MOST_OPERATORS = 4  # of a query whose entry operators are looked for


@dataclass
class Totals:
    """What a run has done since batch `since`; plain values, so that a history can keep it.

    Parameters
    ----------
    since, newest
        The numbers of the first and of the newest batch that are counted; -1 before the first.
    batches, missed
        How many are counted, and how many between these two are not, since nobody saw their
        reports.
    seconds, source_rows
        Summed over batches.
    known_rows, fed
        Rows by the batches' own count, and how many batches had rows.
    entries
        By names of operators: in how many batches they together took in all rows of the
        sources, and how many rows they took in.
    backlog, state
        Those of the newest batch.
    operators
        `operators.merged` records, by the names in ``observedMetrics``.
    """

    since: int = -1
    newest: int = -1
    batches: int = 0
    missed: int = 0
    seconds: float = 0.0
    source_rows: int = 0
    known_rows: int = 0
    fed: int = 0
    entries: dict[str, list[int]] = field(default_factory=dict)
    backlog: int | None = None
    state: dict[str, int] | None = None
    operators: dict[str, operators.Record] = field(default_factory=dict)

    @property
    def rows(self) -> int:
        """Input rows, each once, also where Spark ran a task again and its sources count twice.

        One operator counts its input itself. Of several, those are taken whose input was, in at
        least half of the batches, all that the sources read; if none were, the sources' count.
        """
        matched, rows = max(self.entries.values(), default=[0, 0])
        return rows if matched and 2 * matched >= self.fed else self.known_rows

    def add(self, batch: Batch) -> None:
        """Count a batch, unless it is counted already."""
        number = batch["batch"]
        if number <= self.newest:
            return
        self.since = number if self.since < 0 else self.since
        self.missed += number - self.newest - 1 if self.newest >= 0 else 0
        self.newest, self.batches = number, self.batches + 1
        self.seconds += batch["seconds"]
        self.source_rows += batch["source_rows"]
        self.known_rows += batch["rows"]
        self.backlog, self.state = batch["backlog"], batch["state"]
        if batch["source_rows"]:
            self.fed += 1
            self._add_entries(batch)
        for name, record in batch["operators"].items():
            self.operators[name] = operators.merged(self.operators.get(name), record, number)

    def _add_entries(self, batch: Batch) -> None:
        taken = {
            name: record["counts"].get("rows_in", 0)
            for name, record in sorted(batch["operators"].items())
        }
        if not 1 < len(taken) <= _MOST_OPERATORS:
            return
        for count in range(1, len(taken) + 1):
            for names in combinations(taken, count):
                rows = sum(taken[name] for name in names)
                entry = self.entries.setdefault(" ".join(names), [0, 0])
                entry[0] += rows == batch["source_rows"]
                entry[1] += min(rows, batch["source_rows"])


class Log:
    """The totals of a run, and its newest batches."""

    def __init__(self, batches: Iterable[Batch] = (), *, recent: int = _RECENT) -> None:
        self.totals = Totals()
        self.recent: deque[Batch] = deque(maxlen=recent)
        for batch in batches:
            self.add(batch)

    def add(self, batch: Batch) -> None:
        """Add the next batch; of older ones, what only a map shows is dropped."""
        self.totals.add(batch)
        self.recent.append(batch)
        if len(self.recent) > _SKETCHES:
            for record in self.recent[-_SKETCHES - 1]["operators"].values():
                record["sketch"] = record["events"] = None
