"""The controller of K: how long windows wait, from what is known of delays.

K = alpha * k with k the largest delay remembered. For a promised quality alpha follows the paper's
proportional-derivative controller (docs/design.md, paper B): each settled window moves it by
Kp * err + Kd * (err - err before), err being the required coverage less the window's. What the
paper leaves open: alpha stays in [0, 1]; k forgets; a window counts only once it has settled;
until the first has, alpha is 1, and then starts at the delay below which the required share of
records lies.

The controller holds the mean coverage, and records are late in bursts. With calibration K is
chosen directly: of each settled window it is known how long it would have had to wait for the
coverage it required, and K is the wait that was enough for all but delta of them. The required
coverage is learned from the errors: it grows with each result whose error was eps or more, and
falls with each other, such that it rests where delta of them are.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from rivermouth.kernels.arrays import Ints
from rivermouth.spec.slack import Fixed, MaxDelay, Quality, Slack

_STEPS = 8  # bins of delays for each doubling
_LEARNING_RATE = 0.005
_LEARNED = (-1.0, 4.0)  # bounds of what is learned
_GOAL = 0.9  # of delta: what is aimed at, so that delta is kept while it is being learned
_MEMORY_US = 600_000_000
_FOREVER = 1 << 62


@dataclass
class DelayHistogram:
    """Recent delays: how many of which length, and the largest; its fields are names in the state.

    The largest is forgotten once it has not been met for one to two times `memory` microseconds
    of event time: of two periods of that length the older one's is dropped when the next begins.
    """

    memory: int
    begun: int | None = None
    largest_now: int = 0
    largest_before: int = 0
    seen: dict[int, float] = field(default_factory=dict)

    @property
    def largest(self) -> int:
        """The largest delay that is remembered, in microseconds."""
        return max(self.largest_now, self.largest_before)

    def add(self, delays: Ints, time: int) -> None:
        """Remember the delays of records that came when the newest event time was `time`."""
        if self.begun is None:
            self.begun = time
        if (periods := (time - self.begun) // self.memory) > 0:
            self.begun += periods * self.memory
            self.largest_before = self.largest_now if periods == 1 else 0
            self.largest_now = 0
            self.seen = {
                bin_: weight * 0.5 ** min(periods, 2) for bin_, weight in self.seen.items()
            }
        if len(delays):
            self.largest_now = max(self.largest_now, int(delays.max()))
            logs = np.log2(np.maximum(delays, 1).astype(np.float64))
            of = np.where(delays <= 0, 0, 1 + np.floor(logs * _STEPS)).astype(np.int64)
            bins, counts = np.unique(of, return_counts=True)
            for bin_, count in zip(bins.tolist(), counts.tolist(), strict=True):
                self.seen[bin_] = self.seen.get(bin_, 0.0) + count

    def quantile(self, share: float) -> float:
        """A delay that at least `share` of the records did not exceed."""
        total, below = sum(self.seen.values()), 0.0
        for bin_ in sorted(self.seen):
            below += self.seen[bin_]
            if below >= share * total:
                return min(_upper_bound(bin_), float(self.largest))
        return float(self.largest)

    def coverage(self, slack: float, size: int) -> float:
        """The share of a window's records that `slack` lets in, times being spread evenly."""
        total = sum(self.seen.values())
        inside = sum(
            weight * min(1.0, max(0.0, (slack + size - _upper_bound(bin_)) / size))
            for bin_, weight in self.seen.items()
        )
        return inside / total if total else 1.0


def _upper_bound(bin_: int) -> float:
    """The largest delay of a bin: 0 of the first, then `_STEPS` bins for each doubling."""
    return 0.0 if bin_ == 0 else 2 ** (bin_ / _STEPS)


@dataclass(frozen=True)
class SettledWindow:
    """A window that late records no longer change.

    Its coverage when it closed, the share of its results whose error was eps or more, and how long
    it would have had to wait for the records it required, in microseconds.
    """

    coverage: float
    missed: float
    required_wait: int = 0


@dataclass
class SlackController:
    """K, and all that it depends on; its fields but the first are names in the state."""

    slack: Slack
    delays: DelayHistogram
    waits: DelayHistogram
    alpha: float = 1.0
    before: float | None = None
    learned: float = 0.0

    @classmethod
    def of(cls, slack: Slack, kept: dict[str, Any] | None = None) -> SlackController:
        """The controller of `slack`, as it was kept or from the start."""
        if kept is not None:
            for histogram in (kept["delays"], kept["waits"]):  # JSON has texts for keys
                histogram["seen"] = {int(bin_): n for bin_, n in histogram["seen"].items()}
            delays, waits = (DelayHistogram(**kept.pop(name)) for name in ("delays", "waits"))
            return cls(slack, delays, waits, **kept)
        memory = _FOREVER if isinstance(slack, MaxDelay) else _MEMORY_US
        if isinstance(slack, Quality):
            memory = round(slack.memory.total_seconds() * 1e6)
        return cls(slack, DelayHistogram(memory), DelayHistogram(memory))

    def kept(self) -> dict[str, Any]:
        """What `of` takes."""
        fields = {name: value for name, value in vars(self).items() if name != "slack"}
        return fields | {"delays": vars(self.delays), "waits": vars(self.waits)}

    @property
    def k_us(self) -> int:
        """K, in microseconds."""
        match self.slack:
            case Fixed(length):
                return round(length.total_seconds() * 1e6)
            case MaxDelay():
                return self.delays.largest
            case Quality(calibrate=True, delta=delta) if self.waits.seen:
                return math.ceil(self.waits.quantile(1 - _GOAL * delta))
        return math.ceil(self.alpha * self.delays.largest)

    def settle(
        self, windows: list[SettledWindow], share: float, time: int, *, with_waits: bool = False
    ) -> None:
        """Learn from windows that have settled, in order; `share` of their records was required.

        `time` is the newest event time; `with_waits` says whether `required_wait` is known.
        """
        if not isinstance(self.slack, Quality):
            return
        if with_waits:
            self.waits.add(np.array([window.required_wait for window in windows], np.int64), time)
        kp, kd = self.slack.gains
        for window in windows:
            if self.slack.calibrate:
                above = window.missed - _GOAL * self.slack.delta
                learned = self.learned + _LEARNING_RATE * above
                self.learned = min(_LEARNED[1], max(_LEARNED[0], learned))
            required = self.required(share)
            error = required - window.coverage
            if self.before is None:
                self.alpha = self.delays.quantile(required) / max(self.delays.largest, 1)
            else:
                self.alpha += kp * error + kd * (error - self.before)  # the paper's formula (1)
            self.alpha, self.before = min(1.0, max(0.0, self.alpha)), error

    def required(self, share: float) -> float:
        """The required coverage, as calibration has moved it."""
        return 1 - (1 - share) * math.exp(-self.learned)
