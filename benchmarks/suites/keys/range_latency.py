"""Paper A's Tables 6 to 8 once more, for latency: a range looked up between Kafka and Kafka.

The tables and the question of `ranges`, in micro-batches, 1,000 records a second of which each
meets about four rows. The latency is that of every row: its arrival at a consumer of the second
topic less the send time of its record. Beside them stand the paper's latencies at 8 TaskManagers,
each under the load that it could just bear.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow.parquet as pq
from tests.support.servers import postgres_server

from benchmarks.harness import kafka
from benchmarks.harness.experiment import SEED, arguments, interleave, progress, save
from benchmarks.harness.kafka_query import bare, decoded, encoded
from benchmarks.suites.keys import keyed
from benchmarks.suites.keys.key_cases import CASES
from benchmarks.suites.table_join.latency import ALONE, MICRO_BATCHES, Sample, Setting, prepared

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

RUNS, RATE, SECONDS = 3, 1000.0, 4.0
POWERS = (21, 22, 23)
RECORDS = 20_000  #: different ones; they are sent in turn

#: Tables 6 to 8 at 8 TaskManagers: milliseconds
PAPER = {
    "by_record": {21: 301.40, 22: 311.98, 23: 351.11},
    "skiplist": {21: 171.52, 22: 179.66, 23: 191.63},
    "ideal_skiplist": {21: 149.63, 22: 156.34, 23: 165.32},
}


def looked_up(records: DataFrame, *, case: str, **options: Any) -> DataFrame:
    """A case of `key_cases` over records of roads and times.

    What a record meets becomes the ``rows`` that the consumer waits for; without a join it is one.
    """
    events = decoded(records, "sent long, meets int, road long, at long")
    return encoded(CASES[case](events, **options).withColumnRenamed("meets", "rows"))


def sample(power: int, url: str, count: int) -> Sample:
    """Roads and times that meet at least one row, each with how many and which delays."""
    path = keyed.slices(power)
    table = pq.read_table(path).sort_by([("road", "ascending"), ("slot", "ascending")])
    width = 4 * keyed.PER_KEY * keyed.APART
    known = table["road"].to_numpy() * width + table["slot"].to_numpy()
    delays = table["delay"].to_numpy()
    random = np.random.default_rng((SEED, power, 2))
    road = random.integers(0, (1 << power) // keyed.PER_KEY, count)
    at = random.integers(0, keyed.PER_KEY * keyed.APART, count)
    low = np.searchsorted(known, road * width + np.maximum(at - keyed.REACH, 0))
    high = np.searchsorted(known, road * width + at + keyed.REACH, side="right")
    met = np.flatnonzero(high > low)
    ours = partial(looked_up, case="between", table=str(path), plan="workers")
    return Sample(
        path,
        [
            {"meets": int(high[row] - low[row]), "road": int(road[row]), "at": int(at[row])}
            for row in met
        ],
        "delay",
        [delays[low[row] : high[row]].tolist() for row in met],
        {"table": f"2^{power} rows, seeded", "records": len(met)},
        {
            "bare": bare,
            "by_record": partial(looked_up, case="between_by_record", url=url, power=power),
            "skiplist": partial(ours, index="skiplist"),
            "ideal_skiplist": partial(ours, index="ideal_skiplist"),
            "sorted": ours,
        },
    )


def measured(power: int, url: str, runs: int, count: int, seconds: float) -> list[dict[str, Any]]:
    """A row for each case on a table of 2^power rows."""
    keyed.slices_in(url, power)
    made = sample(power, url, count)
    assert made.cases is not None
    with prepared(rate=RATE, sample=made) as bench:
        steps = {ALONE: partial(bench.alone, seconds=seconds)}
        for case in made.cases:
            steps[case] = partial(bench.query, Setting(case, MICRO_BATCHES), seconds=seconds)
        with progress(f"range_latency, 2^{power}", len(steps) * (runs + 1)) as step:
            rows = interleave(steps, runs=runs, step=step)
    return [
        row | {"power": power, "paper_ms": PAPER.get(row["case"], {}).get(power)} for row in rows
    ]


def main() -> None:
    """Leave ``range_latency``."""
    given = arguments(__doc__)
    powers, count, seconds = ((12,), 500, 2.0) if given.quick else (POWERS, RECORDS, SECONDS)
    runs = given.runs or (1 if given.quick else RUNS)
    rows = []
    with postgres_server() as server:
        for power in powers:
            rows += measured(power, server.url, runs, count, seconds)
    about = {"quick": given.quick, "seed": SEED, "data": "seeded", "peers": kafka.versions()}
    print(save("range_latency", rows, **about, conf={"rate": RATE, "seconds": seconds, "cores": 2}))


if __name__ == "__main__":
    main()
