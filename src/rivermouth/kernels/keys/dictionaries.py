"""The distinct values of a column, numbered, in arrays that can be memory-mapped.

Building gives every distinct value a code, in the order in which values are first met; `lookup`
gives the code of a value, `NONE` where the dictionary does not have it.

================  ========================================  ====================
dictionary        for                                       arrays
================  ========================================  ====================
DenseDictionary   integers that lie close together, as ids  low, codes
IntDictionary     other integers                            slots, values
BytesDictionary   bytes of any length                       slots, offsets, data
================  ========================================  ====================

`slots` is an open-addressing hash table with linear probing. A slot holds 32 bits of a value's
hash and its code, so that a probe that meets another value nearly always goes on without looking
at that value; equality is decided by the value itself.

Loops go in blocks: first all hashes of a block, then all slots, then all values. The loads of one
such step do not depend on each other, so the processor waits for many of them at once.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, fields
from typing import Any

import numba
import numpy as np
import numpy.typing as npt

from rivermouth.kernels.arrays import Bytes, Codes, Ints

Arrays = dict[str, npt.NDArray[np.generic]]
Slots = npt.NDArray[np.uint64]
Word = Any  # numba's uint64

NONE = -1

_BLOCK = 512
_SPREAD = 4  # a span of up to so many integers a value is addressed directly
_ROOM = 1.6  # slots a value, at least: probes stay short up to about two thirds full

_NOTHING, _ONE, _HALF, _LOW = np.uint64(0), np.uint64(1), np.uint64(32), np.uint64(0xFFFFFFFF)
_MIX, _FOLD = np.uint64(0x9E3779B97F4A7C15), np.uint64(0xD6E8FEB86659FD93)


@dataclass(frozen=True)
class DenseDictionary:
    """Integers addressed directly: ``codes[i]`` is the code of ``low + i``."""

    low: Ints
    codes: Codes

    def lookup(self, values: Ints) -> Codes:
        """The code of each value."""
        return _lookup_dense(_fixed(values), self.low[0], self.codes)


@dataclass(frozen=True)
class IntDictionary:
    """Integers by their hash."""

    slots: Slots
    values: Ints

    def lookup(self, values: Ints) -> Codes:
        """The code of each value."""
        return _lookup_ints(_fixed(values), self.slots, self.values)


@dataclass(frozen=True)
class BytesDictionary:
    """Bytes by their hash; value i is ``data[offsets[i]:offsets[i + 1]]``."""

    slots: Slots
    offsets: Ints
    data: Bytes

    def lookup(self, offsets: Ints, data: Bytes) -> Codes:
        """The code of each value of a column of bytes."""
        return _lookup_bytes(_fixed(offsets), _fixed(data), self.slots, self.offsets, self.data)


Dictionary = DenseDictionary | IntDictionary | BytesDictionary


def build_ints(values: Ints) -> tuple[DenseDictionary | IntDictionary, Codes]:
    """The dictionary of `values`, and the code of each value."""
    values = _fixed(values)
    low, high = (int(values.min()), int(values.max())) if len(values) else (0, 0)
    if high - low < _SPREAD * len(values):
        codes, found = _build_dense(values, low, high - low + 1)
        return DenseDictionary(np.array([low]), codes), found
    slots, first, found = _build_ints(values, _bits(len(values)))
    distinct = values[first]
    if _bits(len(distinct)) < _bits(len(values)):  # few of many: slots for those there are
        slots, _, _ = _build_ints(_fixed(distinct), _bits(len(distinct)))
    return IntDictionary(slots, distinct), found


def build_bytes(offsets: Ints, data: Bytes) -> tuple[BytesDictionary, Codes]:
    """The dictionary of a column of bytes, and the code of each value."""
    offsets, data, count = _fixed(offsets), _fixed(data), len(offsets) - 1
    slots, first, found = _build_bytes(offsets, data, _bits(count))
    kept, kept_data = _gather(offsets, data, first)
    if _bits(len(first)) < _bits(count):
        slots, _, _ = _build_bytes(_fixed(kept), _fixed(kept_data), _bits(len(first)))
    return BytesDictionary(slots, kept, kept_data), found


def hash_ints(values: Ints) -> Slots:
    """A hash of each integer that is the same in every process."""
    return _hash_ints(_fixed(values))


def hash_bytes(offsets: Ints, data: Bytes) -> Slots:
    """A hash of each value of a column of bytes that is the same in every process."""
    return _hash_bytes(_fixed(offsets), _fixed(data))


def from_arrays(arrays: Arrays) -> Dictionary:
    """The dictionary that has these arrays, by the names of its fields."""
    for form in (DenseDictionary, IntDictionary, BytesDictionary):
        if set(arrays) == {part.name for part in fields(form)}:
            return form(**arrays)  # type: ignore[arg-type]
    raise AssertionError(sorted(arrays))


def _fixed(array: npt.NDArray[Any]) -> npt.NDArray[Any]:
    """The array as one that is only read, as Arrow's are: kernels are compiled for one type."""
    array = array.view()
    array.setflags(write=False)
    return array


