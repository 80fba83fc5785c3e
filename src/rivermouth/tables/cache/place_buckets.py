"""A table in buckets by place: space is cut by what the table holds, and its rows are written.

    v1793830112000000/cut.json      where the buckets lie (`SpaceCut`)
    v1793830112000000/spill.arrow   the table as it came, until the cut is known; only while reading

The table is read once. The first version is kept in a file until its last row has come and the cut
can be made from a sample; then the rows go from there to their buckets. Later versions go to their
buckets as they come, since a version takes over the cut of the one before.

That a cut is as old as the snapshot's folder is what makes routes safe to compute again: where an
executor is lost, Spark computes some rows of a shuffle anew, and a row that then had another bucket
would be joined twice or never. A micro-batch joins one version and would be safe with a cut for
each; a batch query that runs while a table is refreshed would not. The price is that buckets grow
uneven where the table moves elsewhere. Rows never depend on the cut: a task finds the buckets of
its events by the version that it joins.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from rivermouth.kernels.arrays import Floats
from rivermouth.kernels.spatial.space_cut import ByteSample, SpaceCut
from rivermouth.kernels.table_join import place_buckets
from rivermouth.spec.conditions import Spatial, is_on_sphere
from rivermouth.tables import files
from rivermouth.tables.cache.buckets import pieces, write_parts
from rivermouth.tables.cache.snapshot_store import array_of
from rivermouth.tables.source import Source, scan

_CUT, _SPILL = "cut.json", "spill.arrow"
_BOX = "_rivermouth_box"
_PIECE = 16 << 20  # bytes that are partitioned at a time; their shapes, parsed, are ten times that
_OFFSET = 4  # bytes that a text or WKB needs besides its own


def read_cut(version: Path) -> SpaceCut:
    """Where the buckets of a version lie.

    Raises
    ------
    FileNotFoundError
        If the version has been removed.
    """
    described = files.read_json(f"{version}/{_CUT}")
    if described is None:
        raise FileNotFoundError(version / _CUT)
    return SpaceCut.of(described)


def write_by_place(
    source: Source,
    schema: pa.Schema,
    spatial: Spatial,
    count: int,
    folder: Path,
    cut: SpaceCut | None = None,
) -> None:
    """Write the rows of a table to `count` files under `folder`, each to all buckets it is in.

    Without a `cut` it is made so that the buckets hold about as many bytes each.
    """
    table = _PlacedTable(source, schema, spatial)
    if cut is None:
        cut = scan(source, schema.names, lambda rows: table.spill(rows, folder)).cut(count)
        with pa.OSFile(str(folder / _SPILL)) as file:  # mapped, what was read would count as held
            spilled = (pa.Table.from_batches([batch]) for batch in pa.ipc.open_stream(file))
            write_parts(_partitioned(spilled, cut), schema, count, folder)
        (folder / _SPILL).unlink()
    else:
        known = cut

        def write_all(batches: Iterator[pa.RecordBatch]) -> None:
            write_parts(_partitioned(table.placed(batches), known), schema, count, folder)

        scan(source, schema.names, write_all)
    files.write_json(f"{folder}/{_CUT}", cut.described())


class _PlacedTable:
    """A table's rows with their boxes, piece by piece."""

    def __init__(self, source: Source, schema: pa.Schema, spatial: Spatial) -> None:
        self._source, self._schema, self._spatial = source, schema, spatial

    def placed(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.Table]:
        """The rows that can match something, with a column of boxes."""
        name, first_row = self._source.name, 0
        for piece in pieces(batches, self._schema, table=name, size=_PIECE):
            columns = {field: array_of(piece, field) for field in piece.column_names}
            rows, boxes = place_buckets.table_boxes(
                self._spatial, columns, where=name, first_row=first_row
            )
            first_row += piece.num_rows
            flat = pa.array(np.ascontiguousarray(boxes).ravel())
            column = pa.FixedSizeListArray.from_arrays(flat, boxes.shape[1])
            chosen = piece if len(rows) == piece.num_rows else piece.take(pa.array(rows))
            yield chosen.append_column(_BOX, column)

    def spill(self, batches: Iterable[pa.RecordBatch], folder: Path) -> ByteSample:
        """Write the rows to a file of their own; what is to be known of them to cut space."""
        sample, dims = ByteSample(), 6 if is_on_sphere(self._spatial) else 4
        schema = self._schema.append(pa.field(_BOX, pa.list_(pa.float64(), dims)))
        with pa.OSFile(str(folder / _SPILL), "wb") as sink, pa.ipc.new_stream(sink, schema) as to:
            for rows in self.placed(batches):
                sample.add(_boxes(rows), _row_bytes(rows.drop_columns([_BOX])))
                to.write_table(rows.cast(schema))
        return sample


def _partitioned(placed: Iterable[pa.Table], cut: SpaceCut) -> Iterator[tuple[int, pa.Table]]:
    """The rows of each bucket that has some, in their order; one bucket's copies at a time."""
    for rows in placed:
        alone = rows.drop_columns([_BOX])
        for bucket, chosen in cut.parts(_boxes(rows)):
            yield bucket, alone.take(pa.array(chosen))


def _boxes(rows: pa.Table) -> Floats:
    column = array_of(rows, _BOX)
    flat: Floats = column.flatten().to_numpy(zero_copy_only=False)
    return flat.reshape(len(column), column.type.list_size)


def _row_bytes(rows: pa.Table) -> Floats:
    """About how many bytes each row has, at least one."""
    sizes, count = np.ones(rows.num_rows), max(1, rows.num_rows)
    for column in rows.columns:
        kind = column.type
        if pa.types.is_binary(kind) or pa.types.is_string(kind) or _is_large(kind):
            sizes += pc.fill_null(pc.binary_length(column), 0).to_numpy() + _OFFSET
        else:
            sizes += column.nbytes / count
    return sizes


def _is_large(kind: pa.DataType) -> bool:
    return bool(pa.types.is_large_binary(kind) or pa.types.is_large_string(kind))
