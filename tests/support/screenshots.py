"""The live page of a finished run as pictures: light, dark, and at a phone's width.

``python tests/support/screenshots.py demo-output/history docs/img`` after ``make demo``.
"""

from __future__ import annotations

import sys
import time
from pathlib import Path

from tests.support.browser import Browser, chromium

from rivermouth.observe.server import Server

SHOWN = "document.querySelectorAll('#tiles div').length > 0"
#: the file's name, width, height, dark, whether the run to show is the one with a map
VIEWS = (
    ("page-light", 1280, 1500, False, "placed"),
    ("page-dark", 1280, 1500, True, "earnings"),
    ("page-phone", 390, 844, False, "placed"),
)


def take(history: Path, into: Path) -> None:
    """One picture for each view."""
    program = chromium()
    assert program is not None, "Chromium is not installed: run `make servers`"
    server, browser = Server(history), Browser(program)
    try:
        for name, width, height, dark, run in VIEWS:
            page = browser.page(width, height, dark=dark)
            page.open(server.url)
            page.wait(SHOWN)
            page.run(
                "(() => { const runs = document.querySelector('#run');"
                f" runs.value = [...runs.options].find((o) => o.text.startsWith('{run}')).value;"
                " runs.dispatchEvent(new Event('change')); })()"
            )
            page.wait(f"document.title.startsWith('{run}')")
            page.wait("document.querySelectorAll('#operator-charts canvas').length > 0")
            time.sleep(2)  # the map is drawn when it is its turn
            page.picture(into / f"{name}.png", whole=width < 1000)
            page.close()
    finally:
        browser.close()
        server.stop()


if __name__ == "__main__":
    take(Path(sys.argv[1]), Path(sys.argv[2]))
