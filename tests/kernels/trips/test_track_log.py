"""The log of open rows' positions against a dict: appended, trimmed, merged, restored."""

import json

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from rivermouth.kernels.trips import track_log
from rivermouth.kernels.trips.segmentation import Tracks
from rivermouth.kernels.trips.track_log import TrackLog

#: per micro-batch and slot: how many positions come, and how much is trimmed (None: all of it)
actions = st.lists(
    st.tuples(
        st.dictionaries(
            st.integers(0, 5),
            st.tuples(st.integers(0, 3), st.one_of(st.none(), st.integers(0, 4))),
            max_size=4,
        ),
        st.booleans(),
    ),
    max_size=60,
)


@pytest.fixture(params=[0, 20, 4096], ids="spare_{}".format)
def spare(request, monkeypatch):
    monkeypatch.setattr(track_log, "_SPARE", request.param)


@pytest.mark.usefixtures("spare")
def test_it_holds_what_a_dict_would():
    @given(actions)
    def run(batches):
        store, kept = {}, None
        log, model = TrackLog(store), {}
        for number, (slots, forget) in enumerate(batches):
            write(log, model, slots, 10 * number)
            kept = json.loads(json.dumps(log.kept()))
            if forget:
                log = TrackLog(store, kept)
            check(log, model)
        held = sum(map(len, model.values()))
        assert len(TrackLog(store, kept)) == held
        if not held:
            assert not store
        rows = len(log._segments)
        assert rows <= 2 * held + track_log._SPARE + 24  # a batch's own rows

    run()


def write(log, model, slots, now):
    """A batch: each slot gets positions of these ten seconds, and loses some of its oldest."""
    numbers = np.array(sorted(slots), np.int64)
    starts, time, begins, dropped = [0], [], [], []
    for slot in numbers.tolist():
        count, trim = slots[slot]
        old, new = model.get(slot, []), list(range(now, now + count))
        if trim is None:  # the object leaves: nothing new is kept, and a later one may get the slot
            lost, new, begin = len(old), [], now + 9
        else:
            lost = min(trim, len(old))
            begin = ([*old[lost:], *new] or [now + 9])[0]
        model[slot] = [*old[lost:], *new]
        time += new
        starts.append(len(time))
        begins.append(begin)
        dropped.append(lost)
    x = np.array(time, float)
    new = Tracks(np.array(starts), np.array(time, np.int64), x, -x)
    log.write(numbers, np.array(begins, np.int64), np.array(dropped, np.int64), new)


def check(log, model):
    slots = np.arange(7)
    found = log.read(slots)
    for slot in slots.tolist():
        rows = slice(*found.start[slot : slot + 2].tolist())
        assert found.time[rows].tolist() == model.get(slot, [])
        assert found.x[rows].tolist() == model.get(slot, [])
    assert len(log) == len(found.time)
