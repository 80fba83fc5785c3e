from __future__ import annotations

import re
from pathlib import Path

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
        <testcase name="a" time="1.5"/>
        <testcase name="b" time="1"><skipped message="needs Spark 4.2"/></testcase>
        <testcase name="c" time="1"><failure/></testcase>
        <testcase name="c" time="1"><error/></testcase>
    </testsuite></testsuites>""")
    found = read_junit(report)
    assert found == Counts(passed=1, skipped=1, failed=2, seconds=4.5)
    assert str(found) == "1, 1 skipped, 2 **failed**"
    assert read_junit(tmp_path / "none.xml") == Counts(failed=1)
