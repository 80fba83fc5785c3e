import datetime as dt

import pytest

import rivermouth as rm
from rivermouth.errors import DefinitionError
from rivermouth.spec.windows import Window


def test_windows_are_lengths_of_time_however_written():
    hour = dt.timedelta(hours=1)
    assert rm.tumbling("1 hour") == rm.tumbling(hour) == rm.sliding(hour, every="60 minutes")
    assert rm.sliding("1 hour", every="1 minute") == Window(hour, dt.timedelta(minutes=1))


@pytest.mark.parametrize(
    ("size", "every", "pane"),
    [("500 milliseconds", "100 milliseconds", 100_000), ("10 seconds", "4 seconds", 2_000_000)],
)
def test_a_pane_is_cut_by_no_window(size, every, pane):
    window = rm.sliding(size, every=every)
    assert window.pane_us == pane
    assert window.size_us % pane == window.every_us % pane == 0


@pytest.mark.parametrize("length", ["0 seconds", "-1 minute"])
def test_a_window_has_a_length(length):
    with pytest.raises(DefinitionError, match=r"^window: size is .* a microsecond or longer"):
        rm.tumbling(length)


def test_windows_with_gaps_are_refused():
    with pytest.raises(DefinitionError, match="times between two windows would belong to none"):
        rm.sliding("1 second", every="2 seconds")
