"""What a worker has loaded stays, and need not be looked at again and again."""

from __future__ import annotations

import gc
import sys

_known = 0  # modules that were loaded when it last settled


def freeze_gc() -> None:
    """Take what this worker has loaded so far out of the garbage collector's sight.

    Spark keeps a Python worker for further tasks and, after each, collects garbage in full. Over
    modules and compiled kernels, of which nothing ever is garbage, that takes a tenth of a second:
    more than a small micro-batch's own work. Called at the end of a task; does something only
    where the task has loaded something, so that what comes and goes later is collected as ever.
    """
    global _known
    if len(sys.modules) != _known:
        gc.collect()
        gc.freeze()
        _known = len(sys.modules)
