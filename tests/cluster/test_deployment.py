"""The commands of the page "On a cluster", run as they stand there.

The hosts see neither this project nor its environment: they have Spark, Java, a Python without
packages, and what the page installs or sends along.
"""

from __future__ import annotations

import os
import shutil
import socket
import subprocess
import sys
import tomllib
from collections.abc import Iterator
from importlib.metadata import distribution
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from tests.cluster.comparing import Comparison
from tests.cluster.hosts import ROOT, wait_for
from tests.cluster.lab import INSTALLED, SHARED, Lab
from tests.cluster.page import blocks, lay_out

pytestmark = [pytest.mark.cluster, pytest.mark.spark, pytest.mark.server]

WORKERS = ("worker-1", "worker-2")
ENVIRONMENT = Path(sys.prefix).resolve()
PROJECT = [ROOT] if ENVIRONMENT.is_relative_to(ROOT) else [ROOT, ENVIRONMENT]
SMALL = ("spark.driver.memory", "spark.executor.memory", "spark.ui.enabled")


class Bare:
    """The lab's hosts without this project; commands run in ``/tmp`` of one of them."""

    def __init__(self, lab: Lab) -> None:
        self.lab = lab

    def start(self, *, hide_from_workers: list[Path]) -> None:
        """Two workers, a driver and a client, all of them new."""
        for name in (*WORKERS, "worker-3", "driver", "client"):
            if name in self.lab.network.hosts:
                self.lab.network.hosts[name].kill()
        self.lab.cluster(WORKERS, hide=[*PROJECT, *hide_from_workers])
        for name in ("driver", "client"):
            self.lab.network.host(name, hide=PROJECT)
            self.run(name, f"cp -r {SHARED}/app.py {SHARED}/dist .")

    def run(self, host: str, script: str, **env: str) -> subprocess.CompletedProcess[str]:
        done = self.lab.host(host).run(
            ["bash", "-euc", script],
            env={**self.lab.environment(), "SPARK_CONF_DIR": f"{SHARED}/conf", **env},
        )
        assert done.returncode == 0, f"{script}\n{done.stdout[-2000:]}\n{done.stderr[-4000:]}"
        return done


@pytest.fixture(scope="module")
def bare(lab: Lab, compare: Comparison) -> Iterator[Bare]:
    """Hosts with the page's application, settings and wheel, installed in /opt/rivermouth."""
    build, install, _ = blocks("With a wheel on every host")
    clone = lab.shared / "clone"
    ignored = shutil.ignore_patterns("__pycache__")
    shutil.copytree(ROOT / "src", clone / "src", ignore=ignored)
    for name in ("pyproject.toml", "README.md", "LICENSE"):
        shutil.copy(ROOT / name, clone)
    subprocess.run([*_pip(build), "--quiet"], cwd=clone, check=True)
    shutil.move(clone / "dist", lab.shared / "dist")
    lay_out(lab, {name: lab.settings()[name] for name in SMALL})
    made = Bare(lab)
    made.start(hide_from_workers=[])
    make, put = install.splitlines()
    made.run("driver", make)
    _add_dependencies(lab.installed)
    made.run("driver", put, PIP_NO_INDEX="1")  # hosts here reach no index, and need none
    yield made
    for name in (*WORKERS, "driver", "client"):
        lab.network.hosts[name].kill()


def test_a_wheel_on_every_host(bare, placed):
    bare.run("driver", blocks("With a wheel on every host")[2])


def test_s3_by_the_environment(bare, placed):
    assert bare.lab.s3
    (submit,) = blocks("With S3 instead of a shared folder")
    bare.run("driver", submit)


def test_hdfs_by_the_environment(bare, placed):
    assert bare.lab.hdfs
    (submit,) = blocks("With HDFS")
    bare.run("driver", submit)


def test_the_doctor_finds_nothing_missing(bare):
    (ask,) = blocks("Check a cluster")
    said = bare.run("driver", ask).stdout.splitlines()
    assert said[-1] == "All that is required is there."
    for line in (
        "ok       Executors: on worker-1, worker-2",
        "ok       State store: RocksDBStateStoreProvider",
        "ok       Changelog checkpointing: on",
        "ok       rivermouth there: 0.1.0",
        "ok       Shared /mnt/shared: read and written by all of them",
    ):
        assert line in said, "\n".join(said)


