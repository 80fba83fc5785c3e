"""What an earlier version of rivermouth left behind goes on on several hosts."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from tests.cluster.lab import Driver, Lab
from tests.spark import test_persisted as persisted

pytestmark = [pytest.mark.cluster, pytest.mark.spark]

#: checkpoints and stores of streams; the others are read by one process alone
_STARTS = ("aggregate", "join", "exact")
STREAMS = [case for case in persisted.CASES if case.__name__.startswith(_STARTS)]


@pytest.fixture(scope="module")
def driver(lab: Lab) -> Iterator[Driver]:
    lab.cluster()
    with lab.driver(**{"spark.sql.shuffle.partitions": "2"}) as made:  # as the fixtures had
        yield made


@pytest.mark.parametrize("case", STREAMS, ids=lambda case: case.__name__)
def test_state_of_the_first_version_goes_on(case: persisted.Case, driver: Driver, lab: Lab) -> None:
    persisted.unpack(case.__name__, lab.persisted)
    found = driver.call("tests.cluster.programs.persisted:run", name=case.__name__)
    persisted.check(case, found)
