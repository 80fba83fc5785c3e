"""``rivermouth demo``: all operators on generated data, with a live page."""

from __future__ import annotations

import os
import sys
import tempfile
import time
import webbrowser
from argparse import ArgumentParser, Namespace
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rich.console import Console

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from rivermouth.cli.demo.story import Story
    from rivermouth.cli.demo.summary import Outcome

SUMMARY = "Run all operators on generated data, with a live page"

_SHORTEST = 0.3  # minutes: in less, windows close, but no charge is late for one
_PAUSE = 0.2  # seconds between two looks
# Spark gives the driver's worker of a stateful query 10 s to start; a busy machine may need more
_TOO_SLOW, _ATTEMPTS = "Python worker failed to connect back", 3
# the report counts all batches, not the newest hundred
_SETTINGS = {"spark.sql.streaming.numRecentProgressUpdates": "100000"}


def add_arguments(parser: ArgumentParser) -> None:
    """The demo's own arguments."""
    add = parser.add_argument
    add(
        "--minutes",
        type=_minutes,
        default=0.6,
        help="how long data arrives, at least 0.3; a slow machine takes longer, with the same "
        "results (default: 0.6)",
    )
    add(
        "--scale",
        type=_positive,
        default=1.0,
        help="amount of data; 1 is 300 cabs and 1,900 rows a second (default: 1)",
    )
    add(
        "--seed",
        type=int,
        default=7,
        help="seed of the generated data; the same seed gives the same results (default: 7)",
    )
    add("--master", default="local[2]", help="Spark's master URL (default: local[2])")
    add(
        "--out",
        type=Path,
        default=Path("demo-output"),
        help="folder for report, map and rows (default: demo-output)",
    )
    add("--port", type=int, default=0, help="port of the live page (default: a free one)")
    add("--no-open", action="store_true", help="do not open the live page in a browser")


def _positive(text: str, at_least: float = 0.0) -> float:
    number = float(text)
    if not (0 < number < float("inf") and number >= at_least):
        raise ValueError(text)  # argparse says which argument it is
    return number


def _minutes(text: str) -> float:
    return _positive(text, _SHORTEST)


def run(arguments: Namespace) -> int:
    """Run the queries and report; 1 when the corrected table differs from a recomputation."""
    from rivermouth.cli.demo.queries import CALLS, SECONDS
    from rivermouth.cli.demo.report import HISTORY, report
    from rivermouth.cli.demo.story import story
    from rivermouth.cli.demo.summary import is_exact

    console = Console(highlight=False, soft_wrap=True, markup=False)
    began = time.monotonic()
    batches = round(arguments.minutes * 60 / SECONDS)
    told = story(batches=batches, scale=arguments.scale, seed=arguments.seed)
    out: Path = arguments.out.resolve()
    (out / HISTORY).mkdir(parents=True, exist_ok=True)
    for earlier in (out / HISTORY).glob("*.jsonl"):
        earlier.unlink()
    told.write(out)
    console.print(f"{told.sentence}\n\n{CALLS}")
    # the work folder is in `out`: workers of another master reach it, too
    with (
        _spark(arguments.master, out / "spark.log", console) as spark,
        tempfile.TemporaryDirectory(prefix=".work-", dir=out) as work,
    ):
        outcome = _outcome(spark, told, out, Path(work), arguments, console)
    report(outcome, told, out, console)
    console.print(f"\n{time.monotonic() - began:.0f} s in all.")
    return 0 if is_exact(outcome.earnings, told) else 1


@contextmanager
def _spark(master: str, log: Path, console: Console) -> Iterator[SparkSession]:
    """A session whose processes have `log` for their standard error: workers write a lot there."""
    from rivermouth.spark.runtime.session import SHORT_LIVED, local_session

    kept = os.dup(2)
    with log.open("wb") as file:
        os.dup2(file.fileno(), 2)
    try:
        with console.status("Starting Spark ..."):
            conf = SHORT_LIVED | _SETTINGS | {"spark.master": master}
            spark = local_session("rivermouth demo", conf=conf)
    finally:
        os.dup2(kept, 2)
        os.close(kept)
    try:
        yield spark
    finally:
        spark.stop()


def _outcome(
    spark: SparkSession, told: Story, out: Path, work: Path, arguments: Namespace, console: Console
) -> Outcome:
    """Run the queries on all input, and collect their results."""
    import rivermouth as rm
    from rivermouth.cli.demo import queries
    from rivermouth.cli.demo.report import HISTORY
    from rivermouth.cli.demo.summary import Outcome
    from rivermouth.observe.progress import follow_all
    from rivermouth.observe.server import Server

    with ExitStack() as stack:
        server = Server(out / HISTORY, port=arguments.port)
        stack.callback(server.stop)
        console.print(f"Live page: {server.url}\n")

        def started(start: Callable[[], Any]) -> Any:
            query = _after_first_batch(start)
            stack.callback(query.stop)
            stack.enter_context(rm.watch(query, history=out / HISTORY, page=False))
            return query

        cabs, hails, charges = queries.streams(spark, told, work)
        # one after another, so that on a single core, too, the page soon has its map
        with console.status("First rows: workers start, kernels are compiled ..."):
            placed = started(lambda: queries.placed(cabs, out, work))
            if sys.stdout.isatty() and not arguments.no_open:
                webbrowser.open(server.url)
            offers = started(lambda: queries.offers(hails, cabs, work))
            visits = started(lambda: queries.visits(cabs, out, work))
            # the last to start is what the report shows first
            earnings = started(lambda: queries.earnings(charges, out, work))

        def is_over(metrics: dict[str, dict[str, Any]]) -> bool:
            """All is processed, and late charges have led to a correction beside the stream."""
            late = metrics["earnings"]["operators"]["aggregate"]["late"]
            done = min(query["batches"] for query in metrics.values()) == told.batches
            return done and (not late or bool(earnings.corrections()))

        streams = {"placed": placed, "offers": offers, "visits": visits}
        running = {**streams, "earnings": earnings.query}
        metrics = follow_all(running, until=is_over, console=console)
        with console.status("Last corrections ..."):
            earnings.stop()
        return Outcome(
            **{name: spark.read.parquet(str(work / f"{name}.out")).toArrow() for name in streams},
            earnings=earnings.results().toArrow(),
            changes=earnings.changelog().toArrow(),
            metrics=metrics,
        )


def _after_first_batch(start: Callable[[], Any]) -> Any:
    """What `start` gives, once its query has done a batch or has failed."""
    for _ in range(_ATTEMPTS):
        started = start()
        query = getattr(started, "query", started)
        while query.isActive and not query.lastProgress:
            time.sleep(_PAUSE)
        if _TOO_SLOW not in str(query.exception()):
            break
    return started
