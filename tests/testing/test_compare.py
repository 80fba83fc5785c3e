from __future__ import annotations

import math

import pytest

from rivermouth.testing import assert_same_rows

NAN = float("nan")


@pytest.mark.parametrize(
    ("left", "right"),
    [
        ([], []),
        ([{"a": 1}, {"a": 2}], [{"a": 2}, {"a": 1}]),
        ([{"a": 1, "b": 2}], [{"b": 2, "a": 1}]),
        ([{"a": NAN}], [{"a": math.nan}]),
        ([{"a": [NAN, {"b": 1}]}], [{"a": [float("nan"), {"b": 1.0}]}]),
        ([{"a": bytearray(b"x")}], [{"a": b"x"}]),
    ],
)
def test_the_same(left, right):
    assert_same_rows(left, right)


@pytest.mark.parametrize(
    ("left", "right"),
    [
        ([{"a": 1}], [{"a": 1}, {"a": 1}]),
        ([{"a": None}], [{"a": NAN}]),
        ([{"a": None}], [{}]),
        ([{"a": 1}], [{"b": 1}]),
        ([{"a": [1, 2]}], [{"a": [2, 1]}]),
        ([{"a": "x"}], [{"a": b"x"}]),
        ([], [{}]),
    ],
)
def test_not_the_same(left, right):
    for one, other in ((left, right), (right, left)):
        with pytest.raises(AssertionError):
            assert_same_rows(one, other)


def test_the_message_shows_what_is_missing_and_what_is_extra(monkeypatch):
    monkeypatch.setenv("NO_COLOR", "1")
    with pytest.raises(AssertionError) as failure:
        assert_same_rows([{"a": 1}, {"a": 1}, {"a": 3}], [{"a": 1}, {"a": 2}])
    assert str(failure.value).splitlines() == [
        "the rows differ: 3 against 2, 1 missing, 2 extra",
        "- {'a': 2}",
        "+ {'a': 1}",
        "+ {'a': 3}",
    ]


def test_a_long_list_is_cut(monkeypatch):
    monkeypatch.setenv("NO_COLOR", "1")
    with pytest.raises(AssertionError) as failure:
        assert_same_rows([{"a": n} for n in range(50)], [])
    lines = str(failure.value).splitlines()
    assert len(lines) == 22
    assert lines[-1] == "+ and 30 more"


def test_in_colour_where_it_is_wanted(monkeypatch):
    monkeypatch.delenv("NO_COLOR", raising=False)
    monkeypatch.setenv("FORCE_COLOR", "1")
    monkeypatch.setenv("TERM", "xterm")
    with pytest.raises(AssertionError) as failure:
        assert_same_rows([{"a": 1}], [])
    assert "\x1b[32m+ {'a': 1}\x1b[0m" in str(failure.value)
