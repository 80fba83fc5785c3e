"""How each aggregate is computed: the accumulators it needs, and how they become its result."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from rivermouth.errors import ColumnError, DefinitionError, RivermouthError
from rivermouth.kernels.aggregation import exact_sums
from rivermouth.kernels.aggregation.accumulators import (
    Accumulator,
    Counts,
    Ranges,
    Sums,
    decimals,
    integers,
    powers_of_ten,
)
from rivermouth.kernels.aggregation.extremes import Extremes, unordered
from rivermouth.kernels.aggregation.multisets import Multisets, flat
from rivermouth.kernels.aggregation.preferences import Firsts, Skylines
from rivermouth.kernels.aggregation.udaf import Udaf
from rivermouth.kernels.arrays import Bools, Ints
from rivermouth.spec.aggregates import Aggregate, Aggregator, Standard
from rivermouth.spec.preferences import Preference

RECORDS = Counts("records", only_values=False)
#: what a user's own aggregate may return, by Spark's names
UDAF_RESULTS = {
    "boolean": pa.bool_(),
    "int": pa.int32(),
    "bigint": pa.int64(),
    "float": pa.float32(),
    "double": pa.float64(),
    "string": pa.string(),
}
_MAX_DIGITS = 38
_INT64_DIGITS = 18  # of a decimal that fits into 64 bits
_ORDERED = f"numbers of up to {_INT64_DIGITS} digits, doubles, dates, times or booleans"


class Lowering(NamedTuple):
    """An aggregate's result type, the accumulators it needs, and what lowers them to results."""

    dtype: pa.DataType
    accumulators: tuple[Accumulator, ...]
    lower: Callable[[Ranges], pa.Array]


def lowering(
    name: str, aggregate: Aggregate, columns: Sequence[str], types: Mapping[str, pa.DataType]
) -> Lowering:
    """How `aggregate`, which is called `name`, is computed; `types` are those of `columns`.

    Raises
    ------
    ColumnError
        For an aggregate of a column that it cannot be computed of.
    """
    if isinstance(aggregate, Preference):
        return _preference(name, aggregate, columns, types)
    if not isinstance(aggregate, Standard):
        return _udaf(name, aggregate)
    if aggregate.column is None:
        return Lowering(pa.int64(), (), lambda ranges: ranges.merged(RECORDS)[RECORDS.name])
    dtype, column = types[aggregate.column], f"{columns.index(aggregate.column)}."
    present = Counts(f"{column}n")
    if aggregate.kind == "count":
        return Lowering(pa.int64(), (present,), lambda ranges: ranges.merged(present)[present.name])
    if aggregate.kind == "count_distinct":
        values = Multisets(f"{column}set", is_set=True)
        is_key = not pa.types.is_nested(dtype)
        _need(is_key, name, aggregate, dtype, "numbers, texts, dates, times or booleans")
        return Lowering(pa.int64(), (values,), lambda ranges: _array(values.distinct(ranges)))
    if aggregate.kind in ("min", "max"):
        _need(_is_ordered(dtype), name, aggregate, dtype, _ORDERED)
        extreme = Extremes(f"{column}{aggregate.kind}", aggregate.kind == "max")
        return Lowering(
            dtype, (extreme,), lambda ranges: unordered(ranges.merged(extreme)[extreme.name], dtype)
        )
    _need(_is_number(dtype), name, aggregate, dtype, "numbers")
    makers = {"sum": _sum, "mean": _mean, "var": _variance, "std": _variance}
    return makers.get(aggregate.kind, _quantile)(aggregate, dtype, column, present)


def _is_number(dtype: pa.DataType) -> bool:
    of = pa.types
    return bool(of.is_integer(dtype) or of.is_floating(dtype) or of.is_decimal(dtype))


def _is_ordered(dtype: pa.DataType) -> bool:
    """Whether the values' order is that of integers of 64 bits."""
    if pa.types.is_decimal(dtype):
        return bool(dtype.precision <= _INT64_DIGITS)
    return _is_number(dtype) or pa.types.is_temporal(dtype) or pa.types.is_boolean(dtype)


def _need(
    holds: bool, name: str, aggregate: Standard | Preference, dtype: pa.DataType, wanted: str
) -> None:
    if not holds:
        raise ColumnError(
            "summary",
            f"{name}={aggregate} is asked of a column of type {dtype}",
            there=f"{aggregate.kind} is of {wanted}",
            todo="Cast the column, or leave the aggregate out.",
        )


def _array(values: npt.NDArray[Any], valid: Bools | None = None) -> pa.Array:
    """Values, null where they are not `valid`; NaN is a value."""
    return pa.array(values, mask=None if valid is None else ~valid, from_pandas=False)


def _count(ranges: Ranges, present: Counts) -> Ints:
    return integers(ranges.merged(present), present.name, len(ranges))


def _udaf(name: str, aggregator: Aggregator) -> Lowering:
    dtype = UDAF_RESULTS.get(aggregator.result)
    if dtype is None:
        raise DefinitionError(
            "summary",
            f"the result of {name} is {aggregator.result!r}",
            todo=f"Its result= must be one of {list(UDAF_RESULTS)}.",
        )
    states = Udaf(f"own.{name}", aggregator)

    def lower(ranges: Ranges) -> pa.Array:
        merged = ranges.merged(states)
        some = integers(merged, f"{states.name}.n", len(ranges)) > 0
        if not some.any():
            return pa.nulls(len(ranges), dtype)
        values = pa.array(
            aggregator.lower(tuple(part[some] for part in states.state(merged))), dtype
        )
        return values.take(pa.array(np.cumsum(some) - 1, mask=~some))

    return Lowering(dtype, (states,), lower)


