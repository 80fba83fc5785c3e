"""Sums without rounding: integers of many limbs.

A double is an integer times a power of two, so a sum of doubles is an integer multiple of 2^-1074
and can be kept exactly. It then depends neither on the order of its terms nor on how they were
combined, and terms can be subtracted again. It is kept as limbs of 32 bits, each in an int64, so
that 2^30 terms are added before carries must propagate; only the limbs in use are kept. Limb i of
a sum of doubles counts 2^(32 i - 1074), of a sum of their squares 2^(32 i - 2148), of a sum of
integers 2^(32 i). Sums, means and variances are rounded once, when they are read.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numba
import numpy as np
import numpy.typing as npt

from rivermouth.kernels.arrays import Floats, Ints

Words = npt.NDArray[np.uint64]

#: the power of two that limb 0 counts, by what is summed
DOUBLE, SQUARE, INTEGER = -1074, -2148, 0

_BITS = 32
_MASK = (1 << _BITS) - 1
_FRACTION, _HIDDEN = np.int64((1 << 52) - 1), np.int64(1 << 52)
_ROOM = 1 << 40  # a topmost limb beyond this gets another one above it
_SPARE_BITS = 11  # of 64 leading bits, those that a double has no room for


@dataclass(frozen=True)
class Limbs:
    """Sums, one a row: column j is limb `first` + j. Carried: all but the last in [0, 2^32)."""

    first: int
    array: Ints

    def __len__(self) -> int:
        return len(self.array)

    def carried(self) -> Limbs:
        """The same sums in their one carried form."""
        array = self.array.copy()
        _carry(array)
        if array.shape[1] and (np.abs(array[:, -1]) >= _ROOM).any():
            array = np.hstack([array, np.zeros((len(array), 1), np.int64)])
            _carry(array)
        return Limbs(self.first, array)


def lift_doubles(values: Floats, index: Ints, size: int, *, squared: bool = False) -> Limbs:
    """The sums of the finite `values` (or of their squares) with the same `index` below `size`."""
    bits = values.view(np.int64)
    low, high = _exponents(bits)
    if low > high:
        return Limbs(0, np.zeros((size, 0), np.int64))
    power = 2 if squared else 1
    first, last = power * low // _BITS, power * high // _BITS + 2 * power
    array = np.zeros((size, last - first + 1), np.int64)
    (_add_squares if squared else _add_doubles)(bits, index, first, array)
    return Limbs(first, array).carried()


def lift_integers(low: Words, high: Ints, index: Ints, size: int) -> Limbs:
    """The sums of 128-bit integers, given as `low` and `high` words, with the same `index`."""
    array = np.zeros((size, 4), np.int64)
    _add_integers(low, high, index, array)
    return Limbs(0, array).carried()


def to_doubles(limbs: Limbs, unit: int, *divisors: Ints | int) -> Floats:
    """The double nearest to each carried sum, divided by all `divisors`, each in [1, 2^63).

    Rounded once, ties to even; overflow is infinite.
    """
    by = np.empty((len(limbs), len(divisors)), np.uint64)
    for k, divisor in enumerate(divisors):
        by[:, k] = divisor
    return _nearest_rows(limbs.array, _BITS * limbs.first + unit, by)


def to_integers(limbs: Limbs) -> tuple[Words, Ints, npt.NDArray[np.bool_]]:
    """The low and high words of each carried sum of integers, and which fit into them."""
    wide = np.zeros((len(limbs), 8), np.int64)
    wide[:, limbs.first : limbs.first + limbs.array.shape[1]] = limbs.array
    _carry(wide)
    low = (wide[:, 0] | wide[:, 1] << _BITS).view(np.uint64)
    high = wide[:, 2] | wide[:, 3] << _BITS
    sign = high >> 63
    fits = (wide[:, 7] == sign) & (wide[:, 4:7] == (sign & _MASK)[:, None]).all(axis=1)
    return low, high, fits


def variances(count: Ints, sums: Limbs, squares: Limbs) -> Floats:
    """Sample variances from exact sums of n doubles and of their squares, for n of two or more.

    n * squares - sums^2 is formed without rounding, so that nothing cancels.
    """
    return _variances(count, sums.array, sums.first, squares.array, squares.first)


@numba.njit(cache=True)
def _carry(array: Ints) -> None:
    """Move what does not fit into a limb to the next one; the last keeps all it gets."""
    for i in range(array.shape[0]):
        for j in range(array.shape[1] - 1):
            value = array[i, j]
            array[i, j] = value & _MASK
            array[i, j + 1] += value >> _BITS


@numba.njit(cache=True, inline="always")
def _parts(bits: int) -> Any:
    """A finite double's mantissa without its sign, and the bit that its last one counts."""
    exponent = (bits >> 52) & 0x7FF
    if exponent == 0:
        return bits & _FRACTION, 0
    return (bits & _FRACTION) | _HIDDEN, exponent - 1


