"""Keys for buckets that Spark's hash partitioning spreads evenly."""

from __future__ import annotations

import numpy as np
import pyarrow as pa

from rivermouth.kernels.keys.murmur import buckets


def bucket_keys(count: int) -> list[int]:
    """One key, a bigint, per bucket, such that each of `count` partitions gets one of them.

    Of every number of partitions that divides `count` each gets equally many. The numbers 0, 1, 2
    ... themselves would not do: Spark's hash puts five of the first eight into one of two
    partitions. Key 0 is there whatever `count` is, so that a query that comes back with another
    number of buckets meets state of its own.

    Examples
    --------
    >>> keys = bucket_keys(8)
    >>> keys[0], sorted(buckets([pa.array(keys)], 8).tolist())
    (0, [0, 1, 2, 3, 4, 5, 6, 7])
    """
    tried = 64 * count
    while True:
        places, first = np.unique(buckets([pa.array(np.arange(tried))], count), return_index=True)
        if len(places) == count:
            return sorted(first.tolist())
        tried *= 2
