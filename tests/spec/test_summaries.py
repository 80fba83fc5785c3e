import datetime as dt
import pickle

import pytest

import rivermouth as rm
from rivermouth.errors import DefinitionError
from rivermouth.spec.aggregates import Standard
from rivermouth.spec.slack import Fixed, check_slack

MINUTE = rm.tumbling("1 minute")


def test_a_summary_is_a_value_that_travels():
    said = rm.summary(by=["city", "road"], time="at", window=MINUTE, n=rm.count(), v=rm.sum("v"))
    assert said == pickle.loads(pickle.dumps(said))
    assert said.columns == ("city", "road", "at", "v")
    assert str(said) == "n=count(), v=sum('v') by ['city', 'road'] over 0:01:00 every 0:01:00"


def test_one_name_in_by_is_one_column():
    assert rm.summary(by="city", time="at", window=MINUTE, n=rm.count()).by == ("city",)


def test_the_median_is_a_quantile():
    assert rm.median("v") == rm.quantile("v", 0.5) == Standard("quantile", "v", 0.5)


@pytest.mark.parametrize(
    ("said", "sentence"),
    [
        ({"window": MINUTE}, r"^summary: no aggregate is named\. Give at least one"),
        (
            {"window": "1 minute", "n": rm.count()},
            r"window='1 minute' is not a window\. Write rm.tum",
        ),
        (
            {"window": MINUTE, "n": "count"},
            r"^summary: n='count' is not an aggregate\. Write one of",
        ),
        (
            {"window": MINUTE, "Records": rm.count()},
            r"called 'Records'; 'records' is a column of eve",
        ),
        (
            {"window": MINUTE, "by": "v", "V": rm.sum("v")},
            r"called 'V'; 'v' is named in by\. Give the",
        ),
        ({"window": MINUTE, "by": [1], "n": rm.count()}, r"^summary: 1 does not name a column"),
    ],
)
def test_what_makes_no_sense_is_said(said, sentence):
    with pytest.raises(DefinitionError, match=sentence):
        rm.summary(time="at", **said)


def test_an_object_with_some_of_an_aggregators_parts_hears_which_it_lacks():
    class Half:
        column, result = "v", "double"

    with pytest.raises(DefinitionError, match="it has no lift, combine, lower"):
        rm.summary(time="at", window=MINUTE, half=Half())


@pytest.mark.parametrize("share", [-0.1, 1.5, "half", True])
def test_a_quantiles_share_lies_between_zero_and_one(share):
    with pytest.raises(DefinitionError, match=r"^quantile: the share is "):
        rm.quantile("v", share)


def test_an_aggregate_names_its_column():
    with pytest.raises(DefinitionError, match=r"^sum: None does not name a column"):
        rm.sum(None)


def test_slack_is_a_length_a_promise_or_the_largest_delay():
    assert rm.fixed("3 seconds") == Fixed(dt.timedelta(seconds=3)) == rm.fixed("3000 milliseconds")
    assert rm.quality() == rm.quality(eps=0.05, delta=0.05, controller="learned")
    assert check_slack("aggregate", rm.max_delay()) == rm.max_delay()


@pytest.mark.parametrize(
    ("make", "sentence"),
    [
        (lambda: rm.quality(eps=0), r"^quality: eps is 0\. Give a number between 0 and 1"),
        (lambda: rm.quality(eps=2), r"^quality: eps is 2\. "),
        (lambda: rm.quality(eps=-1, absolute=True), "Give a number above 0"),
        (lambda: rm.quality(delta=1.0), r"^quality: delta is 1\.0\. "),
        (
            lambda: rm.quality(controller="pid"),
            r"^quality: controller is 'pid'; there are \['learned', 'pd'\]\. Leave it out, or name",
        ),
        (lambda: rm.quality(memory="0 seconds"), "is not positive"),
        (lambda: rm.fixed("-1 second"), r"^fixed: '-1 second' is negative"),
        (lambda: check_slack("aggregate", "3 seconds"), r"^aggregate: slack='3 seconds' is not a"),
    ],
)
def test_slack_that_makes_no_sense_is_refused(make, sentence):
    with pytest.raises(DefinitionError, match=sentence):
        make()


def test_an_absolute_error_may_be_any_number():
    assert rm.quality(eps=250.0, absolute=True).eps == 250