def _bits(count: int) -> int:
    """The slots for so many values are two to the power of this."""
    return max(3, math.ceil(math.log2(max(1, count) * _ROOM)))


# -- integers that lie close together


@numba.njit(cache=True)
def _build_dense(values: Ints, low: int, span: int) -> tuple[Codes, Codes]:
    codes, found = np.full(span, NONE, np.int32), np.empty(len(values), np.int32)
    count = 0
    for k in range(len(values)):
        at = values[k] - low
        if codes[at] == NONE:
            codes[at] = count
            count += 1
        found[k] = codes[at]
    return codes, found


@numba.njit(cache=True)
def _lookup_dense(values: Ints, low: int, codes: Codes) -> Codes:
    found = np.empty(len(values), np.int32)
    span = np.uint64(len(codes))
    for k in range(len(values)):
        at = np.uint64(values[k]) - np.uint64(low)  # what lies below wraps to far above
        found[k] = codes[at] if at < span else NONE
    return found


# -- slots


@numba.njit(cache=True, inline="always")
def _slot(mixed: Word, code: int) -> Word:
    """What a slot holds: half of the hash, and the code plus one; an empty slot is 0."""
    return (mixed << _HALF) | np.uint64(code + 1)


@numba.njit(cache=True, inline="always")
def _has_tag(slot: Word, mixed: Word) -> Any:
    return ((slot ^ (mixed << _HALF)) >> _HALF) == _NOTHING


@numba.njit(cache=True, inline="always")
def _code(slot: Word) -> Any:
    return np.int64(slot & _LOW) - 1


@numba.njit(cache=True)
def _candidates(hashes: Slots, count: int, slots: Slots, shift: Word, found: Ints) -> None:
    """For each hash the code in its first slot with the same tag, `NONE` if there is none."""
    mask = np.uint64(len(slots) - 1)
    for k in range(count):
        found[k] = np.int64(slots[hashes[k] >> shift])
    for k in range(count):
        mixed, slot = hashes[k], np.uint64(found[k])
        at = mixed >> shift
        while slot != _NOTHING and not _has_tag(slot, mixed):
            at = (at + _ONE) & mask
            slot = slots[at]
        found[k] = _code(slot)


# -- other integers


@numba.njit(cache=True, inline="always")
def hash_int(value: int) -> Word:
    """A hash whose upper bits choose the slot and whose lower ones are the tag."""
    mixed = np.uint64(value) * _MIX
    return (mixed ^ (mixed >> _HALF)) * _FOLD


@numba.njit(cache=True)
def _hash_ints(values: Ints) -> Slots:
    mixed = np.empty(len(values), np.uint64)
    for k in range(len(values)):
        mixed[k] = hash_int(values[k])
    return mixed


@numba.njit(cache=True)
def _seek_int(value: int, mixed: Word, slots: Slots, shift: Word, values: Ints) -> Word:
    """The slot that holds `value`, or the empty one where it belongs."""
    at, mask = mixed >> shift, np.uint64(len(slots) - 1)
    while slots[at] != _NOTHING:
        if _has_tag(slots[at], mixed) and values[_code(slots[at])] == value:
            break
        at = (at + _ONE) & mask
    return at


