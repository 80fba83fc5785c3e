"""Compaction of a store: commits become files of slots, so that their number stays bounded."""

from __future__ import annotations

from rivermouth.kernels.aggregation.processor import PARTIALS
from rivermouth.kernels.aggregation.slots import Slots
from rivermouth.spark.exact import tasks
from rivermouth.spark.exact.pieces import by_slot
from rivermouth.spark.exact.results import Results, slot_frame
from rivermouth.spark.exact.snapshot import touched

_FEW = 16  # slots that are not worth a check


def compact(results: Results, *, retention: int | None = None) -> None:
    """Move all commits into the files of their slots; a task for each slot.

    Slots whose windows all closed longer ago than `retention`, in microseconds of event time, are
    deleted instead. A process that ends within it leaves a store that is read as before, and is
    compacted anew.
    """
    plan, store, snapshot = results.schemas.plan, results.store, results.snapshot
    work, layout = tasks.slot_compactor(store.path, plan), Slots.of(plan.grid)
    first = snapshot.first_kept(layout, retention)
    slots = by_slot(snapshot.pieces)
    expired = [slot for slot in slots if slot is not None and first is not None and slot < first]
    removed = [each.path for slot in expired for each in slots.pop(slot) if each.row is None]
    if slots:
        done = slot_frame(results.spark, slots).mapInArrow(work, "path string").toArrow()
        removed += done.column("path").to_pylist()
    unchecked = touched(layout, snapshot.pieces, PARTIALS)
    store.compacted(snapshot, removed, unchecked, first=first)
    _check(results)


def _check(results: Results) -> None:
    """Forget the slots whose results are complete, so that a last correction reads few."""
    store = results.store
    snapshot = store.snapshot()
    slots, checked = snapshot.head.unchecked, snapshot.head.checked
    if len(slots) <= max(_FEW, 2 * checked):
        return
    work = tasks.slot_checker(store.path, results.schemas.plan)
    frame = slot_frame(results.spark, snapshot.with_pieces(slots))
    differ = frame.mapInArrow(work, "slot long").toArrow().column("slot").to_pylist()
    store.checked(differ)
