"""How a join of two streams partitions space and time."""

from __future__ import annotations

import math
import os
from dataclasses import dataclass
from typing import Literal, get_args

from rivermouth.errors import DefinitionError
from rivermouth.spec.durations import Duration, microseconds
from rivermouth.spec.locations import Location

StreamIndexName = Literal["bands", "binrtree"]


@dataclass(frozen=True)
class Grid:
    """The cells of space and bins of time of a stream join; None leaves a choice to the join."""

    cell: float | None = None
    bin_us: int | None = None
    salt: int | None = None
    skew_path: Location | None = None
    index: StreamIndexName | None = None

    def __post_init__(self) -> None:
        cell = self.cell
        if cell is not None and not (math.isfinite(cell) and cell > 0):
            raise DefinitionError("grid", f"cell is {cell!r}", todo="Give a positive length.")
        for name, count in (("bin", self.bin_us), ("salt", self.salt)):
            if count is not None and count < 1:
                raise DefinitionError("grid", f"{name} is {count}", todo="Make it positive.")
        if self.index is not None and self.index not in get_args(StreamIndexName):
            raise DefinitionError(
                "grid",
                f"{self.index!r} is not an index",
                todo=f"Use one of {list(get_args(StreamIndexName))}.",
            )


def grid(
    *,
    cell: float | None = None,
    bin: Duration | None = None,  # noqa: A002  (the paper's word)
    salt: int | None = None,
    skew_path: str | os.PathLike[str] | None = None,
    index: StreamIndexName | None = None,
) -> Grid:
    """The cells of space and bins of time in which a join of two streams keeps its rows.

    They change how fast the join is, never its result. A checkpoint keeps those that it was
    written with.

    Parameters
    ----------
    cell
        The side of a cell: in the coordinates' unit, or in metres where distances are. None:
        eight times the distance in `on`. A join by a topological predicate has no distance:
        without a cell, rows of two columns of shapes go to a row and a column of a lattice of
        buckets, and where one side is `rm.point` its rows are spread over all buckets, and the
        other's sent to each. Shapes that are small beside their area are joined faster with a
        cell, some ten times as wide as they are.
    bin
        The length of a bin of time. None: a quarter of the interval, at least a second; or the step
        from window to window, several where very many overlap.
    salt
        Over how many buckets the rows of every cell are spread, those of the side that lives in one
        bucket each (as a rule the left one); the other side's rows are replicated to each. For
        cells that are too dense for one bucket.
    skew_path
        A folder that all hosts reach, for this join and checkpoint only: skewed cells are detected
        while the stream runs and salted from then on, as `salt` would, but only they. None: skew
        is not tracked.
    index
        How ``rm.dwithin`` between two `rm.point` finds near rows in a bucket: "bands", points
        sorted by band, slot of time and x on both sides; or "binrtree", paper C's R-tree for each
        bin, which is slower and kept to be measured. None: "bands".

    Examples
    --------
    >>> grid(cell=2_000, bin="1 minute")
    Grid(cell=2000, bin_us=60000000, salt=None, skew_path=None, index=None)
    """
    length = None if bin is None else microseconds(bin, where="grid(bin=)")
    folder = None if skew_path is None else Location(os.fspath(skew_path))
    return Grid(cell, length, salt, folder, index)
