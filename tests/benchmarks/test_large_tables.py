"""The benchmark of tables in buckets by place: its data, its truth and its table."""

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import shapely
from benchmarks.harness import seeded
from benchmarks.suites.table_join import grids, large_tables, shape_tables


def test_parts_of_a_table_are_as_large_as_if_they_were_made_at_once():
    whole = shapely.area(seeded.small_polygons(4000)).sum()
    parts = [seeded.small_polygons(1000, total=4000, stream=k) for k in range(4)]
    assert np.isclose(shapely.area(np.concatenate(parts)).sum(), whole, rtol=0.05)


def test_the_truth_is_that_of_one_tree_over_all_parts(tmp_path, monkeypatch):
    monkeypatch.setattr(large_tables, "CACHE", tmp_path)
    monkeypatch.setattr(large_tables, "CHUNK", 300)
    table = pq.read_table(large_tables.table(1000))
    assert table["polygon"].to_pylist() == [*range(1000)]
    shapes = shapely.from_wkb(table["shape"].to_numpy())
    points = large_tables.points(5000).take(np.arange(0, 5000, large_tables.SAMPLED))
    spots = shapely.points(points["x"].to_numpy(), points["y"].to_numpy())
    pairs = shapely.STRtree(shapes).query(spots, predicate="within").T.tolist()
    numbers = points["point"].to_pylist()
    expected = sorted((numbers[at], polygon) for at, polygon in pairs)
    assert large_tables.truth(1000, 5000) == expected
    assert len(expected) == len(set(expected)) > 10


PAIRS = [(0, 7), (1, 7), (0, 8), (300, 2)]  # of points 0 and 300 in the sample, and of one beside


@pytest.fixture
def outputs(tmp_path):
    """What the three queries wrote where all went well."""
    folders = {turn: tmp_path / turn for turn in large_tables.TURNS}
    for turn, times in large_tables.TURNS.items():
        wrote(folders[turn], PAIRS * times)
    return folders


def wrote(folder, pairs):
    folder.mkdir(exist_ok=True)
    point, polygon = zip(*pairs, strict=True)
    pq.write_table(pa.table({"point": point, "polygon": polygon}), folder / "part-0.parquet")


SAMPLE = [(0, 7), (0, 8), (300, 2)]


def test_queries_that_wrote_each_pair_as_often_as_they_should_are_counted(outputs):
    assert large_tables.checked(outputs, SAMPLE) == len(PAIRS)


@pytest.mark.parametrize("turn", large_tables.TURNS)
@pytest.mark.parametrize(
    "change",
    [
        lambda pairs: [*pairs, (0, 7)],
        lambda pairs: [*pairs, (0, 9)],
        lambda pairs: pairs[1:],
        lambda pairs: [(0, 8), *pairs[1:]],
    ],
    ids=["twice", "another", "missing", "one for another"],
)
def test_a_pair_of_the_sample_that_is_not_the_truth_s_is_found(outputs, turn, change):
    wrote(outputs[turn], change(PAIRS * large_tables.TURNS[turn]))
    with pytest.raises(AssertionError, match=f"{turn}: the rows of the sample"):
        large_tables.checked(outputs, SAMPLE)


@pytest.mark.parametrize("turn", large_tables.TURNS)
def test_rows_beside_the_sample_are_counted_too(outputs, turn):
    wrote(outputs[turn], [*PAIRS * large_tables.TURNS[turn], (1, 7)])
    with pytest.raises(AssertionError, match="the queries wrote"):
        large_tables.checked(outputs, SAMPLE)


def test_a_table_s_memory_is_that_of_the_fullest_host_in_either_query():
    row = {
        "case": "buckets", "rows": 10_000_000, "snapshot_bytes": 2.5e9, "rows_out": 1_000_123,
        "first_memory": [700e6, 900e6], "again_memory": [800e6, 600e6],
        "more_memory": [1e6, 1e6], "first_cpu_s": 90.0, "again_cpu_s": 12.6,
        "cpu_s_per_million": 9.04,
    }  # fmt: skip
    head, line = shape_tables.large_tables({"rows": [row], "limit_bytes": 1.5e9, "buckets": 64})
    assert head[3] == "a host's memory, MB (limit 1,500)"
    assert line == [
        "10,000,000", "`rm.full(buckets=64)`", "2,500", "900", "90", "13", "9.0", "1,000,123",
    ]  # fmt: skip


def test_grids_are_compared_on_one_line_for_each_table():
    rows = [
        {"table": "zones", "case": case, "edges": 900, "ns_per_point": 120.4, "bytes": 2.34e6}
        for case in ("4", "chosen")
    ]
    assert shape_tables.grids({"rows": rows}) == [
        ["ns a point, MB of the index", "4 an edge", "chosen"],
        ["zones, 900 edges", "120, 2.3", "120, 2.3"],
    ]


def test_every_grid_finds_the_pairs_of_the_one_that_is_chosen():
    shapes = seeded.small_polygons(200)
    x, y = seeded.places(2000, stream=3)
    pairs = {grids.probed(index, x, y)()["pairs"] for index in grids.built(shapes).values()}
    assert len(pairs) == 1
    assert pairs != {0}
