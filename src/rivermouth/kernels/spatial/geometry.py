"""Columns of places, decoded once: coordinates where all are points, shapes where not."""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cached_property

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import shapely

Floats = npt.NDArray[np.float64]
Bools = npt.NDArray[np.bool_]
Shapes = npt.NDArray[np.object_]

#: why a row has no place, in the order in which it is asked
TROUBLES = ("null", "unreadable", "srid", "not_finite", "empty", "invalid")

_POINT = 21  # bytes of a two-dimensional point: byte order, type, x, y
_LITTLE_ENDIAN_POINT = np.array([1, 1, 0, 0, 0], dtype=np.uint8)
_POINTS_ONLY = 0  # shapely's type id of a Point


@dataclass(frozen=True)
class Places:
    """A column of places.

    `x` and `y` are given where every usable place is a point, `shapes` where they were decoded
    as shapes. Rows that are not `ok` have no place and match nothing; `troubles` counts them by
    their reason (see `TROUBLES`).
    """

    ok: Bools
    x: Floats | None = None
    y: Floats | None = None
    shapes: Shapes | None = None
    troubles: dict[str, int] = field(default_factory=dict)

    def __len__(self) -> int:
        return len(self.ok)

    @property
    def are_points(self) -> bool:
        """True where `x` and `y` are given."""
        return self.x is not None

    @property
    def xy(self) -> tuple[Floats, Floats]:
        """The coordinates of points."""
        assert self.x is not None
        assert self.y is not None
        return self.x, self.y

    @cached_property
    def as_shapes(self) -> Shapes:
        """The places as shapely geometries, None where there is no place."""
        if self.shapes is not None:
            return only(self.shapes, self.ok)
        made = np.full(len(self), None, dtype=object)
        x, y = self.xy
        made[self.ok] = shapely.points(x[self.ok], y[self.ok])
        return made

    def take(self, rows: npt.NDArray[np.intp]) -> Places:
        """The places of these rows."""
        return Places(
            self.ok[rows],
            None if self.x is None else self.x[rows],
            None if self.y is None else self.y[rows],
            None if self.shapes is None else self.shapes[rows],
        )


def only(shapes: Shapes, keep: Bools) -> Shapes:
    """These shapes, None where not kept."""
    kept = shapes.copy()
    kept[~keep] = None
    return kept


def from_xy(x: pa.Array, y: pa.Array) -> Places:
    """Points from two number columns; null, NaN and infinite are no place.

    Examples
    --------
    >>> from_xy(pa.array([1.0, None, float("inf")]), pa.array([2, 2, 2])).troubles
    {'null': 1, 'not_finite': 1}
    """
    xs, ys = _floats(x), _floats(y)
    ok = np.isfinite(xs) & np.isfinite(ys)
    if ok.all():
        return Places(ok, xs, ys)
    null = _nulls(x) | _nulls(y)
    return Places(ok, xs, ys, troubles=_count(null=null, not_finite=~ok & ~null))


def from_wkb(column: pa.Array, *, srid: int = 0, srids: pa.Array | None = None) -> Places:
    """Places from WKB or EWKB; what cannot be read, is empty or not valid is no place.

    Parameters
    ----------
    srid
        The reference system of the other side, 0 where it is not known. A place that states
        another one is no place.
    srids
        The reference system of each row, where the column carries it apart from the WKB.
    """
    null = _nulls(column)
    stated = None if srids is None else srids.to_numpy(zero_copy_only=False)
    points = _plain_points(column, null)
    if points is not None:
        x, y = points
        finite = np.isfinite(x) & np.isfinite(y)
        foreign = _foreign(stated, srid, ~null)
        # WKB writes the empty point as NaN NaN
        empty = np.isnan(x) & np.isnan(y) & ~null
        ok = finite & ~null & ~foreign
        troubles = _count(
            null=null,
            srid=foreign,
            empty=empty & ~foreign,
            not_finite=~(ok | null | empty | foreign),
        )
        return Places(ok, x, y, troubles=troubles)
    return _from_shapes(column, null, stated, srid)


