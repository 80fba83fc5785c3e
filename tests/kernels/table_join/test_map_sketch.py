"""What a map is told of a join: exact counts per row, and places of records that are there."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest
import shapely
from hypothesis import given, settings
from hypothesis import strategies as st

from rivermouth.kernels.table_join.map_sketch import SAMPLE, Sketch, packed, unpacked
from rivermouth.kernels.table_join.pairs import Pairs
from rivermouth.spec.conditions import Point


def pairs(right: list[int]) -> Pairs:
    return Pairs(np.arange(len(right)), np.array(right, dtype=np.int64))


def columns(x: list[float | None], y: list[float | None]) -> dict[str, pa.Array]:
    return {"x": pa.array(x, pa.float64()), "y": pa.array(y, pa.float64())}


@settings(deadline=None)
@given(st.lists(st.integers(0, 2**32 - 1), max_size=50))
def test_counts_come_back_as_they_were(counts: list[int]) -> None:
    assert unpacked(packed(np.array(counts, dtype=np.int64))).tolist() == counts


def test_counts_too_large_to_pack_stay_at_the_largest() -> None:
    assert unpacked(packed(np.array([2**40]))).tolist() == [2**32 - 1]


@settings(deadline=None)
@given(st.lists(st.lists(st.integers(0, 6), max_size=20), max_size=5))
def test_every_pair_is_counted_once(batches: list[list[int]]) -> None:
    sketch = Sketch(Point("x", "y"), 7)
    for right in batches:
        sketch.add(columns([0.0] * len(right), [0.0] * len(right)), pairs(right))
    everything = [row for right in batches for row in right]
    expected = [everything.count(row) for row in range(7)]
    assert unpacked(sketch.report()["counts"]).tolist() == expected


def test_places_are_a_few_of_the_last_batch_without_those_that_are_nowhere() -> None:
    sketch = Sketch(Point("x", "y"), 1)
    sketch.add(columns([9.0], [9.0]), pairs([]))
    sketch.add(columns([1.0, None, float("nan"), 2.0], [1.0, 1.0, 1.0, 0.12345678]), pairs([]))
    assert sketch.report()["places"] == [[1.0, 1.0], [2.0, 0.123457]]
    many = [float(x) for x in range(1000)]
    sketch.add(columns(list(many), list(many)), pairs([]))
    places = sketch.report()["places"]
    assert len(places) == SAMPLE
    assert (places[0], places[-1]) == ([0.0, 0.0], [999.0, 999.0])


@pytest.mark.parametrize("form", ["wkb", "geometry"])
def test_shapes_are_shown_by_a_point_on_them(form: str) -> None:
    ring = shapely.Point(5, 5).buffer(2) - shapely.Point(5, 5).buffer(1)
    wkb = pa.array([shapely.to_wkb(ring), None, shapely.to_wkb(shapely.Point(1, 2))], pa.binary())
    srid = pa.array([0, None, 0], pa.int32())
    column = wkb if form == "wkb" else pa.StructArray.from_arrays([srid, wkb], ["srid", "wkb"])
    sketch = Sketch("shape", 1)
    sketch.add({"shape": column}, pairs([]))
    on_ring, point = sketch.report()["places"]
    assert ring.intersects(shapely.Point(on_ring).buffer(1e-5))
    assert point == [1.0, 2.0]


def test_a_task_without_rows_has_nothing_to_show() -> None:
    report = Sketch(Point("x", "y"), 2).report()
    assert (unpacked(report["counts"]).tolist(), report["places"]) == ([0, 0], [])
