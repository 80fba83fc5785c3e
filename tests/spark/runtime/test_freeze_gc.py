"""Freezing: what is loaded is out of the collector's sight, what comes later is not."""

import subprocess
import sys

# in a process of its own: other threads of the test run load modules and release objects
PROGRAM = """
import gc, sys, types
import pyarrow, shapely
from rivermouth.spark.runtime.freeze_gc import freeze_gc

freeze_gc()
frozen = gc.get_freeze_count()
assert frozen > 10_000, frozen
later = [[] for _ in range(5_000)]
freeze_gc()
assert gc.get_freeze_count() <= frozen, "nothing was loaded"
sys.modules["loaded_meanwhile"] = types.ModuleType("loaded_meanwhile")
freeze_gc()
assert gc.get_freeze_count() >= frozen + len(later)
"""


def test_it_freezes_once_and_again_only_when_something_was_loaded():
    ran = subprocess.run(
        [sys.executable, "-c", PROGRAM], capture_output=True, text=True, check=False
    )
    assert ran.returncode == 0, ran.stderr
