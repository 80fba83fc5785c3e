"""The pages tell the truth: their code runs and prints what they say, their links lead somewhere.

A page is README.md or one of docs/*.md. How its code blocks are marked is in CONTRIBUTING.md.
"""

from __future__ import annotations

import contextlib
import io
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from html.parser import HTMLParser
from pathlib import Path

import pytest

import rivermouth as rm
from rivermouth.cli.main import COMMANDS, main

ROOT = Path(__file__).parents[1]
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]
FENCE = re.compile(
    r"""
    ^```(?P<info>[^`\n]*)\n (?P<text>.*?) ^```[ ]*$
    (?: (?= \s* ^```text[ ]*\n (?P<said>.*?) ^```[ ]*$ ) )?   # right behind it, blank lines apart
    """,
    re.MULTILINE | re.DOTALL | re.VERBOSE,
)
MOST_NOT_RUN = 5  # of all pages together: an example that never runs is a promise nobody keeps


@dataclass(frozen=True)
class Block:
    """A fenced block.

    What stands behind the fence, its text, the number of its fence's line, and what the page says
    that it prints, if it says so.
    """

    info: str
    text: str
    line: int
    said: str | None = None


def blocks_of(page: str) -> list[Block]:
    """All fenced blocks of a page."""
    return [
        Block(
            match["info"].strip(),
            match["text"],
            page.count("\n", 0, match.start()) + 1,
            match["said"],
        )
        for match in FENCE.finditer(page)
    ]


def printed_by(block: Block, path: Path, names: dict[str, object]) -> str:
    """What `block` prints; its lines are those of the page in a traceback."""
    out = io.StringIO()
    with contextlib.redirect_stdout(out):
        exec(compile("\n" * block.line + block.text, str(path), "exec"), names)
    return out.getvalue()


def trimmed(text: str) -> list[str]:
    """The lines without the space behind them, which editors take away."""
    return [line.rstrip() for line in text.rstrip().splitlines()]


@pytest.fixture
def folder(request, tmp_path, monkeypatch) -> Iterator[Path]:
    """An empty working folder, for Python and for Spark alike.

    A stranger starts both in one place. Here the JVM runs already, and must be told where it is:
    the file system that reads and writes, and the property that checkpoints start from.
    """
    if "RIVERMOUTH_TEST_REMOTE" in os.environ:
        pytest.skip("a Spark Connect server has a working folder of its own")
    context = request.getfixturevalue("spark").sparkContext
    hadoop = context._jvm.org.apache.hadoop.fs
    files = hadoop.FileSystem.get(context._jsc.hadoopConfiguration())
    before = files.getWorkingDirectory()
    monkeypatch.chdir(tmp_path)
    files.setWorkingDirectory(hadoop.Path(str(tmp_path)))
    context._jvm.System.setProperty("user.dir", str(tmp_path))
    yield tmp_path
    files.setWorkingDirectory(before)
    context._jvm.System.setProperty("user.dir", before.toUri().getPath())


@pytest.mark.spark
@pytest.mark.parametrize(
    "path",
    [path for path in PAGES if any(b.info == "python" for b in blocks_of(path.read_text()))],
    ids=lambda path: path.name,
)
def test_the_code_of_a_page_runs_and_prints_what_the_page_says(path, spark, folder):
    names: dict[str, object] = {"__name__": "__main__", "spark": spark}
    for block in blocks_of(path.read_text()):
        if block.info == "python":
            printed = printed_by(block, path, names)
            if block.said is not None:
                assert trimmed(printed) == trimmed(block.said), f"{path.name}, line {block.line}"


@pytest.mark.spark
def test_relative_paths_of_spark_start_in_the_page_s_folder(spark, folder):
    spark.range(3).write.parquet("numbers")
    stream = spark.readStream.schema("id long").parquet("numbers").writeStream.format("noop")
    query = stream.option("checkpointLocation", "checkpoint").trigger(availableNow=True).start()
    query.awaitTermination()
    assert {path.name for path in folder.iterdir()} == {"numbers", "checkpoint"}


