"""The store of an exact aggregation: a folder with all of its data.

    definition.json            what is computed; another summary is an error
    checkpoint/                Spark's
    batches/000000000012.arrow what a micro-batch wrote, with its small pieces; written last
    corrections/000000003.arrow  the same of a correction
    corrections/archive-1.json the corrections up to a thousandth, and so on, after compaction
    slots/, data/              batches and corrections that were compacted, by time: `slot_files`
    head.json                  up to where; replaced at once when a compaction has ended
    removed.json               files that compactions have replaced, and since when
    sink_offset.json           up to where the sink has the changes (first version: told.json)

A batch or a correction counts once its commit is there. Every commit has a time, `EMITTED`, later
than that of the one before; a correction covers the batches up to such a time.
"""

from __future__ import annotations

import time
from collections.abc import Iterable
from dataclasses import asdict, dataclass, field, replace
from typing import Any

import pyarrow as pa
from pyspark.sql import types as t

from rivermouth.errors import StateError
from rivermouth.spark.exact.pieces import Commit, Files, slot_name
from rivermouth.spark.exact.slot_files import SlotFiles
from rivermouth.spark.exact.snapshot import Head, Snapshot, kept
from rivermouth.spec.identity import differences, identity, summary_v1
from rivermouth.spec.locations import Location
from rivermouth.spec.summaries import Summary

WHERE = "exact"
FORMAT = 3
#: seconds for which files are kept that a compaction has replaced, for those who still read them
GRACE = 900.0
_ARCHIVED = 1000  # corrections in one file


@dataclass(frozen=True)
class Correction:
    """A correction that has been written.

    Parameters
    ----------
    number
        Counts from 1.
    upto
        The log's rows emitted until then are accounted for; microseconds since 1970.
    rows
        How many results it wrote: corrected, or emitted for the first time.
    final
        Whether it covered all windows, not only those of late records.
    at
        When it was written, in seconds since 1970.
    seconds
        How long it took; None: it was made by a version that did not keep it.
    """

    number: int
    upto: int
    rows: int
    final: bool
    at: float
    seconds: float | None = None


