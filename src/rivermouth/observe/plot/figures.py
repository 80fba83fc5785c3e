"""What all pictures share: an empty figure, its inks, and the error where matplotlib is not."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from rivermouth.errors import SessionError

if TYPE_CHECKING:
    from matplotlib.figure import Figure

INK, SOFT, GRID = "#1d2733", "#51606e", "#e4e9ee"
#: lines, in the order in which they are drawn; told apart by colour-blind eyes, too
LINES = ("#0b6b7d", "#c2410c", "#6d4bb8", "#4d7c0f")


def empty(where: str, width: float, height: float, **layout: Any) -> Figure:
    """A white figure with a canvas of its own; inches.

    Raises
    ------
    SessionError
        When matplotlib is not installed.
    """
    try:
        from matplotlib.backends.backend_agg import FigureCanvasAgg
        from matplotlib.figure import Figure
        from matplotlib.layout_engine import ConstrainedLayoutEngine
    except ImportError as error:
        raise SessionError(
            where,
            "matplotlib cannot be imported",
            there=str(error),
            todo="Install it: pip install 'rivermouth[plot]'.",
        ) from error
    engine = ConstrainedLayoutEngine(**layout)
    figure = Figure(figsize=(width, height), layout=engine, facecolor="white")
    FigureCanvasAgg(figure)
    return figure
