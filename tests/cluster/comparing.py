"""Runs a case on the lab and in this process, and compares the rows."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
from pyspark.sql import SparkSession
from tests.cluster.lab import BUCKET, SHARED, Driver, Lab
from tests.cluster.programs import cases

from rivermouth.testing import assert_same_rows

CASES = "tests.cluster.programs.cases"


class Comparison:
    """The cases in this process, each run once; their inputs are in the lab's shared folder."""

    def __init__(self, lab: Lab, spark: SparkSession, folder: Path) -> None:
        self._lab, self._spark, self._folder = lab, spark, folder
        self._known: dict[tuple[str, str], pa.Table] = {}

    def check(
        self, driver: Driver, name: str, how: str, *, by: str = "", on: str = SHARED, **servers: str
    ) -> Path:
        """Fail unless a case gives the same rows by this driver; the folder of its rows.

        A join with a table gives a stream what it gives a batch. Other operators keep back what
        may still change, so that a stream is compared with a stream.
        """
        folder = self.run(driver, name, how, by=by, on=on, **servers)
        alike = how == "batch" or name.startswith("table_")
        expected = self.expected(name, "batch" if alike else "stream", **servers)
        assert expected.num_rows > 0
        found = pq.read_table(folder / "rows.parquet")
        assert_same_rows(found.to_pylist(), expected.to_pylist())
        return folder

    def run(
        self, driver: Driver, name: str, how: str, *, by: str = "", on: str = SHARED, **servers: str
    ) -> Path:
        """Run a case by a driver, or run it on; `by` tells runs of one case apart.

        All its files are in a folder below `on`, its inputs and resulting rows excepted.
        """
        folder = self.folder(name, how, by=by).name
        driver.call(
            f"{CASES}:run", name=name, how=how, inputs=f"{SHARED}/inputs",
            folder=f"{on}/{folder}", bucket=f"s3://{BUCKET}/{folder}",
            output=f"{SHARED}/{folder}/rows.parquet", **servers,
        )  # fmt: skip
        return self._lab.shared / folder

    def folder(self, name: str, how: str, *, by: str = "") -> Path:
        """Where a case has its files, as this process sees it."""
        return self._lab.shared / f"{name}-{how}{by}"

    def expected(self, name: str, how: str, **servers: str) -> pa.Table:
        """The rows of a case in this process."""
        if (name, how) not in self._known:
            folder = self._folder / f"{name}-{how}"
            folder.mkdir()
            rows = folder / "rows.parquet"
            cases.run(
                self._spark, name=name, how=how, inputs=str(self._lab.shared / "inputs"),
                folder=str(folder), bucket=str(folder), output=str(rows), **servers,
            )  # fmt: skip
            self._known[name, how] = pq.read_table(rows)
        return self._known[name, how]
