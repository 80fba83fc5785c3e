"""A driver: builds a session from settings, then calls functions for whoever writes to it.

A line of JSON in, ``{"function": "module:name", "arguments": {...}}``, and one out,
``{"value": ...}`` or ``{"error": ...}``. The session is the function's first argument. It ends
with its input.
"""

from __future__ import annotations

import importlib
import json
import os
import sys
import traceback
from typing import Any

from pyspark.sql import SparkSession


def session(settings: dict[str, str]) -> SparkSession:
    """The session of these settings; one of ``remote`` alone is a client of Spark Connect."""
    builder = SparkSession.builder.appName("lab")
    if "remote" in settings:
        return builder.remote(settings["remote"]).getOrCreate()
    for name, value in settings.items():
        builder = builder.config(name, value)
    return builder.getOrCreate()


def main() -> None:
    """Answer every line of input."""
    # whatever else prints, prints to the log
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)

    def answer(**content: Any) -> None:
        print(json.dumps(content), file=answers, flush=True)

    spark = session(json.loads(sys.argv[1]))
    answer(value="ready")
    for line in sys.stdin:
        request = json.loads(line)
        module, _, name = request["function"].partition(":")
        try:
            function = getattr(importlib.import_module(module), name)
            answer(value=function(spark, **request["arguments"]))
        except Exception:
            answer(error=traceback.format_exc())
    spark.stop()


if __name__ == "__main__":
    main()