@numba.njit(cache=True)
def _build_ints(values: Ints, bits: int) -> tuple[Slots, Ints, Codes]:
    """The slots, where each distinct value is first met, and the code of each value."""
    slots, shift = np.zeros(1 << bits, np.uint64), np.uint64(64 - bits)
    distinct, first = np.empty(len(values), np.int64), np.empty(len(values), np.int64)
    found = np.empty(len(values), np.int32)
    hashes, near = np.empty(_BLOCK, np.uint64), np.empty(_BLOCK, np.uint64)
    count = 0
    for start in range(0, len(values), _BLOCK):
        stop = min(start + _BLOCK, len(values))
        for k in range(start, stop):
            hashes[k - start] = hash_int(values[k])
            near[k - start] = slots[hashes[k - start] >> shift]  # prefetched
        for k in range(start, stop):
            mixed = hashes[k - start]
            at = _seek_int(values[k], mixed, slots, shift, distinct)
            if slots[at] == _NOTHING:
                slots[at] = _slot(mixed, count)
                distinct[count], first[count] = values[k], k
                count += 1
            found[k] = _code(slots[at])
    return slots, first[:count].copy(), found


@numba.njit(cache=True)
def _lookup_ints(probe: Ints, slots: Slots, values: Ints) -> Codes:
    found = np.full(len(probe), NONE, np.int32)
    if not len(values):
        return found
    shift = _shift(slots)
    hashes, codes = np.empty(_BLOCK, np.uint64), np.empty(_BLOCK, np.int64)
    near = np.empty(_BLOCK, np.int64)
    for start in range(0, len(probe), _BLOCK):
        count = min(_BLOCK, len(probe) - start)
        for k in range(count):
            hashes[k] = hash_int(probe[start + k])
        _candidates(hashes, count, slots, shift, codes)
        for k in range(count):
            near[k] = values[max(codes[k], 0)]
        for k in range(count):
            if codes[k] != NONE and near[k] != probe[start + k]:  # another value of the same tag
                at = _seek_int(probe[start + k], hashes[k], slots, shift, values)
                codes[k] = _code(slots[at])
            found[start + k] = codes[k]
    return found


@numba.njit(cache=True)
def _shift(slots: Slots) -> Word:
    """How far a hash is shifted to give a slot."""
    bits = 0
    while (1 << bits) < len(slots):
        bits += 1
    return np.uint64(64 - bits)


# -- bytes


@numba.njit(cache=True, inline="always")
def _word(data: Bytes, at: int) -> Word:
    """Eight bytes as one integer."""
    word = np.uint64(0)
    for b in range(8):
        word |= np.uint64(data[at + b]) << np.uint64(8 * b)
    return word


@numba.njit(cache=True)
def _hash_one(data: Bytes, start: int, stop: int) -> Word:
    mixed = np.uint64(stop - start) * _MIX
    while start + 8 <= stop:
        mixed = (mixed ^ _word(data, start)) * _FOLD
        mixed ^= mixed >> _HALF
        start += 8
    rest = np.uint64(0)
    for at in range(start, stop):
        rest = (rest << np.uint64(8)) | np.uint64(data[at])
    mixed = (mixed ^ rest) * _MIX
    return (mixed ^ (mixed >> _HALF)) * _FOLD


@numba.njit(cache=True)
def _hash_bytes(offsets: Ints, data: Bytes) -> Slots:
    mixed = np.empty(len(offsets) - 1, np.uint64)
    for k in range(len(mixed)):
        mixed[k] = _hash_one(data, offsets[k], offsets[k + 1])
    return mixed


@numba.njit(cache=True)
def _same(data: Bytes, start: int, stop: int, other: Bytes, at: int, end: int) -> bool:
    """Whether two byte strings are equal."""
    if stop - start != end - at:
        return False
    while start + 8 <= stop:
        if _word(data, start) != _word(other, at):
            return False
        start += 8
        at += 8
    while start < stop:
        if data[start] != other[at]:
            return False
        start += 1
        at += 1
    return True


