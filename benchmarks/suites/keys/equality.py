"""Equality on a full cache of ten million rows, beside its floors and Spark's own join.

CPU seconds per million rows and wall time, in micro-batches of 100,000 rows and of 1,000,000. All
cases take turns in one session, each on the same files. Before it counts, each case has run a dozen
micro-batches of its own on a hundredth of the table, and one whole round. The native plan is not
among them: it is made for real-time mode, where the table is broadcast once; in micro-batches it is
broadcast each time, and the third copy of ten million rows does not fit into the heap.
"""

from __future__ import annotations

from typing import Any

from tests.support.servers import Server, postgres_server

from benchmarks.harness import session, streams
from benchmarks.harness.experiment import SEED, Case, arguments, interleave, progress, save
from benchmarks.harness.runner import Runner
from benchmarks.suites.keys import keyed

RUNS, WARM = 3, 12
ROWS = 10_000_000
#: rows of a micro-batch -> how many of them each case has in a run
BATCHES = {100_000: 3, 1_000_000: 2}
HEAP = {"spark.driver.memory": "6g"}  #: Spark's cache holds the table


def cases(runner: Runner, server: Server, rows: int, stream: keyed.Stream) -> dict[str, Case]:
    """The cases by name, all on all files of the stream.

    Spark ends Python workers that have nothing to do for a minute, so those that use them stand
    between the others.
    """
    table = str(keyed.items(rows))

    def case(name: str, **options: Any) -> Case:
        return stream.case(runner, name, files=len(stream.rows), **options)

    return {
        "scan": case("scan"),
        "identity_with_name": case("identity_with_name"),
        "spark_cached": case("spark_equal", table=table),
        "workers": case("equal", table=table, plan="workers"),
        "spark_jdbc": case(
            "spark_jdbc",
            store=server.pid,
            url=server.url,
            relation=_relation(rows),
            most=rows * keyed.GAP,
        ),
    }


def _relation(rows: int) -> str:
    return f"items_{rows}"


def warm(runner: Runner, server: Server, rows: int) -> None:
    """Each case once on many small batches: what a JVM compiles first costs several times more."""
    for case in cases(runner, server, rows, keyed.even(rows, 10_000, WARM)).values():
        case()


def run(runner: Runner, server: Server, rows: int, batch: int, runs: int) -> list[dict[str, Any]]:
    """A row for each case, in micro-batches of so many rows."""
    lines = cases(runner, server, rows, keyed.even(rows, batch, BATCHES.get(batch, 2)))
    with progress(f"{batch:,} rows a batch", len(lines) * (1 + runs)) as step:
        found = interleave(lines, runs=runs, step=step)
    return [{"table_rows": rows, "batch_rows": batch} | row for row in found]


def main() -> None:
    """Leave ``equality``."""
    given = arguments(__doc__)
    rows = 50_000 if given.quick else ROWS
    runs = given.runs or (1 if given.quick else RUNS)
    jar = str(keyed.JDBC.make().jar_paths()[0])
    with (
        postgres_server() as server,
        session.start(cores=2, conf=HEAP | {"spark.jars": jar}) as runner,
    ):
        for size in (rows // 100, rows):
            keyed.items_in(server.url, size, _relation(size))
        warm(runner, server, rows // 100)
        found: list[dict[str, Any]] = []
        for batch in (20_000,) if given.quick else BATCHES:
            found += run(runner, server, rows, batch, runs)
    about = {"quick": given.quick, "seed": SEED, "data": "seeded", "peers": keyed.JDBC.versions}
    print(save("equality", found, **about, conf=streams.CONF | HEAP))


if __name__ == "__main__":
    main()
