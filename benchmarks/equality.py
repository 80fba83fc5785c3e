"""Equality on a full cache of ten million rows, beside its floor and Spark's own join.

CPU seconds per million rows and wall time, in micro-batches of 100,000 rows and of 1,000,000. All
cases take turns in one session, after ten micro-batches and more that do not count. Spark's own
join reads its cached copy, or a PostgreSQL by JDBC, anew in each batch, so it is given fewer.
"""

from __future__ import annotations

from typing import Any

from tests.servers import postgres_server

from benchmarks import keyed, ours, streams
from benchmarks.harness import SEED, Case, arguments, interleave, progress, save
from benchmarks.runner import Runner

RUNS, WARM = 3, 12
ROWS = 10_000_000
#: rows of a micro-batch -> how many of them the stream has
BATCHES = {100_000: 12, 1_000_000: 3}
#: the native plan broadcasts the table in every batch: it must fit twice
HEAP = {"spark.driver.memory": "6g", "spark.driver.maxResultSize": "4g"}


def cases(runner: Runner, url: str, rows: int, stream: keyed.Stream) -> dict[str, Case]:
    """The cases by name, those that read the table in each batch on fewer batches."""
    every, few = len(stream.rows), max(1, len(stream.rows) // 4)
    table = str(keyed.items(rows))
    return {
        "identity_with_name": stream.case(runner, "identity_with_name", files=every),
        "workers": stream.case(runner, "equal", files=every, table=table, plan="workers"),
        "native": stream.case(runner, "equal", files=1, table=table, plan="native"),
        "spark_cached": stream.case(runner, "spark_equal", files=few, table=table),
        "spark_jdbc": stream.case(runner, "spark_jdbc", files=1, url=url, most=rows * keyed.GAP),
    }


def run(runner: Runner, url: str, rows: int, batch: int, runs: int) -> list[dict[str, Any]]:
    """A row for each case, in micro-batches of so many rows."""
    stream = keyed.even(rows, batch, BATCHES.get(batch, 2))
    lines = cases(runner, url, rows, stream)
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
        ours.start(cores=2, conf=HEAP | {"spark.jars": jar}) as runner,
    ):
        keyed.items_in(server.url, rows)
        warm = keyed.even(rows, 10_000, WARM)
        warm.case(runner, "identity_with_name", files=WARM)()
        found: list[dict[str, Any]] = []
        for batch in (20_000,) if given.quick else BATCHES:
            found += run(runner, server.url, rows, batch, runs)
    about = {"quick": given.quick, "seed": SEED, "data": "seeded", "peers": keyed.JDBC.versions}
    print(save("equality", found, **about, conf=streams.CONF | HEAP))


if __name__ == "__main__":
    main()
