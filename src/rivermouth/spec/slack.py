"""How long a window waits for late records: slack as values.

A window closes once the largest event time seen is its end plus K. K is the slack.
"""

from __future__ import annotations

import datetime as dt
import math
from dataclasses import dataclass
from typing import Any, Literal, get_args

from rivermouth.errors import DefinitionError
from rivermouth.spec.durations import Duration, microseconds

#: what sets K for a promised quality
Controller = Literal["learned", "pd"]


@dataclass(frozen=True)
class Fixed:
    """Always the same K."""

    length: dt.timedelta


@dataclass(frozen=True)
class MaxDelay:
    """K is the largest delay seen so far (MP-K-slack)."""


@dataclass(frozen=True)
class Quality:
    """K as short as the target P(error >= eps) <= delta allows."""

    eps: float
    delta: float
    absolute: bool
    controller: Controller
    memory: dt.timedelta


Slack = Fixed | MaxDelay | Quality


def fixed(length: Duration) -> Fixed:
    """A constant K behind the largest event time seen (K-slack).

    Examples
    --------
    >>> fixed("3 seconds")
    Fixed(length=datetime.timedelta(seconds=3))
    """
    length_us = microseconds(length, where="fixed")
    if length_us < 0:
        raise DefinitionError("fixed", f"{length!r} is negative", todo="Make it zero or longer.")
    return Fixed(dt.timedelta(microseconds=length_us))


def max_delay() -> MaxDelay:
    """K is the largest delay seen so far (MP-K-slack): few late records, high latency."""
    return MaxDelay()


def quality(
    eps: float = 0.05,
    delta: float = 0.05,
    *,
    absolute: bool = False,
    controller: Controller = "learned",
    memory: Duration = "10 minutes",
) -> Quality:
    """Aim at P(error >= eps) <= delta for each early result, with K as short as that allows.

    Of each window that has settled it is known how long it would have had to wait for an error
    below eps. K is a wait that was enough for all but delta of the recent ones; until enough
    windows have settled (1 / delta that share no record) it is the largest delay seen. The error is
    relative to the exact result; of a quantile it is the error in rank, of which 1 is all records.
    It is a target, not a guarantee: no rule knows of the first long outage. The metrics, the page
    and ``promise()`` of a running `exact` say which share was missed, with its bound
    (`docs/late-data.md` has what was measured).

    Parameters
    ----------
    eps, delta
        The error that is too large, and the share of results that may have it.
    absolute
        Whether eps is in the unit of the result instead. Where results are near zero a relative
        error means nothing; without this the windows then wait as for all records.
    controller
        "learned", or "pd": the proportional-derivative controller of the paper, which holds the
        mean coverage that its formulas require. They assume that records are late independently of
        each other; where they are not it misses more.
    memory
        After so much event time the largest delay is forgotten, if it was not met again.

    Examples
    --------
    >>> quality(eps=0.01, delta=0.05).eps
    0.01
    """
    _check_share("eps", eps, top=math.inf if absolute else 1)
    _check_share("delta", delta, top=1)
    if controller not in get_args(Controller):
        raise DefinitionError(
            "quality",
            f"controller is {controller!r}",
            there=f"there are {list(get_args(Controller))}",
            todo='Leave it out, or name the paper\'s: controller="pd".',
        )
    memory_us = microseconds(memory, where="quality(memory=)")
    if memory_us <= 0:
        raise DefinitionError(
            "quality(memory=)", f"{memory!r} is not positive", todo="Give a longer one."
        )
    memory = dt.timedelta(microseconds=memory_us)
    return Quality(float(eps), float(delta), absolute, controller, memory)


def _check_share(name: str, value: float, *, top: float) -> None:
    if not (_is_number(value) and 0 < value < top):
        bounds = "between 0 and 1" if top == 1 else "above 0"
        raise DefinitionError(
            "quality", f"{name} is {value!r}", todo=f"Give a number {bounds}, as in 0.05."
        )


def _is_number(value: Any) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool) and math.isfinite(value)


def check_slack(where: str, slack: object) -> Slack:
    """`slack`, if it is one."""
    if isinstance(slack, (Fixed, MaxDelay, Quality)):
        return slack
    raise DefinitionError(
        where,
        f"slack={slack!r} is not a slack",
        todo='Write rm.quality(eps=0.05, delta=0.05), rm.fixed("3 seconds") or rm.max_delay().',
    )
