"""The report: one file, opened from disk, that shows what the live page showed."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.support.browser import Browser, browser
from tests.support.histories import batch, numbers, whole

from rivermouth.observe.static_report import rows, static_report

__all__ = ["browser"]
pytestmark = pytest.mark.server


def test_it_opens_from_a_file_and_asks_for_nothing(browser: Browser, tmp_path: Path) -> None:
    (tmp_path / "runs").mkdir()
    whole(tmp_path / "runs" / "first.jsonl")
    whole(tmp_path / "runs" / "second.jsonl", 3, name="</script><b>x")
    evil = "</script><script>alert(1)</script>"
    table = rows(["district", "early", "exact"], [[evil, 1.5, 2]], title="Earnings")
    summary = {"title": "What came of it", "words": [evil], "tables": [table]}
    report = tmp_path / "report.html"
    report.write_text(static_report(tmp_path / "runs", summary=summary))
    page = browser.page()
    page.open(report.as_uri())
    page.wait("document.querySelectorAll('#shape-list button').length")
    assert page.requests == [report.as_uri()]
    assert page.complaints == []
    assert page.text("#summary-words") == evil
    assert page.text("#summary-tables tbody") == f"{evil}1.52"
    assert page.run("document.querySelectorAll('#run option').length") == 2
    assert page.run("document.querySelector('#pause').hidden")
    assert page.run("rivermouth.state.page.metrics") == numbers(*(batch(one) for one in range(3)))
    page.run(
        "(() => { const s = document.querySelector('#run'); s.value = 'first';"
        "s.dispatchEvent(new Event('change')) })()"
    )
    page.wait("document.querySelector('[data-name=rows] dd').textContent === '1,200'")
    page.close()


def test_nothing_in_it_points_elsewhere(tmp_path: Path) -> None:
    text = static_report(whole(tmp_path / "run.jsonl"))
    assert "http://" not in text.replace("http://www.w3.org/", "")
    assert "https://" not in text.replace("https://github.com/leeoniya/uPlot", "")
    assert ' src="' not in text
    assert "connect-src" not in text