@numba.njit(cache=True)
def _exponents(bits: Ints) -> tuple[int, int]:
    """The least and the largest bit that a last bit of a mantissa counts; zeros apart."""
    low, high = 4096, -1
    for word in bits:
        mantissa, at = _parts(word)
        if mantissa:
            low, high = min(low, at), max(high, at)
    return low, high


@numba.njit(cache=True)
def _add_doubles(bits: Ints, index: Ints, first: int, array: Ints) -> None:
    for k in range(len(bits)):
        mantissa, at = _parts(bits[k])
        if mantissa == 0:
            continue
        sign = -1 if bits[k] < 0 else 1
        limb, shift, row = (at >> 5) - first, at & 31, index[k]
        low, high = (mantissa & _MASK) << shift, (mantissa >> _BITS) << shift
        array[row, limb] += sign * (low & _MASK)
        array[row, limb + 1] += sign * ((low >> _BITS) + (high & _MASK))
        array[row, limb + 2] += sign * (high >> _BITS)


@numba.njit(cache=True)
def _add_squares(bits: Ints, index: Ints, first: int, array: Ints) -> None:
    for k in range(len(bits)):
        mantissa, at = _parts(bits[k])
        if mantissa == 0:
            continue
        limb, shift, row = (2 * at >> 5) - first, np.uint64((2 * at) & 31), index[k]
        low, high = np.uint64(mantissa & _MASK), np.uint64(mantissa >> _BITS)
        mask, word = np.uint64(_MASK), np.uint64(_BITS)
        square, cross, top = low * low, (low * high) << np.uint64(1), high * high
        middle = (square >> word) + (cross & mask)
        upper = (middle >> word) + (cross >> word) + (top & mask)
        pieces = (square & mask, middle & mask, upper & mask, (upper >> word) + (top >> word))
        for j in range(4):
            piece = pieces[j] << shift
            array[row, limb + j] += np.int64(piece & mask)
            array[row, limb + j + 1] += np.int64(piece >> word)


@numba.njit(cache=True)
def _add_integers(low: Words, high: Ints, index: Ints, array: Ints) -> None:
    for k in range(len(low)):
        row = index[k]
        array[row, 0] += np.int64(low[k] & np.uint64(_MASK))
        array[row, 1] += np.int64(low[k] >> np.uint64(_BITS))
        array[row, 2] += high[k] & _MASK
        array[row, 3] += high[k] >> _BITS


@numba.njit(cache=True)
def _magnitude(limbs: Ints, into: Words) -> int:
    """The limbs of a carried sum's absolute value, into one more than it has; and its sign."""
    count = len(limbs)
    if count == 0:
        into[:] = 0
        return 1
    sign = -1 if limbs[count - 1] < 0 else 1
    borrow = np.int64(0)
    for j in range(count):
        value = sign * limbs[j] + borrow
        into[j] = np.uint64(value & _MASK)
        borrow = value >> _BITS
    into[count] = np.uint64(borrow)
    into[count + 1 :] = 0
    return sign


