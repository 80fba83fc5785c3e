"""Rows that come many times, sent once: where each stands in the result, not what it holds.

In a dense join every row has hundreds of partners. What leaves a bucket then is not the joined rows
but the rows that were joined and two numbers for each pair; the columns are made where the rows are
handed to Spark. In Arrow's terms such a column is a dictionary whose values are structs, which
no frame of Spark has.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

Ints = npt.NDArray[np.int64]

_MOST = 1 << 15  # rows that are unfolded together: their columns stay in the processor's cache
_BYTES = 1 << 26  # that they take together, about: a shape of a megabyte may have many partners


def folded(rows: pa.RecordBatch, at: Ints) -> pa.DictionaryArray:
    """The rows at these places, as one column."""
    index = pa.array(at.astype(np.int32))
    return pa.DictionaryArray.from_arrays(index, rows.to_struct_array(), safe=False)


def is_folded(schema: pa.Schema) -> bool:
    """Whether a column stands for several."""
    return any(map(_is_fold, schema.types))


def unfolded(rows: pa.Table, schema: pa.Schema) -> Iterator[pa.RecordBatch]:
    """The rows with a column each, as `schema` has them; nulls where there is none.

    Examples
    --------
    >>> cabs = pa.record_batch({"cab": [7, 8]})
    >>> near = pa.table({"cabs": folded(cabs, np.array([1, 1, 0])), "meters": [5, 6, 9]})
    >>> wanted = pa.schema({"meters": pa.int64(), "cab": pa.int64()})
    >>> [batch.to_pydict() for batch in unfolded(near, wanted)]
    [{'meters': [5, 6, 9], 'cab': [8, 8, 7]}]
    """
    if not is_folded(rows.schema):
        yield from rows.to_batches()
        return
    most = max(1, min(_MOST, _BYTES // _width(rows)))
    for batch in rows.to_batches(max_chunksize=most):
        columns: dict[str, pa.Array] = {}
        for field, column in zip(batch.schema, batch.columns, strict=True):
            if _is_fold(field.type):
                rows_once = column.dictionary
                for part, values in zip(rows_once.type, rows_once.flatten(), strict=True):
                    columns[part.name] = pc.take(values, column.indices, boundscheck=False)
            else:
                columns[field.name] = column
        arrays = [
            columns[field.name] if field.name in columns else pa.nulls(len(batch), field.type)
            for field in schema
        ]
        yield pa.RecordBatch.from_arrays(arrays, schema=schema)


def _width(rows: pa.Table) -> int:
    """How many bytes a row has once it is unfolded, about."""
    folds = [
        chunk.dictionary
        for column in rows.columns
        if _is_fold(column.type)
        for chunk in column.chunks[:1]
    ]
    return 1 + sum(int(fold.nbytes) // max(1, len(fold)) for fold in folds)


def _is_fold(kind: pa.DataType) -> bool:
    return bool(pa.types.is_dictionary(kind) and pa.types.is_struct(kind.value_type))
