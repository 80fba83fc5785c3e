"""Wrong arguments of join_interval and join_window are errors at definition."""

import pytest
from pyspark.sql import functions as F
from tests.spark.test_join_streams import CABS, NEAR

import rivermouth as rm
from rivermouth.errors import RivermouthError
from rivermouth.testing import frame, stream

pytestmark = pytest.mark.spark

WRONG = {
    "disjoint": (
        {"on": rm.disjoint("g", "g")},
        r'two streams cannot be joined by shapes that do not intersect; rm.disjoint\("g", "g"\)',
    ),
    "relate": ({"on": rm.relate("g", "g", "FF*FF****")}, "shapes that do not intersect"),
    "asof": ({"on": rm.asof("at", "at")}, "rm.between and rm.asof look up a table"),
    "column": (
        {"on": rm.within("f", "g")},
        "on names column 'f', which is not among the left side",
    ),
    "time": ({"time": "cab"}, "time names column 'cab' of the left side, which is string"),
    "two times": ({"time": ("at", "local")}, "'at' is timestamp, 'local' is timestamp_ntz"),
    "clash": ({"columns": None}, "the result would have two columns .*Choose or rename"),
    "clash of ours": (
        {"on": rm.nearest("g", "g"), "columns": {"distance": "x"}},
        "would have two columns 'distance'",
    ),
    "how": (
        {"how": "cross"},
        r"how is 'cross'. Use one of \['inner', 'left', 'right', 'full', 'semi', 'anti'\]",
    ),
    "right nearest": (
        {"how": "right", "on": rm.nearest("g", "g")},
        r"how='right' with rm.nearest; the nearest of left rows are chosen.*Use how=\"left\", or"
        " ask with rm.dwithin",
    ),
    "skew_path of a full join": (
        {"how": "full", "grid": rm.grid(skew_path="/tmp/skew")},
        r"grid\(skew_path=\) with how='full'",
    ),
    "columns of a semi join": (
        {"how": "semi", "columns": ["x"]},
        r"columns is \['x'\], but how='semi' brings none.*Leave columns= out",
    ),
    "order": ({"between": ("0 seconds", "-1 second")}, "nothing lies between 0 seconds and -1"),
    "open": ({"between": (None, "1 second")}, "between has an open end"),
    "text": ({"between": "1 second"}, r"between is '1 second'. Give \(lower, upper\)"),
    "late": ({"late": "drop"}, "late is 'drop'. Use one of \\['count', 'rows'\\]"),
    "families": (
        {"on": rm.keys({"cab": "x"})},
        r"keys compares 'cab' \(string\) with 'x' of the right",
    ),
    "cell": (
        {"on": rm.nearest("g", "g"), "grid": rm.grid(cell=1)},
        r"grid\(cell=\) has no meaning",
    ),
    "index": (
        {"on": rm.dwithin("g", "g", distance=1), "grid": rm.grid(index="binrtree")},
        r"grid\(index='binrtree'\) cannot serve this condition.*between two rm.point",
    ),
    "buckets": ({"buckets": 0}, "buckets is 0. Make it a whole number, one or more"),
    "half a bucket": ({"buckets": 1.5}, "buckets is 1.5. Make it a whole number, one or more"),
    "suffixes": ({"columns": ["x"], "suffixes": ("", "")}, "suffixes is"),
    "window": (
        {"columns": {"kind": "x"}, "late": "rows"},
        "the result would have two columns 'kind'",
    ),
    "skew_path": (
        {"on": rm.dwithin("g", "g", distance=1), "grid": rm.grid(skew_path="/tmp/skew")},
        r"grid\(skew_path=\) between two columns of shapes",
    ),
    "skew_path of a lattice": (
        {"on": rm.intersects("g", "g"), "grid": rm.grid(skew_path="/tmp/skew")},
        r"grid\(skew_path=\) between two columns of shapes",
    ),
}


@pytest.fixture(scope="module")
def cabs(spark):
    return frame(spark, CABS).withColumns(
        {"g": F.lit(b"").cast("binary"), "local": F.col("at").cast("timestamp_ntz")}
    )


@pytest.mark.parametrize("case", WRONG)
def test_wrong_arguments_are_errors_at_definition(cabs, case):
    asked, message = WRONG[case]
    usual = {"on": NEAR, "time": "at", "between": ("-1 minute", "1 minute"), "columns": []}
    with pytest.raises(RivermouthError, match=f"^join_interval.*{message}"):
        rm.join_interval(cabs, cabs, **{**usual, **asked})


def test_the_lateness_of_streams_must_be_defined(spark, cabs):
    usual = {"on": NEAR, "time": "at", "columns": [], "window": rm.tumbling("1 minute")}
    cabs_stream = stream(spark, CABS)
    with pytest.raises(
        RivermouthError, match=r"how late rows may be is not defined.*Give lateness="
    ):
        rm.join_window(cabs_stream, cabs_stream, **usual)
    with pytest.raises(RivermouthError, match="only the left side is a stream"):
        rm.join_window(cabs_stream, cabs, **usual)
    with pytest.raises(RivermouthError, match="'1 minute' is not a window"):
        rm.join_window(cabs, cabs, **{**usual, "window": "1 minute"})
    nearest = rm.nearest(rm.point("x", "y"), rm.point("x", "y"))
    with pytest.raises(RivermouthError, match=r"early=True with rm.nearest"):
        rm.join_window(cabs, cabs, **{**usual, "on": nearest}, early=True)
    with pytest.raises(RivermouthError, match=r"early=True with how='semi'.*Leave early= out"):
        rm.join_window(cabs, cabs, **usual, how="semi", early=True)
