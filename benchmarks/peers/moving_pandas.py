"""MovingPandas: trajectories split at gaps and at stops, in memory.

This file is both ends: `start` makes the environment and starts the peer from a benchmark;
``python -m benchmarks.peers.moving_pandas POSITIONS`` is the peer, in that environment. The
positions are a Parquet file of ``object``, ``at`` (microseconds since 1970), ``x`` and ``y``
(degrees).
"""

from __future__ import annotations

import sys
import time
from datetime import timedelta
from pathlib import Path
from typing import Any

from benchmarks.harness.runner import Runner, serve
from benchmarks.peers.environment import Environment

MOVING_PANDAS = Environment(
    "moving_pandas", packages=("movingpandas==0.23.0", "pyarrow==26.0.1", "pandas==3.1.1")
)


def start(positions: Path) -> Runner:
    """The peer as a runner; its environment is made if need be.

    Raises
    ------
    PeerUnavailable
        When the environment cannot be made here.
    """
    MOVING_PANDAS.make()
    return Runner(__spec__.name, str(positions), name="moving_pandas", python=MOVING_PANDAS.python)


def main(positions: str) -> None:
    """The peer itself: answers ``{"gap", "diameter", "duration"}``, in seconds and metres."""
    import movingpandas as mpd
    import pandas as pd

    frame = pd.read_parquet(positions)
    frame["at"] = pd.to_datetime(frame["at"], unit="us")
    begin = time.perf_counter()
    whole = mpd.TrajectoryCollection(
        frame, traj_id_col="object", t="at", x="x", y="y", crs="EPSG:4326"
    )
    hello = {"objects": len(whole.trajectories), "seconds": time.perf_counter() - begin}

    def answer(request: dict[str, Any]) -> dict[str, Any]:
        begin = time.perf_counter()
        gap = timedelta(seconds=request["gap"])
        parts = [
            (number, part)
            for number, one in enumerate(whole.trajectories)
            for part in mpd.ObservationGapSplitter(one).split(gap=gap).trajectories
        ]
        split_s = time.perf_counter() - begin
        asked = {
            "max_diameter": request["diameter"],
            "min_duration": timedelta(seconds=request["duration"]),
        }
        stops = [
            (number, found)
            for number, part in parts
            for found in mpd.TrajectoryStopDetector(part).get_stop_time_ranges(**asked)
        ]
        key = [int(one.df["object"].iloc[0]) for one in whole.trajectories]
        return {
            "parts": [
                [key[number], _us(part.df.index[0]), _us(part.df.index[-1]), len(part.df)]
                for number, part in parts
            ],
            "stops": [[key[number], _us(found.t_0), _us(found.t_n)] for number, found in stops],
            "split_s": split_s,
            "stop_s": time.perf_counter() - begin - split_s,
        }

    def _us(when: Any) -> int:
        return int(when.value) // 1000  # nanoseconds, whatever the unit of the column

    serve(answer, hello)


if __name__ == "__main__":
    main(*sys.argv[1:])
