"""Paper A's Table 5: which share of a Zipf stream goes to the most frequent of ten million keys."""

from __future__ import annotations

import numpy as np

from benchmarks.harness.experiment import arguments, save

KEYS = 10_000_000
TOPS = (0.01, 0.1, 0.2, 0.3, 0.4, 0.5)
#: the paper's own, in percent
PAPER = {
    0.98: (69.01, 84.15, 88.85, 91.62, 93.61, 95.16),
    1.04: (78.71, 89.85, 93.00, 94.81, 96.07, 97.04),
    1.10: (86.42, 93.99, 95.95, 97.03, 97.78, 98.34),
    1.16: (91.89, 96.69, 97.82, 98.42, 98.83, 99.13),
}


def shares(z: float, keys: int) -> list[float]:
    """In percent, exact: sums of Zipf's law, nothing drawn."""
    total = np.cumsum(np.arange(1, keys + 1, dtype=np.float64) ** -z)
    return [100 * float(total[round(top * keys) - 1] / total[-1]) for top in TOPS]


def main() -> None:
    """Leave ``shares``."""
    given = arguments(__doc__)
    keys = 100_000 if given.quick else KEYS
    rows = [{"z": z, "paper": paper, "here": shares(z, keys)} for z, paper in PAPER.items()]
    print(save("shares", rows, quick=given.quick, tops=TOPS, data=f"{keys:,} keys"))


if __name__ == "__main__":
    main()