@numba.njit(cache=True)
def _divide(limbs: Words, divisor: Any) -> bool:
    """Divide in index by a divisor in [1, 2^63); whether there is a remainder."""
    step = _BITS if divisor >> np.uint64(_BITS) == 0 else 1
    shift, low = np.uint64(step), np.uint64((1 << step) - 1)
    remainder = np.uint64(0)
    for j in range(len(limbs) - 1, -1, -1):
        quotient = np.uint64(0)
        for bit in range(_BITS - step, -1, -step):
            remainder = (remainder << shift) | ((limbs[j] >> np.uint64(bit)) & low)
            quotient = (quotient << shift) | (remainder // divisor)
            remainder %= divisor
        limbs[j] = quotient
    return bool(remainder != 0)


@numba.njit(cache=True)
def _nearest(limbs: Words, unit: int, divisors: Words) -> float:
    """The double nearest to limbs * 2^unit / the divisors; the limbs are overwritten.

    With divisors the lowest 2 * len(divisors) + 2 limbs must be zero: the quotient then has 64
    leading bits or more, or is zero.
    """
    is_inexact = False
    for divisor in divisors:
        is_inexact |= _divide(limbs, divisor)
    top = len(limbs) - 1
    while top >= 0 and limbs[top] == 0:
        top -= 1
    if top < 0:
        return 0.0
    zeros = np.uint64(0)
    while (limbs[top] << zeros) >> np.uint64(31) == 0:
        zeros += np.uint64(1)
    second = limbs[top - 1] if top >= 1 else np.uint64(0)
    third = limbs[top - 2] if top >= 2 else np.uint64(0)
    word = ((limbs[top] << np.uint64(_BITS)) | second) << zeros
    word |= third >> (np.uint64(_BITS) - zeros)
    is_inexact |= (third << zeros) & np.uint64(_MASK) != 0
    for j in range(top - 2):
        is_inexact |= limbs[j] != 0
    if is_inexact:
        word |= np.uint64(1)  # stands for all bits below
    power: Any = _BITS * (top - 1) - np.int64(zeros) + unit
    drop = max(_SPARE_BITS, DOUBLE - power)  # more in subnormal numbers
    if drop > 64:
        return 0.0
    half = np.uint64(1) << np.uint64(drop - 1)
    kept = word >> np.uint64(drop) if drop < 64 else np.uint64(0)
    dropped = word & (half | (half - np.uint64(1)))
    if dropped > half or (dropped == half and kept & np.uint64(1)):
        kept += np.uint64(1)
    return math.ldexp(float(kept), power + drop)


@numba.njit(cache=True)
def _nearest_rows(array: Ints, unit: int, divisors: Words) -> Floats:
    rows, count = array.shape
    room = 2 * divisors.shape[1] + 2 if divisors.shape[1] else 0
    result, limbs = np.empty(rows, np.float64), np.zeros(room + count + 2, np.uint64)
    for i in range(rows):
        limbs[:room] = 0
        sign = _magnitude(array[i], limbs[room:])
        result[i] = sign * _nearest(limbs, unit - _BITS * room, divisors[i])
    return result


@numba.njit(cache=True)
def _variances(
    count: Ints, sums: Ints, sums_first: int, squares: Ints, squares_first: int
) -> Floats:
    width, size = sums.shape[1] + 2, squares.shape[1] + 2
    base = min(2 * sums_first, squares_first)
    top = max(2 * (sums_first + width), squares_first + size) - base + 3
    result, divisors = np.empty(len(count), np.float64), np.empty(2, np.uint64)
    one, two, room = np.zeros(width, np.uint64), np.zeros(size, np.uint64), 6
    for i in range(len(count)):
        _magnitude(sums[i], one)
        _magnitude(squares[i], two)
        whole = np.zeros(room + top, np.int64)
        _add_product(whole, room + squares_first - base, two, count[i], 1)
        for j in range(width):
            _add_product(whole, room + 2 * sums_first - base + j, one, np.int64(one[j]), -1)
        divisors[0], divisors[1] = count[i], count[i] - 1
        unit = SQUARE + _BITS * (base - room)
        result[i] = _nearest(whole.astype(np.uint64), unit, divisors)
    return result


@numba.njit(cache=True)
def _add_product(whole: Ints, at: int, limbs: Words, factor: Any, sign: int) -> None:
    """Add limbs * factor * 2^(32 at), the factor below 2^63, and carry."""
    parts = (np.uint64(factor & _MASK), np.uint64(factor >> _BITS))
    for p in range(2):
        for j in range(len(limbs)):
            product = limbs[j] * parts[p]
            if product != 0:
                whole[at + j + p] += sign * np.int64(product & np.uint64(_MASK))
                whole[at + j + p + 1] += sign * np.int64(product >> np.uint64(_BITS))
    for j in range(len(whole) - 1):
        whole[j + 1] += whole[j] >> _BITS
        whole[j] &= _MASK
