from __future__ import annotations

import re
import subprocess
from pathlib import Path

import pytest
from tests.matrix import __main__ as matrix
from tests.matrix import results
from tests.matrix.__main__ import operators
from tests.matrix.environments import NEWEST, OLDEST, ROOT, SPARKS
from tests.matrix.results import PAGE, Counts, read, read_junit, table

from rivermouth.spark.runtime import versions


def test_the_versions_are_those_that_the_library_names():
    assert [versions.number(OLDEST), versions.number(NEWEST)] == [versions.OLDEST, versions.NEWEST]
    locked = re.search(r"^pyspark==(\S+)", (ROOT / "requirements.lock").read_text(), re.MULTILINE)
    assert locked[1] == SPARKS[NEWEST][0]


def test_every_file_of_spark_tests_belongs_to_one_row():
    files = [file for some in operators().values() for file in some]
    assert len(files) == len(set(files))
    assert {*ROOT.glob("tests/spark/**/test_*.py")} <= set(files)
    assert all(file.exists() for file in files)


def test_the_page_shows_what_is_kept():
    assert table(read(), operators()) in PAGE.read_text()


def test_counts_of_a_report(tmp_path: Path):
    report = tmp_path / "report.xml"
    report.write_text("""<testsuites><testsuite>
        <testcase classname="x" name="a" time="1.5"/>
        <testcase classname="x" name="b" time="1"><skipped message="needs Spark 4.2"/></testcase>
        <testcase classname="x" name="c" time="1"><failure/></testcase>
        <testcase classname="x" name="c" time="1"><error/></testcase>
        <testcase classname="y" name="a" time="2"/>
    </testsuite></testsuites>""")
    found = read_junit(report)
    assert found["x"] == Counts(passed=1, skipped=1, failed=2, seconds=4.5)
    assert found["y"] == Counts(passed=1, seconds=2.0)
    assert str(found["x"]) == "1, 1 skipped, 2 **failed**"
    few = found["y"] + Counts(passed=2, is_quick=True)
    assert (few, str(few)) == (Counts(passed=3, seconds=2.0, is_quick=True), "*3*")
    assert read_junit(tmp_path / "none.xml") == {"": Counts(failed=1)}


def test_a_few_tests_do_not_replace_all(tmp_path: Path, monkeypatch):
    monkeypatch.setattr(results, "RESULTS", tmp_path / "results.json")
    about = {"spark": "4.0.5", "packages": "Python 3.11", "date": "2026-01-01"}
    few, every = Counts(2, is_quick=True), Counts(50)
    results.keep("4.0", about, {"trips": few, "caches": few})
    results.keep("4.0", about, {"trips": every})
    results.keep("4.0", about, {"trips": few})
    shown = table(read(), ["trips", "caches", "routing"])
    assert "| trips | 50 |\n| caches | *2* |\n| routing | not run |\n" in shown


@pytest.mark.parametrize(("head", "turns"), [("c0ffe1", True), ("c0ffe2", False)])
def test_versions_have_their_turn_at_odd_commits_where_they_can_be_had(
    head: str, turns: bool, monkeypatch, capsys
):
    made = []
    monkeypatch.setattr(matrix, "python", made.append)
    monkeypatch.setattr(subprocess, "check_output", lambda *_, **__: f"{head}\n")
    assert matrix.has_turn(["4.0"]) == turns
    assert made == (["4.0"] if turns else [])

    def fails(*_, **__):
        raise subprocess.CalledProcessError(1, "pip")

    monkeypatch.setattr(matrix, "python", fails)
    assert not matrix.has_turn(["4.0"])
    monkeypatch.setattr(subprocess, "check_output", fails)
    assert not matrix.has_turn(["4.0"])
    assert "no turn of Spark 4.0, which could not be had: Command 'pip'" in capsys.readouterr().out
