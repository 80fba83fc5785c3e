"""The segmentation against the slow oracle: any positions, any cut."""

import datetime as dt
from itertools import pairwise

import numpy as np
import pytest
import shapely
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.support.examples import examples

import rivermouth as rm
from rivermouth.kernels.trips.paths import lengths, wkb
from rivermouth.kernels.trips.segmentation import (
    KINDS,
    Carry,
    Segmentation,
    Tracks,
    finish,
    segment,
)
from rivermouth.testing.tracks import Fleet, tracks
from rivermouth.testing.trips import trips

ZERO = dt.datetime(1970, 1, 1, tzinfo=dt.UTC)
SECOND = 1_000_000


def seconds(time):
    return int((time - ZERO).total_seconds())


def expected(positions, how):
    """The oracle's rows of (object, second, x, y), as (object, kind, begin, end)."""
    rows = [
        {"o": o, "at": ZERO + dt.timedelta(seconds=time), "x": float(x), "y": float(y)}
        for o, time, x, y in positions
    ]
    found = trips(
        rows, by="o", time="at", point=rm.point("x", "y"),
        gap=dt.timedelta(microseconds=how.gap),
        stop=None if how.radius is None else (how.radius, dt.timedelta(microseconds=how.duration)),
        metric="sphere" if how.on_sphere else "planar",
    )  # fmt: skip
    return sorted(
        (row["o"], seconds(row["begin"]), row["kind"], seconds(row["end"])) for row in found
    )


def packed(positions, objects):
    """Positions of (object, second, x, y), in order."""
    columns = zip(*sorted(positions), strict=True) if positions else ((), (), (), ())
    whose, time, x, y = (np.array(part, float) for part in columns)
    start = np.searchsorted(whose, np.arange(objects + 1))
    return Tracks(start, (time * SECOND).astype(np.int64), x, y)


def found(pieces, how, objects):
    """The rows of positions that come in pieces, and what is open at the end."""
    carry, made = Carry.new(objects), []
    for piece in pieces:
        rows, carry = segment(how, carry, packed(piece, objects))
        made += zip(*(part.tolist() for part in rows), strict=True)
    there = np.flatnonzero(np.diff(carry.window.start))
    rows = finish(carry.take(there))
    made += zip(there[rows.object].tolist(), *(part.tolist() for part in rows[1:]), strict=True)
    return sorted((o, b // SECOND, KINDS[kind], e // SECOND) for o, kind, b, e in made)


def cut(positions, ends):
    """Each object's positions in pieces: piece p has those of the times up to ends[p]."""
    bounds = [-1, *sorted(ends), 10**9]
    return [[one for one in positions if low < one[1] <= high] for low, high in pairwise(bounds)]


@st.composite
def walks(draw):
    """Positions of a few objects on a small grid, at distinct times of each, and how to cut."""
    made = []
    for o in range(draw(st.integers(1, 3))):
        steps = draw(
            st.lists(
                st.tuples(st.integers(1, 4), st.integers(-2, 2), st.integers(-1, 1)), max_size=30
            )
        )
        time = x = y = 0
        for pause, dx, dy in steps:
            time, x, y = time + pause, x + dx, y + dy
            made.append((o, time, x, y))
    how = Segmentation(
        gap=draw(st.integers(1, 4)) * SECOND,
        radius=draw(st.sampled_from([None, 0.0, 1.0, 1.5, 3.0])),
        duration=draw(st.integers(1, 9)) * SECOND,
    )
    return made, how, draw(st.lists(st.integers(0, 100), max_size=6))


@settings(max_examples=examples(400))
@given(walks())
def test_any_cut_gives_the_rows_of_the_oracle(case):
    positions, how, ends = case
    assert found(cut(positions, ends), how, 3) == expected(positions, how)


@pytest.mark.parametrize("radius", [None, 30.5])
@pytest.mark.parametrize("on_sphere", [False, True])
def test_made_tracks_one_position_at_a_time(radius, on_sphere):
    made = tracks(Fleet(repeated=0, silent=0.5), objects=4, seconds=6000, seed=5)
    scale = 1e-5 if on_sphere else 1.0  # about a metre, near the equator
    at = made["at"].cast("int64").to_numpy() // SECOND
    positions = [
        (o, int(t), x * scale, y * scale)
        for o, t, x, y in zip(
            made["object"].to_pylist(), at, made["x"].to_pylist(), made["y"].to_pylist(),
            strict=True,
        )
    ]  # fmt: skip
    how = Segmentation(300 * SECOND, radius, 120 * SECOND, on_sphere)
    truth = expected(positions, how)
    kinds = {kind for _, _, kind, _ in truth}
    assert kinds >= ({"move"} if radius is None else {"move", "stay"})
    assert len(truth) > (10 if radius is None else 30)
    assert found([[one] for one in positions], how, 4) == truth
    assert found([positions], how, 4) == truth


def test_a_stays_carry_is_two_positions_however_long_it_lasts():
    how = Segmentation(gap=10 * SECOND, radius=5.0, duration=20 * SECOND)
    carry = Carry.new(1)
    for second in range(0, 3000, 3):
        _, carry = segment(how, carry, packed([(0, second, second % 2, 0)], 1))
    assert carry.window.time.tolist() == [0, 2997 * SECOND]
    assert carry.is_stay.tolist() == [True]


def test_rows_meet_and_cover_all_times_between_gaps():
    """A row begins where the one before ended, unless there was a gap."""
    made = tracks(Fleet(repeated=0), objects=1, seconds=40_000, seed=2)
    at = made["at"].cast("int64").to_numpy() // SECOND
    xy = made["x"].to_pylist(), made["y"].to_pylist()
    positions = [(0, int(t), x, y) for t, x, y in zip(at, *xy, strict=True)]
    how = Segmentation(300 * SECOND, 30.0, 120 * SECOND)
    rows = found([positions], how, 1)
    breaks = set(np.flatnonzero(np.diff(at) > 300).tolist())
    for (_, _, kind, end), (_, begin, other, _) in pairwise(rows):
        if begin != end:
            assert int(np.searchsorted(at, end)) in breaks
        else:
            assert (kind, other) in {("move", "stay"), ("stay", "move")}
    assert {kind for _, _, kind, _ in rows} == {"move", "stay"}


def test_lengths_and_paths_are_shapelys():
    rng = np.random.default_rng(3)
    x, y = rng.uniform(-10, 10, (2, 60)).round(1)
    y[50:], x[50:] = 4.0, 7.0
    first, end = np.array([0, 10, 50, 59]), np.array([11, 50, 60, 60])
    shapes = shapely.from_wkb(wkb(first, end, x, y).to_pylist())
    assert [shape.geom_type for shape in shapes] == ["LineString"] * 2 + ["Point"] * 2
    for shape, a, b in zip(shapes, first, end, strict=True):
        assert shape.is_valid
        places = shapely.get_coordinates(shape)
        assert (places == np.column_stack([x, y])[a : a + len(places)]).all()
        assert len(places) in (b - a, 1)
    measured = lengths(first, end, x, y, on_sphere=False)
    assert np.allclose(measured, shapely.length(shapes), rtol=1e-14)
    degree = lengths(np.array([0]), np.array([2]), np.array([179.5, -179.5]), np.zeros(2),
                     on_sphere=True)  # fmt: skip
    assert degree == pytest.approx([111_195.08], abs=0.01)
