"""HTML and SVG for notebooks: plain elements with their style in them, no script.

Notebooks are saved, mailed and shown by others: a script would be taken out, or be distrusted.
Every text that comes from data is escaped.
"""

from __future__ import annotations

import html
import math
from collections.abc import Iterable, Sequence
from typing import Any

from rivermouth.kernels.arrays import Shapes
from rivermouth.observe import shapes as outlines

INK, MUTED, RULE, GROUND = "#1f2933", "#667380", "#dfe5ea", "#f4f6f8"
POINT = "#c2410c"
#: told apart by colour-blind eyes, too (Okabe and Ito), on a light ground
COLOURS = ("#0072b2", "#d55e00", "#009e73", "#cc79a7", "#e69f00", "#56b4e9", "#7a5195")
OTHER = "#8a949e"
_WIDTH, _HEIGHT = 640.0, 420.0
_LIGHT, _DARK = (233, 243, 246), (12, 74, 110)  # of the least and the largest value
_CELL = 60  # characters of a cell that are shown


def block(*parts: str) -> str:
    """Parts below one another, readable on light and dark notebooks."""
    style = (
        f"font-family:system-ui,sans-serif;font-size:13px;color:{INK};background:#fff;"
        "padding:10px 12px;max-width:900px;overflow-x:auto"
    )
    return f'<div style="{style}">{"".join(parts)}</div>'


def text(words: str, *, muted: bool = False, bold: bool = False) -> str:
    """A line of text."""
    style = f"color:{MUTED if muted else INK};margin:2px 0 8px"
    return f'<div style="{style};font-weight:{600 if bold else 400}">{html.escape(words)}</div>'


def table(columns: Sequence[str], rows: Iterable[Sequence[Any]]) -> str:
    """A table; numbers stand right, long texts are cut."""
    head = "".join(_cell(name, "th") for name in columns)
    body = "".join(f"<tr>{''.join(_cell(value, 'td') for value in row)}</tr>" for row in rows)
    style = "border-collapse:collapse;margin:4px 0 10px;font-variant-numeric:tabular-nums"
    return f'<table style="{style}"><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>'


def _cell(value: Any, tag: str) -> str:
    number = isinstance(value, int | float) and not isinstance(value, bool)
    side = "right" if number else "left"
    style = (
        f"text-align:{side};padding:2px 10px 2px 0;border-bottom:1px solid {RULE};"
        f"background:#fff;color:{MUTED if tag == 'th' or value is None else INK}"
    )
    return f'<{tag} style="{style}">{html.escape(shown(value))}</{tag}>'


def shown(value: Any) -> str:
    """A value as a cell shows it.

    Examples
    --------
    >>> shown(1234567), shown(0.1 + 0.2), shown(None), shown(b"ab"), shown("x" * 70)[-3:]
    ('1,234,567', '0.3', 'null', '2 bytes', 'xx…')
    """
    if value is None:
        return "null"
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, int):
        return f"{value:,}"
    if isinstance(value, float):
        return f"{value:,.6g}"
    if isinstance(value, bytes):
        return f"{len(value):,} bytes"
    words = str(value)
    return words if len(words) <= _CELL else f"{words[: _CELL - 1]}…"


def numbers(found: dict[str, str]) -> str:
    """Numbers beside one another, each under its name."""
    tiles = "".join(
        f'<div style="padding:4px 18px 4px 0"><div style="color:{MUTED};font-size:11px">'
        f'{html.escape(name)}</div><div style="font-size:18px;font-weight:600">'
        f"{html.escape(value)}</div></div>"
        for name, value in found.items()
    )
    return f'<div style="display:flex;flex-wrap:wrap;margin-bottom:6px">{tiles}</div>'


def legend(names: Sequence[str], *, others: bool) -> str:
    """Which colour is which value: those of `COLOURS`, then all others."""
    explained = list(zip(names, COLOURS, strict=False)) + [("other or null", OTHER)] * others
    entries = "".join(
        f'<span style="margin-right:14px"><span style="color:{colour}">&#9679;</span> '
        f"{html.escape(name)}</span>"
        for name, colour in explained
    )
    return f'<div style="margin:2px 0 6px">{entries}</div>'


