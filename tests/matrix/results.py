"""What the tests of each operator gave on each version of Spark, and the table of it."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable
from dataclasses import asdict, dataclass, fields
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

RESULTS = Path(__file__).with_name("results.json")
PAGE = Path(__file__).parents[2] / "docs" / "versions.md"
_MARK = re.compile(r"(<!-- matrix -->\n).*?(<!-- /matrix -->)", re.DOTALL)


@dataclass(frozen=True)
class Counts:
    """How many tests passed, were skipped or failed, and how long they took."""

    passed: int = 0
    skipped: int = 0
    failed: int = 0
    seconds: float = 0.0

    def __add__(self, other: Counts) -> Counts:
        names = [field.name for field in fields(self)]
        return Counts(*(getattr(self, name) + getattr(other, name) for name in names))

    def __str__(self) -> str:
        parts = [(self.passed, ""), (self.skipped, " skipped"), (self.failed, " **failed**")]
        return ", ".join(f"{n}{word}" for n, word in parts if n) or "none"


def read_junit(path: Path) -> Counts:
    """The counts in a file that ``pytest --junitxml`` has written; no file is a failure.

    A test whose teardown fails as well is one failure.
    """
    if not path.exists():
        return Counts(failed=1)
    cases = list(ElementTree.parse(path).iter("testcase"))
    failed = sum(1 for case in cases if {"failure", "error"} & {part.tag for part in case})
    skipped = sum(1 for case in cases if case.find("skipped") is not None)
    seconds = round(sum(float(case.get("time", 0)) for case in cases), 1)
    return Counts(len(cases) - failed - skipped, skipped, failed, seconds)


def read() -> dict[str, Any]:
    """What is kept, by version."""
    found: dict[str, Any] = json.loads(RESULTS.read_text()) if RESULTS.exists() else {}
    return found


def keep(minor: str, about: dict[str, str], counts: dict[str, Counts]) -> None:
    """Keep the counts of a version's operators; those of others stay as they are."""
    kept = read()
    operators = kept.get(minor, {}).get("operators", {})
    operators |= {name: asdict(each) for name, each in counts.items()}
    kept[minor] = {**about, "operators": operators}
    ordered = {name: kept[name] for name in sorted(kept)}
    RESULTS.write_text(json.dumps(ordered, indent=1) + "\n")


def table(results: dict[str, Any], operators: Iterable[str]) -> str:
    """Versions by operators, in Markdown."""
    if not results:
        return "Not run yet.\n"
    heads = [f"Spark {each['spark']}" for each in results.values()]
    lines = [["operator", *heads], ["---", *["---:"] * len(heads)]]
    for operator in operators:
        cells = [each["operators"].get(operator) for each in results.values()]
        lines.append([operator, *("not run" if c is None else str(Counts(**c)) for c in cells)])
    parts = [f"{each['spark']}: {each['packages']}, {each['date']}" for each in results.values()]
    shown = "\n".join(f"| {' | '.join(line)} |" for line in lines)
    return f"{shown}\n\n*Tests that passed. {'; '.join(parts)}.*\n"


def write_page(operators: Iterable[str]) -> None:
    """Put the table of what is kept into the page on versions."""
    shown = table(read(), operators)
    PAGE.write_text(_MARK.sub(lambda found: found[1] + shown + found[2], PAGE.read_text()))
