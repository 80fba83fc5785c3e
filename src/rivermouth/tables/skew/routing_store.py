"""The rule of a routed stream, and what its tasks have seen since: small files in one folder.

    rule.json                    the newest rule, and the cycle that it was made from
    seen/7-2500-4f1c....json     what a task saw: partition 7, 2,500 records, a sample of keys

Tasks leave what they saw; whoever reads the rule for the next batch counts it, ends the cycle if
there is enough, and decides. A rule never changes a join's rows, so one that is lost, stale or
counted twice costs time only. Only data is kept here, as JSON.
"""

from __future__ import annotations

import contextlib
import uuid
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.fs

from rivermouth.kernels.skew.hotspots import Sample, algorithm2, even_cuts, load_cv, merged
from rivermouth.spec.routing import ByHotspot
from rivermouth.tables.files import read_json, write_json

KEY = "key"  #: keys are compared as one whole number each
_SEEN, _RULE = "seen", "rule.json"


@dataclass(frozen=True)
class Seen:
    """What a task saw of its partition.

    Parameters
    ----------
    partition, records
        Which one, and how many records.
    fetched
        How many of them had a key that was not in hand.
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
    keys: list[int]
    count: list[float]
    missed: list[float]


@dataclass(frozen=True)
class State:
    """A rule, and the last cycle.

    Parameters
    ----------
    partitions
        How many the rule is for.
    version
        Of the rule; 0 while there is none.
    keys, share
        The rule's cuts (`kernels.skew.hotspots.Rule`).
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


class Board:
    """A folder that a stream's tasks write to and its router reads.

    Parameters
    ----------
    folder
        A path or a URI that pyarrow.fs knows.
    """

    def __init__(self, folder: str) -> None:
        self._folder = folder

    def note(self, seen: Seen) -> None:
        """Leave what a task saw."""
        name = f"{seen.partition}-{seen.records}-{uuid.uuid4().hex}.json"
        write_json(f"{self._folder}/{_SEEN}/{name}", vars(seen))

    def state(self, partitions: int) -> State:
        """The newest rule; none yet, or one for another number of partitions, is version 0."""
        known = read_json(f"{self._folder}/{_RULE}")
        if known is None:
            return State(partitions)
        if "deviation" in known:  # as the load CV was called before version 0.1
            known["load_cv"] = known.pop("deviation")
        lists = {name: tuple(value) for name, value in known.items() if isinstance(value, list)}
        state = State(**{**known, **lists})
        return state if state.partitions == partitions else State(partitions)

    def advance(self, routing: ByHotspot, partitions: int) -> State:
        """The rule for the next batch; ends the cycle if it has seen enough records."""
        files, root = pa.fs.FileSystem.from_uri(self._folder)
        state = self.state(partitions)
        listed = files.get_file_info(pa.fs.FileSelector(f"{root}/{_SEEN}", allow_not_found=True))
        names = [info.base_name for info in listed if info.base_name.endswith(".json")]
        if sum(int(name.split("-")[1]) for name in names) < routing.cycle:
            return state
        said = [read_json(f"{self._folder}/{_SEEN}/{name}") for name in names]
        seen = [Seen(**one) for one in said if one is not None]  # another query counts it, too
        state = decided(state, [one for one in seen if one.partition < partitions], routing)
        write_json(f"{self._folder}/{_RULE}", vars(state))
        for name in names:
            with contextlib.suppress(FileNotFoundError):
                files.delete_file(f"{root}/{_SEEN}/{name}")
        return state


def decided(state: State, seen: list[Seen], routing: ByHotspot) -> State:
    """The state after a cycle: the same rule, or another if the load was too uneven."""
    records, costs, memory, remote = _loads(seen, state.partitions)
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
    samples = [_sample(one, memory, remote) for one in seen if one.keys]
    if not samples or not (ended.moved or not state.version):
        return ended
    cut = even_cuts if routing.split else algorithm2
    rule = cut(merged(samples), state.partitions, by="cost" if by_cost else "count")
    if rule is None:
        return ended
    keys = rule.keys.column(KEY).to_pylist()
    return replace(
        ended, version=state.version + 1, keys=tuple(keys), share=tuple(rule.share.tolist())
    )


def _loads(seen: list[Seen], partitions: int) -> tuple[Any, Any, float, float]:
    """Records and cost per partition, and the seconds of a record in memory and of one fetched."""
    records, fetched = np.zeros(partitions), np.zeros(partitions)
    for one in seen:
        records[one.partition] += one.records
        fetched[one.partition] += one.fetched
    memory = sum(one.seconds for one in seen) / max(records.sum(), 1)
    remote = sum(one.fetching for one in seen) / max(fetched.sum(), 1)
    return records, records * memory + fetched * remote, memory, remote


def _sample(one: Seen, memory: float, remote: float) -> Sample:
    count, missed = np.array(one.count), np.array(one.missed)
    keys = pa.table({KEY: pa.array(one.keys, pa.int64())})
    return Sample(keys, count, count * memory + missed * remote)
