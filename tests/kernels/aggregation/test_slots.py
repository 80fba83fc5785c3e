"""Slots: each window starts in one, and needs the partials of that one and the next only."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.support.examples import examples

import rivermouth as rm
from rivermouth.kernels.aggregation.panes import WindowLayout
from rivermouth.kernels.aggregation.plan import PANE
from rivermouth.kernels.aggregation.slots import Slots, by_slot, partials_by_slot

FAST = settings(max_examples=examples(100), deadline=None)
SECOND = 1_000_000


@st.composite
def layouts(draw):
    """Windows of any length that start at least once in that time; lengths that divide and not."""
    size = draw(st.integers(1, 5000))
    every = draw(st.integers(1, size))
    start = draw(st.integers(-5000, 5000))
    window = rm.sliding(f"{size} seconds", every=f"{every} seconds", start=f"{start} seconds")
    return WindowLayout(window.size_us, window.every_us, window.pane_us, window.start_us)


@FAST
@given(layouts(), st.integers(-(10**9), 10**9))
def test_the_windows_of_a_record_start_in_its_slot_or_in_the_one_before(grid, second):
    slots, time = Slots.of(grid), second * SECOND
    pane = grid.panes(time)
    slot = slots.of_time(time)
    assert slots.of_pane(pane) == slot
    holds = range(grid.first_window(pane), grid.last_window(pane) + 1)
    low, high = (slots.windows(each) for each in slots.touched(slot))
    assert low[1] + 1 == high[0]  # nothing lies between, and nothing is in both
    assert low[0] <= holds[0]
    assert holds[-1] <= high[1]


@FAST
@given(layouts(), st.integers(-(10**4), 10**4))
def test_a_window_is_in_the_slot_in_which_it_starts(grid, window):
    slots = Slots.of(grid)
    slot = slots.of_time(grid.starts(window))
    first, last = slots.windows(slot)
    assert first <= window <= last
    begin, end = grid.pane_range(window, window)
    assert {slots.of_pane(begin), slots.of_pane(end - 1)} <= {slot, slot + 1}


@FAST
@given(st.lists(st.integers(-3, 3), max_size=30))
def test_every_row_is_in_one_slot_and_none_is_lost(slot):
    table = pa.table({"n": pa.array(range(len(slot)), pa.int64())})
    found = [
        (at, n)
        for at, rows in by_slot(table, np.array(slot, np.int64))
        for n in rows.column("n").to_pylist()
    ]
    assert sorted(n for _, n in found) == list(range(len(slot)))
    assert all(slot[n] == at for at, n in found)
    assert [at for at, _ in found] == sorted(slot)


def test_partials_go_to_the_slots_of_their_panes():
    grid = WindowLayout(60 * SECOND, 20 * SECOND, 20 * SECOND)
    slots = Slots.of(grid)  # sixteen minutes: 48 panes
    found = dict(partials_by_slot(slots, pa.table({PANE: [-1, 0, 47, 48, 95, 47]})))
    assert {slot: rows.column(PANE).to_pylist() for slot, rows in found.items()} == {
        -1: [-1],
        0: [0, 47, 47],
        1: [48, 95],
    }
