"""A join and a stateful stream on two hosts: what `make test` runs of the lab."""

from __future__ import annotations

import pytest
from tests.cluster.comparing import CASES

pytestmark = pytest.mark.spark


@pytest.fixture(scope="module")
def driver(lab):
    lab.cluster(["worker-1", "worker-2"])
    with lab.driver() as made:
        yield made


def test_a_join_and_a_stateful_stream_run_on_two_hosts(driver, compare):
    compare.check(driver, "table_full", "batch", by="-short")
    compare.check(driver, "interval", "stream", by="-short")
    assert {*driver.call(f"{CASES}:hosts", tasks=6)} == {"worker-1", "worker-2"}
