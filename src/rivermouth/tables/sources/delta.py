"""Delta tables, read by deltalake: without Spark, on whichever host a worker runs."""

from __future__ import annotations

from dataclasses import dataclass
from functools import reduce
from operator import and_
from urllib.parse import parse_qsl, unquote, urlsplit

import deltalake
import pyarrow.dataset as ds
import pyarrow.fs
from deltalake.exceptions import DeltaError, DeltaProtocolError, TableNotFoundError

from rivermouth.errors import TableError, TableInvalid, TableMissing
from rivermouth.spec.filters import Filter
from rivermouth.spec.locations import Location
from rivermouth.tables.files import filesystem
from rivermouth.tables.sources.dataset import DatasetTable, as_table_error


@dataclass(frozen=True, repr=False)
class DeltaFiles(DatasetTable):
    """The rows of a Delta table, of one version or of the newest."""

    path: Location
    version: int | None = None
    geometry: tuple[str, ...] = ()
    where: Filter = ()

    function = "delta"

    @property
    def location(self) -> str:
        """The path, the version, and the columns that were said to be geometries."""
        columns = "".join(f"#{name}" for name in self.geometry)
        return self.path.shown + ("" if self.version is None else f"@{self.version}") + columns

    def revision(self) -> str:
        """The version's number."""
        if self.version is not None:
            return str(self.version)
        try:
            return str(self.opened().version())
        except DeltaError as error:
            raise self._as_ours(error) from None

    def dataset(self) -> ds.FileSystemDataset:
        """The files of the version, in the order of the table's log."""
        try:
            table = self.opened()
            with as_table_error(self.path, where=self.call):
                system, inner = filesystem(self.path)
                files = pyarrow.fs.SubTreeFileSystem(inner, system)
                return _without_bounds(table.to_pyarrow_dataset(filesystem=files))
        except DeltaError as error:
            raise self._as_ours(error) from None  # its words may show keys

    def opened(self) -> deltalake.DeltaTable:
        """The table as deltalake has it."""
        path, options = _without_query(self.path), _options(self.path)
        return deltalake.DeltaTable(path, self.version, storage_options=options)

    def _as_ours(self, error: DeltaError) -> TableError:
        said = self.path.redacted(str(error)).splitlines()[0].rstrip(".")
        if isinstance(error, TableNotFoundError):
            return TableMissing(
                self.call, f"{self.path!r} is no Delta table", there=said, todo="Check the path."
            )
        if isinstance(error, DeltaProtocolError):
            return TableInvalid(
                self.call,
                f"{self.path!r} uses what deltalake cannot read as files",
                there=said,
                todo="Rewrite it without deletion vectors and column mapping, or use "
                "rm.tables.frame(spark.read.format('delta').load(...)).",
            )
        what = "" if self.version is None else f" at version {self.version}"
        return TableInvalid(
            self.call,
            f"{self.path!r} cannot be read{what}",
            there=said,
            todo="Check the version and the table's log.",
        )


def _without_bounds(dataset: ds.FileSystemDataset) -> ds.FileSystemDataset:
    """The same files, of each of which only the values of the partition columns are known.

    The log also has bounds of other columns. They leave out NaN, which is beyond them, and Arrow
    does not compare rows with what it takes for true of all of them. Row groups have bounds of
    their own.
    """
    fragments = [
        dataset.format.make_fragment(file.path, file.filesystem, _equal_to(file))
        for file in dataset.get_fragments()
    ]
    return ds.FileSystemDataset(fragments, dataset.schema, dataset.format, dataset.filesystem)


def _equal_to(file: ds.Fragment) -> ds.Expression | None:
    known = ds.get_partition_keys(file.partition_expression)
    tests = [
        ds.field(name).is_null() if value is None else ds.field(name) == value
        for name, value in known.items()
    ]
    return reduce(and_, tests) if tests else None


def _without_query(path: Location) -> str:
    """As deltalake takes it: keys and options are given apart."""
    return path.for_spark.replace("s3a://", "s3://", 1)


def _options(path: Location) -> dict[str, str] | None:
    """What a URI of S3 says of keys, region and endpoint; else what the environment says."""
    if path.scheme not in ("s3", "s3a"):
        return None
    parts = urlsplit(path)
    query = dict(parse_qsl(parts.query))
    scheme = query.get("scheme", "https")
    found = {"AWS_ALLOW_HTTP": "true"} if scheme == "http" else {}
    if "region" in query:
        found["AWS_REGION"] = query["region"]
    if endpoint := query.get("endpoint_override"):
        found["AWS_ENDPOINT_URL"] = endpoint if "://" in endpoint else f"{scheme}://{endpoint}"
    if parts.username:
        found["AWS_ACCESS_KEY_ID"] = unquote(parts.username)
        found["AWS_SECRET_ACCESS_KEY"] = unquote(parts.password or "")
    return found
