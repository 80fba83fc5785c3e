"""How figures are written in the tables."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

Document = Mapping[str, Any]
Cells = Sequence[Sequence[str]]  #: the first row is the head


def number(value: float | None) -> str:
    """A rate, to three digits."""
    if value is None:
        return ""
    return f"{float(f'{value:.3g}'):,.0f}" if value >= 100 else f"{value:.3g}"


def spread(row: Mapping[str, Any], key: str) -> str:
    """The smallest and the largest of the runs."""
    low, high = row["spread"][key]
    return f"({low:.2f}-{high:.2f})"


def only(rows: Sequence[Mapping[str, Any]], /, **what: Any) -> Mapping[str, Any]:
    """The one row that says so."""
    (found,) = (row for row in rows if what.items() <= row.items())
    return found
