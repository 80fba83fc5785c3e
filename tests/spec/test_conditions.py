import datetime as dt
from decimal import Decimal

import pytest

import rivermouth as rm
from rivermouth.errors import ConditionError, RivermouthError
from rivermouth.spec.conditions import All, AsOf, Between, DWithin, Keys, Nearest, Topology, split


def test_and_puts_an_equality_and_a_place_together_in_any_order():
    place = rm.within(rm.point("lon", "lat"), "shape")
    assert rm.keys("city") & place == place & rm.keys("city") == All(rm.keys("city"), place)


def test_and_merges_equalities_and_keeps_each_pair_once():
    both = rm.keys("city") & rm.keys({"uid": "user_id"}) & rm.keys("city")
    assert both == Keys((("city", "city"), ("uid", "user_id")))


@pytest.mark.parametrize("other", [rm.dwithin("a", "b", distance=1), rm.asof("t", "u")])
def test_two_spatial_conditions_or_ranges_are_refused_by_name(other):
    with pytest.raises(ConditionError, match=r"^&: two spatial conditions or ranges; .* Join"):
        _ = rm.within("a", "b") & other


def test_between_takes_numbers_or_lengths_of_time():
    minutes = rm.between("ts", "slot", lower="-5 minutes", upper=dt.timedelta(0))
    assert minutes == Between("ts", "slot", dt.timedelta(minutes=-5), dt.timedelta(0))
    mixed = rm.between("v", "w", lower=-0.1, upper=Decimal("0.1"))
    assert mixed == Between("v", "w", -0.1, Decimal("0.1"))
    assert rm.between("v", "w", lower=-1, upper=0.5, by="road") == All(
        rm.keys("road"), Between("v", "w", -1, 0.5)
    )
    assert split(rm.asof("ts", "since", by={"a": "b"})) == (
        Keys((("a", "b"),)), None, AsOf("ts", "since"),
    )  # fmt: skip


@pytest.mark.parametrize(
    ("lower", "upper", "sentence"),
    [
        (1, "1 second", "are not of one kind"),
        (
            2,
            1,
            "between: lower=2 is above upper=1; offsets are signed: the table's value lies in",
        ),
        (float("nan"), 1, "nan is not an offset"),
        (True, 1, "True is not an offset"),
        ("5 parsecs", "0 seconds", "'5 parsecs' is not a length of time"),
    ],
)
def test_offsets_that_mean_nothing_are_refused(lower, upper, sentence):
    with pytest.raises(RivermouthError) as error:
        rm.between("v", "w", lower=lower, upper=upper)
    assert sentence in str(error.value)


@pytest.mark.parametrize(
    "written",
    [
        'rm.keys("city")',
        'rm.keys(["city", "taxi"])',
        'rm.keys({"uid": "user_id"})',
        'rm.within(rm.point("lon", "lat"), "shape")',
        'rm.relate("a", "b", "T*F**F***")',
        'rm.dwithin("a", "b", distance=0.5)',
        'rm.dwithin("a", "b", meters=200)',
        'rm.nearest("a", "b")',
        'rm.nearest("a", "b", k=5, metric="sphere")',
        'rm.nearest("a", "b", k=5, meters=200)',
        'rm.between("ts", "slot", lower="-300 seconds", upper="0 seconds")',
        'rm.between("v", "w", lower=-1, upper=0.5)',
        'rm.keys("road") & rm.asof("ts", "since")',
    ],
)
def test_a_condition_reads_as_it_is_written(written):
    assert str(eval(written, {"rm": rm})) == written  # what a user would write for it


def test_an_incremental_cache_is_bounded_even_if_nothing_is_said():
    assert rm.incremental().bytes == 64 << 20
    assert (rm.incremental(rows=5).rows, rm.incremental(rows=5).bytes) == (5, None)
    assert rm.incremental(bytes="2 GB").bytes == 2 << 30


@pytest.mark.parametrize(
    ("given", "sentence"),
    [
        ({"policy": "fifo"}, "'fifo' is not a policy"),
        ({"rows": 0}, "rows is 0"),
        ({"rows": 1.5}, "rows is 1.5"),
        ({"rows": "5"}, "rows is '5'"),
        ({"attempts": 0}, "attempts is 0"),
        ({"attempts": None}, "attempts is None"),
        ({"on_unavailable": "drop"}, "on_unavailable is 'drop'"),
        ({"bytes": "many"}, "'many' is not a size"),
        ({"ttl": "-1 second"}, "not longer than nothing"),
    ],
)
def test_a_cache_that_cannot_be_is_refused(given, sentence):
    with pytest.raises(RivermouthError) as error:
        rm.incremental(**given)
    assert sentence in str(error.value)


def test_a_path_of_snapshots_is_text_or_a_path():
    with pytest.raises(RivermouthError, match=r"^full: path is 3\. Give a folder or a URI"):
        rm.full(path=3)


def test_meters_means_the_sphere():
    assert rm.dwithin("a", "b", meters=5) == DWithin("a", "b", 5.0, "sphere")
    assert rm.nearest("a", "b", meters=5) == Nearest("a", "b", 1, "sphere", 5.0)
    assert rm.nearest("a", "b", k=3) == Nearest("a", "b", 3, "planar", None)


@pytest.mark.parametrize(
    ("write", "sentence"),
    [
        (lambda: rm.keys([]), "keys: no column is named. Name at least one."),
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


def test_a_condition_refuses_what_would_silently_lose_a_part_of_it():
    with pytest.raises(ConditionError, match=r"Combine with &"):
        _ = rm.keys("city") and rm.within("a", "b")
    with pytest.raises(ConditionError, match=r"combined with & only"):
        _ = rm.keys("city") | rm.within("a", "b")


@pytest.mark.parametrize(
    ("write", "sentence"),
    [
        (lambda: rm.point(1.0, 2.0), "1.0 and 2.0 are not names of columns"),
        (lambda: rm.within(("lon", "lat"), "b"), "does not name a geometry"),
        (lambda: rm.dwithin("a", "b", meters="500 m"), "the bound is '500 m'"),
    ],
)
def test_a_geometry_is_named_by_columns_and_a_bound_is_a_number(write, sentence):
    with pytest.raises(ConditionError) as error:
        write()
    assert sentence in str(error.value)