def test_every_public_name_is_in_the_reference():
    testing = [*rm.testing.__all__, "oracle.join_table"]
    rooms = {"plot": rm.plot.__all__, "tables": rm.tables.__all__, "testing": testing}
    rooms["changes"] = rm.changes.__all__
    names = {f"rm.{name}" for name in rm.__all__ if name not in rooms}
    names |= {f"rm.{room}.{name}" for room in rooms for name in rooms[room] if name != "oracle"}
    page = (ROOT / "docs" / "reference.md").read_text()
    assert set(re.findall(r"heading: (rm\.[\w.]+)", page)) == names


def test_blocks_that_do_not_run_are_few_and_marked():
    infos = [block.info for path in PAGES for block in blocks_of(path.read_text())]
    python = [info for info in infos if info.startswith("py")]
    assert set(python) <= {"python", "python no-run"}
    assert python.count("python no-run") <= MOST_NOT_RUN


def test_output_is_the_text_block_right_after_and_no_other():
    page = (
        "```python\nprint(1)\n```\n\n```text\n1\n```\n"
        "```python\nx\n```\nwords\n```text\nno\n```\n"
        "```python no-run\ny\n```\n"
    )
    read = [(block.info, block.line, block.said) for block in blocks_of(page)]
    assert read == [
        ("python", 1, "1\n"),
        ("text", 5, None),
        ("python", 8, None),
        ("text", 12, None),
        ("python no-run", 15, None),
    ]


def test_a_failing_block_is_found_at_its_line_of_the_page(tmp_path):
    with pytest.raises(ZeroDivisionError) as failure:
        printed_by(Block("python", "a = 1\na / 0\n", 41), tmp_path / "page.md", {})
    assert failure.traceback[-1].lineno + 1 == 43


@pytest.mark.parametrize("command", ["", *COMMANDS])
def test_the_command_line_s_help_is_as_documented(command, capsys, monkeypatch):
    monkeypatch.setenv("COLUMNS", "80")
    with pytest.raises(SystemExit, match="0"):
        main([*command.split(), "--help"])
    said = trimmed(capsys.readouterr().out)
    page = (ROOT / "docs" / "cli.md").read_text()
    assert said in [trimmed(block.text) for block in blocks_of(page)]


@pytest.fixture(scope="module")
def site(tmp_path_factory) -> Path:
    """The site, built strictly: any warning, of Markdown or of Python, is a failure."""
    folder = tmp_path_factory.mktemp("site")
    built = subprocess.run(
        [sys.executable, "-m", "mkdocs", "build", "--strict", "--quiet", "--site-dir", folder],
        cwd=ROOT,
        env={**os.environ, "PYTHONWARNINGS": "error", "NO_MKDOCS_2_WARNING": "1"},
        capture_output=True,
        text=True,
    )
    assert built.returncode == 0, built.stdout + built.stderr
    return folder


def test_the_site_builds_strictly_and_has_every_page(site):
    pages = {path.with_suffix(".html").name for path in PAGES if path.name != "README.md"}
    assert pages <= {path.name for path in site.glob("*.html")}


class Fetched(HTMLParser):
    """What a browser fetches by itself for a page: not what is only linked."""

    def __init__(self) -> None:
        super().__init__()
        self.addresses: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        names = {"link": "href"}.get(tag, "src")
        address = dict(attrs).get(names)
        if tag not in ("a", "base") and address:
            self.addresses.append(address)


def test_a_page_fetches_nothing_from_elsewhere(site):
    for page in site.glob("*.html"):
        reader = Fetched()
        reader.feed(page.read_text())
        assert reader.addresses, page.name
        assert [at for at in reader.addresses if re.match(r"(?:\w+:)?//", at)] == [], page.name
