"""The controller of K: how long windows wait, from what is known of delays.

For a promised quality K is learned: of each window that has settled it is known how long it would
have had to wait, and K is a wait that was enough for all but delta of them (`promise`). Until
enough windows have settled K is the largest delay seen.

The paper's controller (docs/design.md, paper B) is there by its name, "pd". K = alpha * k with k
the largest delay remembered; each settled window moves alpha by Kp * err + Kd * (err - err before),
err being the required coverage less the window's. What the paper leaves open: alpha stays in
[0, 1]; k forgets; a window counts only once it has settled; until the first has, alpha is 1, and
then starts at the delay below which the required share of records lies.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from rivermouth.kernels.aggregation.promise import LONGEST, RunningShare, windows_needed
from rivermouth.kernels.arrays import Ints
from rivermouth.spec.slack import Fixed, MaxDelay, Quality, Slack

_STEPS = 8  # bins of delays for each doubling
_KP, _KD = 0.2, 4.0  # the paper's gains
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

    def add(self, delays: Ints, time: int, count: Ints | None = None) -> None:
        """Remember the delays of records that came when the newest event time was `time`.

        `count` is how many records had each of the delays, one if it is not given.
        """
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
            bins, index = np.unique(of, return_inverse=True)
            counts = np.bincount(index, count)
            for bin_, records in zip(bins.tolist(), counts.tolist(), strict=True):
                self.seen[bin_] = self.seen.get(bin_, 0.0) + records

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

    Its number, its coverage when it closed, how many of its results had an error of eps or more,
    and how many results it has.
    """

    window: int
    coverage: float
    missed: int
    results: int


@dataclass
class SlackController:
    """K, and all that it depends on; its fields but the first are names in the state.

    Parameters
    ----------
    delays
        Those of recent records.
    share
        The results that were missed so far.
    wait
        K as it was learned, in microseconds; None before enough windows have settled.
    sampled
        The bound of the hashes of groups that are replayed; None: all groups.
    alpha, before
        Of the paper's controller: alpha, and the error before.
    """

    slack: Slack
    delays: DelayHistogram
    share: RunningShare
    wait: int | None = None
    sampled: int | None = None
    alpha: float = 1.0
    before: float | None = None

    @classmethod
    def of(
        cls, slack: Slack, kept: dict[str, Any] | None = None, *, overlap: int = 1
    ) -> SlackController:
        """The controller of `slack`, as it was kept or from the start; `overlap` is the windows'.

        The first version kept other things of waits; with its state they are learned anew.
        """
        if kept is not None:
            histogram = kept["delays"]
            bins = {
                int(bin_): n for bin_, n in histogram["seen"].items()
            }  # JSON has texts for keys
            share = kept.get("share", {"length": overlap, "overlap": overlap})
            control = cls(
                slack, DelayHistogram(**histogram | {"seen": bins}), RunningShare(**share)
            )
            for name in ("wait", "sampled", "alpha", "before"):
                setattr(control, name, kept.get(name, getattr(control, name)))
            return control
        memory = _FOREVER if isinstance(slack, MaxDelay) else _MEMORY_US
        if isinstance(slack, Quality):
            memory = round(slack.memory.total_seconds() * 1e6)
        return cls(slack, DelayHistogram(memory), RunningShare(overlap, overlap=overlap))

    def kept(self) -> dict[str, Any]:
        """What `of` takes."""
        fields = {name: value for name, value in vars(self).items() if name != "slack"}
        return fields | {"delays": vars(self.delays), "share": vars(self.share)}

    @property
    def k_us(self) -> int:
        """K, in microseconds."""
        match self.slack:
            case Fixed(length):
                return round(length.total_seconds() * 1e6)
            case Quality(controller="pd"):
                return math.ceil(self.alpha * self.delays.largest)
            case Quality() if self.wait is not None:
                return min(self.wait, math.ceil(LONGEST * self.delays.largest))
        return self.delays.largest

    def settle(self, windows: list[SettledWindow], required: float | None = None) -> None:
        """Count how settled windows did, in order; `required` is the coverage for "pd"."""
        for window in windows:
            self.share.add(window.results, window.missed)
            if required is None:
                continue
            error = required - window.coverage
            if self.before is None:
                self.alpha = self.delays.quantile(required) / max(self.delays.largest, 1)
            else:
                self.alpha += _KP * error + _KD * (error - self.before)  # the paper's formula (1)
            self.alpha, self.before = min(1.0, max(0.0, self.alpha)), error

    def promise(self, delta: float) -> dict[str, float]:
        """How the promise was kept, as gauges; those of the share once they can be told.

        ``windows_to_learn`` is how many windows have to settle before K is learned; until then the
        promise cannot be kept by anything but the largest delay.
        """
        found = {"missed_promised": delta}
        if self.share.windows:
            found["missed_share"] = self.share.share
        if (bounds := self.share.bounds) is not None:
            found |= {"missed_low": bounds.low, "missed_high": bounds.high}
        if isinstance(self.slack, Quality) and self.slack.controller == "learned":
            left = windows_needed(delta, self.share.overlap) - self.share.windows
            found["windows_to_learn"] = max(0, left) if self.wait is None else 0
        return found