def bars(values: Sequence[float], *, label: str) -> str:
    """A small chart of values from 0 to the largest, which its label names."""
    if not values:
        return ""
    width, height, top = 360.0, 48.0, max(*values, 1e-9)
    step = min(width / len(values), 12.0)
    drawn = "".join(
        f'<rect x="{i * step:.1f}" y="{height * (1 - value / top):.1f}" '
        f'width="{max(step - 1, 0.5):.1f}" height="{height * value / top:.1f}" fill="#0072b2"/>'
        for i, value in enumerate(values)
    )
    caption = html.escape(f"{label}, 0 to {shown(float(top))}")
    return (
        f'<div style="color:{MUTED};font-size:11px">{caption}</div>'
        f'<svg width="{width:.0f}" height="{height:.0f}" role="img" aria-label="{caption}" '
        f'style="border-bottom:1px solid {RULE}">{drawn}</svg>'
    )


def chart_map(
    shapes: Shapes, fills: Sequence[str], titles: Sequence[str | None], *, caption: str
) -> str:
    """A map of shapes, each with its colour and the text that a pointer on it shows.

    Degrees of longitude are narrower by the cosine of the middle latitude, as in `rm.plot.map`.
    """
    return drawn_map(outlines.outlines(shapes, list(titles)), fills, caption=caption)


def drawn_map(drawn: dict[str, Any], fills: Sequence[str], *, caption: str) -> str:
    """A map of outlines as `rivermouth.observe.shapes` makes them, with a colour each."""
    west, south, east, north = drawn["bounds"]
    degrees = west >= -180 and east <= 180 and south >= -90 and north <= 90
    narrow = math.cos(math.radians(min(abs(north + south) / 2, 85.0))) if degrees else 1.0
    step = max(east - west, north - south) / drawn["grid"] or 1.0
    wide, high = max((east - west) * narrow, step), max(north - south, step)
    scale = min(_WIDTH / wide, _HEIGHT / high)
    across, up = scale * step * narrow, scale * step
    bottom = high * scale
    marks = "".join(
        _mark(rings, fill, title, across, up, bottom)
        for rings, fill, title in zip(drawn["rings"], fills, drawn["labels"], strict=True)
        if rings
    )
    size = f'width="{wide * scale + 12:.0f}" height="{bottom + 12:.0f}"'
    box = f'viewBox="-6 -6 {wide * scale + 12:.0f} {bottom + 12:.0f}"'
    name = html.escape(caption)
    return (
        f'<svg {size} {box} role="img" aria-label="{name}" style="background:{GROUND}">'
        f"<title>{name}</title>{marks}</svg>"
    )


def _mark(
    rings: list[list[int]], fill: str, title: str | None, across: float, up: float, bottom: float
) -> str:
    told = f"<title>{html.escape(title)}</title>" if title else ""
    xy = [
        [(x * across, bottom - y * up) for x, y in zip(ring[::2], ring[1::2], strict=True)]
        for ring in rings
    ]
    if all(len(ring) == 1 for ring in xy):
        return "".join(
            f'<circle cx="{x:.1f}" cy="{y:.1f}" r="2.4" fill="{fill}" fill-opacity="0.75">'
            f"{told}</circle>"
            for ((x, y),) in xy
        )
    path = "".join("M" + "L".join(f"{x:.1f} {y:.1f}" for x, y in ring) + "Z" for ring in xy)
    return (
        f'<path d="{path}" fill="{fill}" fill-opacity="0.85" fill-rule="evenodd" '
        f'stroke="#fff" stroke-width="0.8">{told}</path>'
    )


def graded(values: Sequence[float]) -> list[str]:
    """A colour for each value, light to dark from 0 to the largest.

    Examples
    --------
    >>> graded([0, 10])
    ['#e9f3f6', '#0c4a6e']
    """
    top, ends = max([*values, 1e-9]), list(zip(_LIGHT, _DARK, strict=True))
    mixed = ((round(a + (b - a) * value / top) for a, b in ends) for value in values)
    return ["#" + "".join(f"{part:02x}" for part in colour) for colour in mixed]