@dataclass(frozen=True)
class Store:
    """The folder `path`, which Spark's workers and pyarrow.fs reach."""

    path: Location
    _full: dict[str, list[Correction]] = field(default_factory=dict, repr=False, compare=False)

    @property
    def checkpoint_path(self) -> str:
        """Where Spark keeps its offsets and its state."""
        return (self.path / "checkpoint").for_spark

    @property
    def files(self) -> Files:
        """Its files."""
        return Files(self.path)

    def claim(self, summary: Summary, events: t.StructType) -> bool:
        """Find that this is the store of `summary` over such events, or make a new one its store.

        Returns whether an earlier version wrote it: it is to be converted, and `define` then says
        that it is.
        """
        version = self.check(summary, events)
        if version is None:
            self.define(summary, events)
        elif version < FORMAT:
            return True
        elif self._has_batches and not self.files.exists("checkpoint/offsets"):
            raise StateError(
                WHERE,
                f"the store {self.path!r} has lost its folder 'checkpoint'",
                there="a new query would count batches from 0, and those are there already",
                todo="Restore that folder, or give another store=.",
            )
        return False

    def check(self, summary: Summary, events: t.StructType) -> int | None:
        """Find that nothing else than `summary` over such events is kept here.

        Returns the version of its format, None of a store that is not there yet.
        """
        wanted = self._definition(summary, events)
        v1 = {"format": 1, "meaning": f"{summary_v1(summary)} of {events.simpleString()}"}
        found = self.files.json("definition.json")
        if found is None:
            return None
        if found not in (v1, {**wanted, "format": 2}, wanted):
            kept = str(found.get("identity") or found.get("meaning"))
            raise StateError(
                WHERE,
                f"the store {self.path!r} belongs to another aggregation",
                there=differences(kept, wanted["identity"])
                if kept != wanted["identity"]
                else f"its format is {found['format']}, here {FORMAT}",
                todo="Give another store=, or the summary and events that it was made for.",
            )
        return int(found["format"])

    def define(self, summary: Summary, events: t.StructType) -> None:
        """Write down what is computed."""
        self.files.write_json("definition.json", self._definition(summary, events))

    def _definition(self, summary: Summary, events: t.StructType) -> dict[str, Any]:
        columns = events.simpleString()
        return {"format": FORMAT, "identity": identity(summary=summary, columns=columns)}

    @property
    def _has_batches(self) -> bool:
        return self.files.exists(_batch(0)) or self.files.json("head.json") is not None

    def head(self) -> Head:
        """What the last compaction left."""
        found = self.files.json("head.json")
        if found is None:
            return Head()
        return Head(**{**found, "unchecked": tuple(found["unchecked"])})

    def snapshot(self, known: dict[str, Commit] | None = None) -> Snapshot:
        """The store as it is; `known` keeps the commits that were read before."""
        known = {} if known is None else known
        head = self.head()
        batches = self._commits(known, _batch, head.batch + 1, corrected=False)
        made = self._commits(known, _correction, head.correction + 1, corrected=True)
        current = {*map(_batch, _numbers(batches)), *map(_correction, _numbers(made))}
        for path in [path for path in known if path not in current]:
            del known[path]
        newest = batches[-1].emitted if batches else head.emitted
        # a correction may cover a batch that was committed after the batches were read
        made = tuple(each for each in made if newest is not None and each.emitted <= newest)
        forgotten: list[str] = []
        batches, made = (
            tuple(kept(each, head, forgotten) for each in some) for some in (batches, made)
        )
        return Snapshot(head, batches, made, tuple(forgotten))

    def _commits(
        self, known: dict[str, Commit], path_of: Any, number: int, *, corrected: bool
    ) -> tuple[Commit, ...]:
        files = self.files
        found: list[Commit] = []
        while True:
            path = path_of(number)
            commit = known.get(path) or files.commit(path, corrected=corrected)
            if commit is None:
                return tuple(found)
            known[path] = commit
            found.append(commit)
            number += 1

    def commit_batch(self, number: int, written: pa.Table) -> None:
        """Make the pieces of a micro-batch part of the store, unless the batch is there already.

        Spark runs a batch again where the process ended between this and Spark's own commit.
        """
        files, head = self.files, self.head()
        if number <= head.batch or files.exists(_batch(number)):
            for path in written.column("path").drop_null().to_pylist():
                files.delete(path)
            return
        before = head.emitted
        if number - 1 > head.batch:
            last = files.commit(_batch(number - 1))
            if last is None:
                raise StateError(
                    WHERE,
                    f"the store {self.path!r} has no batch {number - 1}, and {number} comes",
                    there="its checkpoint does not belong to it, or files were deleted",
                    todo="Restore the store and its folder 'checkpoint', or give another store=.",
                )
            before = last.emitted
        emitted = max(time.time_ns() // 1000, 0 if before is None else before + 1)
        files.write_commit(_batch(number), written, number=number, emitted=emitted, about={})

    def commit_correction(
        self, written: pa.Table, *, number: int, upto: int, final: bool, seconds: float
    ) -> None:
        """Make the pieces of a correction part of the store."""
        rows = sum(written.column("rows").to_pylist())
        made = Correction(number, upto, rows, final, time.time(), seconds)
        self.files.write_commit(
            _correction(number), written, number=number, emitted=upto, about=asdict(made)
        )

    def corrections(self) -> list[Correction]:
        """The corrections so far, in order; this reads small files."""
        files = self.files
        found: dict[int, Correction] = {}
        for name in files.names("corrections"):
            if name.startswith("archive-"):
                found |= {each.number: each for each in self._archive(files, name)}
        for each in self.snapshot().corrections:
            found[each.number] = Correction(**each.about)
        return [found[number] for number in sorted(found)]

    def _archive(self, files: Files, name: str) -> list[Correction]:
        """An archive's corrections; one that is full never changes, and is read once."""
        if name in self._full:
            return self._full[name]
        there = (files.json(f"corrections/{name}") or {"corrections": []})["corrections"]
        made = [Correction(**each) for each in there]
        if len(made) == _ARCHIVED:
            self._full[name] = made
        return made

    def write_converted(self, number: int, written: pa.Table, upto: int) -> None:
        """Write a batch whose rows have times of their own."""
        self.files.write_commit(
            _batch(number), written, number=number, emitted=upto, about={"each": None}
        )

    def archive(self, corrections: Iterable[dict[str, Any]]) -> None:
        """Keep what `corrections` tells of these, whose commits will be removed."""
        by_file: dict[int, list[dict[str, Any]]] = {}
        for each in corrections:
            by_file.setdefault((each["number"] - 1) // _ARCHIVED, []).append(each)
        for number, some in by_file.items():
            path = f"corrections/archive-{number + 1}.json"
            there = (self.files.json(path) or {"corrections": []})["corrections"]
            kept = {each["number"]: each for each in (*there, *some)}
            self.files.write_json(path, {"corrections": [kept[k] for k in sorted(kept)]})

    def compacted(
        self, snapshot: Snapshot, removed: Iterable[str], unchecked: Iterable[int], *,
        first: int | None = None,
    ) -> None:  # fmt: skip
        """Write down that all of `snapshot` is in slots, and delete what was removed long ago.

        Slots before `first` are forgotten.
        """
        self.archive(each.about for each in snapshot.corrections)
        head = Head(
            snapshot.batches[-1].number if snapshot.batches else snapshot.head.batch,
            snapshot.number,
            snapshot.upto,
            snapshot.late_upto,
            snapshot.all_upto,
            checked=snapshot.head.checked,
            first=first,
        )
        open_ = sorted(filter(head.keeps, {*snapshot.head.unchecked, *unchecked}))
        self.write_head(replace(head, unchecked=tuple(open_)))
        self._delete_later([*removed, *snapshot.forgotten, *self._expired(head)])

    def _expired(self, head: Head) -> list[str]:
        """The files of the slots that the head does not keep."""
        files = self.files
        return [
            path
            for slot in self.slots()
            if not head.keeps(slot)
            for path in SlotFiles.load(files, slot).paths(slot)
        ]

    def _delete_later(self, paths: Iterable[str]) -> None:
        """Delete these files and the commits before the head, once nobody can still read them."""
        files, now, head = self.files, time.time(), self.head()
        removed = dict.fromkeys(paths, now)
        for path_of, last in ((_batch, head.batch), (_correction, head.correction)):
            folder = path_of(0).partition("/")[0]
            before = (f"{folder}/{name}" for name in files.names(folder))
            removed |= {
                path: now for path in before if path.endswith(".arrow") and path <= path_of(last)
            }
        removed |= (files.json("removed.json") or {"since": {}})["since"]
        due = {path for path, since in removed.items() if since + GRACE <= now}
        for path in due:
            files.delete(path)
        for folder in {path.rpartition("/")[0] for path in due if path.startswith("data/")}:
            files.delete_empty(folder)
        left = {path: since for path, since in removed.items() if path not in due}
        files.write_json("removed.json", {"since": left})

    def write_head(self, head: Head) -> None:
        """Replace the head."""
        known = {name: value for name, value in asdict(head).items() if value is not None}
        self.files.write_json("head.json", known)

    def checked(self, slots: Iterable[int]) -> None:
        """Write down which slots' results differ from their partials."""
        found = tuple(sorted(slots))
        self.write_head(replace(self.head(), unchecked=found, checked=len(found)))

    def slots(self) -> list[int | None]:
        """All slots that have files."""
        names = [name.removesuffix(".json") for name in self.files.names("slots")]
        return [None if name == slot_name(None) else int(name) for name in names]

    def sink_offset(self) -> tuple[int, int] | None:
        """Up to where the sink has the changes: the newest batch and the number of corrections."""
        found = self.files.json("sink_offset.json") or self.files.json("told.json")
        return None if found is None else (found["upto"], found["corrections"])

    def commit_sink(self, upto: int, corrections: int) -> None:
        """Write down that the sink has the changes up to here."""
        self.files.write_json("sink_offset.json", {"upto": upto, "corrections": corrections})


def _batch(number: int) -> str:
    return f"batches/{number:012d}.arrow"


def _correction(number: int) -> str:
    return f"corrections/{number:09d}.arrow"


def _numbers(commits: Iterable[Commit]) -> list[int]:
    return [each.number for each in commits]
