"""A store at one moment: up to where it is compacted, and the commits since."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace

from rivermouth.kernels.aggregation.processor import CLOSED, LATE, PARTIALS, ROW
from rivermouth.kernels.aggregation.slots import Slots
from rivermouth.spark.exact.pieces import EXPIRED, Commit, Piece, by_slot


@dataclass(frozen=True)
class Head:
    """What a compaction leaves: up to where slots hold batches and corrections.

    Parameters
    ----------
    batch, correction
        The last that are in slots.
    emitted
        The time of that batch.
    late_upto, all_upto
        Until when these corrections account for late records, and until when for all records.
    unchecked
        The slots whose results may differ from their partials: windows may be open.
    checked
        How many of them there were when they were last checked.
    first
        The first slot that is kept; None: all are.
    """

    batch: int = -1
    correction: int = 0
    emitted: int | None = None
    late_upto: int | None = None
    all_upto: int | None = None
    unchecked: tuple[int, ...] = ()
    checked: int = 0
    first: int | None = None

    def keeps(self, slot: int | None) -> bool:
        """Whether a slot has not been forgotten."""
        return slot is None or self.first is None or slot >= self.first


@dataclass(frozen=True)
class Snapshot:
    """A store at one moment: what was compacted, and the commits since."""

    head: Head
    batches: tuple[Commit, ...]
    corrections: tuple[Commit, ...]
    #: files of pieces that came for slots which are not kept
    forgotten: tuple[str, ...] = ()

    @property
    def upto(self) -> int | None:
        """The time of the newest batch, None before the first."""
        return self.batches[-1].emitted if self.batches else self.head.emitted

    @property
    def number(self) -> int:
        """That of the newest correction."""
        return self.corrections[-1].number if self.corrections else self.head.correction

    @property
    def late_upto(self) -> int | None:
        """Until when corrections account for late records, None before the first."""
        return self.corrections[-1].emitted if self.corrections else self.head.late_upto

    @property
    def all_upto(self) -> int | None:
        """Until when corrections account for all records."""
        final = [each.emitted for each in self.corrections if each.about["final"]]
        return final[-1] if final else self.head.all_upto

    @property
    def pieces(self) -> list[Piece]:
        """All that was not compacted, and is to be."""
        commits = (*self.batches, *self.corrections)
        return [piece for one in commits for piece in one.pieces if piece.kind != CLOSED]

    def since(self, micros: int | None) -> list[Piece]:
        """The pieces of batches later than this time, which were not compacted."""
        newer = (each for each in self.batches if micros is None or each.emitted > micros)
        return [piece for each in newer for piece in each.pieces]

    @property
    def pending(self) -> list[Piece]:
        """The late records that no correction has seen; they are never compacted."""
        return [piece for piece in self.since(self.late_upto) if piece.kind == LATE]

    @property
    def span(self) -> int:
        """The time between the oldest and the newest pending record, in microseconds."""
        low = [each.low for each in self.pending if each.low is not None]
        high = [each.high for each in self.pending if each.high is not None]
        return max(high) - min(low) if low else 0

    def to_correct(self, slots: Slots, *, final: bool) -> dict[int | None, list[Piece]]:
        """The slots whose windows are compared, those of late records or all that may differ."""
        if final:
            numbers = touched(slots, self.since(None), PARTIALS) | {*self.head.unchecked}
        else:
            numbers = touched(slots, self.pending, LATE)
        return self.with_pieces(filter(self.head.keeps, numbers))

    def first_kept(self, slots: Slots, retention: int | None) -> int | None:
        """The first slot that is kept for a retention, in microseconds of event time; None: all.

        It counts from the last window that all buckets have closed, as each tells in every batch:
        one that waits longer than others may have older windows open. A record that is no older
        has all of its windows in slots that are kept: they may begin a slot before it.
        """
        told = (
            [each.slot for each in batch.pieces if each.kind == CLOSED and each.slot is not None]
            for batch in reversed(self.batches)
        )
        closed = next(filter(None, told), None)
        if retention is None or closed is None:
            return self.head.first
        first = min(closed) + -retention // slots.length - 1
        return first if self.head.first is None else max(first, self.head.first)

    def with_pieces(self, numbers: Iterable[int]) -> dict[int | None, list[Piece]]:
        """Slots with the pieces of partials and results that their windows need."""
        there = by_slot(each for each in self.pieces if each.kind in (PARTIALS, ROW))
        return {slot: [*there.get(slot, []), *there.get(slot + 1, [])] for slot in numbers}


def touched(slots: Slots, pieces: Iterable[Piece], kind: str) -> set[int]:
    """The slots whose windows can hold records of these pieces."""
    numbers = {each.slot for each in pieces if each.kind == kind}
    return {one for slot in numbers if slot is not None for one in slots.touched(slot)}


def kept(commit: Commit, head: Head, forgotten: list[str]) -> Commit:
    """A commit without what came for slots that the head does not keep.

    Late records of those are kept as expired ones; files of all else are added to `forgotten`.
    """
    if all(head.keeps(each.slot) for each in commit.pieces):
        return commit
    pieces = []
    for piece in commit.pieces:
        if head.keeps(piece.slot):
            pieces.append(piece)
        elif piece.kind == LATE:
            pieces.append(replace(piece, kind=EXPIRED, slot=None))
        elif piece.row is None:
            forgotten.append(piece.path)
    return replace(commit, pieces=tuple(pieces))