def test_the_doctor_finds_a_folder_that_is_not_shared(bare):
    (ask,) = blocks("Check a cluster")
    failing = ask.rstrip() + " --shared /tmp/own || echo exit code $?"
    said = bare.run("driver", failing).stdout.splitlines()
    assert "Missing: Shared /tmp/own." in said
    assert said[-1] == "exit code 1"
    (line,) = [line for line in said if "Shared /tmp/own:" in line]
    assert "what was written on the driver is not there on worker-1, worker-2" in line


def test_through_connect(bare, placed):
    serve, ask = blocks("Through Spark Connect")
    bare.run("driver", serve)
    address = (bare.lab.host("driver").address, 15002)
    try:
        wait_for(lambda: _listens(address), "no Connect server", seconds=200)
        bare.run("client", ask)
    except Exception as failure:
        failure.add_note(bare.run("driver", "tail -n 40 /tmp/logs/* || true; ps ax").stdout)
        raise
    finally:
        bare.run("driver", "$SPARK_HOME/sbin/stop-connect-server.sh")


def test_an_archive_that_is_sent_along(bare, placed):
    bare.start(hide_from_workers=[Path(INSTALLED)])
    looked = bare.run("worker-1", f"ls -d {INSTALLED} || echo absent")
    assert looked.stdout == "absent\n"
    pack, submit = blocks("With an archive that is sent along")
    bare.run("driver", pack)
    bare.run("driver", submit)


def test_the_doctor_finds_workers_without_rivermouth(bare):
    bare.start(hide_from_workers=[Path(INSTALLED)])
    (ask,) = blocks("Check a cluster")
    # the workers' Python has pyarrow, which Spark needs, and nothing of ours
    lean = Path(SHARED, "lean")
    outside = bare.lab.shared / "lean"
    bare.run("driver", f"python3 -m venv {lean}")
    _add_dependencies(outside, ["pyarrow"])
    said = bare.run(
        "driver", ask.replace(f"PYTHON={INSTALLED}", f"PYTHON={lean}").rstrip() + " || true"
    ).stdout
    assert "missing  rivermouth there: not installed on worker-1, worker-2." in said
    assert "missing  shapely there: not installed on worker-1, worker-2." in said


def _pip(command: str) -> list[str]:
    """The page's `pip` is this interpreter's."""
    program, *arguments = command.split()
    assert program == "pip"
    return [sys.executable, "-m", "pip", *arguments]


def _add_dependencies(environment: Path, needs: list[str] | None = None) -> None:
    """Put packages and all they require into an environment, as they are installed here.

    The files are links: no index is asked, and no gigabyte is copied.
    """
    if needs is None:
        project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
        extras = project["optional-dependencies"]
        needs = [*project["dependencies"], *extras["connect"], *extras["postgres"]]
    (packages,) = environment.glob("lib/python*/site-packages")
    for name in _with_requirements(needs):
        found = distribution(name)
        for file in found.files or []:
            if ".." not in file.parts and "__pycache__" not in file.parts:
                target = packages / file
                target.parent.mkdir(parents=True, exist_ok=True)
                _link(Path(str(found.locate_file(file))), target)


def _with_requirements(needs: list[str]) -> set[str]:
    names: set[str] = set()
    queue = [Requirement(line) for line in needs]
    while queue:
        need = queue.pop()
        if need.name not in names:
            names.add(need.name)
            for line in distribution(need.name).requires or []:
                other = Requirement(line)
                chosen = ["", *need.extras]
                if other.marker is None or any(
                    other.marker.evaluate({"extra": extra}) for extra in chosen
                ):
                    queue.append(other)
    return names


def _link(source: Path, target: Path) -> None:
    try:
        os.link(source, target)
    except FileExistsError:
        pass
    except OSError:  # another file system
        shutil.copy2(source, target)


def _listens(address: tuple[str, int]) -> bool:
    try:
        socket.create_connection(address, 1).close()
    except OSError:
        return False
    return True
