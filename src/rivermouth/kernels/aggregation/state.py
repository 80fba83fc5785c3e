"""A bucket's state: how far it has come, its partial aggregates, and what it has learned."""

from __future__ import annotations

import json
from collections.abc import MutableMapping
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
import pyarrow as pa

from rivermouth.kernels.aggregation import waits
from rivermouth.kernels.aggregation.control import SettledWindow, SlackController
from rivermouth.kernels.aggregation.evaluation import WINDOW
from rivermouth.kernels.aggregation.plan import PANE, AggPlan, WindowResults
from rivermouth.kernels.aggregation.promise import first_kept, learned_wait
from rivermouth.kernels.aggregation.thresholds import WindowStats
from rivermouth.kernels.state.segments import Segments
from rivermouth.spec.slack import Quality, Slack

#: raised when what is kept in the state changes its meaning
FORMAT = 1
_META = "meta"
_BEFORE = -(1 << 62)  # the newest event time before the first record
_RECENT = 0.05  # the weight of a micro-batch's windows in their statistics


@dataclass
class Progress:
    """How far a bucket has come; its fields are names in the state.

    Parameters
    ----------
    newest
        The largest event time seen, in microseconds; None before the first.
    closed
        The last window that has closed; None before the first.
    settled
        The last window that was evaluated.
    heard
        The wall clock at the last record.
    """

    newest: int | None = None
    closed: int | None = None
    settled: int | None = None
    heard: int = 0


class BucketState:
    """A bucket's state while a micro-batch is processed."""

    def __init__(
        self, plan: AggPlan, slack: Slack, store: MutableMapping[str, bytes], cache: dict[str, Any]
    ) -> None:
        self._plan, self._store = plan, store
        kept = json.loads(store[_META]) if _META in store else {}
        self.progress = Progress(**kept.get("position", {}))
        shared = -(-plan.grid.size // plan.grid.every)
        self.controller = SlackController.of(slack, kept.get("control"), overlap=shared)
        self.stats: dict[str | None, WindowStats] = {
            (None if at < 0 else plan.summary.columns[at]): WindowStats(**stats)
            for at, stats in kept.get("shapes", [])
        }

        def segments(name: str, prefix: str, position: str, **options: Any) -> Segments:
            tables = cache.setdefault(name, {})
            return Segments(store, prefix, position, kept=kept.get(name), cache=tables, **options)

        self.partials = segments("entries", "e", PANE, merge=plan.merge)
        self.early = segments("early", "a", WINDOW)
        self.arrived = segments("arrived", "r", PANE, merge=partial(waits.merge, plan))
        self.waits = segments("waits", "n", WINDOW)
        segments("arrivals", "w", PANE).clear()  # the first version's

    def save(self) -> dict[str, int]:
        """Write what is not yet in the store; how many rows there are."""
        columns = self._plan.summary.columns
        kept = {
            "position": vars(self.progress),
            "control": self.controller.kept(),
            "shapes": [
                (-1 if name is None else columns.index(name), vars(stats))
                for name, stats in self.stats.items()
            ],
            "entries": self.partials.kept(),
            "early": self.early.kept(),
            "arrived": self.arrived.kept(),
            "waits": self.waits.kept(),
        }
        self._store[_META] = json.dumps(kept).encode()
        return {"entries": len(self.partials), "unchecked": len(self.early)}

    @property
    def settled(self) -> int:
        """The last window that no record changes any more here; some window has closed."""
        if self.progress.settled is not None:
            return self.progress.settled
        assert self.progress.closed is not None
        first = self.early.lowest()
        return self.progress.closed if first is None else first - 1

    def results(self, first: int, last: int) -> WindowResults | None:
        """The windows from `first` to `last` by the records so far; None where there are none."""
        partials = self.partials.rows(*self.panes(first, last))
        results = None if partials is None else self._plan.results(partials, first, last)
        return results if results is not None and len(results) else None

    def panes(self, first: int, last: int) -> tuple[int, int]:
        """The first and the last pane of the windows from `first` to `last`."""
        begin, end = self._plan.grid.pane_range(first, last)
        return begin, end - 1

    def learn(self, stats: dict[str | None, WindowStats]) -> None:
        """Let the windows' statistics follow those of recent windows."""
        for column, new in stats.items():
            old = self.stats.get(column, new)
            self.stats[column] = old.towards(new, _RECENT) if old.is_finite else new

    def replay_later(self, partials: pa.Table) -> None:
        """Keep partials that have come now, of a sample of groups, until their windows settle."""
        newest = _BEFORE if self.progress.newest is None else self.progress.newest
        sampled, bound = waits.sample(self._plan, partials, self.controller.sampled)
        self.controller.sampled = bound
        self.arrived.append(waits.with_clock(self._plan.grid, sampled, newest))

    def learn_wait(
        self, slack: Quality, windows: list[SettledWindow], final: WindowResults, missing: float
    ) -> None:
        """Learn how long windows have to wait from those that have settled."""
        first, last = windows[0].window, windows[-1].window
        arrived = self.arrived.rows(*self.panes(first, last))
        if arrived is not None:
            shares = {each.window: each.missed / each.results for each in windows}
            needed = waits.needed_waits(self._plan, slack, arrived, final, shares)
            self.waits.append(needed)
        if (kept := self.waits.rows(_BEFORE, last)) is not None:
            overlap = waits.overlap(self._plan.grid)
            window, wait, missed = waits.revised(kept, missing)
            self.controller.wait = learned_wait(window, wait, missed, slack.delta, overlap)
            if len(window):
                self.waits.drop_below(first_kept(window, slack.delta, overlap))

    def came_after_all(self, partials: pa.Table, missing: float) -> int:
        """Count records of windows that had settled; about how many results they make missed."""
        assert self.progress.newest is not None
        partials, self.controller.sampled = waits.sample(
            self._plan, partials, self.controller.sampled
        )
        rows = waits.came_after_all(self._plan, partials, self.settled, self.progress.newest)
        if (kept := self.waits.rows(_BEFORE, self.settled)) is None or not rows.num_rows:
            return 0
        self.waits.append(rows)
        window, _, before = waits.revised(kept, missing)
        _, _, now = waits.revised(pa.concat_tables([kept, rows]), missing)
        windows = len(np.unique(window)) * waits.stride(self._plan.grid)
        share = float(now.sum() - before.sum()) * windows / max(1, len(window))
        return self.controller.share.revise(share)

    def drop_settled(self) -> None:
        """Drop what no window that is open or not yet evaluated needs."""
        if self.progress.closed is not None:
            first = self.settled + 1
            pane, _ = self.panes(first, first)
            self.partials.drop_below(pane)
            self.arrived.drop_below(pane)
            self.early.drop_below(first)