def from_shapes(shapes: Shapes) -> Places:
    """Places from shapely geometries, None where there is none."""
    return _judge(shapes, shapely.is_missing(shapes), None, 0)


def is_valid_place(shapes: Shapes) -> Bools:
    """Whether each shape can take part: there, not empty, valid (so of finite coordinates)."""
    return np.asarray(
        ~shapely.is_missing(shapes) & ~shapely.is_empty(shapes) & shapely.is_valid(shapes)
    )


def _from_shapes(
    column: pa.Array, null: Bools, stated: npt.NDArray[np.int64] | None, srid: int
) -> Places:
    with np.errstate(invalid="ignore"):  # a NaN among the coordinates is judged, not warned of
        shapes = shapely.from_wkb(column.to_numpy(zero_copy_only=False), on_invalid="ignore")
    if stated is None and srid:
        stated = shapely.get_srid(shapes)
    return _judge(shapes, null, stated, srid)


def _judge(shapes: Shapes, null: Bools, stated: npt.NDArray[np.int64] | None, srid: int) -> Places:
    unreadable = shapely.is_missing(shapes) & ~null
    there = ~(null | unreadable)
    foreign = _foreign(stated, srid, there)
    empty = shapely.is_empty(shapes) & there & ~foreign
    broken = ~shapely.is_valid(shapes) & there & ~foreign & ~empty
    ok = there & ~foreign & ~empty & ~broken
    troubles = _count(null=null, unreadable=unreadable, srid=foreign, empty=empty, invalid=broken)
    if ok.any() and (shapely.get_type_id(shapes[ok]) == _POINTS_ONLY).all():
        return Places(ok, shapely.get_x(shapes), shapely.get_y(shapes), shapes, troubles)
    return Places(ok, shapes=shapes, troubles=troubles)


def _plain_points(column: pa.Array, null: Bools) -> tuple[Floats, Floats] | None:
    """The coordinates, where every value is a plain point; 100 times faster than parsing."""
    if pa.types.is_fixed_size_binary(column.type) or not len(column):
        return None
    wide = pa.types.is_large_binary(column.type)
    offsets = np.frombuffer(column.buffers()[1], dtype=np.int64 if wide else np.int32)
    offsets = offsets[column.offset : column.offset + len(column) + 1]
    sizes = np.diff(offsets)
    if not ((sizes == _POINT) | null).all() or sizes[null].any() or null.all():
        return None
    data = np.frombuffer(column.buffers()[2], dtype=np.uint8)[offsets[0] : offsets[-1]]
    rows = data.reshape(-1, _POINT)
    if (rows[:, :5] != _LITTLE_ENDIAN_POINT).any():
        return None
    xy = np.full((len(column), 2), np.nan)
    xy[~null] = np.ascontiguousarray(rows[:, 5:]).view("<f8")
    return np.ascontiguousarray(xy[:, 0]), np.ascontiguousarray(xy[:, 1])


def _foreign(stated: npt.NDArray[np.int64] | None, srid: int, there: Bools) -> Bools:
    if stated is None or not srid:
        return np.zeros(len(there), dtype=bool)
    return np.asarray(there & (stated != srid) & (stated > 0))


def _floats(column: pa.Array) -> Floats:
    if not pa.types.is_float64(column.type):
        column = column.cast(pa.float64(), safe=False)
    values: Floats = column.to_numpy(zero_copy_only=False)
    return values


def _nulls(column: pa.Array) -> Bools:
    if not column.null_count:
        return np.zeros(len(column), dtype=bool)
    mask: Bools = column.is_null().to_numpy(zero_copy_only=False)
    return mask


def _count(**masks: Bools) -> dict[str, int]:
    counts = {name: int(np.count_nonzero(mask)) for name, mask in masks.items()}
    return {name: count for name, count in counts.items() if count}
