"""Gap splits and stays beside MovingPandas' on T-Drive: where both say the same, and where not.

Taxis of two days, a share of them by chance. MovingPandas keeps one position per time, as we do;
positions at which a taxi reports two places in one second are left out before, so that both keep
the same. Its stop is a time in which the diagonal of the smallest rectangle around the positions is
below a diameter; ours has all positions within a radius of its first.
"""

from __future__ import annotations

import time
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from benchmarks.harness.experiment import CACHE, SEED, arguments, data, progress, save
from benchmarks.harness.tdrive import TDRIVE
from benchmarks.peers import moving_pandas
from rivermouth.kernels.spatial.sphere import great_circle
from rivermouth.kernels.trips.segmentation import (
    STAY,
    Carry,
    Rows,
    Segmentation,
    Tracks,
    finish,
    segment,
)

TAXIS = 400
SECOND = 1_000_000
#: gap and duration in seconds, radius in metres
CASES = ((600, 300, 50.0), (600, 300, 100.0), (1800, 900, 200.0))


def sample(taxis: int) -> pa.Table:
    """The usable positions of so many taxis, one per taxi and time, by taxi and time."""
    table = pq.read_table(data(TDRIVE), columns=["taxi", "ts", "lon", "lat"])
    known = np.unique(table["taxi"].to_numpy())
    chosen = np.random.default_rng(SEED).choice(known, taxis, replace=False)
    x, y = table["lon"].to_numpy(), table["lat"].to_numpy()
    is_in = np.isin(table["taxi"].to_numpy(), chosen) & (np.abs(y) <= 90) & (np.abs(x) < 180)
    table = table.filter(pa.array(is_in))
    at = table["ts"].cast(pa.timestamp("us")).cast(pa.int64())
    made = pa.table({"object": table["taxi"], "at": at, "x": table["lon"], "y": table["lat"]})
    distinct = made.group_by(made.column_names).aggregate([])
    counts = distinct.group_by(["object", "at"]).aggregate([([], "count_all")])
    clear = counts.filter(pa.array(counts["count_all"].to_numpy() == 1)).drop_columns(["count_all"])
    keys = ["object", "at"]
    return distinct.join(clear, keys, join_type="inner").sort_by([(k, "ascending") for k in keys])


def ours(positions: pa.Table, how: Segmentation) -> tuple[list[tuple[int, ...]], float]:
    """Our rows as (object, begin, end, kind), and the seconds they took."""
    numbers, time_us, x, y = (positions[name].to_numpy() for name in ("object", "at", "x", "y"))
    names, first = np.unique(numbers, return_index=True)
    begin = time.perf_counter()
    tracks = Tracks(np.append(first, len(numbers)), time_us, x, y)
    rows, carry = segment(how, Carry.new(len(names)), tracks)
    both = Rows(*(np.concatenate(pair) for pair in zip(rows, finish(carry), strict=True)))
    seconds = time.perf_counter() - begin
    found = (names[both.object], both.begin, both.end, both.kind)
    return list(zip(*(part.tolist() for part in found), strict=True)), seconds


def compared_splits(positions: pa.Table, gap: int, theirs: list[list[int]]) -> dict[str, Any]:
    """Trips without stays: those that both have to the microsecond, and what only one has."""
    rows, seconds = ours(positions, Segmentation(gap * SECOND, None, 1, on_sphere=True))
    trips = {(o, begin, end) for o, begin, end, _ in rows if begin < end}
    peers = {(o, begin, end) for o, begin, end, _ in theirs}
    return {
        "trips": len(trips),
        "points": len(rows) - len(trips),
        "peer_trips": len(peers),
        "same": len(trips & peers),
        "only_peer": len(peers - trips),
        "only_ours": len(trips - peers),
        # the peer leaves out trips without length
        "only_ours_at_one_place": sum(_is_still(positions, *trip) for trip in trips - peers),
        "seconds": seconds,
    }


def _is_still(positions: pa.Table, o: int, begin: int, end: int) -> bool:
    numbers, at, x, y = (positions[name].to_numpy() for name in ("object", "at", "x", "y"))
    rows = (numbers == o) & (begin <= at) & (at <= end)
    return len(np.unique(np.column_stack([x, y])[rows], axis=0)) == 1


def _is_wider(positions: pa.Table, radius: float, o: int, begin: int, end: int) -> bool:
    """Whether a stop has a position farther than the radius from its first."""
    numbers, at, x, y = (positions[name].to_numpy() for name in ("object", "at", "x", "y"))
    rows = np.flatnonzero((numbers == o) & (begin <= at) & (at <= end))
    return any(great_circle(x[rows[0]], y[rows[0]], x[k], y[k]) > radius for k in rows)


def compared_stays(
    positions: pa.Table, how: Segmentation, theirs: list[list[int]]
) -> dict[str, Any]:
    """Stays: how many each finds, how many meet one of the other's, and the time both cover."""
    rows, seconds = ours(positions, how)
    stays = sorted((o, begin, end) for o, begin, end, kind in rows if kind == STAY)
    stops = sorted((o, begin, end) for o, begin, end in theirs)
    both = _overlap(stays, stops)
    alone = [stop for stop in stops if not _overlap([stop], stays)]
    total = [sum(end - begin for _, begin, end in each) for each in (stays, stops)]
    return {
        "stays": len(stays),
        "stops": len(stops),
        "same": len(set(stays) & set(stops)),
        "stays_that_meet_a_stop": sum(_overlap([stay], stops) > 0 for stay in stays),
        "stops_that_meet_a_stay": len(stops) - len(alone),
        "only_stops_wider": sum(_is_wider(positions, how.radius or 0.0, *stop) for stop in alone),
        "hours": total[0] / 3.6e9,
        "stop_hours": total[1] / 3.6e9,
        "both_hours": both / 3.6e9,
        "agreement": both / max(1, sum(total) - both),
        "seconds": seconds,
    }


def _overlap(one: list[tuple[int, ...]], other: list[tuple[int, ...]]) -> int:
    total, k = 0, 0
    for o, begin, end in one:
        while k < len(other) and (other[k][0], other[k][2]) < (o, begin):
            k += 1
        j = k
        while j < len(other) and other[j][0] == o and other[j][1] < end:
            total += max(0, min(end, other[j][2]) - max(begin, other[j][1]))
            j += 1
    return total


def main() -> None:
    """Leave ``second_opinion``."""
    given = arguments(__doc__)
    taxis = 10 if given.quick else TAXIS
    positions = sample(taxis)
    folder = CACHE / "second_opinion"
    folder.mkdir(parents=True, exist_ok=True)
    file = folder / f"{taxis}.parquet"
    pq.write_table(positions, file)
    rows = []
    with moving_pandas.start(file).ready() as peer, progress("second_opinion", len(CASES)) as step:
        for gap, duration, radius in CASES:
            step(f"{radius:g} m for {duration} s")
            how = Segmentation(gap * SECOND, radius, duration * SECOND, on_sphere=True)
            asked = {"gap": gap, "diameter": 2 * radius, "duration": duration}
            said = peer.ask(**asked)
            rows.append(
                asked
                | {"radius": radius, "peer_split_s": said["split_s"], "peer_stop_s": said["stop_s"]}
                | {"splits": compared_splits(positions, gap, said["parts"])}
                | {"stays": compared_stays(positions, how, said["stops"])}
            )
    about = {"data": f"T-Drive, {taxis} taxis, {positions.num_rows} positions", "seed": SEED}
    peers = moving_pandas.MOVING_PANDAS.versions
    print(save("second_opinion", rows, quick=given.quick, peers=peers, **about))


if __name__ == "__main__":
    main()
