"""Draws docs/img/cells.svg: one polygon in the cells index, and one of its border cells.

    python docs/figures/cells.py

Everything drawn is read out of the index that the kernel builds, nothing is drawn by hand.
"""

from __future__ import annotations

from pathlib import Path

import matplotlib
import numpy as np
import shapely
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.patches import Patch, Rectangle

from rivermouth.kernels.spatial import cells

OUT = Path(__file__).parents[1] / "img" / "cells.svg"
RING = """
0.4 2.2, 1.5 0.7, 3.9 0.3, 6.3 1.2, 8.6 0.9, 9.6 3.1, 8.2 4.1, 8.9 5.4, 7.4 5.2, 6.9 6.7, 5.2 5.6,
3.4 6.4, 2.9 5.0, 1.1 5.3, 0.4 2.2
"""
HOLE = "3.6 2.3, 5.4 2.5, 5.0 3.9, 3.9 3.7, 3.6 2.3"
SHAPE = shapely.from_wkt(f"POLYGON (({RING}), ({HOLE}))")
INSIDE, BORDER, EMPTY = "#9ecae1", "#fdd0a2", "#f4f5f7"
LINE, FAINT, POINT, TOGGLE = "#1d2733", "#9aa4af", "#c2410c", "#6a3d9a"


def main() -> None:
    """Draw the figure."""
    matplotlib.rcParams.update({"svg.hashsalt": "cells", "font.size": 9})
    index = cells.build(np.array([SHAPE]), cells=9)
    entry = with_a_toggle(index)
    figure = Figure(figsize=(10, 4.4), layout="constrained")
    whole, one = figure.subplots(1, 2, width_ratios=[1.25, 1])
    draw_grid(whole, index, entry)
    draw_cell(one, index, entry)
    figure.savefig(OUT, metadata={"Date": None}, transparent=False)


def with_a_toggle(index: cells.Cells) -> int:
    """The border entry to be looked at: its one toggle lies about two thirds up the cell."""
    one = np.flatnonzero(np.diff(index.toggle_start) == 1)
    boxes = np.array([box_of(index, cell_of(index, entry)) for entry in one])
    share = (index.toggle[index.toggle_start[one]] - boxes[:, 1]) / boxes[:, 3]
    return int(one[np.argmin(np.abs(share - 0.66))])


def box_of(index: cells.Cells, cell: int) -> tuple[float, float, float, float]:
    """A cell's lower left corner, its width and its height."""
    x0, y0, width, height, across = index.grid[:5]
    j, i = divmod(cell, int(across))
    return x0 + i * width, y0 + j * height, width, height


def draw_grid(axes: Axes, index: cells.Cells, chosen: int) -> None:
    """All cells by what they list, the polygon over them."""
    for cell in range(len(index.cell_start) - 1):
        first, last = index.cell_start[cell], index.cell_start[cell + 1]
        border = last > first and index.edge_start[first + 1] > index.edge_start[first]
        x, y, width, height = box_of(index, cell)
        colour = BORDER if border else INSIDE if last > first else EMPTY
        axes.add_patch(Rectangle((x, y), width, height, fc=colour, ec="white", lw=1))
    draw_edges(axes, index.ends, LINE, 1.4)
    x, y, width, height = box_of(index, cell_of(index, chosen))
    axes.add_patch(Rectangle((x, y), width, height, fill=False, ec=POINT, lw=2, zorder=5))
    axes.set_title("What a cell lists of one polygon")
    axes.legend(
        handles=[
            Patch(fc=INSIDE, label="wholly inside: base true, no edges"),
            Patch(fc=BORDER, label="border: base, edges, toggles"),
            Patch(fc=EMPTY, label="nothing"),
        ],
        loc="upper center",
        bbox_to_anchor=(0.5, 0.0),
        ncols=3,
        frameon=False,
        fontsize=8,
    )
    finish(axes)


def draw_cell(axes: Axes, index: cells.Cells, entry: int) -> None:
    """One border cell: its listed edges, its toggle, and the ray of a point in it."""
    x, y, width, height = box_of(index, cell_of(index, entry))
    listed = index.ends[index.edge[index.edge_start[entry] : index.edge_start[entry + 1]]]
    toggles = index.toggle[index.toggle_start[entry] : index.toggle_start[entry + 1]]
    right = x + 4.2 * width
    axes.add_patch(Rectangle((x, y), width, height, fc=BORDER, ec=POINT, lw=2))
    draw_edges(axes, index.ends, FAINT, 1.0)
    draw_edges(axes, listed, LINE, 2.6)
    for toggle in toggles:
        axes.plot([x, right], [toggle, toggle], color=TOGGLE, lw=1.3, ls=(0, (2, 2)))
    px, py = x + 0.3 * width, y + 0.3 * height
    axes.annotate("", (right, py), (px, py), arrowprops={"arrowstyle": "->", "color": POINT})
    axes.plot(px, py, "o", color=POINT, zorder=6)
    axes.annotate("p", (px, py), (0, 5), textcoords="offset points", ha="center", color=POINT)
    base = bool(index.entry_base[entry])
    axes.set_title(f"The marked cell: base {str(base).lower()}")
    axes.legend(
        handles=[
            Line2D([], [], color=LINE, lw=2.6, label="edges the cell lists"),
            Line2D([], [], color=FAINT, lw=1.0, label="edges it does not need"),
            Line2D([], [], color=TOGGLE, lw=1.3, ls=(0, (2, 2)), label="toggle"),
            Line2D([], [], color=POINT, lw=1.0, marker="o", label="p and its ray"),
        ],
        loc="upper center",
        bbox_to_anchor=(0.5, 0.0),
        ncols=2,
        frameon=False,
        fontsize=8,
    )
    finish(axes)
    axes.set_xlim(x - 0.6 * width, right)
    axes.set_ylim(y - 0.7 * height, y + 1.7 * height)


def cell_of(index: cells.Cells, entry: int) -> int:
    """The cell that an entry stands in."""
    return int(np.searchsorted(index.cell_start, entry, side="right")) - 1


def draw_edges(axes: Axes, ends: np.ndarray, colour: str, width: float) -> None:
    """Edges as lines."""
    axes.plot(ends[:, [0, 2]].T, ends[:, [1, 3]].T, color=colour, lw=width, zorder=4)


def finish(axes: Axes) -> None:
    """No ticks, no frame, one scale for both directions."""
    axes.set_aspect("equal")
    axes.set_axis_off()
    axes.autoscale_view()


if __name__ == "__main__":
    main()
