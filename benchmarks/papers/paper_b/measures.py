"""What a replay shows: K, accuracy before and after correction, latency, each over time."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from benchmarks.papers.paper_b.games import EPS, SIZE_US, Doubles, Ints, Truth
from benchmarks.papers.paper_b.system import EXACT, Answer, Replayed

POINTS = 300  #: of a line over time


def accuracy(case: str, found: Replayed, truth: Truth) -> dict[str, Any]:
    """A row of the table of accuracy, with its lines over time.

    *Before* is what the table of PostgreSQL said of a window first, while the stream ran; *after*
    is what it says in the end. Of a window without an answer nothing is said in either.
    """
    answers = found.history[case]
    first = {each.start: each for each in reversed(answers) if each.written <= found.ended}
    last = {each.start: each for each in answers}
    slack = np.array([first[start].slack for start in sorted(first)])
    return {
        "case": case,
        "windows": len(truth.start),
        "mean_slack_s": _mean(slack),
        "max_slack_s": float(slack.max(initial=0.0)),
        "before": _quality(list(first.values()), truth),
        "after": _quality(list(last.values()), truth),
        "updates": len(answers) - len(last),
        "corrections": len(found.corrections) if case == EXACT else 0,
        "store_exact": _store(found, truth) if case == EXACT else None,
        "over_time": _waiting(first, truth) | _over_time(answers, found, truth),
    }


def _store(found: Replayed, truth: Truth) -> float:
    """The share of all windows whose answer in the store is the exact one."""
    both = zip(truth.start.tolist(), truth.total.tolist(), strict=True)
    return sum(found.store.get(start) == total for start, total in both) / len(truth.start)


def _quality(answers: Sequence[Answer], truth: Truth) -> dict[str, float | None]:
    """Of these answers the share within eps, the mean of 1 - error, and the share that is exact."""
    error = errors(answers, truth)
    return {
        "answers": len(answers),
        "within_eps": _mean(error < EPS),
        "accuracy": _mean(1 - error),
        "exact": _mean(error == 0),
    }


def errors(answers: Sequence[Answer], truth: Truth) -> Doubles:
    """Relative errors; one of a window that does not exist is infinite."""
    start = np.array([each.start for each in answers], np.int64)
    total = np.array([each.total for each in answers], np.float64)
    at, known = _places(start, truth.start)
    return np.where(known, np.abs(total - truth.total[at]) / np.abs(truth.total[at]), np.inf)


def _over_time(answers: Sequence[Answer], found: Replayed, truth: Truth) -> dict[str, list[float]]:
    """What a reader of the table would have seen at each moment, of all windows answered so far.

    The last point is after the stream's end and the last correction.
    """
    error = errors(answers, truth)
    current: dict[int, float] = {}
    sums = np.zeros(2)  # within eps, and 1 - error
    lines = np.zeros((len(answers), 3))
    for number, (each, now) in enumerate(zip(answers, error.tolist(), strict=True)):
        if (before := current.get(each.start)) is not None:
            sums -= (before < EPS, 1 - before)
        current[each.start] = now
        sums += (now < EPS, 1 - now)
        lines[number] = (each.written - found.began, *(sums / len(current)))
    # rows of one write count together: the table never shows half of a transaction
    seconds = lines[:, 0]
    ends = np.flatnonzero(np.append(np.diff(seconds) > 0.05, True)) if len(seconds) else []
    kept = _thinned(np.asarray(ends, int))
    return {
        "run_s": seconds[kept].round(2).tolist(),
        "within_eps": lines[kept, 1].round(5).tolist(),
        "accuracy": lines[kept, 2].round(6).tolist(),
    }


def _waiting(first: dict[int, Answer], truth: Truth) -> dict[str, list[float]]:
    starts = np.array(sorted(first), np.int64)
    kept = _thinned(np.arange(len(starts)))
    return {
        "event_s": ((starts[kept] - truth.start[0]) / 1e6).round(2).tolist(),
        "slack_s": [round(first[start].slack, 3) for start in starts[kept].tolist()],
    }


def latency(
    case: str, found: Replayed, truth: Truth, *, origin_us: int, factor: float, warm: float = 0.0
) -> dict[str, Any]:
    """A row of the table of latency: wall time from a record's making to its window's answer.

    In the mean over records and windows, of the windows that every query answered. A record was
    made at its event time: so long after the replay's begin as its time is after `origin_us`, the
    first arrival, divided by `factor`. The run's first `warm` seconds do not count.
    """
    answered = {name: _seen(found, name) for name in found.history}
    places = {"postgres": answered[case]}
    if case == EXACT:
        places["store"] = _committed(found)
    common = set.intersection(*(set(times) for times in (*answered.values(), *places.values())))
    start = np.array(sorted(common), np.int64)
    start = start[start >= origin_us + round(warm * factor * 1e6)]
    at, known = _places(start, truth.start)
    start, at = start[known], at[known]
    row: dict[str, Any] = {"case": case, "batch_s": _batch(found, case)}
    for place, times in places.items():
        when = np.array([times[each] for each in start.tolist()]) - found.began
        made, ended = (
            (time - origin_us) / 1e6 / factor for time in (truth.made[at], start + SIZE_US)
        )
        row[place] = {
            "answers": len(start),
            "mean_s": _mean(np.repeat(when - made, truth.records[at])),
            "p50_s": _percentile(when - made, 50),
            "p99_s": _percentile(when - made, 99),
            "after_window_s": _mean(when - ended),
        }
    return row


def _seen(found: Replayed, case: str) -> dict[int, float]:
    """When PostgreSQL had the first answer to each window, while the stream ran."""
    history = reversed(found.history[case])
    return {each.start: each.written for each in history if each.written <= found.ended}


def _committed(found: Replayed) -> dict[int, float]:
    """When the store had each early answer: at the end of its micro-batch."""
    began, lasted = map(np.array, zip(*found.batches[EXACT], strict=True))
    order = np.argsort(began)
    began, lasted = began[order], lasted[order]
    committed = {}
    for start, emitted in found.emitted.items():
        # a batch's own time is taken when it starts, a moment after its trigger
        batch = int(np.searchsorted(began, emitted, side="right")) - 1
        if batch >= 0 and emitted <= found.ended:
            committed[start] = float(began[batch] + lasted[batch])
    return committed


def _batch(found: Replayed, case: str) -> dict[str, float | None]:
    lasted = np.array([seconds for _, seconds in found.batches[case]])
    began = np.sort([begun for begun, _ in found.batches[case]])
    return {
        "count": len(lasted),
        "median": _percentile(lasted, 50),
        "apart": _percentile(np.diff(began), 50),
    }


def _places(start: Ints, known: Ints) -> tuple[Ints, Any]:
    at = np.minimum(np.searchsorted(known, start), len(known) - 1)
    return at, known[at] == start


def _thinned(indices: Ints) -> Ints:
    if len(indices) <= POINTS:
        return indices
    return indices[np.unique(np.linspace(0, len(indices) - 1, POINTS).astype(int))]


def _mean(values: Any) -> float | None:
    return float(np.mean(values)) if len(values) else None


def _percentile(values: Any, share: float) -> float | None:
    return float(np.percentile(values, share)) if len(values) else None
