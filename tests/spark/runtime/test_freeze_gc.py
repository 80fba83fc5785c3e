"""Freezing: what is loaded is out of the collector's sight, what comes later is not."""

import gc
import sys
import types

from rivermouth.spark.runtime import freeze_gc


def test_it_freezes_once_and_again_only_when_something_was_loaded(monkeypatch):
    monkeypatch.setattr(freeze_gc, "_known", 0)
    gc.unfreeze()
    try:
        freeze_gc.freeze_gc()
        frozen = gc.get_freeze_count()
        assert frozen > 10_000
        later = [[] for _ in range(5_000)]
        freeze_gc.freeze_gc()
        assert gc.get_freeze_count() <= frozen, "nothing was loaded"
        monkeypatch.setitem(sys.modules, "loaded_meanwhile", types.ModuleType("loaded_meanwhile"))
        freeze_gc.freeze_gc()
        assert gc.get_freeze_count() >= frozen + len(later)
    finally:
        gc.unfreeze()
