"""A bucket's state: how far it has come, what it keeps of records, and what it has learned."""

from __future__ import annotations

import json
from collections.abc import MutableMapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from rivermouth.kernels.aggregation.control import Control
from rivermouth.kernels.aggregation.evaluation import WINDOW
from rivermouth.kernels.aggregation.partials import PANE, Answers, Book
from rivermouth.kernels.aggregation.segments import Ledger
from rivermouth.kernels.aggregation.thresholds import Shape
from rivermouth.spec.slack import Slack

Ints = npt.NDArray[np.int64]

#: raised when what is kept in the state changes its meaning
FORMAT = 1
_META = "meta"
_RECENT = 0.05  # the weight of a step's windows in what is known of their shape


@dataclass
class Position:
    """How far a bucket has come.

    Parameters
    ----------
    newest
        The largest event time seen, in microseconds; None before the first.
    closed
        The last window that has closed; None before the first.
    settled
        The last window that was checked.
    heard
        The wall clock at the last record.
    """

    newest: int | None = None
    closed: int | None = None
    settled: int | None = None
    heard: int = 0


class State:
    """A bucket's state while a step runs over it."""

    def __init__(
        self, book: Book, slack: Slack, store: MutableMapping[str, bytes], hint: dict[str, Any]
    ) -> None:
        self._book, self._store = book, store
        kept = json.loads(store[_META]) if _META in store else {}
        self.position = Position(**kept.get("position", {}))
        self.control = Control.of(slack, kept.get("control"))
        self.shapes: dict[str | None, Shape] = {
            (None if at < 0 else book.summary.columns[at]): Shape(**shape)
            for at, shape in kept.get("shapes", [])
        }
        self.entries = Ledger(
            store, "e", PANE, kept=kept.get("entries"),
            held=hint.setdefault("entries", {}), merge=book.merge,
        )  # fmt: skip
        self.early = Ledger(
            store, "a", WINDOW, kept=kept.get("early"), held=hint.setdefault("early", {})
        )
        self.arrivals = Ledger(
            store, "w", PANE, kept=kept.get("arrivals"), held=hint.setdefault("arrivals", {})
        )

    def save(self) -> dict[str, int]:
        """Write what is not yet in the store; how many segments and rows there are."""
        columns = self._book.summary.columns
        kept = {
            "position": vars(self.position),
            "control": self.control.kept(),
            "shapes": [
                (-1 if name is None else columns.index(name), vars(shape))
                for name, shape in self.shapes.items()
            ],
            "entries": self.entries.kept(),
            "early": self.early.kept(),
            "arrivals": self.arrivals.kept(),
        }
        self._store[_META] = json.dumps(kept).encode()
        return {"entries": len(self.entries), "unchecked": len(self.early)}

    def delays(self, delays: Ints, newest: int) -> None:
        """Remember the delays of records that came when the clock was at `newest`."""
        self.control.delays.add(delays, newest)

    def coverage(self) -> float:
        """The share of its records that a window that closes now can expect to have."""
        return self.control.delays.coverage(self.control.wait, self._book.grid.size)

    @property
    def settling(self) -> int:
        """How long after its end a window is checked, in microseconds."""
        return max(self.control.delays.largest, self.control.wait)

    @property
    def settled(self) -> int:
        """The last window that no record changes any more here; some window has closed."""
        if self.position.settled is not None:
            return self.position.settled
        assert self.position.closed is not None
        first = self.early.lowest()
        return self.position.closed if first is None else first - 1

    def answers(self, first: int, last: int) -> Answers | None:
        """The windows from `first` to `last`, as the records of now have them."""
        entries = self.entries.rows(*self.panes(first, last))
        return None if entries is None else self._book.answers(entries, first, last)

    def panes(self, first: int, last: int) -> tuple[int, int]:
        """The first and the last pane of the windows from `first` to `last`."""
        grid = self._book.grid
        return grid.first_pane(first), grid.first_pane(last) + grid.size // grid.pane - 1

    def learn(self, shapes: dict[str | None, Shape]) -> None:
        """Let what is known of the windows' shape follow what they are like now."""
        for column, new in shapes.items():
            old = self.shapes.get(column, new)
            self.shapes[column] = old.towards(new, _RECENT) if old.is_finite else new

    def forget(self) -> None:
        """Drop what no window that is open or unchecked needs."""
        if self.position.closed is not None:
            pane = self._book.grid.first_pane(self.settled + 1)
            self.entries.forget(pane)
            self.arrivals.forget(pane)
            self.early.forget(self.settled + 1)
