"""Sums without rounding: whole numbers of many limbs.

A double is a whole number times a power of two, so a sum of doubles is a whole number of 2^-1074
and can be kept exactly. It then depends neither on the order of its terms nor on how they were
put together, and what was added can be taken away again. It is kept as limbs of 32 bits, each in
a number of 64, so that 2^30 terms are added before carries must move; only the limbs in use are
kept. Limb i of a sum of doubles counts 2^(32 i - 1074), of a sum of their squares 2^(32 i - 2148),
of a sum of whole numbers 2^(32 i).
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numba
import numpy as np
import numpy.typing as npt

Doubles = npt.NDArray[np.float64]
Ints = npt.NDArray[np.int64]
Words = npt.NDArray[np.uint64]

DOUBLE, SQUARE, WHOLE = -1074, -2148, 0

_BITS = 32
_MASK = (1 << _BITS) - 1
_FRACTION, _HIDDEN = np.int64((1 << 52) - 1), np.int64(1 << 52)
_ROOM = 1 << 40  # a topmost limb beyond this gets another one above it


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


def lift_doubles(values: Doubles, place: Ints, size: int) -> Limbs:
    """The sums of the finite `values` that have the same `place`, for the places below `size`."""
    bits = values.view(np.int64)
    low, high = _exponents(bits)
    if low > high:
        return Limbs(0, np.zeros((size, 0), np.int64))
    first, last = low // _BITS, high // _BITS + 2
    array = np.zeros((size, last - first + 1), np.int64)
    _add_doubles(bits, place, first, array)
    return Limbs(first, array).carried()


def lift_squares(values: Doubles, place: Ints, size: int) -> Limbs:
    """The sums of the squares of the finite `values` that have the same `place`."""
    bits = values.view(np.int64)
    low, high = _exponents(bits)
    if low > high:
        return Limbs(0, np.zeros((size, 0), np.int64))
    first, last = 2 * low // _BITS, 2 * high // _BITS + 4
    array = np.zeros((size, last - first + 1), np.int64)
    _add_squares(bits, place, first, array)
    return Limbs(first, array).carried()


def lift_wholes(low: Words, high: Ints, place: Ints, size: int) -> Limbs:
    """The sums of whole numbers of 128 bits, `low` and `high` words, that have one `place`."""
    array = np.zeros((size, 4), np.int64)
    _add_wholes(low, high, place, array)
    return Limbs(0, array).carried()


def to_doubles(limbs: Limbs, unit: int) -> Doubles:
    """The double nearest to each carried sum; ties go to the even one, overflow to infinity."""
    return _rounded_rows(limbs.array, _BITS * limbs.first + unit)


def to_wholes(limbs: Limbs) -> tuple[Words, Ints, npt.NDArray[np.bool_]]:
    """The low and high words of each carried sum of whole numbers, and which fit into them."""
    return _words(limbs.array, limbs.first)


def variances(count: Ints, sums: Limbs, squares: Limbs) -> Doubles:
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
def _add_doubles(bits: Ints, place: Ints, first: int, array: Ints) -> None:
    for k in range(len(bits)):
        mantissa, at = _parts(bits[k])
        if mantissa == 0:
            continue
        sign = -1 if bits[k] < 0 else 1
        limb, shift, row = (at >> 5) - first, at & 31, place[k]
        low, high = (mantissa & _MASK) << shift, (mantissa >> _BITS) << shift
        array[row, limb] += sign * (low & _MASK)
        array[row, limb + 1] += sign * ((low >> _BITS) + (high & _MASK))
        array[row, limb + 2] += sign * (high >> _BITS)


@numba.njit(cache=True)
def _add_squares(bits: Ints, place: Ints, first: int, array: Ints) -> None:
    for k in range(len(bits)):
        mantissa, at = _parts(bits[k])
        if mantissa == 0:
            continue
        limb, shift, row = (2 * at >> 5) - first, np.uint64((2 * at) & 31), place[k]
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
def _add_wholes(low: Words, high: Ints, place: Ints, array: Ints) -> None:
    for k in range(len(low)):
        row = place[k]
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
        if j < count - 1:
            into[j] = np.uint64(value & _MASK)
            borrow = value >> _BITS
        else:
            into[j] = np.uint64(value & _MASK)
            into[j + 1] = np.uint64(value >> _BITS)
    into[count + 1 :] = 0
    return sign


@numba.njit(cache=True)
def _head(limbs: Words) -> tuple[float, Any]:
    """The double nearest to a whole number's 64 leading bits, and the power of two it counts.

    A bit that stands for all the bits below keeps the rounding right.
    """
    top = len(limbs) - 1
    while top >= 0 and limbs[top] == 0:
        top -= 1
    if top < 0:
        return 0.0, 0
    lead = limbs[top]
    zeros = np.uint64(0)
    while (lead << zeros) >> np.uint64(31) == 0:
        zeros += np.uint64(1)
    second = limbs[top - 1] if top >= 1 else np.uint64(0)
    third = limbs[top - 2] if top >= 2 else np.uint64(0)
    word = ((lead << np.uint64(_BITS)) | second) << zeros
    word |= third >> (np.uint64(_BITS) - zeros)
    rest = (third << zeros) & np.uint64(_MASK)
    for j in range(top - 2):
        rest |= limbs[j]
    if rest != 0:
        word |= np.uint64(1)
    return float(word), _BITS * (top - 1) - np.int64(zeros)


@numba.njit(cache=True)
def _rounded_rows(array: Ints, unit: int) -> Doubles:
    rows, count = array.shape
    result, limbs = np.empty(rows, np.float64), np.zeros(count + 2, np.uint64)
    for i in range(rows):
        sign = _magnitude(array[i], limbs)
        head, power = _head(limbs)
        result[i] = sign * math.ldexp(head, power + unit)
    return result


@numba.njit(cache=True)
def _words(array: Ints, first: int) -> tuple[Words, Ints, npt.NDArray[np.bool_]]:
    rows, count = array.shape
    low, high = np.zeros(rows, np.uint64), np.zeros(rows, np.int64)
    fits = np.ones(rows, np.bool_)
    limbs = np.zeros(8, np.int64)
    for i in range(rows):
        limbs[:] = 0
        limbs[first : first + count] = array[i]
        for j in range(7):
            limbs[j + 1] += limbs[j] >> _BITS
            limbs[j] &= _MASK
        low[i] = np.uint64(limbs[0]) | (np.uint64(limbs[1]) << np.uint64(_BITS))
        high[i] = np.int64(np.uint64(limbs[2]) | (np.uint64(limbs[3]) << np.uint64(_BITS)))
        beyond = np.int64(-1) if high[i] < 0 else np.int64(0)
        fits[i] = limbs[7] == beyond
        for j in range(4, 7):
            fits[i] &= limbs[j] == (beyond & _MASK)
    return low, high, fits


@numba.njit(cache=True)
def _variances(
    count: Ints, sums: Ints, sums_first: int, squares: Ints, squares_first: int
) -> Doubles:
    rows, width, room = len(count), sums.shape[1] + 2, squares.shape[1] + 2
    base = min(2 * sums_first, squares_first)
    size = max(2 * (sums_first + width), squares_first + room) - base + 3
    result = np.empty(rows, np.float64)
    one, two = np.zeros(width, np.uint64), np.zeros(room, np.uint64)
    for i in range(rows):
        _magnitude(sums[i], one)
        _magnitude(squares[i], two)
        whole = np.zeros(size, np.int64)
        _add_product(whole, squares_first - base, two, count[i], 1)
        for j in range(width):
            _add_product(whole, 2 * sums_first - base + j, one, np.int64(one[j]), -1)
        head, power = _head(whole.astype(np.uint64))
        divisor = float(count[i]) * float(count[i] - 1)
        result[i] = math.ldexp(head / divisor, power + _BITS * base + SQUARE)
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
