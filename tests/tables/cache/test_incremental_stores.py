"""The incremental cache over every store: decimals of more digits than 64 bits hold."""

from decimal import Context, Decimal

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from tests.support.examples import examples
from tests.support.stores import store_of

import rivermouth as rm
from rivermouth.spec.conditions import split
from rivermouth.tables.cache.fetching import LookupSpec
from rivermouth.tables.cache.incremental import IncrementalCache
from rivermouth.testing import oracle

SERVERS = [pytest.param(kind, marks=pytest.mark.server) for kind in ("mysql", "postgres")]
THEIRS, OURS = pa.decimal128(38, 4), pa.decimal128(38, 6)
EXACT = Context(prec=60)
UNSCALED = (0, 1, -1, 10**19, 10**19 + 1, -(10**33), 10**31 + 7, 10**38 - 1, 1 - 10**38)
VALUES = [Decimal(f"{n}e-4") for n in UNSCALED]
ROWS = pa.table(
    {
        "id": range(40),
        "k": pa.array([1 if n % 2 else None if n % 10 == 4 else 2 for n in range(40)], pa.int64()),
        "value": pa.array([None if n % 11 == 7 else VALUES[n % 9] for n in range(40)], THEIRS),
    }
)
CONDITIONS = {
    "keys": rm.keys({"v": "value"}),
    "two keys": rm.keys({"v": "value", "k": "k"}),
    "between": rm.between("v", "value", lower=Decimal("-1e15"), upper=Decimal("0.00005"), by="k"),
    "asof": rm.asof("v", "value", by="k"),
    "asof of all": rm.asof("v", "value"),
}
#: the table's values, values between them, and some that it has no digits for
PROBES = [v for v in VALUES if abs(v) < 10**31]
PROBES += [EXACT.add(v, d) for v in PROBES for d in (Decimal("0.00005"), Decimal("-0.000001"))]
records = st.lists(
    st.tuples(st.none() | st.sampled_from(PROBES), st.sampled_from([None, 1, 2, 3])), max_size=12
)


@pytest.fixture(scope="module", params=["parquet", *SERVERS])
def table(request, tmp_path_factory):
    store = store_of(request.param, request, tmp_path_factory.mktemp("store"))
    return store.put("wide", ROWS)


@pytest.mark.parametrize("case", CONDITIONS)
@settings(
    max_examples=examples(15),
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture],
)
@given(st.lists(records, min_size=1, max_size=3))
def test_wide_decimals_give_the_oracles_rows(table, case, batches):
    on = CONDITIONS[case]
    keys, _, span = split(on)
    left = pa.schema([("v", OURS), ("k", pa.int64())])
    spec = LookupSpec(table, keys, span, ("id",), left, table.schema())
    cache = IncrementalCache(spec, rm.incremental(rows=15))
    for batch in batches:
        if not batch:
            continue
        events = pa.Table.from_pylist([{"v": v, "k": k} for v, k in batch], left)
        rows = cache.lookup({name: events[name].combine_chunks() for name in left.names}, 0.0)
        found = rows.table["id"].take(pa.array(rows.pairs.right)).to_pylist()
        expected = [
            (n, row["id"])
            for n, event in enumerate(events.to_pylist())
            for row, _ in oracle.matches(event, ROWS.to_pylist(), on)
        ]
        assert sorted(zip(rows.pairs.left.tolist(), found, strict=True)) == sorted(expected)


def test_some_of_the_probes_match():
    """So that the property above can fail."""
    assert len(np.intersect1d(np.array(PROBES, object), np.array(VALUES, object))) > 4
