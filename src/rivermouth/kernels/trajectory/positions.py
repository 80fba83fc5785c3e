"""Positions that wait in a bucket's state until the watermark has passed them.

Positions of all objects of a bucket are buffered together in segments of Arrow rows
(`state.segments`), appended once per micro-batch. When the watermark advances, those older than it
leave in the order of their event time, whatever the order was in which they came: `release` takes
them out, `ordered` sorts them by object, time and a tie-break on the values themselves. A position
as old as the watermark waits: another of the same time can still come.

What an operator knows of an object from earlier positions is not kept here but in `objects`.
"""

from __future__ import annotations

from collections.abc import MutableMapping, Sequence
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from rivermouth.kernels.arrays import Ints
from rivermouth.kernels.state.segments import Segments

#: later than every time
NEWEST = (1 << 62) - 1
_ROW = "_row"


class Positions:
    """The positions that are not released yet.

    Parameters
    ----------
    store
        The bucket's state.
    time
        The column of event times, in microseconds since 1970 as int64.
    kept
        What `kept` returned when the state was last written.
    """

    def __init__(
        self, store: MutableMapping[str, bytes], time: str, kept: dict[str, Any] | None = None
    ) -> None:
        found = kept or {}
        self._segments = Segments(store, "p", time, kept=found.get("segments"), cache={})
        self._waiting: int = found.get("waiting", 0)

    def kept(self) -> dict[str, Any]:
        """What is there, as JSON for the state."""
        return {"segments": self._segments.kept(), "waiting": self._waiting}

    def __len__(self) -> int:
        return self._waiting

    def attach(self, store: MutableMapping[str, bytes]) -> None:
        """Use the store of another micro-batch, which holds the same state."""
        self._segments.attach(store)

    def add(self, rows: pa.Table) -> None:
        """Keep positions until they are released; none may be older than the last release."""
        self._segments.append(rows)
        self._waiting += rows.num_rows

    def release(self, since: int, before: int) -> pa.Table | None:
        """Take out the positions with times in [since, before), in no order; None if none.

        `since` is the `before` of the last release.
        """
        rows = self._segments.rows(since, before - 1) if before > since else None
        self._segments.drop_below(before)
        if rows is None or not rows.num_rows:
            return None
        self._waiting -= rows.num_rows
        return rows.combine_chunks()

    def held(self, since: int) -> pa.Table | None:
        """The positions that wait, in no order; None if none. `since` is as in `release`."""
        return self._segments.rows(since, NEWEST)


def ordered(
    rows: pa.Table, objects: Ints, *, time: str, tie_break: Sequence[str]
) -> tuple[pa.Table, Ints]:
    """The positions by object and time, and where in `rows` each was.

    Positions of one object and time are ordered by the columns `tie_break`, null last: by their
    values, so that the order of arrival has no effect. Those equal in all of them keep their order.

    Examples
    --------
    >>> rows = pa.table({"at": [5, 3, 5], "x": [2.0, 1.0, 1.0]})
    >>> ordered(rows, np.array([0, 0, 0]), time="at", tie_break=["x"])[1]
    array([1, 2, 0])
    """
    times = rows.column(time).to_numpy()
    order = np.lexsort((times, objects))
    same = np.zeros(len(order), dtype=bool)
    same[1:] = (np.diff(objects[order]) == 0) & (np.diff(times[order]) == 0)
    if same.any() and tie_break:
        tied = np.flatnonzero(same | np.append(same[1:], False))
        run = np.cumsum(~same)[tied]  # ties stay among themselves
        columns = {"_run": pa.array(run)}
        columns |= {name: comparable(rows.column(name).take(order[tied])) for name in tie_break}
        columns[_ROW] = pa.array(np.arange(len(tied)))
        keys = [(name, "ascending") for name in columns]
        within = pc.sort_indices(pa.table(columns), keys).to_numpy()
        order[tied] = order[tied][within]
    return rows.take(pa.array(order)), order


def comparable(column: pa.ChunkedArray) -> pa.ChunkedArray:
    """A column that Arrow can sort and compare: of Spark's GEOMETRY, a struct, the WKB."""
    return pc.struct_field(column, "wkb") if pa.types.is_struct(column.type) else column
