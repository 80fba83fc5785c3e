"""The incremental cache in Spark: Zipf keys over ten million in PostgreSQL, 1 % kept per worker.

Hit ratio, CPU seconds (Spark's, and the store's beside them) and records per second of both
policies; a stream nine tenths of whose keys the table does not have; Flink's lookup join with as
large a cache; and what there is without a cache: a statement per Arrow batch, and a query per
record. The identity `mapInArrow` that brings as many columns is the floor.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from typing import Any

from tests.support.servers import Server, postgres_server

from benchmarks.harness import session, streams
from benchmarks.harness.experiment import SEED, Case, arguments, interleave, progress, save
from benchmarks.harness.runner import Runner
from benchmarks.peers import flink
from benchmarks.peers.environment import PeerUnavailable
from benchmarks.suites.keys import keyed

RUNS = 3
ROWS, Z = 10_000_000, 1.10
#: files of so many records: in each run, and through a cache before it counts, by its policy (half
#: a million records of a worker's fill it; after that, LRU is what it will be, and S3-FIFO learns)
BATCH, FILES, WARM = 500_000, 3, {"lru": 6, "s3fifo": 16}
ASKED = 100_000  #: records of the plain form: a micro-batch costs a third of a second by itself
#: policies, what is asked of them, and tenths of the keys that the table does not have
KEPT = (("lru", "present", 0), ("s3fifo", "present", 0), ("s3fifo", "mostly absent", 9))
#: a name of the table for each of these streams: caches of one table are one cache
NAMES = {"present": "items", "mostly absent": "items_again"}


def cases(runner: Runner, server: Server, rows: int, batch: int) -> dict[str, Case]:
    """Our cases by name; the caches are warm when this returns."""
    made: dict[str, Case] = {}
    for policy, kind, absent in KEPT:
        options = {"url": server.url, "relation": NAMES[kind]}
        run = partial(_kept, runner, options | {"rows": rows // 100, "policy": policy})
        made[f"{policy}, {kind}"] = _warmed(run, server, rows, batch, absent, WARM[policy])
    few = keyed.skewed(rows, batch, FILES, z=Z, absent=0)
    made["identity_with_name"] = few.case(runner, "identity_with_name", files=FILES)
    made["by_batch"] = few.case(runner, "by_batch", files=FILES, store=server.pid, url=server.url)
    plain = keyed.skewed(rows, min(ASKED, batch), 1, z=Z, absent=0)
    made["by_record"] = plain.case(runner, "by_record", files=1, store=server.pid, url=server.url)
    return made


def _kept(
    runner: Runner,
    options: dict[str, Any],
    part: keyed.Stream,
    *,
    files: int,
    store: int | None = None,
) -> Case:
    return part.case(runner, "kept", files=files, store=store, **options)


def _warmed(
    run: Callable[..., Case], server: Server, rows: int, batch: int, absent: int, warm: int
) -> Case:
    """Runs over parts that no run before had: a second look at the same would flatter."""
    run(keyed.skewed(rows, batch, warm, z=Z, absent=absent), files=warm)()
    numbers = iter(range(1, 1000))

    def once() -> dict[str, float]:
        part = keyed.skewed(rows, batch, FILES, z=Z, absent=absent, part=next(numbers))
        return dict(run(part, files=FILES, store=server.pid)())

    return once


@contextmanager
def peers(server: Server, rows: int, batch: int) -> Iterator[dict[str, Case]]:
    """Flink with a cache of its own that is warm; nothing where it cannot be had."""
    try:
        runner = flink.lookup(server.url, cores=2, rows=rows // 100)
    except PeerUnavailable as error:
        print(f"without Flink: {error}", file=sys.stderr)
        yield {}
        return
    with runner:
        run = partial(_looked_up, runner)
        yield {"flink": _warmed(run, server, rows, batch, 0, WARM["lru"])}


def _looked_up(runner: Runner, part: keyed.Stream, *, files: int, store: int | None = None) -> Case:
    ask = partial(flink.ask, runner, part.folder, files)
    return part.checked("flink", ask, files=files, store=store)


def _between(our: dict[str, Case], theirs: dict[str, Case]) -> dict[str, Case]:
    """Theirs in the middle of ours.

    Spark ends Python workers, and with them their caches, that have nothing to do for a minute.
    """
    names = list(our)
    half = len(names) // 2
    first, last = ({name: our[name] for name in part} for part in (names[:half], names[half:]))
    return first | theirs | last


def main() -> None:
    """Leave ``incremental``."""
    given = arguments(__doc__)
    rows, batch = (50_000, 5_000) if given.quick else (ROWS, BATCH)
    runs = given.runs or (1 if given.quick else RUNS)
    with postgres_server() as server, session.start(cores=2) as runner:
        keyed.items_in(server.url, rows)
        keyed.view_in(server.url, "items", NAMES["mostly absent"])
        with peers(server, rows, batch) as theirs:
            lines = _between(cases(runner, server, rows, batch), theirs)
            with progress("incremental", len(lines) * (1 + runs)) as step:
                found = interleave(lines, runs=runs, step=step, minutes=given.minutes)
    about = {"quick": given.quick, "seed": SEED, "data": f"seeded; Zipf {Z} over {rows:,} keys"}
    table = {"table_rows": rows, "kept_rows": rows // 100, "batch_rows": batch}
    measured = [table | row for row in found]
    print(save("incremental", measured, **about, conf=streams.CONF, peers=flink.FLINK.versions))


if __name__ == "__main__":
    main()