def _preference(
    name: str, aggregate: Preference, columns: Sequence[str], types: Mapping[str, pa.DataType]
) -> Lowering:
    for column, _ in aggregate.by:
        _need(_is_ordered(types[column]), name, aggregate, types[column], _ORDERED)
    for column in aggregate.columns:
        is_plain = not pa.types.is_nested(types[column])
        _need(is_plain, name, aggregate, types[column], "columns that are not nested")
    largest = tuple(goal == "max" for _, goal in aggregate.by)
    kept = ",".join(str(columns.index(column)) for column in aggregate.kept)
    goals = "".join("-+"[each] for each in largest)
    best: Firsts | Skylines = Skylines(f"{kept}.skyline{goals}", largest)
    if aggregate.k is not None:
        best = Firsts(f"{kept}.top{aggregate.k}{goals}", largest, aggregate.k)
    dtype = pa.list_(pa.struct([(column, types[column]) for column in aggregate.columns]))

    def lower(ranges: Ranges) -> pa.Array:
        records, offsets = flat(ranges.merged(best)[best.name])
        fields = [records.field(column) for column in aggregate.columns]
        shown = pa.StructArray.from_arrays(fields, fields=list(dtype.value_type))
        starts = pa.array(offsets, pa.int32())
        return pa.ListArray.from_arrays(starts, shown, dtype, mask=_array(np.diff(offsets) == 0))

    return Lowering(dtype, (best,), lower)


def _sums(dtype: pa.DataType, column: str) -> Sums:
    is_double = pa.types.is_floating(dtype)
    return Sums(f"{column}sum", exact_sums.DOUBLE if is_double else exact_sums.INTEGER)


def _sum(aggregate: Standard, dtype: pa.DataType, column: str, present: Counts) -> Lowering:
    sums, result = _sums(dtype, column), pa.int64()
    if pa.types.is_floating(dtype):
        result = pa.float64()
    elif pa.types.is_decimal(dtype):
        result = pa.decimal128(min(_MAX_DIGITS, dtype.precision + 10), dtype.scale)

    def lower(ranges: Ranges) -> pa.Array:
        merged, some = ranges.merged(sums), _count(ranges, present) > 0
        if result == pa.float64():
            return _array(sums.doubles(merged), some)
        low, high, fits = exact_sums.to_integers(sums.limbs(merged))
        is_int = result == pa.int64()
        fits &= high == low.view(np.int64) >> 63 if is_int else _fits(low, high, result.precision)
        if not fits.all():
            raise RivermouthError(
                "aggregate",
                f"a {aggregate} does not fit into {'bigint' if is_int else result}",
                todo="Cast the column to decimal(38, 0) or to double before.",
            )
        if is_int:
            return _array(low.view(np.int64), some)
        return pc.if_else(_array(some), decimals(low, high, result), pa.scalar(None, result))

    return Lowering(result, (sums, present), lower)


def _fits(low: npt.NDArray[np.uint64], high: Ints, digits: int) -> Bools:
    """Which numbers of two words have no more than so many digits."""
    negative = high < 0
    upper = np.where(negative, ~high, high).astype(np.uint64)
    lower = np.where(negative, ~low, low)  # one less than the magnitude of a negative number
    most, rest = (np.uint64(word) for word in divmod(10**digits, 1 << 64))
    lower_most = np.where(negative, rest - np.uint64(1), rest)
    return np.asarray((upper < most) | ((upper == most) & (lower < lower_most)))


def _mean(aggregate: Standard, dtype: pa.DataType, column: str, present: Counts) -> Lowering:
    sums = _sums(dtype, column)
    scale = powers_of_ten(dtype.scale) if pa.types.is_decimal(dtype) else ()

    def lower(ranges: Ranges) -> pa.Array:
        count = _count(ranges, present)
        means = sums.doubles(ranges.merged(sums), np.maximum(count, 1), *scale)
        return _array(means, count > 0)

    return Lowering(pa.float64(), (sums, present), lower)


def _variance(aggregate: Standard, dtype: pa.DataType, column: str, present: Counts) -> Lowering:
    name = f"{column}{'sum' if pa.types.is_floating(dtype) else 'doubles'}"
    sums, squares = Sums(name, exact_sums.DOUBLE), Sums(f"{column}squares", exact_sums.SQUARE)

    def lower(ranges: Ranges) -> pa.Array:
        count, merged = _count(ranges, present), ranges.merged(sums)
        variances = exact_sums.variances(
            np.maximum(count, 2), sums.limbs(merged), squares.limbs(ranges.merged(squares))
        )
        variances[~np.isfinite(sums.doubles(merged))] = np.nan
        return _array(np.sqrt(variances) if aggregate.kind == "std" else variances, count > 1)

    return Lowering(pa.float64(), (sums, squares, present), lower)


def _quantile(aggregate: Standard, dtype: pa.DataType, column: str, present: Counts) -> Lowering:
    values, share = Multisets(f"{column}bag"), aggregate.share
    assert share is not None

    def lower(ranges: Ranges) -> pa.Array:
        return _array(values.quantiles(ranges, share), _count(ranges, present) > 0)

    return Lowering(pa.float64(), (values, present), lower)
