"""What the tests of each operator gave on each version of Spark, and the table of it."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable
from dataclasses import asdict, dataclass, fields, replace
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

RESULTS = Path(__file__).with_name("results.json")
PAGE = Path(__file__).parents[2] / "docs" / "versions.md"
_MARK = re.compile(r"(<!-- matrix -->\n).*?(<!-- /matrix -->)", re.DOTALL)


@dataclass(frozen=True)
class Counts:
    """How many tests passed, were skipped or failed, and how long they took.

    `is_quick` says that they are the few of `make test-fast` and not all.
    """

    passed: int = 0
    skipped: int = 0
    failed: int = 0
    seconds: float = 0.0
    is_quick: bool = False

    def __add__(self, other: Counts) -> Counts:
        numbers = [getattr(self, n) + getattr(other, n) for n in _NUMBERS]
        return Counts(*numbers, self.is_quick or other.is_quick)

    def __str__(self) -> str:
        parts = [(self.passed, ""), (self.skipped, " skipped"), (self.failed, " **failed**")]
        shown = ", ".join(f"{n}{word}" for n, word in parts if n) or "none"
        return f"*{shown}*" if self.is_quick else shown


_NUMBERS = [field.name for field in fields(Counts) if field.name != "is_quick"]


def read_junit(path: Path) -> dict[str, Counts]:
    """The counts in a file that ``pytest --junitxml`` has written, by module of tests.

    No file is a failure of the module "". A test whose teardown fails as well is one failure.
    """
    if not path.exists():
        return {"": Counts(failed=1)}
    found: dict[str, Counts] = {}
    for case in ElementTree.parse(path).iter("testcase"):
        tags = {part.tag for part in case}
        seconds = float(case.get("time", 0))
        if tags & {"failure", "error"}:
            one = Counts(failed=1, seconds=seconds)
        elif "skipped" in tags:
            one = Counts(skipped=1, seconds=seconds)
        else:
            one = Counts(passed=1, seconds=seconds)
        module = case.get("classname", "")
        found[module] = found.get(module, Counts()) + one
    return found


def read() -> dict[str, Any]:
    """What is kept, by version."""
    found: dict[str, Any] = json.loads(RESULTS.read_text()) if RESULTS.exists() else {}
    return found


def keep(minor: str, about: dict[str, str], counts: dict[str, Counts]) -> None:
    """Keep the counts of a version's operators; those of others stay as they are.

    Those of a few tests do not replace those of all.
    """
    kept = read()
    operators = kept.get(minor, {}).get("operators", {})
    for name, each in counts.items():
        if not each.is_quick or operators.get(name, {"is_quick": True})["is_quick"]:
            operators[name] = asdict(replace(each, seconds=round(each.seconds, 1)))
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
    return f"{shown}\n\nTests that passed; a slanted number: a few of them. {'; '.join(parts)}.\n"


def write_page(operators: Iterable[str]) -> None:
    """Put the table of what is kept into the page on versions."""
    shown = table(read(), operators)
    PAGE.write_text(_MARK.sub(lambda found: found[1] + shown + found[2], PAGE.read_text()))