@numba.njit(cache=True)
def _seek_bytes(
    data: Bytes, start: int, stop: int, mixed: Word, slots: Slots, shift: Word,
    kept: Bytes, begin: Ints, end: Ints,
) -> Word:  # fmt: skip
    """The slot that holds ``data[start:stop]``, or the empty one where it belongs.

    The value of code i is ``kept[begin[i]:end[i]]``.
    """
    at, mask = mixed >> shift, np.uint64(len(slots) - 1)
    while slots[at] != _NOTHING:
        if _has_tag(slots[at], mixed):
            code = _code(slots[at])
            if _same(data, start, stop, kept, begin[code], end[code]):
                break
        at = (at + _ONE) & mask
    return at


@numba.njit(cache=True)
def _build_bytes(offsets: Ints, data: Bytes, bits: int) -> tuple[Slots, Ints, Codes]:
    """The slots, where each distinct value is first met, and the code of each value."""
    slots, shift = np.zeros(1 << bits, np.uint64), np.uint64(64 - bits)
    rows = len(offsets) - 1
    first, found = np.empty(rows, np.int64), np.empty(rows, np.int32)
    begin, end = np.empty(rows, np.int64), np.empty(rows, np.int64)
    hashes, near = np.empty(_BLOCK, np.uint64), np.empty(_BLOCK, np.uint64)
    count = 0
    for start in range(0, rows, _BLOCK):
        stop = min(start + _BLOCK, rows)
        for k in range(start, stop):
            hashes[k - start] = _hash_one(data, offsets[k], offsets[k + 1])
            near[k - start] = slots[hashes[k - start] >> shift]  # prefetched
        for k in range(start, stop):
            mixed = hashes[k - start]
            at = _seek_bytes(
                data, offsets[k], offsets[k + 1], mixed, slots, shift, data, begin, end
            )
            if slots[at] == _NOTHING:
                slots[at] = _slot(mixed, count)
                first[count], begin[count], end[count] = k, offsets[k], offsets[k + 1]
                count += 1
            found[k] = _code(slots[at])
    return slots, first[:count].copy(), found


@numba.njit(cache=True)
def _lookup_bytes(
    probe: Ints, probe_data: Bytes, slots: Slots, offsets: Ints, data: Bytes
) -> Codes:
    rows = len(probe) - 1
    found = np.full(rows, NONE, np.int32)
    if len(offsets) == 1:
        return found
    shift, begin, end = _shift(slots), offsets[:-1], offsets[1:]
    hashes, codes = np.empty(_BLOCK, np.uint64), np.empty(_BLOCK, np.int64)
    near, first = np.empty(_BLOCK, np.int64), np.empty(_BLOCK, np.uint8)
    for start in range(0, rows, _BLOCK):
        count = min(_BLOCK, rows - start)
        for k in range(count):
            hashes[k] = _hash_one(probe_data, probe[start + k], probe[start + k + 1])
        _candidates(hashes, count, slots, shift, codes)
        for k in range(count):
            near[k] = begin[max(codes[k], 0)]
        if len(data):
            for k in range(count):
                first[k] = data[min(near[k], len(data) - 1)]  # prefetched
        for k in range(count):
            if codes[k] == NONE:
                continue
            low, high = probe[start + k], probe[start + k + 1]
            if not _same(probe_data, low, high, data, near[k], end[codes[k]]):
                at = _seek_bytes(probe_data, low, high, hashes[k], slots, shift, data, begin, end)
                codes[k] = _code(slots[at])
            found[start + k] = codes[k]
    return found


@numba.njit(cache=True)
def _gather(offsets: Ints, data: Bytes, rows: Ints) -> tuple[Ints, Bytes]:
    """The bytes of these rows."""
    starts = np.zeros(len(rows) + 1, np.int64)
    for k in range(len(rows)):
        starts[k + 1] = starts[k] + offsets[rows[k] + 1] - offsets[rows[k]]
    gathered = np.empty(starts[-1], np.uint8)
    for k in range(len(rows)):
        gathered[starts[k] : starts[k + 1]] = data[offsets[rows[k]] : offsets[rows[k] + 1]]
    return starts, gathered
