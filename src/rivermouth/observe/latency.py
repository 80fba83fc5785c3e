"""How long rows took from the source to the end of their batch, as far as reports can tell."""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from datetime import datetime

import numpy as np

from rivermouth.kernels.arrays import Floats
from rivermouth.observe.log import Batch

PERCENTILES = (50, 95, 99)
_POINTS = (np.arange(64) + 0.5) / 64  # of a batch's rows: even arrivals, seen at so many points


def latency(batches: Sequence[Batch]) -> dict[str, float] | None:
    """Percentiles of the seconds from a row's arrival at the source to the end of its batch.

    Reports do not say when a row arrived. Rows of a batch are taken to have arrived evenly since
    the batch before began; after a pause, since one batch's usual distance. A backlog is not seen
    here: rows that waited for several batches are taken for new ones.

    Returns
    -------
    dict or None
        ``p50, p95, p99``; None before the first row.

    Examples
    --------
    >>> ran = {"at": "2026-01-01T00:00:00.000Z", "seconds": 2.0, "rows": 10}
    >>> latency([ran])
    {'p50': 2.0, 'p95': 2.0, 'p99': 2.0}
    """
    rows = np.array([batch["rows"] for batch in batches], dtype=float)
    if not rows.sum():
        return None
    seconds = np.array([batch["seconds"] for batch in batches], dtype=float)
    taken = seconds[:, None] + waits(batches)[:, None] * _POINTS
    return _weighted(taken.ravel(), np.repeat(rows, len(_POINTS)))


def waits(batches: Sequence[Batch]) -> Floats:
    """For how many seconds rows may have waited before each batch began; none before the first."""
    began = np.array([_seconds(batch["at"]) for batch in batches])
    gaps = np.diff(began, prepend=began[:1])
    usual = statistics.median(gaps[1:].tolist()) if len(gaps) > 1 else 0.0
    before = np.array([0.0, *(batch["seconds"] for batch in batches[:-1])])
    return np.clip(gaps, 0, np.maximum(before, usual))


def _seconds(at: str) -> float:
    return datetime.fromisoformat(at).timestamp()


def _weighted(values: Floats, weights: Floats) -> dict[str, float]:
    order = np.argsort(values)
    share = np.cumsum(weights[order]) / weights.sum()
    places = np.searchsorted(share, np.array(PERCENTILES) / 100)
    found = values[order][np.minimum(places, len(values) - 1)]
    return {f"p{p}": float(value) for p, value in zip(PERCENTILES, found, strict=True)}
