"""Whether a user's own aggregate keeps the rules that windows rely on."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from rivermouth.kernels.aggregation.lowering import UDAF_RESULTS
from rivermouth.spec.aggregates import Aggregator, State, check_aggregate


def check_aggregator(aggregator: Aggregator, values: Sequence[Any]) -> None:
    """Check a user's own aggregate on some values.

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
    array, combine = np.array(values), aggregator.combine
    lifted = aggregator.lift(array)
    _check_state(lifted, len(array), "lift")
    _check_state(aggregator.lift(array[:0]), 0, "lift of no values")
    one, two, three = (tuple(part[k : k + 1] for part in lifted) for k in range(3))
    pairs = combine(tuple(part[:-1] for part in lifted), tuple(part[1:] for part in lifted))
    _check_state(pairs, len(array) - 1, "combine")
    both = combine(one, two)
    rules = {
        "lift takes each value by itself": (aggregator.lift(array[:1]), one),
        "combine is commutative": (combine(two, one), both),
        "combine is associative": (combine(one, combine(two, three)), combine(both, three)),
        "combine goes element by element": (tuple(part[:1] for part in pairs), both),
    }
    if hasattr(aggregator, "invert"):
        inverted = aggregator.invert(combine(both, three), three)
        rules["invert takes out what combine put in"] = (inverted, both)
    for rule, states in rules.items():
        left, right = (aggregator.lower(state)[0] for state in states)
        is_close = isinstance(left, np.floating) and np.isclose(
            left, right, rtol=1e-12, equal_nan=True
        )
        assert left == right or is_close, f"{rule}: {left!r} is not {right!r}"


def _check_state(state: State, length: int, where: str) -> None:
    assert isinstance(state, tuple), f"{where} gives a tuple of arrays"
    assert state, f"{where} gives at least one array"
    for part in state:
        assert isinstance(part, np.ndarray), f"{where} gives numpy arrays"
        assert part.shape == (length,), f"{where} gives arrays of {length}, not of {part.shape}"
