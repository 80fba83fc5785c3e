"""A summary made ready to run: which tracks its aggregates need, and how results are read off."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from rivermouth.errors import ColumnError, DefinitionError, RivermouthError
from rivermouth.kernels.aggregation import exact_sums
from rivermouth.kernels.aggregation.accumulators import (
    Counts,
    Kept,
    Powers,
    Totals,
    Track,
    decimals,
    numbers,
)
from rivermouth.kernels.aggregation.extremes import Extremes, unordered
from rivermouth.kernels.aggregation.multisets import Bags
from rivermouth.kernels.aggregation.udaf import Own
from rivermouth.spec.aggregates import Aggregate, Aggregator, Standard
from rivermouth.spec.summaries import Summary

Ints = npt.NDArray[np.int64]

RECORDS = "records"
#: what a user's own aggregate may give, by Spark's names
OWN_RESULTS = {
    "boolean": pa.bool_(),
    "int": pa.int32(),
    "bigint": pa.int64(),
    "float": pa.float32(),
    "double": pa.float64(),
    "string": pa.string(),
}
_POWERS = {"sum": 2, "mean": 2, "var": 4, "std": 4}
_MOST_DIGITS = 38
_FITTING_DIGITS = 18  # of a decimal that fits into 64 bits


@dataclass(frozen=True)
class Runs:
    """Entries, and the runs of them that are wanted; what tracks fold is folded once."""

    kept: Kept
    low: Ints
    high: Ints
    _folded: dict[Any, Kept] = field(default_factory=dict)

    def of(self, track: Track) -> Kept:
        """What is kept of each run."""
        if track not in self._folded:
            self._folded[track] = track.fold(self.kept, self.low, self.high)
        return self._folded[track]

    def __len__(self) -> int:
        return len(self.low)


Read = Callable[[Runs], pa.Array]


@dataclass(frozen=True)
class Plan:
    """What is kept of which column, and how each aggregate is read from it.

    Parameters
    ----------
    tracks
        Each with the column it is lifted from; None for rows as such.
    results
        The name and type of each aggregate's column.
    reads
        How each is read off runs of entries, in the order of `results`.
    shapes
        The columns whose windows' shape is wanted, each with its track.
    """

    tracks: tuple[tuple[str | None, Track], ...]
    results: pa.Schema
    reads: tuple[Read, ...]
    shapes: tuple[tuple[str, Powers], ...] = ()

    def lift(self, rows: pa.Table, place: Ints, size: int) -> dict[str, pa.Array]:
        """What to keep of the rows of each of `size` cells."""
        kept: dict[str, pa.Array] = {}
        for name, track in self.tracks:
            column = pa.nulls(0) if name is None else rows.column(name).combine_chunks()
            kept |= track.lift(column, place, size)
        return kept

    def fold(self, kept: Kept, low: Ints, high: Ints) -> dict[str, pa.Array]:
        """What is kept of each run of entries together; the runs follow without gaps."""
        folded: dict[str, pa.Array] = {}
        for _, track in self.tracks:
            folded |= track.fold(kept, low, high)
        return folded

    def answers(self, runs: Runs) -> dict[str, pa.Array]:
        """Each aggregate of each run."""
        return {name: read(runs) for name, read in zip(self.results.names, self.reads, strict=True)}


def plan(summary: Summary, types: Mapping[str, pa.DataType], *, shapes: bool = False) -> Plan:
    """How `summary` is computed of columns of these types; `shapes` asks for the windows' shape.

    Raises
    ------
    ColumnError
        For an aggregate of a column that it cannot be computed of.
    """
    tracks: dict[tuple[str | None, Track], None] = {(None, Counts(RECORDS, False)): None}
    fields, reads = [], []
    for name, aggregate in summary.aggregates:
        made = _own(name, aggregate) if not isinstance(aggregate, Standard) else None
        kind, needed, read = made or _standard(name, aggregate, summary, types)
        tracks |= {(aggregate.column, track): None for track in needed}
        fields.append(pa.field(name, kind))
        reads.append(read)
    powers = _powers(summary) if shapes else ()
    tracks |= dict.fromkeys(powers)
    return Plan(tuple(tracks), pa.schema(fields), tuple(reads), powers)


def _powers(summary: Summary) -> tuple[tuple[str, Powers], ...]:
    """The track of each column whose mean and spread an aggregate's promise depends on."""
    wanted: dict[str, int] = {}
    for _, each in summary.aggregates:
        if isinstance(each, Standard) and each.column and each.kind in _POWERS:
            wanted[each.column] = max(wanted.get(each.column, 0), _POWERS[each.kind])
    return tuple(
        (column, Powers(str(summary.columns.index(column)), powers))
        for column, powers in wanted.items()
    )


