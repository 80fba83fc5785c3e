"""``rivermouth run``: a pipeline that is declared in a file, checked and run."""

from __future__ import annotations

import contextlib
import signal
import sys
from argparse import ArgumentParser, Namespace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rivermouth.errors import DefinitionError

if TYPE_CHECKING:
    from rivermouth.pipelines.running import Pipeline

SUMMARY = "Check and run a pipeline that is declared in a file"


def add_arguments(parser: ArgumentParser) -> None:
    """The arguments of run."""
    parser.add_argument("file", type=Path, nargs="?", help="the pipeline's file, in YAML")
    parser.add_argument(
        "--check",
        action="store_true",
        help="only report every mistake, with its line and column; reads the columns of sources "
        "and tables, and runs nothing",
    )
    parser.add_argument(
        "--once",
        action="store_true",
        help="process what is there and end; the default goes on until it is interrupted",
    )
    parser.add_argument(
        "--master",
        metavar="URL",
        help="Spark's master, or sc://HOST:PORT (default: this machine, two cores)",
    )
    parser.add_argument(
        "--schema",
        action="store_true",
        help="print the JSON schema of such files, for an editor, and end",
    )


def run(arguments: Namespace) -> int:
    """Check the file, then run it until it ends or is interrupted."""
    from rivermouth.pipelines.json_schema import FILE
    from rivermouth.pipelines.running import Pipeline, PipelineError

    if arguments.schema:
        print(FILE.read_text(encoding="utf-8"), end="")
        return 0
    if arguments.file is None:
        raise DefinitionError("run", "no file is named", todo="Write rivermouth run pipeline.yaml.")
    try:
        pipeline = Pipeline.read(arguments.file)
        spark = _session(pipeline, arguments.master)
        pipeline.define(spark)
    except PipelineError as error:
        for line in error.lines:
            print(line, file=sys.stderr)
        return 1
    if arguments.check:
        print(f"{arguments.file}: no mistakes")
        return 0
    return _run(pipeline, arguments.once)


def _run(pipeline: Pipeline, once: bool) -> int:
    before = signal.signal(signal.SIGTERM, _terminated)
    queries = None
    try:
        with pipeline.redacting():
            queries = pipeline.start(once=once)
            if written := [name for name in pipeline.sinks if name not in queries.names]:
                print(f"{pipeline.name}: {', '.join(written)} written", flush=True)
            if queries.names:
                shown = ", ".join(queries.names)
                print(f"{pipeline.name}: {shown}" + ("" if once else "  (Ctrl+C ends)"), flush=True)
                queries.follow(_say, is_terminal=sys.stdout.isatty())
        return 0
    except (KeyboardInterrupt, _Terminated) as ended:
        print("stopping", flush=True)
        with contextlib.suppress(Exception):  # a signal to the whole group has ended Spark, too
            if queries is not None:
                queries.stop()
        print("stopped; started again, it goes on where it was", flush=True)
        return 130 if isinstance(ended, KeyboardInterrupt) else 143  # what a shell gives for these
    except BaseException:
        with contextlib.suppress(Exception):  # what ended it is to be seen, not what came of that
            if queries is not None:
                queries.stop()
        raise
    finally:
        signal.signal(signal.SIGTERM, before)


def _say(text: str) -> None:
    print(text, flush=True)


class _Terminated(BaseException):
    pass


def _terminated(*_: object) -> None:
    raise _Terminated


def _session(pipeline: Pipeline, master: str | None) -> Any:
    from rivermouth.spark.runtime.session import cluster_session, local_session

    if master is not None:
        return cluster_session(master, name=pipeline.name, conf=pipeline.settings)
    return local_session(pipeline.name, conf=pipeline.settings)
