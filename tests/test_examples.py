"""The examples: each runs as it stands, and says what pandas says."""

import numpy as np
import pandas as pd
import pyarrow.parquet as pq
import pytest
from examples import product_recall, taxi_ranks, time_slices, traffic

import rivermouth as rm
from rivermouth.kernels.spatial.sphere import great_circle
from rivermouth.testing.fences import fence_events

pytestmark = pytest.mark.spark


def both(spark, records):
    """The records as a batch frame, and as a stream in uneven cuts."""
    frame = spark.createDataFrame(records)
    return [frame, rm.testing.replay(frame, cuts=[1, 0, len(records) - 1])]


def tables(folder, names):
    """The tables as sources, and as pandas frames."""
    paths = {name: str(folder / f"{name}.parquet") for name in names}
    sources = {name: rm.tables.parquet(path) for name, path in paths.items()}
    return sources, {name: pq.read_table(path).to_pandas() for name, path in paths.items()}


def same(frame, expected):
    """Whether a frame, batch or stream, has the rows of a pandas frame."""
    rm.testing.assert_same_rows(rm.testing.rows(frame), expected.to_dict("records"))


def test_customers_recall_what_they_clicked_on(spark, tmp_path):
    product_recall.make(tmp_path, 300)
    sources, known = tables(tmp_path, product_recall.TABLES)
    ids = product_recall.customers_of(tmp_path, 80).to_pandas()
    expected = (
        ids.merge(known["clicks"], on="customer")
        .merge(known["products"], on="product")
        .merge(known["customers"], on="customer")
    )
    assert len(expected) > len(ids)
    for frame in both(spark, ids):
        same(product_recall.recalled(frame, sources), expected)


def test_turns_have_their_delay_stopping_time_and_queue(spark, tmp_path):
    traffic.make(tmp_path, 30)
    sources, known = tables(tmp_path, traffic.TABLES)
    reports = traffic.reports_of(30, 400).to_pandas()
    lost = reports
    for name, columns in traffic.TABLES.items():
        lost = lost.merge(known[name], on=list(columns))
    assert len(lost) == len(reports)
    delay = lost.took_s - lost.length_m * 3.6 / lost.free_kmh
    lost = lost.assign(delay_s=delay.clip(0), stopped_s=(delay - lost.lost_s).clip(0))
    lost["reds"] = lost.stopped_s / lost.red_s
    lost["slower_s"] = lost.took_s - lost.usual_s - lost.usual_wait_s
    lost["queue_m"] = lost.stopped_s / lost.lanes / 300 * 7.5
    grouped = lost.groupby([lost.left_at.dt.floor("300s").rename("slice"), "turn"])
    expected = grouped.agg(
        district=("district", "first"),
        vehicles=("turn", "size"),
        delay_s=("delay_s", "mean"),
        stopped_s=("stopped_s", "mean"),
        reds=("reds", "mean"),
        slower_s=("slower_s", "mean"),
        queue_m=("queue_m", "sum"),
    )
    found = traffic.by_turn(traffic.delayed(spark.createDataFrame(reports), sources)).toPandas()
    assert isinstance(found, pd.DataFrame)
    found["slice"] = found["slice"].dt.tz_localize("UTC").dt.as_unit("us")
    pd.testing.assert_frame_equal(found.set_index(["slice", "turn"]).sort_index(), expected)


def test_reports_meet_the_history_of_their_road_and_time(spark, tmp_path):
    time_slices.make(tmp_path, 2_000)
    history = tmp_path / "history.parquet"
    live = time_slices.live_of(2_000, 60).to_pandas()
    met = live.merge(pq.read_table(history).to_pandas(), on="road", suffixes=("", "_then"))
    met = met[(met.second - met.second_then).abs() <= time_slices.REACH]
    expected = met.drop(columns="second_then")
    assert len(expected) > len(live)
    for frame in both(spark, live):
        tables = {"history": rm.tables.parquet(str(history))}
        same(time_slices.compared(frame, tables), expected)


def test_cabs_that_wait_at_a_rank_are_those_that_the_oracle_finds(spark, tmp_path):
    path = taxi_ranks.make(tmp_path)
    ranks = {row["rank"]: row for row in pq.read_table(path).to_pylist()}
    reports = taxi_ranks.reports_of(12, seconds=1500)
    usable = [
        (row["taxi"], row["at"].timestamp(), (row["lon"], row["lat"]))
        for row in reports.to_pylist()
        if row["lon"] is not None and np.isfinite(row["lon"]) and np.isfinite(row["lat"])
    ]
    truth = fence_events(
        usable, ranks,
        lambda place, rank: great_circle(*place, rank["rank_lon"], rank["rank_lat"]) <= 600,
        dwell=180, min_inside=(3, 0), min_outside=(1, 60), gap=600,
    )  # fmt: skip
    expected = [(one.who, one.fence, one.event) for one in truth if one.event != "lost"]
    assert len(expected) > 20
    found = taxi_ranks.visits(spark.createDataFrame(reports), rm.tables.parquet(str(path)))
    rows = [(row["taxi"], row["rank"], row["event"]) for row in rm.testing.rows(found)]
    assert sorted(rows) == sorted(expected)


@pytest.mark.parametrize(
    ("example", "size", "says"),
    [
        (product_recall, 500, "50 ids recall "),
        (traffic, 20, "1,000 reports from 20 turns; the longest queues:"),
        (taxi_ranks, 30, "10,800 reports of 30 cabs; the ranks where most waited:"),
        (time_slices, 11, "256 reports against 2^11 rows of history; those that took longest:"),
    ],
)
def test_an_example_runs_as_a_program(spark, tmp_path, capsys, example, size, says):
    example.main(spark, tmp_path, size)
    said = capsys.readouterr().out
    assert said.startswith(says)
    assert said.count("\n|") == 6  # a head and five rows
