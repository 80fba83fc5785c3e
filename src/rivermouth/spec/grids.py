"""How a join of two streams cuts space and time into pieces."""

from __future__ import annotations

import math
import os
from dataclasses import dataclass

from rivermouth.errors import DefinitionError
from rivermouth.spec.durations import Duration, microseconds


@dataclass(frozen=True)
class Grid:
    """The pieces of space and time that rows are held in; None leaves a choice to the join."""

    cell: float | None = None
    bin_us: int | None = None
    buckets: int | None = None
    spread: int | None = None
    learn: str | None = None

    def __post_init__(self) -> None:
        cell = self.cell
        if cell is not None and not (math.isfinite(cell) and cell > 0):
            raise DefinitionError("grid", f"cell is {cell!r}", todo="Give a positive length.")
        for name in ("bin_us", "buckets", "spread"):
            count = getattr(self, name)
            if count is not None and count < 1:
                word = name.removesuffix("_us")
                raise DefinitionError("grid", f"{word} is {count}", todo="Make it positive.")


def grid(
    *,
    cell: float | None = None,
    bin: Duration | None = None,  # noqa: A002  (the paper's word)
    buckets: int | None = None,
    spread: int | None = None,
    learn: str | os.PathLike[str] | None = None,
) -> Grid:
    """The pieces of space and time in which a join of two streams holds its rows.

    They change how fast the join is, never what it gives. A checkpoint keeps those that it was
    written with.

    Parameters
    ----------
    cell
        The side of a cell: in the coordinates' unit, or in metres where distances are. None:
        eight times the distance asked for. A join by a topological predicate knows no distance;
        without a cell it deals one side's rows to all buckets, and the other's to each of them.
    bin
        The length of a bin of time. None: a quarter of the interval, or the step from window to
        window.
    buckets
        Into how many parts the join is divided. None: the session's shuffle partitions, at most
        32.
    spread
        Over how many buckets the left rows of one cell are dealt, each of which gets the cell's
        right rows: for cells so crowded that one bucket cannot keep up.
    learn
        A folder that all hosts reach, for this join and checkpoint only: crowded cells are
        found while the stream flows and dealt over several buckets from then on, as `spread`
        would, but only they. None: nothing is learned.

    Examples
    --------
    >>> grid(cell=2_000, bin="1 minute")
    Grid(cell=2000, bin_us=60000000, buckets=None, spread=None, learn=None)
    """
    length = None if bin is None else microseconds(bin, where="grid(bin=)")
    return Grid(cell, length, buckets, spread, None if learn is None else os.fspath(learn))
