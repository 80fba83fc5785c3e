"""Every operator on several hosts gives the rows that it gives in one process."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from benchmarks.harness import kafka
from tests.cluster import inputs
from tests.cluster.comparing import CASES
from tests.cluster.lab import SHARED, WORKERS, Driver, Lab
from tests.cluster.programs import cases

pytestmark = [pytest.mark.cluster, pytest.mark.spark, pytest.mark.server]

ONLY_STREAMS = {"aggregate_corrected", "exact"}  # a batch is exact at once
ON_KAFKA = ("table_full", "interval", "window", "aggregate", "trips")
ON_CONNECT = ("table_full", "table_native", "table_incremental", "interval", "aggregate")


@pytest.fixture(scope="module")
def postgres(lab: Lab) -> str:
    """A PostgreSQL that has the table of drivers."""
    inputs.create_drivers(lab.postgres.url)
    return lab.postgres.url


@pytest.fixture(scope="module")
def driver(lab: Lab) -> Iterator[Driver]:
    """A driver on three workers, which is a Spark Connect server as well."""
    assert lab.s3
    lab.cluster()
    serving = {
        "spark.plugins": "org.apache.spark.sql.connect.SparkConnectPlugin",
        "spark.connect.grpc.binding.address": "0.0.0.0",
        "spark.jars": kafka.connector_jars(),
    }
    with lab.driver(**serving) as made:
        yield made


@pytest.fixture(scope="module")
def client(lab: Lab, driver: Driver) -> Iterator[Driver]:
    """A client of that server, on a host of its own."""
    with lab.driver(on="client", remote="sc://driver:15002") as made:
        yield made


@pytest.fixture(scope="module")
def topics(lab: Lab, driver: Driver, compare) -> str:
    """A broker that has the inputs, one topic each."""
    names = ["taxis", "calls", "tracks"]
    driver.call(f"{CASES}:publish", inputs=f"{SHARED}/inputs", kafka=lab.kafka, names=names)
    return lab.kafka


def test_tasks_run_on_all_workers(driver):
    assert {*driver.call(f"{CASES}:hosts", tasks=12)} == {*WORKERS}


@pytest.mark.parametrize("name", sorted(cases.CASES.keys() - ONLY_STREAMS))
def test_a_batch_of_files(driver, compare, postgres, name):
    compare.check(driver, name, "batch", postgres=postgres)


@pytest.mark.parametrize("name", sorted(cases.CASES))
def test_a_stream_of_files(driver, compare, postgres, name):
    compare.check(driver, name, "stream", postgres=postgres)


def test_skew_is_learned(driver, compare):
    folder = compare.check(driver, "interval_with_learned_skew", "stream", by="-learned")
    assert list((folder / "skew").glob("bucket-*.json"))


@pytest.mark.parametrize("name", ON_KAFKA)
def test_a_stream_of_kafka(driver, compare, topics, name):
    compare.check(driver, name, "kafka", kafka=topics)


@pytest.mark.parametrize("how", ["batch", "stream"])
@pytest.mark.parametrize("name", ON_CONNECT)
def test_through_connect(client, compare, postgres, name, how):
    compare.check(client, name, how, by="-connect", postgres=postgres)
