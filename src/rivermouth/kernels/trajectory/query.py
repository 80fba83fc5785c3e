"""What every operator on trajectories is defined by."""

from __future__ import annotations

from dataclasses import dataclass

import pyarrow as pa

#: the columns of rows that are no results, with ``late="rows"``
KIND, RECORD, REASON = "kind", "record", "reason"
#: the columns of a changelog, and its changes
CHANGE, REVISION = "change", "revision"
INSERT, UPDATE, DELETE = "insert", "update", "delete"


@dataclass(frozen=True)
class Trajectory:
    """Positions of moving objects, and how long they are waited for.

    Parameters
    ----------
    by
        The columns that tell objects apart.
    time
        The column of event times, a timestamp in microseconds.
    positions
        The columns that the state keeps of a position: `by`, `time` as int64 in microseconds since
        1970, and what the operator needs.
    tie_break
        Which of them order the positions of one object and time.
    lateness
        How much older than the newest position one may be, in microseconds.
    output
        The result's schema; with a column ``record`` late and rejected positions are rows, too.
    idle_timeout
        Microseconds of wall clock without input after which nothing is waited for; None: never.
    closes
        Whether all objects are folded once more when nothing is waited for any longer.
    identity
        Where results are emitted early, as a changelog: the columns that tell them apart.
    """

    by: tuple[str, ...]
    time: str
    positions: pa.Schema
    tie_break: tuple[str, ...]
    lateness: int
    output: pa.Schema
    idle_timeout: int | None = None
    closes: bool = False
    identity: tuple[str, ...] = ()

    @property
    def results(self) -> pa.Schema:
        """The output's columns that make a result, without those of a changelog."""
        added = (CHANGE, REVISION, RECORD)
        return pa.schema([field for field in self.output if field.name not in added])

    @property
    def late_rows(self) -> bool:
        """Whether late and rejected positions are rows of the result."""
        return RECORD in self.output.names
