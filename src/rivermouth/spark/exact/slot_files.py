"""The files of a slot: an index names them, and compaction merges small ones.

    slots/12.json       which files the slot has, and up to which batch and correction they reach
    data/12/...         the files

What came later is in commits. A reader takes the files and the pieces behind them, so that it
sees each piece once, whether it reads before or after a compaction.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

import pyarrow as pa

from rivermouth.kernels.aggregation.processor import PARTIALS
from rivermouth.spark.exact.pieces import Files, Piece, slot_name, with_emitted

#: merges partials of one group and pane
Merge = Callable[[pa.Table], pa.Table]
_ATTEMPTS = 3
_LARGE = 1 << 24  # bytes of a file that is not merged with others
_GROWTH = 2  # a file is merged with newer ones that have at least this part of its bytes


@dataclass(frozen=True)
class SlotFiles:
    """A slot's index.

    Parameters
    ----------
    batch, correction
        The last whose pieces are in the files.
    files
        Each with its ``kind``, ``path``, ``rows``, ``size`` and, where its rows have none,
        ``emitted``; of one kind the oldest first.
    removed
        The files that these have replaced.
    """

    batch: int = -1
    correction: int = 0
    files: tuple[dict[str, Any], ...] = ()
    removed: tuple[str, ...] = ()

    @classmethod
    def load(cls, files: Files, slot: int | None) -> SlotFiles:
        """The index as it is."""
        found = files.json(_index(slot))
        if found is None:
            return cls()
        lists = {name: tuple(found[name]) for name in ("files", "removed")}
        return cls(**{**found, **lists})

    def save(self, files: Files, slot: int | None) -> None:
        """Make this the slot's index."""
        files.write_json(_index(slot), vars(self))

    def paths(self, slot: int | None) -> list[str]:
        """All files of the slot, its index the last."""
        named = [each["path"] for each in self.files]
        return [*named, *self.removed, _index(slot)]

    def newer(self, pieces: Iterable[Piece]) -> list[Piece]:
        """The pieces that are not in the files."""
        return [
            each
            for each in pieces
            if each.number > (self.correction if each.corrected else self.batch)
        ]


def read_slot(
    files: Files, slot: int | None, kinds: Iterable[str], pieces: Iterable[Piece]
) -> dict[str, list[pa.Table]]:
    """The rows of these kinds in a slot: its files, and those of `pieces` that came later."""
    pieces = [each for each in pieces if each.slot == slot]
    for attempt in range(_ATTEMPTS):
        index = SlotFiles.load(files, slot)
        newer = index.newer(pieces)
        try:
            return {
                kind: [
                    *(_table(files, each) for each in index.files if each["kind"] == kind),
                    *(files.read(piece) for piece in newer if piece.kind == kind),
                ]
                for kind in kinds
            }
        except FileNotFoundError:  # compacted meanwhile, and long ago
            if attempt == _ATTEMPTS - 1:
                raise
    raise AssertionError


def compact_slot(
    files: Files, slot: int | None, pieces: Iterable[Piece], merge: Merge
) -> list[str]:
    """Move the pieces of a slot into its files; the files that are not needed any more.

    Files that are not much larger than what comes are merged with it, so that a row is written a
    few times only and a slot has few files. Running it again changes nothing.
    """
    index = SlotFiles.load(files, slot)
    newer = index.newer(piece for piece in pieces if piece.slot == slot)
    if not newer:  # what was done before may not have been written down
        return [*index.removed]
    kept: list[dict[str, Any]] = list(index.files)
    removed: list[str] = []
    for kind in dict.fromkeys(piece.kind for piece in newer):
        pieces = [piece for piece in newer if piece.kind == kind]
        large = [piece for piece in pieces if _is_large(piece)]
        kept += [_entry(piece) for piece in large]
        small = [piece for piece in pieces if not _is_large(piece)]
        if small:
            added, replaced = _merged(files, slot, kept, small, merge)
            kept = [each for each in kept if each not in replaced] + [added]
            removed += [each["path"] for each in replaced]
            removed += [piece.path for piece in small if piece.row is None]
    SlotFiles(
        max([index.batch, *(each.number for each in newer if not each.corrected)]),
        max([index.correction, *(each.number for each in newer if each.corrected)]),
        tuple(kept),
        tuple(removed),
    ).save(files, slot)
    return [*index.removed, *removed]


def _is_large(piece: Piece) -> bool:
    """Whether its file stays as it is; partials are merged, which makes them smaller."""
    return piece.row is None and piece.size >= _LARGE and piece.kind != PARTIALS


def _merged(
    files: Files, slot: int | None, there: list[dict[str, Any]], pieces: list[Piece], merge: Merge
) -> tuple[dict[str, Any], list[dict[str, Any]]]:
    """A new file of pieces of one kind and of files that are not much larger; and those files."""
    kind, size = pieces[0].kind, sum(piece.size for piece in pieces)
    replaced: list[dict[str, Any]] = []
    for each in reversed([each for each in there if each["kind"] == kind]):
        if each["size"] > min(_GROWTH * size, _LARGE):
            break
        size += each["size"]
        replaced.insert(0, each)
    tables = [*(_table(files, each) for each in replaced), *map(files.read, pieces)]
    table = pa.concat_tables(tables, promote_options="default").combine_chunks()
    if kind == PARTIALS:
        table = merge(table)
    made = {"kind": kind, "rows": table.num_rows, "size": table.nbytes, "emitted": None}
    return {**made, "path": files.write(kind, slot, table)}, replaced


def _index(slot: int | None) -> str:
    return f"slots/{slot_name(slot)}.json"


def _entry(piece: Piece) -> dict[str, Any]:
    made = {"kind": piece.kind, "rows": piece.rows, "size": piece.size, "emitted": piece.emitted}
    return {**made, "path": piece.path}


def _table(files: Files, entry: dict[str, Any]) -> pa.Table:
    table = files.table(entry["path"])
    return with_emitted(table, entry["emitted"])
