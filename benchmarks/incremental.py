"""The incremental cache in Spark: Zipf keys over ten million in PostgreSQL, 1 % kept per worker.

Hit ratio, CPU seconds (Spark's, and the store's beside them) and records per second of both
policies; a stream nine tenths of whose keys the table does not have; and what there is without a
cache: a statement per Arrow batch, and a query per record.
"""

from __future__ import annotations

from tests.servers import Server, postgres_server

from benchmarks import keyed, ours, streams
from benchmarks.harness import SEED, Case, arguments, interleave, progress, save
from benchmarks.runner import Runner

RUNS = 3
ROWS, Z = 10_000_000, 1.10
#: the stream through a cache before it counts, and in each run: files of so many records
BATCH, WARM, FILES = 500_000, 16, 4
ASKED = 20_000  #: records of the plain form
ABSENT = {"present": 0, "mostly absent": 9}  #: tenths of the keys that the table does not have


def cases(runner: Runner, server: Server, rows: int, batch: int) -> dict[str, Case]:
    """The cases by name; the caches are warm when this returns."""
    made: dict[str, Case] = {}
    for kind, absent in ABSENT.items():
        warm = keyed.skewed(rows, batch, WARM, z=Z, absent=absent)
        for policy in ("lru", "s3fifo"):
            options = {"url": server.url, "rows": rows // 100, "policy": policy}
            warm.case(runner, "kept", files=WARM, **options)()
            made[f"{policy}, {kind}"] = _fresh(runner, server, rows, batch, absent, options)
    few = keyed.skewed(rows, batch, 1, z=Z, absent=0)
    made["by_batch"] = few.case(runner, "by_batch", files=1, store=server.pid, url=server.url)
    plain = keyed.skewed(rows, min(ASKED, batch), 1, z=Z, absent=0)
    made["by_record"] = plain.case(runner, "by_record", files=1, store=server.pid, url=server.url)
    return made


def _fresh(
    runner: Runner, server: Server, rows: int, batch: int, absent: int, options: dict[str, object]
) -> Case:
    """A part of the stream that no run before had: a second look at the same would flatter."""
    numbers = iter(range(1, 1000))

    def once() -> dict[str, float]:
        part = keyed.skewed(rows, batch, FILES, z=Z, absent=absent, part=next(numbers))
        run = part.case(runner, "kept", files=FILES, store=server.pid, **options)
        return dict(run())

    return once


def main() -> None:
    """Leave ``incremental``."""
    given = arguments(__doc__)
    rows, batch = (50_000, 5_000) if given.quick else (ROWS, BATCH)
    runs = given.runs or (1 if given.quick else RUNS)
    with postgres_server() as server, ours.start(cores=2) as runner:
        keyed.items_in(server.url, rows)
        lines = cases(runner, server, rows, batch)
        with progress("incremental", len(lines) * (1 + runs)) as step:
            found = interleave(lines, runs=runs, step=step)
    about = {"quick": given.quick, "seed": SEED, "data": f"seeded; Zipf {Z} over {rows:,} keys"}
    table = {"table_rows": rows, "kept_rows": rows // 100, "batch_rows": batch}
    print(save("incremental", [table | row for row in found], **about, conf=streams.CONF))


if __name__ == "__main__":
    main()
