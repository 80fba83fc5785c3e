"""The rule of a routed stream, and its tasks' statistics since: small files in one folder.

    rule.json                    the newest rule, and the cycle that it was made from
    batches/QUERY/7.json         the rule of a query's micro-batch 7, the same for all its tasks
    seen/7-2500-4f1c....json     a task's statistics: partition 7, 2,500 records, a sample of keys

Tasks write statistics; the task that reads the rule for the next batch sums them, ends the cycle if
there are enough records, and makes a new rule if it must. A rule never changes a join's rows, so
one that is lost, stale or counted twice costs time only. But all tasks of a micro-batch must follow
the same, also those that run again: else a record could be in two of its partitions, or in none.
Only data is kept here, as JSON.
"""

from __future__ import annotations

import base64
import contextlib
import json
import sys
import time
import uuid
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.fs

from rivermouth.kernels.arrays import Floats, Ints
from rivermouth.kernels.skew.hotspots import Sample, algorithm2, even_bounds, load_cv, merged
from rivermouth.spec.locations import Location
from rivermouth.spec.routing import ByHotspot
from rivermouth.tables.cache.batch_versions import MicroBatch
from rivermouth.tables.files import delete, filesystem, listed, read_json, write_json, write_once

KEY = "key"  #: keys are compared as one integer each
_STATS, _RULE, _BATCHES = "seen", "rule.json", "batches"
_SAMPLE = {"keys": "<i8", "count": "<f8", "missed": "<f8"}
_KEPT = 2  # micro-batches of a query whose rules are kept: the one that runs, and the one before
_REMEMBERED = 7 * 86_400.0  # seconds for which a query that does not run can still run again
_PATIENCE = 1.0  # seconds in which the task that chooses a micro-batch's rule must have done so


@dataclass(frozen=True)
class TaskStats:
    """A task's statistics of its partition, as they are kept.

    Parameters
    ----------
    partition, records
        Which one, and how many records.
    fetched
        How many of them had a key that was missed in the cache.
    seconds, fetching
        How long the join took, and how long it waited for those keys.
    keys, count, missed
        A sample: distinct keys, for how many records each stands, how many of these were fetched.
    """

    partition: int
    records: int
    fetched: int
    seconds: float
    fetching: float
    keys: Ints
    count: Floats
    missed: Floats

    def written(self) -> dict[str, Any]:
        """As JSON can hold it: numbers of a sample as bytes, which cost a tenth of digits."""
        arrays = {name: np.asarray(getattr(self, name), kind) for name, kind in _SAMPLE.items()}
        return {**vars(self), **{name: _text(array) for name, array in arrays.items()}}

    @classmethod
    def read(cls, written: dict[str, Any]) -> TaskStats:
        """What `written` gave; lists of numbers are those of an earlier version."""
        arrays = {name: _array(written[name], kind) for name, kind in _SAMPLE.items()}
        return cls(**{**written, **arrays})


@dataclass(frozen=True)
class RoutingState:
    """A rule and the last cycle, as they are kept.

    Parameters
    ----------
    partitions
        How many the rule is for.
    version
        Of the rule; 0 while there is none.
    keys, share
        The rule's bounds (`kernels.skew.hotspots.Rule`).
    cycle
        How many cycles have ended.
    load_cv, moved
        The load CV of the last one, and whether it was too large.
    records, cost
        The last cycle's records and cost (in seconds) per partition.
    """

    partitions: int
    version: int = 0
    keys: tuple[int, ...] = ()
    share: tuple[float, ...] = ()
    cycle: int = 0
    load_cv: float = 0.0
    moved: bool = False
    records: tuple[int, ...] = ()
    cost: tuple[float, ...] = ()


