"""Parquet files that are nobody's table."""

from __future__ import annotations

from dataclasses import dataclass

import pyarrow.dataset as ds

from rivermouth.errors import TableMissing
from rivermouth.spec.filters import Filter
from rivermouth.spec.locations import Location
from rivermouth.tables.files import filesystem
from rivermouth.tables.sources.dataset import DatasetTable, as_table_error


@dataclass(frozen=True, repr=False)
class ParquetFiles(DatasetTable):
    """The rows of a Parquet file, or of all Parquet files in a folder by the files' paths."""

    path: Location
    geometry: tuple[str, ...] = ()
    where: Filter = ()

    function = "parquet"

    def dataset(self) -> ds.FileSystemDataset:
        """The files at the path; folders named ``column=value`` add a column."""
        with as_table_error(self.path, where=self.call):
            system, inner = filesystem(self.path)
            dataset = ds.dataset(inner, filesystem=system, format="parquet", partitioning="hive")
        if not dataset.files:
            raise TableMissing(
                self.call, f"{self.path!r} holds no Parquet file", todo="Check the path."
            )
        return dataset
