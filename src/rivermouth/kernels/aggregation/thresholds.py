"""The required coverage: the share of a window's records that (eps, delta) needs at its close.

A late record is like one that a sample did not draw, so the share follows from sampling theory;
the formulas follow paper B (docs/design.md). They assume that records are late
independently of each other.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from statistics import NormalDist

from rivermouth.spec.aggregates import Aggregate, Aggregator
from rivermouth.spec.preferences import Preference
from rivermouth.spec.slack import Quality
from rivermouth.spec.summaries import Summary


@dataclass(frozen=True)
class WindowStats:
    """Of the average window: how many values, their mean, variance and kurtosis."""

    count: float
    mean: float = 0.0
    variance: float = 0.0
    kurtosis: float = 3.0

    @property
    def is_finite(self) -> bool:
        """Whether it can be used: sums of large values overflow."""
        return all(map(math.isfinite, vars(self).values()))

    def towards(self, other: WindowStats, part: float) -> WindowStats:
        """An exponentially weighted step towards `other`; one that overflowed is ignored."""
        if not other.is_finite:
            return self
        mine, theirs = vars(self), vars(other)
        return WindowStats(
            **{name: mine[name] + part * (theirs[name] - mine[name]) for name in mine}
        )


def required_coverage(
    summary: Summary, slack: Quality, stats: Mapping[str | None, WindowStats]
) -> float:
    """The coverage that all aggregates require: the largest one's.

    `stats` are the windows' by column, under None for the records as such.
    """
    return max(_share(each, slack, stats[each.column]) for _, each in summary.aggregates)


def _share(aggregate: Aggregate, slack: Quality, stats: WindowStats) -> float:
    if not stats.is_finite:
        return 1.0
    eps, delta = slack.eps, slack.delta
    kind = "udaf" if isinstance(aggregate, Aggregator) else aggregate.kind

    def error_of(result: float) -> float:
        return eps if slack.absolute else eps * result

    match kind:
        case "sum":
            return of_sum(error_of(stats.count * abs(stats.mean)), delta, stats)
        case "count" | "count_distinct":
            return of_sum(error_of(stats.count), delta, WindowStats(stats.count, 1.0))
        case "mean":
            return of_mean(error_of(abs(stats.mean)), delta, stats)
        case "var" | "std":
            scale = stats.variance if kind == "var" else math.sqrt(stats.variance)
            relative = eps / scale if slack.absolute and scale else eps
            return of_variance(relative if kind == "var" else 2 * relative, delta, stats)
        case "quantile":
            return of_quantile(min(eps, 1.0), delta, stats)
        case "top" if isinstance(aggregate, Preference) and aggregate.k is not None:
            return of_set(eps, delta, min(aggregate.k, math.ceil(stats.count)))
        case "skyline":  # of the size that requires most: one missing record is just eps of it
            return of_set(eps, delta, min(math.floor(1 / min(eps, 1.0)), math.ceil(stats.count)))
    return 1 - delta  # min, max and a user's own


def of_sum(error: float, delta: float, stats: WindowStats) -> float:
    """The share for a sum that may be off by `error`: the larger root.

    With u the missing share, m the mean and q the mean square, the sum misses N |m| u, give or
    take z sqrt(N q u (1 - u)); both together may be `error`. For error = eps N |m| this is the
    method's formula for SUM, and with equal values the one for COUNT.

    Examples
    --------
    >>> round(of_sum(0.05 * 500 * 10, 0.05, WindowStats(500, 10.0, 25.0)), 4)
    0.9674
    """
    z2 = _z(delta) ** 2
    whole, square = stats.count * abs(stats.mean), stats.variance + stats.mean * stats.mean
    noise = z2 * stats.count * square
    if noise == 0:
        return 0.0  # nothing but zeros
    a, b, c = whole * whole + noise, 2 * error * whole + noise, error * error
    if not _usable(error, a * c, b * b):
        return 1.0
    missing = (b - math.sqrt(max(b * b - 4 * a * c, 0.0))) / (2 * a)
    return 0.0 if error >= whole + math.sqrt(noise) else min(1.0, max(0.0, 1 - missing))


def of_mean(error: float, delta: float, stats: WindowStats) -> float:
    """The share for a mean that may be off by `error`: z^2 s^2 / (N error^2 + z^2 s^2).

    Examples
    --------
    >>> round(of_mean(0.05 * 10, 0.05, WindowStats(500, 10.0, 25.0)), 4)
    0.4345
    """
    noise = _z(delta) ** 2 * stats.variance
    drawn = stats.count * error * error
    if not _usable(error, noise, drawn):
        return 1.0
    return noise / (drawn + noise) if noise else 0.0


def of_variance(eps: float, delta: float, stats: WindowStats) -> float:
    """The share for a variance: the mean's, with (kurtosis - 1) for the squared variation."""
    return of_mean(eps, delta, WindowStats(stats.count, 1.0, max(0.0, stats.kurtosis - 1)))


def of_quantile(eps: float, delta: float, stats: WindowStats) -> float:
    """The share for a quantile whose rank may be off by eps (Serfling's bound).

    Examples
    --------
    >>> round(of_quantile(0.05, 0.05, WindowStats(500)), 4)
    0.5972
    """
    if stats.count <= 0:
        return 1.0
    drawn = math.log(2 / delta) / (2 * eps**2)
    needs = drawn * (1 + 1 / stats.count) / (1 + drawn / stats.count)
    return min(1.0, needs / stats.count)


def of_set(eps: float, delta: float, size: int) -> float:
    """The share for a set of `size` records of which less than eps may be missing.

    With u the missing share, the number of the set's records that are missing is binomial. u is
    the largest with which eps of them or more are missing with a probability of at most delta: for
    one record u = delta, as for a minimum or a maximum.

    Examples
    --------
    >>> of_set(0.05, 0.05, 1), round(of_set(0.05, 0.05, 10), 4), round(of_set(0.2, 0.05, 10), 4)
    (0.95, 0.9949, 0.9632)
    """
    most = math.ceil(eps * size - 1e-9)  # so many missing are too many
    if size < 1 or most > size:
        return 0.0
    low, high = 0.0, 1.0
    while high - low > 1e-12:
        u = (low + high) / 2
        below = (math.comb(size, n) * u**n * (1 - u) ** (size - n) for n in range(most))
        low, high = (u, high) if 1 - sum(below) <= delta else (low, u)
    return round(1 - low, 9)


def _z(delta: float) -> float:
    return NormalDist().inv_cdf(1 - delta / 2)


def _usable(error: float, *others: float) -> bool:
    """Whether the formula applies: the error is positive and nothing has overflowed."""
    return error > 0 and all(map(math.isfinite, (error, *others)))
