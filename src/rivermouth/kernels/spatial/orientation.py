"""On which side of a line a point lies, decided without rounding.

The sign of (b - a) x (p - a) in double precision is right unless the two products nearly
cancel. Then it is taken again in double-double arithmetic (about 106 bits), by the filter and
the precision that GEOS uses, so that kernels, Spark expressions and shapely agree on every
point of a boundary.
"""

from __future__ import annotations

import numba

#: products closer than this share of their sum are decided in double-double (GEOS's constant)
FILTER = 1e-15
#: Dekker's splitter: 2**27 + 1 cuts a double into two halves of 26 bits
SPLITTER = 134217729.0


@numba.njit(cache=True, inline="always")
def side(ax: float, ay: float, bx: float, by: float, px: float, py: float) -> int:
    """1 where `p` is left of the line from `a` to `b`, -1 where right of it, 0 on it."""
    left = (ax - px) * (by - py)
    right = (ay - py) * (bx - px)
    difference = left - right
    bound = FILTER * (abs(left) + abs(right))
    if difference > bound:
        return 1
    if -difference > bound:
        return -1
    if bound == 0.0 and left == 0.0 and right == 0.0:
        return 0
    return _side_in_double_double(ax, ay, bx, by, px, py)


@numba.njit(cache=True)
def _two_difference(a: float, b: float) -> tuple[float, float]:
    high = a - b
    rest = a - high
    return high, (a - (high + rest)) + (rest - b)


@numba.njit(cache=True)
def _two_product(a: float, b: float) -> tuple[float, float]:
    high = a * b
    c = SPLITTER * a
    a_high = c - (c - a)
    a_low = a - a_high
    c = SPLITTER * b
    b_high = c - (c - b)
    b_low = b - b_high
    return high, a_low * b_low - (((high - a_high * b_high) - a_low * b_high) - a_high * b_low)


@numba.njit(cache=True)
def _multiply(a: float, a_low: float, b: float, b_low: float) -> tuple[float, float]:
    high, low = _two_product(a, b)
    low += a * b_low + a_low * b
    total = high + low
    return total, low - (total - high)


@numba.njit(cache=True)
def _side_in_double_double(ax: float, ay: float, bx: float, by: float, px: float, py: float) -> int:
    left_high, left_low = _multiply(*_two_difference(ax, px), *_two_difference(by, py))
    right_high, right_low = _multiply(*_two_difference(ay, py), *_two_difference(bx, px))
    if left_high == right_high:
        difference = left_low - right_low
    else:
        difference = left_high - right_high
        # the high parts are normalised, so the low ones decide only where the high ones are next
        difference = difference + (left_low - right_low)
    if difference > 0.0:
        return 1
    if difference < 0.0:
        return -1
    return 0
