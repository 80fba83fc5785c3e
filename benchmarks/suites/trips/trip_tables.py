"""The tables about moves and stays: a result -> cells."""

from __future__ import annotations

from benchmarks.harness.formatting import Cells, Document


def second_opinion(result: Document) -> Cells:
    """Splits and stays beside the peer's, a column a case."""
    rows = result["rows"]
    splits, stays = ([row[part] for row in rows] for part in ("splits", "stays"))
    asked = [
        f"gap {row['gap'] // 60} min, stop ({row['radius']:g} m, {row['duration'] // 60} min)"
        for row in rows
    ]
    return [
        [result["data"], *asked],
        ["trips between gaps, both", *(f"{each['same']:,}" for each in splits)],
        ["only ours, only theirs", *(f"{s['only_ours']}, {s['only_peer']}" for s in splits)],
        ["points (theirs: left out)", *(f"{each['points']:,}" for each in splits)],
        ["stays, their stops", *(f"{each['stays']:,}, {each['stops']:,}" for each in stays)],
        ["the same, to the second", *(f"{each['same']:,}" for each in stays)],
        [
            "stays that meet no stop, stops that meet no stay",
            *(
                f"{s['stays'] - s['stays_that_meet_a_stop']:,}, "
                f"{s['stops'] - s['stops_that_meet_a_stay']:,}"
                for s in stays
            ),
        ],
        [
            "of the latter with a position farther than the radius from their first",
            *(f"{each['only_stops_wider']:,}" for each in stays),
        ],
        ["hours", *(f"{each['hours']:,.0f}, {each['stop_hours']:,.0f}" for each in stays)],
        ["hours in both / in either", *(f"{each['agreement']:.1%}" for each in stays)],
    ]


def trip_state(result: Document) -> Cells:
    """Time, bytes and state as batches go by."""
    head = [
        "31,250 of a million objects", "positions a batch", "CPU a batch", "the slowest",
        "written a batch", "state", "open positions",
    ]  # fmt: skip
    return [
        head,
        *(
            [
                f"batches {row['batches'] - step + 1} to {row['batches']}",
                f"{row['positions_per_batch']:,}",
                f"{row['cpu_ms_per_batch']:.0f} ms",
                f"{row['slowest_ms']:.0f} ms",
                f"{row['written_mb_per_batch']:.1f} MB",
                f"{row['state_mb']:.0f} MB",
                f"{row['open_positions']:,}",
            ]
            for step in [result["rows"][0]["batches"]]
            for row in result["rows"][1::2]
        ),
    ]