Made = tuple[pa.DataType, tuple[Track, ...], Read]


def _own(name: str, how: Aggregator) -> Made:
    kind = OWN_RESULTS.get(how.result)
    if kind is None:
        raise DefinitionError(
            "summary",
            f"{name} gives {how.result!r}",
            todo=f"Its result= must be one of {list(OWN_RESULTS)}.",
        )
    track = Own(f"own.{name}", how)

    def read(runs: Runs) -> pa.Array:
        kept = runs.of(track)
        some = numbers(kept, f"{track.name}.n", len(runs)) > 0
        state = tuple(part[some] for part in track.state(kept))
        values = pa.array(how.lower(state), kind)
        places = np.where(some, np.cumsum(some) - 1, 0)
        return (
            values.take(pa.array(places, mask=~some)) if len(values) else pa.nulls(len(runs), kind)
        )

    return kind, (track,), read


def _standard(
    name: str, aggregate: Aggregate, summary: Summary, types: Mapping[str, pa.DataType]
) -> Made:
    assert isinstance(aggregate, Standard)
    if aggregate.column is None:
        return pa.int64(), (), _counted(Counts(RECORDS, False))
    kind, at = types[aggregate.column], str(summary.columns.index(aggregate.column))
    if aggregate.kind == "count":
        present = Counts(f"{at}.n", True)
        return pa.int64(), (present,), _counted(present)
    if aggregate.kind == "count_distinct":
        values = Bags(f"{at}.set", is_set=True)
        _need(_is_key(kind), name, aggregate, kind, "numbers, texts, dates, times or booleans")
        return (
            pa.int64(),
            (values,),
            lambda runs: _array(values.distinct(runs.kept, runs.low, runs.high)),
        )
    if aggregate.kind in ("min", "max"):
        return _extreme(name, aggregate, kind, at)
    _need(_is_number(kind), name, aggregate, kind, "numbers")
    makers = {"sum": _sum, "mean": _mean, "var": _spread, "std": _spread, "quantile": _quantile}
    return makers[aggregate.kind](aggregate, kind, at)


def _need(holds: bool, name: str, aggregate: Standard, kind: pa.DataType, wanted: str) -> None:
    if not holds:
        raise ColumnError(
            "summary",
            f"{name}={aggregate} is asked of a column of type {kind}",
            there=f"{aggregate.kind} is of {wanted}",
            todo="Cast the column, or leave the aggregate out.",
        )


def _is_number(kind: pa.DataType) -> bool:
    of = pa.types
    return bool(of.is_integer(kind) or of.is_floating(kind) or of.is_decimal(kind))


def _is_key(kind: pa.DataType) -> bool:
    return not pa.types.is_nested(kind)


def _array(values: npt.NDArray[Any], there: npt.NDArray[np.bool_] | None = None) -> pa.Array:
    """Values, null where they are not `there`; NaN is a value."""
    return pa.array(values, mask=None if there is None else ~there, from_pandas=False)


def _counted(track: Counts) -> Read:
    return lambda runs: runs.of(track)[track.name]


def _total(kind: pa.DataType, at: str) -> Totals:
    floats = pa.types.is_floating(kind)
    return Totals(f"{at}.sum", exact_sums.DOUBLE if floats else exact_sums.WHOLE)


