"""``rivermouth demo``: an evening of a city that does not exist, through all operators, live."""

from __future__ import annotations

import os
import sys
import tempfile
import time
from argparse import ArgumentParser, Namespace
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rich.console import Console

from rivermouth.cli.command import Command

if TYPE_CHECKING:
    from pyspark.sql import SparkSession
    from pyspark.sql.streaming.query import StreamingQuery

    from rivermouth.cli.demo.story import Story
    from rivermouth.cli.demo.summing import Outcome

_PAUSE = 0.2  # seconds between two looks

_SETTINGS = {
    # the summary speaks of all batches, not of the newest hundred
    "spark.sql.streaming.numRecentProgressUpdates": "100000",
    # in a short run the JVM's second compiler costs more than it saves: 31 against 15 CPU-seconds
    "spark.driver.defaultJavaOptions": "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC",
}


def add_arguments(parser: ArgumentParser) -> None:
    """The demo's own arguments."""
    parser.add_argument(
        "--minutes", type=_positive, default=0.6, help="how long it goes on (default: 0.6)"
    )
    parser.add_argument(
        "--scale",
        type=_positive,
        default=1.0,
        help="how much happens: 1 is 300 cabs, 1,900 rows a second (default: 1)",
    )
    parser.add_argument("--seed", type=int, default=7, help="of all that happens (default: 7)")
    parser.add_argument("--master", default="local[2]", help="where Spark runs (default: local[2])")
    parser.add_argument(
        "--out",
        type=Path,
        default=Path("demo-output"),
        help="folder for what is made (default: demo-output)",
    )
    parser.add_argument(
        "--port", type=int, default=0, help="of the live page (default: a free one)"
    )
    parser.add_argument(
        "--no-open", action="store_true", help="do not show the live page in a browser"
    )


def _positive(text: str) -> float:
    number = float(text)
    if not 0 < number < float("inf"):
        raise ValueError(text)  # argparse makes its own sentence of it
    return number


def run(arguments: Namespace) -> int:
    """Tell the story while the queries follow it, and sum up."""
    from rivermouth.cli.demo.queries import CALLS
    from rivermouth.cli.demo.report import save, show
    from rivermouth.cli.demo.story import story

    console = Console(highlight=False, soft_wrap=True)
    began = time.monotonic()
    seconds = arguments.minutes * 60
    told = story(seconds=seconds, scale=arguments.scale, seed=arguments.seed)
    out: Path = arguments.out.resolve()
    out.mkdir(parents=True, exist_ok=True)
    told.write(out)
    console.print(f"{told.sentence}\n\n{CALLS}", markup=False)
    with _spark(arguments.master, out / "spark.log", console) as spark, _folder(out) as work:
        outcome = _told(spark, told, out, work, arguments, console)
        show(outcome, told, console)
        save(outcome, told, out, console)
    console.print(f"\n{time.monotonic() - began:.0f} s in all.", markup=False)
    return 0


@contextmanager
def _spark(master: str, log: Path, console: Console) -> Iterator[SparkSession]:
    """A session whose processes write into `log`: its workers tell of every start and end."""
    from rivermouth.spark.runtime.session import local_session

    with console.status("Starting Spark ..."), _errors_into(log):
        spark = local_session("rivermouth demo", conf=_SETTINGS | {"spark.master": master})
    try:
        yield spark
    finally:
        spark.stop()


@contextmanager
def _errors_into(log: Path) -> Iterator[None]:
    """Processes that are started meanwhile have `log` for their standard error."""
    kept = os.dup(2)
    with log.open("wb") as file:
        os.dup2(file.fileno(), 2)
    try:
        yield
    finally:
        os.dup2(kept, 2)
        os.close(kept)


@contextmanager
def _folder(out: Path) -> Iterator[Path]:
    """A folder for what goes on, within `out`, so that workers of another master reach it, too."""
    with tempfile.TemporaryDirectory(prefix=".work-", dir=out) as name:
        yield Path(name)


def _told(
    spark: SparkSession, told: Story, out: Path, work: Path, arguments: Namespace, console: Console
) -> Outcome:
    """Let everything happen, and give what came of it."""
    import rivermouth as rm
    from rivermouth.cli.demo import queries
    from rivermouth.cli.demo.arrivals import Arrivals
    from rivermouth.cli.demo.report import HISTORY
    from rivermouth.cli.demo.summing import Outcome
    from rivermouth.observe.progress import follow_all

    arriving = {queries.CABS: told.cabs, queries.HAILS: told.hails, queries.CHARGES: told.charges}
    for name in arriving:
        (work / name).mkdir()
    seconds = arguments.minutes * 60
    with ExitStack() as stack:
        started = queries.start(spark, out, work)
        stack.callback(started.stop)
        show_page = sys.stdout.isatty() and not arguments.no_open
        watching = stack.enter_context(
            rm.watch(*started.watched, history=out / HISTORY, port=arguments.port, open=show_page)
        )
        console.print(f"The page:  {watching.url}\n", markup=False)
        sources = [
            stack.enter_context(Arrivals(table, work / name, seconds=seconds))
            for name, table in arriving.items()
        ]
        with console.status("The first rows: workers start, kernels are compiled ..."):
            _wait_for_a_batch(started.all)
        for source in sources:
            source.begin()

        def over(now: dict[str, dict[str, Any]]) -> bool:
            return all(source.over for source in sources) and told.is_known_to(now)

        numbers = follow_all(started.all, until=over, console=console)
        with console.status("The last corrections ..."):
            started.stop()
    return Outcome(
        placed=spark.read.parquet(str(work / "placed.out")).toArrow(),
        offers=spark.read.parquet(str(work / "offers.out")).toArrow(),
        earned=started.earned.results().toArrow(),
        changes=started.earned.changelog().toArrow(),
        metrics=numbers,
    )


def _wait_for_a_batch(queries: Mapping[str, StreamingQuery]) -> None:
    """Wait until each query has done its first; one that has failed is not waited for."""
    while not all(query.lastProgress or not query.isActive for query in queries.values()):
        time.sleep(_PAUSE)


COMMAND = Command(
    "demo", "Follow the cabs of a made-up city through all operators, live", add_arguments, run
)
