"""Joined rows as dictionary-encoded pairs: each input row once, and two indices per pair.

In a dense join every row has hundreds of partners. What leaves a bucket then is not the joined rows
but the rows that were joined and two indices for each pair; the columns are gathered in the task
that hands the rows to Spark. In Arrow's terms such a column is a dictionary whose values are
structs, which no frame of Spark has.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from rivermouth.kernels.arrays import Ints

_MOST = 1 << 15  # rows that are unpacked together: their columns stay in the CPU's cache
_BYTES = 1 << 26  # that they take together, about: a shape of a megabyte may have many partners


def encoded(rows: pa.RecordBatch, at: Ints) -> pa.DictionaryArray:
    """The rows at these indices, as one dictionary-encoded column of structs."""
    index = pa.array(at.astype(np.int32))
    return pa.DictionaryArray.from_arrays(index, rows.to_struct_array(), safe=False)


def is_encoded(schema: pa.Schema) -> bool:
    """Whether a column is made of dictionary-encoded structs."""
    return any(map(_is_encoded, schema.types))


def unpacked(rows: pa.Table, schema: pa.Schema) -> Iterator[pa.RecordBatch]:
    """The rows with the columns of `schema`; nulls where a column is absent.

    Examples
    --------
    >>> cabs = pa.record_batch({"cab": [7, 8]})
    >>> near = pa.table({"cabs": encoded(cabs, np.array([1, 1, 0])), "meters": [5, 6, 9]})
    >>> wanted = pa.schema({"meters": pa.int64(), "cab": pa.int64()})
    >>> [batch.to_pydict() for batch in unpacked(near, wanted)]
    [{'meters': [5, 6, 9], 'cab': [8, 8, 7]}]
    """
    if not is_encoded(rows.schema):
        yield from rows.to_batches()
        return
    most = max(1, min(_MOST, _BYTES // _width(rows)))
    for batch in rows.to_batches(max_chunksize=most):
        columns: dict[str, pa.Array] = {}
        for field, column in zip(batch.schema, batch.columns, strict=True):
            if _is_encoded(field.type):
                structs = column.dictionary
                for part, values in zip(structs.type, structs.flatten(), strict=True):
                    columns[part.name] = pc.take(values, column.indices, boundscheck=False)
            else:
                columns[field.name] = column
        arrays = [
            columns[field.name] if field.name in columns else pa.nulls(len(batch), field.type)
            for field in schema
        ]
        yield pa.RecordBatch.from_arrays(arrays, schema=schema)


def _width(rows: pa.Table) -> int:
    """About how many bytes a row has once it is unpacked."""
    dictionaries = [
        chunk.dictionary
        for column in rows.columns
        if _is_encoded(column.type)
        for chunk in column.chunks[:1]
    ]
    return 1 + sum(int(one.nbytes) // max(1, len(one)) for one in dictionaries)


def _is_encoded(dtype: pa.DataType) -> bool:
    return bool(pa.types.is_dictionary(dtype) and pa.types.is_struct(dtype.value_type))
