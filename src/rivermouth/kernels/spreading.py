"""Keys for buckets that Spark's hash partitioning spreads evenly."""

from __future__ import annotations

import itertools

_SEED = 42  # Spark's
_MASK = 0xFFFFFFFF


def bucket_keys(buckets: int) -> list[int]:
    """One key per bucket, such that equally many fall into each of `buckets` partitions.

    So they do for every number of partitions that divides `buckets`. The numbers 0, 1, 2 ...
    themselves would not: of eight, Spark's hash puts six into one of two partitions. Key 0 is
    among them whatever `buckets` is, so that a query that comes back with another number of
    buckets meets state of its own there.

    Examples
    --------
    >>> sorted(murmur(key) % 8 for key in bucket_keys(8))
    [0, 1, 2, 3, 4, 5, 6, 7]
    """
    keys: dict[int, int] = {}
    for key in itertools.count():
        keys.setdefault(murmur(key) % buckets, key)
        if len(keys) == buckets:
            return sorted(keys.values())
    raise AssertionError("unreachable")


def murmur(number: int) -> int:
    """Spark's hash of an integer column: 32-bit Murmur 3 over its four bytes, signed.

    Examples
    --------
    >>> [murmur(number) for number in (0, 1, 2)]  # SELECT hash(0), hash(1), hash(2)
    [933211791, -559580957, 1765031574]
    """
    mixed = _rotate(number * 0xCC9E2D51, 15) * 0x1B873593
    hashed = (_rotate(_SEED ^ (mixed & _MASK), 13) * 5 + 0xE6546B64) & _MASK
    hashed ^= 4
    hashed = ((hashed ^ (hashed >> 16)) * 0x85EBCA6B) & _MASK
    hashed = ((hashed ^ (hashed >> 13)) * 0xC2B2AE35) & _MASK
    hashed ^= hashed >> 16
    return hashed - (1 << 32) if hashed >> 31 else hashed


def _rotate(number: int, by: int) -> int:
    number &= _MASK
    return ((number << by) | (number >> (32 - by))) & _MASK
