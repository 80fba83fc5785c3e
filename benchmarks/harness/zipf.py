"""Keys as a skewed stream asks for them: Zipf's law over a number of keys, the same by its seed."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from benchmarks.harness.experiment import SEED

Ints = npt.NDArray[np.int64]

_SPREAD = 0x9E3779B1  # a prime: no number of keys that we use shares a factor with it


class Zipf:
    """Keys 0 to ``count - 1``; the k-th most frequent is drawn in proportion to ``k ** -z``.

    Frequent keys are strewn over the range, as they are in a table that nobody sorted by them.
    """

    def __init__(self, z: float, count: int) -> None:
        weight = np.arange(1, count + 1, dtype=np.float64) ** -z
        self._share = np.cumsum(weight) / weight.sum()
        self._count = count

    def share(self, top: int) -> float:
        """What part of all records asks for the `top` most frequent keys."""
        return float(self._share[top - 1])

    def draw(self, records: int, *, stream: int) -> Ints:
        """So many records; `stream` tells independent draws apart."""
        random = np.random.default_rng((SEED, stream)).random(records)
        rank = np.searchsorted(self._share, random)
        keys: Ints = np.minimum(rank, self._count - 1) * _SPREAD % self._count
        return keys
