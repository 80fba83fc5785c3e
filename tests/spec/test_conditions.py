import pytest

import rivermouth as rm
from rivermouth.errors import ConditionError
from rivermouth.spec.conditions import All, Equal, Near, Nearest, Topology, split


def test_and_puts_an_equality_and_a_place_together_in_any_order():
    place = rm.within(rm.point("lon", "lat"), "shape")
    assert rm.equal("city") & place == place & rm.equal("city") == All(rm.equal("city"), place)


def test_and_merges_equalities_and_keeps_each_pair_once():
    both = rm.equal("city") & rm.equal({"uid": "user_id"}) & rm.equal("city")
    assert both == Equal((("city", "city"), ("uid", "user_id")))


def test_two_places_are_refused_by_name():
    with pytest.raises(ConditionError, match=r"^&: two places in one condition; .* Join twice"):
        _ = rm.within("a", "b") & rm.dwithin("a", "b", distance=1)


def test_meters_means_the_sphere():
    assert rm.dwithin("a", "b", meters=5) == Near("a", "b", 5.0, "sphere")
    assert rm.nearest("a", "b", meters=5) == Nearest("a", "b", 1, "sphere", 5.0)
    assert rm.nearest("a", "b", k=3) == Nearest("a", "b", 3, "planar", None)


@pytest.mark.parametrize(
    ("write", "sentence"),
    [
        (lambda: rm.equal([]), "equal: no column is named. Name at least one."),
        (lambda: rm.dwithin("a", "b"), "dwithin: no bound is given. Give distance="),
        (
            lambda: rm.dwithin("a", "b", distance=1, meters=1),
            "both distance= and meters= are given",
        ),
        (
            lambda: rm.dwithin("a", "b", distance=-1),
            "dwithin: the bound is -1. Give a finite number",
        ),
        (lambda: rm.dwithin("a", "b", meters=float("nan")), "dwithin: the bound is nan"),
        (lambda: rm.nearest("a", "b", k=0), "nearest: k is 0. Ask for at least one row."),
        (lambda: rm.nearest("a", "b", metric="moon"), "nearest: 'moon' is not a metric"),
        (lambda: rm.nearest("a", "b", metric="sphere", distance=1), "distance= is planar"),
        (lambda: rm.relate("a", "b", "T*F"), "relate: 'T*F' is not a nine-intersection pattern"),
        (lambda: split("within"), "on: 'within' is not a condition"),
    ],
)
def test_what_makes_no_sense_is_refused_where_it_is_written(write, sentence):
    with pytest.raises(ConditionError) as caught:
        write()
    assert sentence in str(caught.value)


def test_relate_patterns_are_upper_case_inside():
    assert rm.relate("a", "b", "t*f**f***") == Topology("relate", "a", "b", "T*F**F***")
