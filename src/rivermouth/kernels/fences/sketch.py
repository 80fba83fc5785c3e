"""What a map of fence events shows: how many each fence had, and some of the newest."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from math import isfinite
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from rivermouth.kernels.fences import query as names
from rivermouth.kernels.fences.query import FenceQuery
from rivermouth.kernels.table_join.map_sketch import points_of
from rivermouth.spec.conditions import Geometry

#: how many events of a bucket and a micro-batch are shown
NEWEST = 8
#: of how many fences events are counted in a bucket and a micro-batch: nobody looks at more
MOST_FENCES = 1_000


def label(fence: Iterable[object]) -> str:
    """A fence's columns as one text, as in ``oslo, 2``.

    Examples
    --------
    >>> label(["oslo", 2, None])
    'oslo, 2'
    """
    return ", ".join(str(value) for value in fence if value is not None)


class EventSketch:
    """Events per fence and the newest events, of one bucket in one micro-batch.

    Parameters
    ----------
    query
        What is asked.
    place
        The position's geometry.
    """

    def __init__(self, query: FenceQuery, place: Geometry) -> None:
        self._query, self._place = query, place
        self._per_fence: Counter[str] = Counter()
        self._newest: list[dict[str, Any]] = []

    def add(self, events: pa.Table) -> None:
        """Count events, rows of the result."""
        labels = self._labels(events)
        for entry in pc.value_counts(labels).to_pylist():
            self._per_fence[entry["values"]] += entry["counts"]
        time = self._query.trajectory.time
        newest = pc.select_k_unstable(events, NEWEST, [(time, "descending")])
        self._newest = [*self._newest, *self._shown(events.take(newest), labels.take(newest))]
        self._newest = sorted(self._newest, key=lambda event: -event["at"])[:NEWEST]

    def report(self) -> dict[str, Any]:
        """``per_fence``, counts by label; ``newest``: at, object, event, fence, x and y."""
        return {"per_fence": dict(self._per_fence.most_common(MOST_FENCES)), "newest": self._newest}

    def _labels(self, events: pa.Table) -> pa.Array:
        """What a reader would call each event's fence: its columns, as `label` writes them."""
        columns = [events.column(name).to_pylist() for name in self._query.fences]
        rows = zip(*columns, strict=True) if columns else [()] * events.num_rows
        return pa.array(map(label, rows), pa.string())

    def _shown(self, events: pa.Table, labels: pa.Array) -> list[dict[str, Any]]:
        trajectory = self._query.trajectory
        place = {name: events.column(name).combine_chunks() for name in self._query.place}
        objects = zip(*(events.column(name).to_pylist() for name in trajectory.by), strict=True)
        times = events.column(trajectory.time).cast(pa.int64()).to_pylist()
        kinds = events.column(names.EVENT).to_pylist()
        points = points_of(self._place, place)
        if len(points) != events.num_rows:  # a position that has no point: no map, but no failure
            return []
        rows = zip(times, objects, kinds, labels.to_pylist(), points, strict=True)
        return [
            {
                "at": at / 1e6,
                "object": ", ".join(map(str, who)),
                "event": kind,
                "fence": fence,
                "x": x,
                "y": y,
            }
            for at, who, kind, fence, (x, y) in rows
            if isfinite(x) and isfinite(y)
        ]
