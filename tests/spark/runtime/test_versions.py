from __future__ import annotations

import os
import subprocess
import sys
import tomllib
from dataclasses import dataclass
from pathlib import Path

import pyspark
import pytest

import rivermouth as rm
from rivermouth.errors import SessionError
from rivermouth.spark.runtime import versions
from rivermouth.spark.runtime.versions import GEOMETRY, REAL_TIME, Feature, installed, require


@dataclass(frozen=True)
class Session:
    """What the checks ask of a session."""

    version: str


@pytest.fixture
def client(monkeypatch):
    """Sets the version of the installed PySpark."""
    import pyspark

    return lambda version: monkeypatch.setattr(pyspark, "__version__", version)


@pytest.mark.parametrize("feature", [GEOMETRY, REAL_TIME])
def test_the_first_version_that_has_a_feature_and_all_later_ones_do(client, feature: Feature):
    for minor in range(4):
        client(f"4.{minor}.1")
        session = Session(f"4.{minor}.1")
        if (4, minor) < feature.since:
            with pytest.raises(SessionError, match=f"; this is 4.{minor}.1. "):
                require(session, feature, where="x")
        else:
            require(session, feature, where="x")


@pytest.mark.parametrize(("here", "there"), [("4.3.0", "4.0.5"), ("4.0.5", "4.3.0")])
def test_a_client_and_a_server_must_both_have_it(client, here, there):
    client(here)
    with pytest.raises(SessionError) as raised:
        require(Session(there), REAL_TIME, where="trigger")
    assert str(raised.value) == (
        "trigger: real-time mode from Python needs Spark 4.2 or newer; the server is "
        f"{there}, the client {here}. Use micro-batches: trigger(processingTime=...)."
    )


def test_a_table_of_text_with_a_geometry_says_that_this_spark_has_none(client):
    client("4.1.4")
    with pytest.raises(SessionError) as raised:
        rm.testing.frame(Session("4.1.4"), "id int | shape geometry(4326)")
    assert str(raised.value) == (
        "testing.frame: the type GEOMETRY needs Spark 4.2 or newer; this is 4.1.4. Keep geometries "
        "as WKB, in a binary column: geometry columns of tables and frames may always be binary."
    )


def test_a_pyspark_that_is_too_old_is_named(client):
    client("3.5.9")
    with pytest.raises(SessionError) as raised:
        _ = rm.join_table
    assert str(raised.value) == (
        "rivermouth: PySpark 3.5.9 is too old; it runs on Spark 4.0 to 4.3. Install a newer one: "
        'pip install "rivermouth[spark]", in an environment of its own where the platform\'s Spark '
        "is older."
    )


def test_a_newer_one_than_was_tried_is_not_refused(client):
    client("4.9.0")
    assert installed() == "4.9.0"


def without(module: str, program: str) -> subprocess.CompletedProcess[str]:
    """What a program says where a module cannot be found."""
    hide = f"""
import importlib.util
found = importlib.util.find_spec
importlib.util.find_spec = lambda name, *more: None if name == {module!r} else found(name, *more)
import rivermouth as rm
"""
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    return subprocess.run(
        [sys.executable, "-c", hide + program], capture_output=True, text=True, env=environment
    )


def test_without_pyspark_the_first_operator_says_what_to_install():
    said = without("pyspark", "rm.tables.geojson; rm.within; rm.join_table")
    assert said.stderr.splitlines()[-1] == (
        "rivermouth.errors.SessionError: rivermouth: there is no PySpark to run on; rivermouth "
        "leaves it to you, so as not to replace a platform's own. Where there is no Spark: pip "
        'install "rivermouth[spark]". As a client of Spark Connect: pip install '
        '"rivermouth[client]". On a platform, use its own Python.'
    )


def test_without_pyspark_that_of_spark_home_is_named(monkeypatch):
    home = Path(pyspark.__file__).parent
    monkeypatch.setenv("SPARK_HOME", str(home))
    said = without("pyspark", "rm.join_table").stderr.splitlines()[-1]
    path = said.partition("export PYTHONPATH=")[2]
    assert all(Path(part).parent == home / "python" / "lib" for part in path.split(os.pathsep))
    program = "import importlib.util; print(importlib.util.find_spec('pyspark').origin)"
    command = [sys.executable, "-S", "-c", program]
    found = subprocess.run(command, env={"PYTHONPATH": path}, capture_output=True, text=True)
    assert found.stdout.startswith(f"{home}/python/lib/pyspark.zip/pyspark/"), found.stderr


def test_without_pyspark_the_doctor_says_so():
    said = without("pyspark", "from rivermouth.cli import main; main(['doctor'])")
    assert "missing  PySpark: there is no PySpark to run on. Where there is no" in said.stdout
    assert said.stdout.splitlines()[-1] == "Missing: PySpark."


def test_a_mere_client_starts_no_spark():
    said = without("pyspark.core", "rm.testing.session()")
    assert said.stderr.splitlines()[-1] == (
        "rivermouth.errors.SessionError: rivermouth: the installed PySpark is a client of Spark "
        "Connect and starts no Spark. Connect to a server: "
        'SparkSession.builder.remote("sc://HOST:PORT"); or replace it: pip uninstall '
        'pyspark-client, then pip install "rivermouth[spark]".'
    )


def test_the_versions_are_those_of_the_metadata():
    project = tomllib.loads((Path(__file__).parents[3] / "pyproject.toml").read_text())["project"]
    (oldest, newest), extras = versions.RANGE.split(" to "), project["optional-dependencies"]
    bound = f"{versions.NEWEST[0]}.{versions.NEWEST[1] + 1}"
    assert newest == ".".join(map(str, versions.NEWEST))
    assert f"pyspark>={oldest},<{bound}" in extras["spark"]
    assert f"pyspark-client>={oldest},<{bound}" in extras["client"]
    assert not any(line.startswith("pyspark") for line in project["dependencies"])
