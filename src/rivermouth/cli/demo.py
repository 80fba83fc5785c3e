"""``rivermouth demo``: the taxis of a city that does not exist, placed in its districts, live."""

from __future__ import annotations

from argparse import ArgumentParser, Namespace
from pathlib import Path

from rich.console import Console

from rivermouth.cli.command import Command

_MINUTE = 60  # seconds of the city's time that pass in a second of the demo
_EVERY = 10  # seconds of the city's time between two positions of a taxi

_CALL = """\
rm.join_table(
    positions,
    rm.tables.geojson("districts.geojson"),
    on=rm.within(rm.point("lon", "lat"), "geometry"),
    how="left",
    columns=["district"],
)
"""

_SETTINGS = {
    # the summary speaks of all batches, not of the newest hundred
    "spark.sql.streaming.numRecentProgressUpdates": "100000",
    # in a short run the JVM's second compiler costs more than it saves: 31 against 15 CPU-seconds
    "spark.driver.defaultJavaOptions": "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC",
}


def add_arguments(parser: ArgumentParser) -> None:
    """The demo's own arguments."""
    parser.add_argument(
        "--seconds", type=_positive, default=40, help="how long taxis report (default: 40)"
    )
    parser.add_argument(
        "--taxis", type=_positive, default=400, help="how many there are (default: 400)"
    )
    parser.add_argument(
        "--seed", type=int, default=7, help="of the city and its taxis (default: 7)"
    )
    parser.add_argument("--master", default="local[2]", help="where Spark runs (default: local[2])")
    parser.add_argument(
        "--out",
        type=Path,
        default=Path("demo-output"),
        help="folder for what is made (default: demo-output)",
    )


def _positive(text: str) -> int:
    number = int(text)
    if number < 1:
        raise ValueError(text)  # argparse makes its own sentence of it
    return number


def run(arguments: Namespace) -> int:
    """Make a city, let its taxis report while a query places them, and sum up."""
    from rivermouth.cli.demo_query import place
    from rivermouth.cli.demo_report import hours, save, show
    from rivermouth.spark.session import local_session
    from rivermouth.testing.city import city
    from rivermouth.testing.taxis import positions

    console = Console(highlight=False, soft_wrap=True)
    arguments.out.mkdir(parents=True, exist_ok=True)
    merewick = city(arguments.seed)
    merewick.write(arguments.out / "districts.geojson")
    reported = positions(
        merewick,
        taxis=arguments.taxis,
        seconds=arguments.seconds * _MINUTE,
        every=_EVERY,
        seed=arguments.seed,
    )
    console.print(
        f"Merewick, {hours(reported)}: {arguments.taxis:,} taxis report {reported.num_rows:,} "
        f"positions in {arguments.seconds} s, and a stream places them in districts:\n\n{_CALL}",
        markup=False,
    )
    with console.status("Starting Spark ..."):
        conf = _SETTINGS | {"spark.master": arguments.master}
        spark = local_session("rivermouth demo", conf=conf)
    try:
        placed, numbers = place(
            spark, reported, arguments.out, seconds=arguments.seconds, console=console
        )
    finally:
        spark.stop()
    show(placed, numbers, console)
    save(placed, merewick, arguments.out, console)
    return 0


COMMAND = Command(
    "demo", "Place the taxis of a made-up city in its districts, live", add_arguments, run
)
