"""Event time in slots: stretches of several windows, by which a store keeps partials and results.

A window belongs to the slot in which it starts. A slot is longer than a window, so that a window
needs the partials of its own slot and of the next one only.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa

from rivermouth.kernels.aggregation.panes import WindowLayout
from rivermouth.kernels.aggregation.plan import PANE
from rivermouth.kernels.arrays import Ints

_WINDOWS = 4  # the fewest lengths of a window that a slot is long
_SHORTEST = 600_000_000  # microseconds: short windows share a slot, or there would be many files


@dataclass(frozen=True)
class Slots:
    """Slot k is [k * length, (k + 1) * length) from the windows' start on, in microseconds.

    Examples
    --------
    >>> slots = Slots.of(WindowLayout(60_000_000, 20_000_000, 20_000_000))
    >>> slots.length // 60_000_000, slots.of_time(-1), slots.windows(-1)
    (16, -1, (-48, -1))
    """

    grid: WindowLayout
    length: int

    @classmethod
    def of(cls, grid: WindowLayout) -> Slots:
        """The slots for these windows."""
        windows = _WINDOWS
        while windows * grid.size < _SHORTEST:
            windows *= 2
        return cls(grid, windows * grid.size)

    def of_time(self, micros: Any) -> Any:
        """The slot of each time."""
        return (micros - self.grid.start) // self.length

    def of_pane(self, pane: Any) -> Any:
        """The slot of each pane."""
        return pane // (self.length // self.grid.pane)

    def windows(self, slot: int) -> tuple[int, int]:
        """The first and the last window that start in the slot."""
        first, behind = (-(-each * self.length // self.grid.every) for each in (slot, slot + 1))
        return first, behind - 1

    def touched(self, slot: int) -> tuple[int, int]:
        """The slots whose windows can hold a record of this one."""
        return slot - 1, slot


def by_slot(table: pa.Table, slot: Ints) -> Iterator[tuple[int, pa.Table]]:
    """The rows of each slot, in the order in which they were."""
    if not len(slot):
        return
    if (slot == slot[0]).all():
        yield int(slot[0]), table
        return
    order = np.argsort(slot, kind="stable")
    ordered, rows = slot[order], table.take(pa.array(order))
    begins = np.flatnonzero(np.append(True, np.diff(ordered) != 0))
    for begin, end in zip(begins, np.append(begins[1:], len(slot)), strict=True):
        yield int(ordered[begin]), rows.slice(begin, end - begin)


def partials_by_slot(slots: Slots, partials: pa.Table) -> Iterator[tuple[int, pa.Table]]:
    """The partials of each slot."""
    return by_slot(partials, slots.of_pane(partials.column(PANE).to_numpy()))