class RoutingStore:
    """A folder that a stream's tasks write to and its router reads.

    Parameters
    ----------
    folder
        A path or a URI that pyarrow.fs knows.
    """

    def __init__(self, folder: str) -> None:
        self._folder = Location(folder)

    def add(self, stats: TaskStats) -> None:
        """Add a task's statistics to this cycle."""
        name = f"{stats.partition}-{stats.records}-{uuid.uuid4().hex}.json"
        write_json(self._folder / _STATS / name, stats.written())

    def state(self, partitions: int) -> RoutingState:
        """The newest rule; none yet, or one for another number of partitions, is version 0."""
        known = read_json(self._folder / _RULE)
        state = None if known is None else _state(known)
        return state if state and state.partitions == partitions else RoutingState(partitions)

    def of_batch(self, routing: ByHotspot, partitions: int, batch: MicroBatch) -> RoutingState:
        """The rule that all tasks of a micro-batch follow; the first that asks ends the cycle.

        Only in a folder: an object store has no step in which one of several is the first.
        """
        at = Path(self._folder) / _BATCHES / batch.query / f"{batch.number}.json"
        if not at.parent.exists():
            at.parent.mkdir(parents=True, exist_ok=True)
            _forget_queries(at.parent.parent)
        if at.exists():
            return _state(json.loads(at.read_bytes()))
        me = uuid.uuid4().hex.encode()
        if write_once(at.with_suffix(".chooser"), me) == me:
            state = self.advance(routing, partitions)
            _forget(at.parent, batch.number - _KEPT)
        else:
            deadline = time.monotonic() + _PATIENCE
            while not at.exists() and time.monotonic() < deadline:
                time.sleep(0.002)
            state = self.state(partitions)  # if the one that chooses has ended
        return _state(json.loads(write_once(at, json.dumps(vars(state)).encode())))

    def advance(self, routing: ByHotspot, partitions: int) -> RoutingState:
        """The rule for the next batch; ends the cycle if it has enough records."""
        files, root = filesystem(self._folder)
        state = self.state(partitions)
        found = listed(files, f"{root}/{_STATS}")
        names = [info.base_name for info in found if info.base_name.endswith(".json")]
        if sum(int(name.split("-")[1]) for name in names) < routing.cycle:
            return state
        read = [read_json(self._folder / _STATS / name) for name in names]
        stats = [
            TaskStats.read(one) for one in read if one is not None
        ]  # another query counts it, too
        state = next_state(state, [one for one in stats if one.partition < partitions], routing)
        write_json(self._folder / _RULE, vars(state))
        for name in names:
            delete(files, f"{root}/{_STATS}/{name}")
        return state


def _state(known: dict[str, Any]) -> RoutingState:
    if "deviation" in known:  # as the load CV was called before version 0.1
        known["load_cv"] = known.pop("deviation")
    lists = {name: tuple(value) for name, value in known.items() if isinstance(value, list)}
    return RoutingState(**{**known, **lists})


def _forget(folder: Path, until: int) -> None:
    """Remove what is kept of a query's micro-batches up to a number."""
    for path in folder.glob("[0-9]*"):
        if int(path.name.partition(".")[0]) <= until:
            path.unlink(missing_ok=True)


def _forget_queries(folder: Path) -> None:
    """Remove what is kept of queries that have not run for long."""
    for query in folder.iterdir():
        with contextlib.suppress(OSError):  # it runs again, or another task removes it, too
            if query.stat().st_mtime < time.time() - _REMEMBERED:
                _forget(query, sys.maxsize)
                query.rmdir()


def next_state(state: RoutingState, stats: list[TaskStats], routing: ByHotspot) -> RoutingState:
    """The state after a cycle: the same rule, or another if the load was too uneven."""
    records, costs, memory, remote = _loads(stats, state.partitions)
    by_cost = routing.weight == "cost"
    uneven = load_cv(costs if by_cost else records)
    ended = replace(
        state,
        cycle=state.cycle + 1,
        load_cv=uneven,
        moved=uneven > routing.threshold,
        records=tuple(int(count) for count in records),
        cost=tuple(costs.tolist()),
    )
    samples = [_sample(one, memory, remote) for one in stats if len(one.keys)]
    if not samples or not (ended.moved or not state.version):
        return ended
    bounds = even_bounds if routing.split else algorithm2
    rule = bounds(merged(samples), state.partitions, by="cost" if by_cost else "count")
    if rule is None:
        return ended
    keys = rule.keys.column(KEY).to_pylist()
    return replace(
        ended, version=state.version + 1, keys=tuple(keys), share=tuple(rule.share.tolist())
    )


def _loads(stats: list[TaskStats], partitions: int) -> tuple[Any, Any, float, float]:
    """Records and cost per partition, and the seconds of a record in memory and of one fetched."""
    records, fetched = np.zeros(partitions), np.zeros(partitions)
    for one in stats:
        records[one.partition] += one.records
        fetched[one.partition] += one.fetched
    memory = sum(one.seconds for one in stats) / max(records.sum(), 1)
    remote = sum(one.fetching for one in stats) / max(fetched.sum(), 1)
    return records, records * memory + fetched * remote, memory, remote


def _sample(one: TaskStats, memory: float, remote: float) -> Sample:
    cost = one.count * memory + one.missed * remote
    return Sample(pa.table({KEY: pa.array(one.keys)}), one.count, cost)


def _text(array: Ints | Floats) -> str:
    return base64.b64encode(array.tobytes()).decode()


def _array(written: str | list[float], kind: str) -> Any:
    if isinstance(written, list):
        return np.array(written, kind)
    return np.frombuffer(base64.b64decode(written), kind)
