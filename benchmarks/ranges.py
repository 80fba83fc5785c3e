"""`between` as a stream: our indexes, Spark's own stream-static join, and a query per record.

Tables of 2^18 to 2^23 rows, 32 to a key; each probe meets about four of them whatever the size, so
that only the search can make a larger table slower. The plain form asks a PostgreSQL that has an
index on key and value. Beside it stand the throughputs of paper A's Tables 6, 7 and 8.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from tests.servers import Server, postgres_server

from benchmarks import keyed, ours, streams
from benchmarks.harness import SEED, Case, arguments, interleave, progress, save
from benchmarks.runner import Runner

RUNS, WARM = 3, 12
POWERS = (18, 19, 20, 21, 22, 23)
HEADLINE = 21  #: 2^21 rows: where Spark and the other plans are measured, too
PAPER_POWERS = (21, 22, 23)
BATCH, FILES = 100_000, 6
ASKED = 20_000  #: records of the plain form

#: paper A's Tables 6 to 8 at 8 TaskManagers: thousands of records a second
PAPER = {
    "by_record": {21: 16.32, 22: 14.59, 23: 12.43},
    "skiplist": {21: 65.71, 22: 62.00, 23: 55.66},
    "ideal_skiplist": {21: 87.33, 22: 81.59, 23: 74.71},
}

Line = tuple[str, int]  #: a case and the power of two that the table's rows are


def cases(runner: Runner, server: Server, powers: Sequence[int], batch: int) -> dict[Line, Case]:
    """All cases; those whose table is made anew in each batch on fewer batches."""
    made: dict[Line, Case] = {}
    for power in powers:
        stream, table = keyed.probes(power, batch, FILES), str(keyed.slices(power))
        ours_ = {"table": table, "plan": "workers"}
        made["sorted", power] = stream.case(runner, "between", files=FILES, **ours_)
        if power in PAPER_POWERS or power == powers[-1]:
            for index in ("skiplist", "ideal_skiplist"):
                made[index, power] = stream.case(
                    runner, "between", files=FILES, index=index, **ours_
                )
            made["by_record", power] = _by_record(runner, server, power, batch)
        if power == HEADLINE or power == powers[-1] < HEADLINE:
            made["native", power] = stream.case(
                runner, "between", files=2, table=table, plan="native"
            )
            for name, hint in (("spark_cached", False), ("spark_broadcast", True)):
                made[name, power] = stream.case(
                    runner, "spark_between", files=2, table=table, hint=hint
                )
    return made


def _by_record(runner: Runner, server: Server, power: int, batch: int) -> Case:
    keyed.slices_in(server.url, power)
    stream = keyed.probes(power, min(ASKED, batch), 1)
    return stream.case(
        runner, "between_by_record", files=1, store=server.pid, url=server.url, power=power
    )


def main() -> None:
    """Leave ``ranges``."""
    given = arguments(__doc__)
    powers, batch = ((12, 14), 5_000) if given.quick else (POWERS, BATCH)
    runs = given.runs or (1 if given.quick else RUNS)
    with postgres_server() as server, ours.start(cores=2) as runner:
        lines = cases(runner, server, powers, batch)
        warm = keyed.probes(powers[0], 10_000, WARM)
        warm.case(
            runner, "between", files=WARM, table=str(keyed.slices(powers[0])), plan="workers"
        )()
        with progress("ranges", len(lines) * (1 + runs)) as step:
            named = {f"{case}, 2^{power}": run for (case, power), run in lines.items()}
            found = interleave(named, runs=runs, step=step)
    rows: list[dict[str, Any]] = [
        row
        | {"case": case, "power": power, "batch_rows": batch}
        | {"paper_rows_per_s": 1000 * PAPER.get(case, {}).get(power, 0) or None}
        for (case, power), row in zip(lines, found, strict=True)
    ]
    about = {"quick": given.quick, "seed": SEED, "data": "seeded"}
    print(save("ranges", rows, **about, conf=streams.CONF))


if __name__ == "__main__":
    main()
