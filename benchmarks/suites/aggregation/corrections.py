"""A correction's CPU time against the store's age: from partials, and from the whole backup.

Stores of 6, 60 and 300 hours end with the same hours and the same late records. They are written by
the store's own writer and compaction, in one process and without Spark, since a stream of weeks
would run for hours. A correction is then measured in Spark: `rm.exact`'s, which reads the partials
of the late records' slots, and `rm.correct` over all records and results as plain Parquet, which
is what `rm.exact` did before. Nothing is committed, so that every run corrects the same.
"""

from __future__ import annotations

from typing import Any

from benchmarks.harness.experiment import arguments, interleave, progress, save
from benchmarks.suites.aggregation import old_store

HOURS, TIMES, RUNS = 6, (1, 10, 50), 5
#: the ways, and how many corrections a run makes: a short one is lost in the ticks of the clock
WAYS = {"partials": 10, "history": 1}


def main() -> None:
    """Leave ``corrections``."""
    given = arguments(__doc__)
    times = (1, 3) if given.quick else TIMES
    runs = given.runs or (1 if given.quick else RUNS)
    cases = [(way, age) for way in WAYS for age in times]
    with old_store.start() as runner, progress("corrections", len(cases) * (runs + 2)) as step:
        sizes = {age: runner.ask(way="size", hours=HOURS * age) for age in times}

        def case(way: str, age: int) -> Any:
            def run() -> dict[str, float]:
                found = runner.measure(way=way, hours=HOURS * age, times=WAYS[way])
                return {"cpu_s": found["cpu_s"] / WAYS[way], "results": found["rows"]}

            return run

        rows = interleave(
            {f"{way} {age}": case(way, age) for way, age in cases},
            runs=runs, warmup=2, step=step, minutes=given.minutes,
        )  # fmt: skip
    for row, (way, age) in zip(rows, cases, strict=True):
        row |= {"case": way, "age": age, "hours": HOURS * age, **sizes[age]}
        print(row, flush=True)
    same = {row["results"] for row in rows}
    assert len(same) == 1, f"both ways and all ages correct the same windows: {same}"
    about = {"seed": old_store.SEED, "late": old_store.LATE_ROWS, "data": "seeded: old_store.py"}
    print(save("corrections", rows, quick=given.quick, **about))


if __name__ == "__main__":
    main()
