"""`between` as a stream: our indexes, Spark's own stream-static join, and a query per record.

Tables of 2^18 to 2^23 rows, 32 to a key; each probe meets about four of them whatever the size, so
that only the search can make a larger table slower. The floor is a `mapInArrow` that gives each row
four times and does nothing else. The plain form asks a PostgreSQL that has an
index on key and value. Beside it stand the throughputs of paper A's Tables 6, 7 and 8. Every case
has run ten micro-batches of its own on a small table before it counts, and one whole round.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from tests.support.servers import Server, postgres_server

from benchmarks.harness import session, streams
from benchmarks.harness.experiment import SEED, Case, arguments, interleave, progress, save
from benchmarks.harness.runner import Runner
from benchmarks.suites.keys import keyed

RUNS, WARM = 3, 10
POWERS = (18, 20, 21, 22, 23)
HEADLINE = 21  #: 2^21 rows: where Spark and the other plans are measured, too
PAPER_POWERS = (21, 22, 23)
SMALL = 16  #: 2^16 rows: where all are warmed
BATCH, FILES = 100_000, 3
ASKED = 20_000  #: records of the plain form

#: paper A's Tables 6 to 8 at 8 TaskManagers: thousands of records a second
PAPER = {
    "by_record": {21: 16.32, 22: 14.59, 23: 12.43},
    "skiplist": {21: 65.71, 22: 62.00, 23: 55.66},
    "ideal_skiplist": {21: 87.33, 22: 81.59, 23: 74.71},
}

Line = tuple[str, int]  #: a case and the power of two that the table's rows are


#: options of `keyed_cases`: what is measured at every size, at the paper's, and at the headline
OURS: dict[str, dict[str, Any]] = {"sorted": {"plan": "workers"}}
LISTS: dict[str, dict[str, Any]] = {
    index: {"plan": "workers", "index": index} for index in ("skiplist", "ideal_skiplist")
}
OTHERS: dict[str, dict[str, Any]] = {
    "identity_fourfold": {},
    "spark_cached": {"hint": False},
    "spark_broadcast": {"hint": True},
}


def cases(runner: Runner, server: Server, powers: Sequence[int], batch: int) -> dict[Line, Case]:
    """All cases, on as many micro-batches each."""
    made: dict[Line, Case] = {}
    headline = min(HEADLINE, powers[-1])
    for power in powers:
        wanted, stream = OURS, keyed.probes(power, batch, FILES)
        if power in PAPER_POWERS or power == powers[-1]:
            wanted = wanted | LISTS
            made["by_record", power] = _by_record(runner, server, power, batch)
        if power == headline:
            wanted = wanted | OTHERS
        for name, options in wanted.items():
            made[name, power] = _case(runner, name, power, stream, options)
    return made


def warm(runner: Runner, power: int) -> None:
    """Each case but the plain one on many small batches."""
    stream = keyed.probes(power, 10_000, WARM)
    for name, options in (OURS | LISTS | OTHERS).items():
        _case(runner, name, power, stream, options)()


def _case(
    runner: Runner, name: str, power: int, stream: keyed.Stream, options: dict[str, Any]
) -> Case:
    files = len(stream.rows)
    if name == "identity_fourfold":
        fourfold = replace(stream, out=[4 * rows for rows in stream.rows])
        return fourfold.case(runner, name, files=files)
    case = "spark_between" if "hint" in options else "between"
    return stream.case(runner, case, files=files, table=str(keyed.slices(power)), **options)


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
    with postgres_server() as server, session.start(cores=2) as runner:
        lines = cases(runner, server, powers, batch)
        warm(runner, powers[0] if given.quick else SMALL)
        with progress("ranges", len(lines) * (1 + runs)) as step:
            named = {f"{case}, 2^{power}": run for (case, power), run in lines.items()}
            found = interleave(named, runs=runs, step=step, minutes=given.minutes)
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
