"""How long windows wait: what is remembered of delays, and the controller of K.

K = alpha * k with k the largest delay remembered. For a promised quality alpha follows the
paper's controller (method, part B 3): each settled window moves it by
Kp * err + Kd * (err - err before), err being the share of records that is needed less the share
that the window had. What the paper leaves open: alpha stays in [0, 1]; k forgets; a window counts
only once it has settled; until the first has, alpha is 1, and then starts at the delay below
which the needed share of records lies.

The controller holds the mean share, and records are late in bursts. With calibration the promise
is held directly: of each settled window it is known how long it would have had to wait for the
share it needed, and K is the wait that was enough for all but delta of them. What share is needed
is learned from the errors: it grows with each answer whose error was eps or more, and falls with
each other, such that it rests where delta of them are.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt

from rivermouth.spec.slack import Fixed, MaxDelay, Quality, Slack

Ints = npt.NDArray[np.int64]

_STEPS = 8  # bins of delays for each doubling
_BINS = 64 * _STEPS
_LEARNS = 0.005  # how far a missed answer moves what is learned
_LEARNED = (-1.0, 4.0)  # the least and the most that can be
_GOAL = 0.9  # of delta: what is aimed at, so that the promise is kept while it is being learned
_MEMORY_US = 600_000_000


@dataclass
class Delays:
    """The delays of late: how many of which length, and the largest.

    The largest is forgotten once it has not been met for one to two times `memory` microseconds
    of event time: of two spans of that length the older one's is dropped when the next begins.
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
        """Remember the delays of records that came when the clock then went to `time`."""
        if self.begun is None:
            self.begun = time
        while time - self.begun >= self.memory:
            ahead = min((time - self.begun) // self.memory, 2)
            self.begun += (time - self.begun) // self.memory * self.memory
            self.largest_before = self.largest_now if ahead == 1 else 0
            self.largest_now = 0
            self.seen = {bin_: weight * 0.5**ahead for bin_, weight in self.seen.items()}
        if len(delays):
            self.largest_now = max(self.largest_now, int(delays.max()))
            bins, counts = np.unique(_bins(delays), return_counts=True)
            for bin_, count in zip(bins.tolist(), counts.tolist(), strict=True):
                self.seen[bin_] = self.seen.get(bin_, 0.0) + count

    def quantile(self, share: float) -> float:
        """A delay that at least `share` of the records did not exceed."""
        total, sum_ = sum(self.seen.values()), 0.0
        for bin_ in sorted(self.seen):
            sum_ += self.seen[bin_]
            if sum_ >= share * total:
                return min(_edge(bin_), float(self.largest))
        return float(self.largest)

    def coverage(self, slack: float, size: int) -> float:
        """The share of a window's records that `slack` lets in, times being spread evenly."""
        total = sum(self.seen.values())
        if not total:
            return 1.0
        reach = ((bin_, weight) for bin_, weight in self.seen.items())
        inside = sum(
            weight * min(1.0, max(0.0, (slack + size - _edge(bin_)) / size))
            for bin_, weight in reach
        )
        return inside / total


def _bins(delays: Ints) -> Ints:
    """The bin of each delay: 0 for none, then `_STEPS` for each doubling."""
    logs = np.log2(np.maximum(delays, 1).astype(np.float64))
    return np.where(delays <= 0, 0, 1 + np.floor(logs * _STEPS)).astype(np.int64)


def _edge(bin_: int) -> float:
    """The largest delay of a bin."""
    return 0.0 if bin_ == 0 else 2 ** (bin_ / _STEPS)


@dataclass(frozen=True)
class Settled:
    """A window that late records no longer change.

    Its share of records in hand at close, the share of its answers whose error was eps or more,
    and how long it would have had to wait for the records it needed, in microseconds.
    """

    coverage: float
    missed: float
    needed: int = 0


@dataclass
class Control:
    """K, and all that it depends on; a plain dict of it is kept in the state."""

    slack: Slack
    delays: Delays
    waits: Delays
    alpha: float = 1.0
    before: float | None = None
    learned: float = 0.0

    @classmethod
    def of(cls, slack: Slack, kept: dict[str, Any] | None = None) -> Control:
        """The controller of `slack`, as it was kept or from the start."""
        memory = _MEMORY_US
        if isinstance(slack, Quality):
            memory = round(slack.memory.total_seconds() * 1e6)
        elif isinstance(slack, MaxDelay):
            memory = 1 << 62  # it never forgets
        if kept is None:
            return cls(slack, Delays(memory), Delays(memory))
        delays, waits = (_restored(kept.pop(name)) for name in ("delays", "waits"))
        return cls(slack, delays, waits, **kept)

    def kept(self) -> dict[str, Any]:
        """What `of` takes."""
        plain = {name: value for name, value in vars(self).items() if name != "slack"}
        return plain | {"delays": vars(self.delays), "waits": vars(self.waits)}

    @property
    def wait(self) -> int:
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
        self, windows: list[Settled], share: float, time: int, *, waited: bool = False
    ) -> None:
        """Learn from windows that have settled, in order; `share` of their records was needed.

        `time` is the clock's, and `waited` says whether it is known how long they had to wait.
        """
        if not isinstance(self.slack, Quality):
            return
        if waited:
            self.waits.add(np.array([window.needed for window in windows], np.int64), time)
        for window in windows:
            if self.slack.calibrate:
                self._learn(window.missed - _GOAL * self.slack.delta)
            self._steer(self.wanted(share) - window.coverage, self.wanted(share))

    def _learn(self, beyond: float) -> None:
        least, most = _LEARNED
        self.learned = min(most, max(least, self.learned + _LEARNS * beyond))

    def _steer(self, error: float, wanted: float) -> None:
        """Move alpha by the paper's formula (1)."""
        assert isinstance(self.slack, Quality)
        proportional, derivative = self.slack.gains
        if self.before is None:
            self.alpha = self.delays.quantile(wanted) / max(self.delays.largest, 1)
        else:
            self.alpha += proportional * error + derivative * (error - self.before)
        self.alpha = min(1.0, max(0.0, self.alpha))
        self.before = error

    def wanted(self, share: float) -> float:
        """The share of records that is needed, as calibration has moved it."""
        return 1 - (1 - share) * math.exp(-self.learned)


def _restored(kept: dict[str, Any]) -> Delays:
    seen = {int(bin_): weight for bin_, weight in kept.pop("seen").items()}
    return Delays(**kept, seen=seen)
