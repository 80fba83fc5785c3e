"""Values as a notebook shows them: a caption and a small table, all of it escaped."""

from __future__ import annotations

import html
from collections.abc import Iterable
from typing import Any


def html_table(caption: str, rows: Iterable[tuple[str, Any]]) -> str:
    """A table of names and what they are.

    Examples
    --------
    >>> html_table("a <b>", [("on", "x")])
    '<table><caption>a &lt;b&gt;</caption><tr><th>on</th><td>x</td></tr></table>'
    """
    body = "".join(
        f"<tr><th>{html.escape(name)}</th><td>{html.escape(shown(value))}</td></tr>"
        for name, value in rows
    )
    return f"<table><caption>{html.escape(caption)}</caption>{body}</table>"


def shown(value: Any) -> str:
    """A value as a reader would write it.

    Examples
    --------
    >>> shown(("a", "b")), shown(2.5)
    ('a, b', '2.5')
    """
    if isinstance(value, tuple):
        return ", ".join(map(shown, value))
    return str(value)