def _sum(aggregate: Standard, kind: pa.DataType, at: str) -> Made:
    total, present = _total(kind, at), Counts(f"{at}.n", True)
    if pa.types.is_floating(kind):
        result = pa.float64()
    elif pa.types.is_decimal(kind):
        result = pa.decimal128(min(_MOST_DIGITS, kind.precision + 10), kind.scale)
    else:
        result = pa.int64()

    def read(runs: Runs) -> pa.Array:
        some = numbers(runs.of(present), present.name, len(runs)) > 0
        if result == pa.float64():
            return _array(total.doubles(runs.of(total)), some)
        low, high, fits = exact_sums.to_wholes(total.limbs(runs.of(total)))
        if result == pa.int64():
            whole = low.view(np.int64)
            _check_fits(fits & (high == whole >> 63), aggregate, "bigint")
            return _array(whole, some)
        _check_fits(fits & _below_digits(low, high, result.precision), aggregate, str(result))
        null = pa.scalar(None, result)
        return pc.if_else(_array(some), decimals(low, high, result), null)

    return result, (total, present), read


def _below_digits(low: npt.NDArray[np.uint64], high: Ints, digits: int) -> npt.NDArray[np.bool_]:
    """Which numbers of two words have no more than so many digits."""
    negative = high < 0
    upper = np.where(negative, ~high, high).astype(np.uint64)
    lower = np.where(negative, ~low, low)  # one less than the magnitude of a negative number
    bound = 10**digits
    most, rest = np.uint64(bound >> 64), np.uint64(bound & ((1 << 64) - 1))
    lower_most = np.where(negative, rest - np.uint64(1), rest)
    return np.asarray((upper < most) | ((upper == most) & (lower < lower_most)))


def _check_fits(fits: npt.NDArray[np.bool_], aggregate: Standard, kind: str) -> None:
    if not fits.all():
        raise RivermouthError(
            "aggregate",
            f"a {aggregate} does not fit into {kind}",
            todo="Cast the column to decimal(38, 0) or to double before.",
        )


def _mean(aggregate: Standard, kind: pa.DataType, at: str) -> Made:
    total, present = _total(kind, at), Counts(f"{at}.n", True)
    scale = 10.0**kind.scale if pa.types.is_decimal(kind) else 1.0

    def read(runs: Runs) -> pa.Array:
        count = numbers(runs.of(present), present.name, len(runs))
        return _array(total.doubles(runs.of(total)) / np.maximum(count, 1) / scale, count > 0)

    return pa.float64(), (total, present), read


def _spread(aggregate: Standard, kind: pa.DataType, at: str) -> Made:
    total = Totals(
        f"{at}.sum" if pa.types.is_floating(kind) else f"{at}.doubles", exact_sums.DOUBLE
    )
    squares, present = Totals(f"{at}.squares", exact_sums.SQUARE), Counts(f"{at}.n", True)

    def read(runs: Runs) -> pa.Array:
        count = numbers(runs.of(present), present.name, len(runs))
        some = count > 1
        spread = exact_sums.variances(
            np.maximum(count, 2), total.limbs(runs.of(total)), squares.limbs(runs.of(squares))
        )
        spread[~np.isfinite(total.doubles(runs.of(total)))] = np.nan
        return _array(np.sqrt(spread) if aggregate.kind == "std" else spread, some)

    return pa.float64(), (total, squares, present), read


def _extreme(name: str, aggregate: Standard, kind: pa.DataType, at: str) -> Made:
    fits = pa.types.is_decimal(kind) and kind.precision > _FITTING_DIGITS
    known = _is_number(kind) or pa.types.is_temporal(kind) or pa.types.is_boolean(kind)
    _need(
        known and not fits, name, aggregate, kind,
        f"numbers of up to {_FITTING_DIGITS} digits, doubles, dates, times or booleans",
    )  # fmt: skip
    track = Extremes(f"{at}.{aggregate.kind}", aggregate.kind == "max")
    return kind, (track,), lambda runs: unordered(runs.of(track)[track.name], kind)


def _quantile(aggregate: Standard, kind: pa.DataType, at: str) -> Made:
    values, present = Bags(f"{at}.bag", is_set=False), Counts(f"{at}.n", True)
    share = aggregate.share
    assert share is not None

    def read(runs: Runs) -> pa.Array:
        some = numbers(runs.of(present), present.name, len(runs)) > 0
        return _array(values.quantiles(runs.kept, runs.low, runs.high, share), some)

    return pa.float64(), (values, present), read
