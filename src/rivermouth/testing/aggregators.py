"""Whether an aggregate of one's own keeps the rules that windows rely on."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from rivermouth.kernels.aggregation.lowering import UDAF_RESULTS
from rivermouth.spec.aggregates import Aggregator, State, check_aggregate


def check_aggregator(aggregator: Aggregator, values: Sequence[Any]) -> None:
    """Check an aggregate of one's own on some values, in many orders and cuts.

    Parameters
    ----------
    aggregator
        What was written: ``column``, ``result``, ``lift``, ``combine``, ``lower`` and perhaps
        ``invert``.
    values
        At least three, as its column has them; the more different, the better.

    Raises
    ------
    AssertionError
        With the rule that is broken.

    Examples
    --------
    >>> from dataclasses import dataclass
    >>> @dataclass(frozen=True)
    ... class Product:
    ...     column: str
    ...     result: str = "double"
    ...     def lift(self, values): return (values.astype(float),)
    ...     def combine(self, one, other): return (one[0] * other[0],)
    ...     def lower(self, state): return state[0]
    >>> check_aggregator(Product("v"), [1.5, 2.0, -3.0])
    """
    check_aggregate("aggregator", aggregator)
    assert aggregator.result in UDAF_RESULTS, f"result must be one of {list(UDAF_RESULTS)}"
    assert len(values) >= 3, "give at least three values"
    array = np.array(values)
    lifted = aggregator.lift(array)
    _check_state(lifted, len(array), "lift")
    _check_state(aggregator.lift(array[:0]), 0, "lift of no values")
    one, two, three = (tuple(part[k : k + 1] for part in lifted) for k in range(3))
    _same(aggregator, aggregator.lift(array[:1]), one, "lift takes each value by itself")
    _same(
        aggregator, aggregator.combine(one, two), aggregator.combine(two, one),
        "combine is commutative",
    )  # fmt: skip
    left = aggregator.combine(aggregator.combine(one, two), three)
    right = aggregator.combine(one, aggregator.combine(two, three))
    _same(aggregator, left, right, "combine is associative")
    both = aggregator.combine(tuple(p[:-1] for p in lifted), tuple(p[1:] for p in lifted))
    _check_state(both, len(array) - 1, "combine")
    _same(
        aggregator, tuple(part[:1] for part in both), aggregator.combine(one, two),
        "combine goes element by element",
    )  # fmt: skip
    if hasattr(aggregator, "invert"):
        _same(aggregator, aggregator.invert(left, three), aggregator.combine(one, two),
              "invert takes out what combine put in")  # fmt: skip


def _check_state(state: State, length: int, where: str) -> None:
    assert isinstance(state, tuple), f"{where} gives a tuple of arrays"
    assert state, f"{where} gives at least one array"
    for part in state:
        assert isinstance(part, np.ndarray), f"{where} gives numpy arrays"
        assert part.shape == (length,), f"{where} gives arrays of {length}, not of {part.shape}"


def _same(aggregator: Aggregator, one: State, other: State, rule: str) -> None:
    found, wanted = (aggregator.lower(state)[0] for state in (one, other))
    close = found == wanted or (
        isinstance(found, np.floating) and np.isclose(found, wanted, rtol=1e-12, equal_nan=True)
    )
    assert close, f"{rule}: {found!r} is not {wanted!r}"
