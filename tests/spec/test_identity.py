"""What is persisted is known by its meaning: no name in the code is part of it."""

import datetime as dt
from decimal import Decimal

import pytest

import rivermouth as rm
from rivermouth.spec.identity import (
    Described,
    describe,
    differences,
    digest,
    identity,
    summary_v1,
    text_v1,
)

PLACE = rm.within(rm.point("lon", "lat"), "shape")
SUMMARY = rm.summary(
    by="road", time="at", window=rm.sliding("1 hour", every="1 minute"), n=rm.count(),
    p=rm.quantile("v", 0.5),
)  # fmt: skip

# These texts are in folders and checkpoints: a change orphans them and needs a new VERSION.
WRITTEN = {
    '{"keys":[[["a","b"]]]}': rm.keys({"a": "b"}),
    '{"topology":["within",{"point":["lon","lat"]},"shape",null]}': PLACE,
    '{"topology":["relate","a","b","T********"]}': rm.relate("a", "b", "T********"),
    '{"dwithin":["a","b",5.0,"sphere"]}': rm.dwithin("a", "b", meters=5.0),
    '{"nearest":["a","b",2,"planar",null]}': rm.nearest("a", "b", k=2),
    '{"asof":["ts","since"]}': rm.asof("ts", "since"),
    '{"all":[{"keys":[[["c","c"]]]},{"asof":["ts","since"]}]}': rm.asof("ts", "since", by="c"),
    '{"preference":[[["fare","max"]],["taxi"],3]}': rm.top(3, by="fare", columns="taxi"),
    '{"preference":[[["a","min"]],["a"],null]}': rm.skyline({"a": "min"}),
    '{"session":[{"us":60000000}]}': rm.session("1 minute"),
    '{"us":300000000}': dt.timedelta(minutes=5),
    '{"decimal":"1.50"}': Decimal("1.50"),
    '{"summary":[["road"],"at",{"window":[{"us":3600000000},{"us":60000000}]},'
    '[["n",{"aggregate":["count",null,null]}],["p",{"aggregate":["quantile","v",0.5]}]]]}': SUMMARY,
}


@pytest.mark.parametrize(("text", "value"), WRITTEN.items())
def test_what_is_written_stays_as_it_is(text, value):
    assert identity(it=value) == f'{{"it":{text},"version":2}}'


def test_other_meanings_have_other_identities():
    texts = {identity(it=value) for value in WRITTEN.values()}
    assert len(texts) == len(WRITTEN)
    assert identity(a=1, b=2) == identity(b=2, a=1) != identity(a=2, b=1)
    assert digest(identity(a=1)) != digest(identity(a=2))
    assert len(digest("")) == 24


class Mine:
    column, result = "v", "double"

    def lift(self, values): ...
    def combine(self, one, other): ...
    def lower(self, state): ...
    def __repr__(self):
        return "Mine(v)"


def test_an_aggregate_of_ones_own_is_known_by_its_repr():
    made = rm.summary(time="at", window=rm.tumbling("1 hour"), mine=Mine())
    assert ("mine", Described("udaf", ("Mine(v)",))) in describe(made).parts[-1]
    assert text_v1(made).endswith("aggregates=(('mine', Mine(v)),))")


def test_what_the_first_version_did_not_have_has_texts_that_it_never_wrote():
    new = rm.summary(time="at", window=rm.session("1 hour"), best=rm.top(1, by="v"))
    assert "session(datetime.timedelta(seconds=3600),)" in text_v1(new)
    assert "('best', preference((('v', 'max'),), ('v',), 1))" in text_v1(new)
    assert summary_v1(new) == str(new)


def test_the_first_version_is_remembered_word_for_word():
    assert text_v1(PLACE) == (
        "Topology(predicate='within', left=Point(x='lon', y='lat'), right='shape', pattern=None)"
    )
    assert text_v1(rm.dwithin("a", "b", distance=1.5)) == (
        "Near(left='a', right='b', limit=1.5, metric='planar')"
    )
    routing = Described("routing", (Described("grid", (8, None, 1)), 0, 0.0))
    assert text_v1(routing) == (
        "Routing(grid=Grid(buckets=8, cell=None, spread=1), single=0, reach=0.0)"
    )
    assert text_v1(None) == "None"
    assert summary_v1(SUMMARY) == (
        "n=count(), p=quantile('v', 0.5) by ['road'] over 1:00:00 every 0:01:00"
    )
    assert text_v1(SUMMARY) == (
        "Summary(by=('road',), time='at', window=Window(size=datetime.timedelta(seconds=3600), "
        "every=datetime.timedelta(seconds=60)), aggregates=(('n', Standard(kind='count', "
        "column=None, share=None)), ('p', Standard(kind='quantile', column='v', share=0.5))))"
    )


def test_two_identities_are_told_apart_by_what_differs():
    def told(**one):
        return {"columns": "a int", "window": rm.tumbling("10 minutes"), "by": ("road",), **one}

    def said(**other):
        return differences(identity(**told()), identity(**told(**other)))

    assert said(columns="b int") == 'its columns is "a int", here "b int"'
    size = "its window is 0:10:00, here 0:20:00"
    assert said(window=rm.tumbling("20 minutes")) == f"{size}; {size}"
    assert said(by=()) == 'its by is ["road"], here []'
    assert differences("Summary(by=())", identity(**told())) == "it was made for Summary(by=())"
