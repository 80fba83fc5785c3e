"""A report: the page with its runs inside, one file that opens anywhere, without a server."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from importlib.resources import files
from pathlib import Path
from typing import Any

from rivermouth.observe.run_api import RunApi

_PAGE = files("rivermouth.observe") / "page"
_POLICY = "default-src 'none'; script-src 'unsafe-inline'; style-src 'unsafe-inline'; img-src data:"
_STYLE = re.compile(r'<link rel="stylesheet" href="page/([^"]+)">\n')
_SCRIPT = re.compile(r'<script defer src="page/([^"]+)"></script>\n')
_ICON = re.compile(r'<link rel="icon"[^>]*>\n')


def static_report(place: Path, *, summary: Mapping[str, Any] | None = None) -> str:
    """The page of the runs at `place` as one HTML text that needs nothing else.

    Parameters
    ----------
    place
        A history, or a folder of histories.
    summary
        What to say above the numbers: ``title``, ``words`` (sentences) and ``tables``, each with
        its ``title``, ``columns`` and ``rows``.
    """
    data = {"runs": RunApi(place).everything(), "summary": summary}
    page = (_PAGE / "index.html").read_text(encoding="utf-8")
    scripts = "".join(f"<script>\n{_text(name)}</script>\n" for name in _SCRIPT.findall(page))
    embedded = f'<script type="application/json" id="embedded">{_inert(data)}</script>\n'
    policy = f'<meta http-equiv="Content-Security-Policy" content="{_POLICY}">\n'
    page = _STYLE.sub(lambda link: f"<style>\n{_text(link[1])}</style>\n", page)
    page = _ICON.sub("", _SCRIPT.sub("", page))
    page = page.replace("<title>", f"{policy}<title>", 1)
    return page.replace("</body>", f"{embedded}{scripts}</body>")


def _text(name: str) -> str:
    return _PAGE.joinpath(*name.split("/")).read_text(encoding="utf-8")


def _inert(data: Any) -> str:
    """JSON in which no tag can begin."""
    return json.dumps(data, separators=(",", ":")).replace("<", "\\u003c")


def rows(columns: Sequence[str], found: Sequence[Sequence[Any]], *, title: str) -> dict[str, Any]:
    """A table of a summary."""
    return {"title": title, "columns": list(columns), "rows": [list(row) for row in found]}
