"""A folder that hosts do not share is found before a query starts; the error names them."""

from __future__ import annotations

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from tests.cluster.lab import SHARED

pytestmark = [pytest.mark.spark, pytest.mark.cluster]
WORKERS = ["worker-1", "worker-2"]
SAID = "tests.cluster.programs.folders:said"


@pytest.fixture(scope="module")
def driver(lab):
    lab.cluster(WORKERS)
    with lab.driver() as made:
        yield made


@pytest.mark.parametrize(("name", "given"), [("full", 40), ("snapshot", 40), ("exact", True)])
def test_a_folder_of_the_driver_s_own_is_refused_and_a_shared_one_taken(lab, driver, name, given):
    table = "users.parquet"
    pq.write_table(pa.table({"uid": list(range(40))}), lab.shared / table)
    own = driver.call(SAID, name=name, path=f"/tmp/{name}", table=f"{SHARED}/{table}")
    assert f"'/tmp/{name}' is not the folder that the driver sees on host 'driver'" in own, own
    named = [host for host in WORKERS if f"on '{host}' there is no such folder" in own]
    assert named if name == "full" else named == WORKERS, own
    path = f"{SHARED}/folder-{name}"
    assert driver.call(SAID, name=name, path=path, table=f"{SHARED}/{table}") == given
