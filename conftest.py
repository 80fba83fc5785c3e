"""One Spark for the whole test run; the doctests of src/ share it with tests/.

RIVERMOUTH_TEST_REMOTE=local[2] runs the same tests through Spark Connect, against a server of
their own; sc://HOST:PORT against one that runs already.
"""

from __future__ import annotations

import os
import re
import shutil
import socket
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from importlib import metadata
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

SERVER = """
import sys
from rivermouth.testing import session

spark = session(conf={
    "spark.plugins": "org.apache.spark.sql.connect.SparkConnectPlugin",
    "spark.connect.grpc.binding.address": "127.0.0.1",
    "spark.connect.grpc.binding.port": sys.argv[1],
    "spark.master": sys.argv[2],
    "spark.sql.connect.serverStacktrace.enabled": "false",
})
print("ready", flush=True)
sys.stdin.read()
spark.stop()
"""


def _number(version: str) -> tuple[int, ...]:
    return tuple(map(int, version.split(".")[:2]))


_SPARK = _number(metadata.version("pyspark"))


def pytest_configure(config: pytest.Config) -> None:
    """What the run needs, and each of its processes."""
    _forgive_older_sparks(config)
    _set_temporary_folder(config)


def _forgive_older_sparks(config: pytest.Config) -> None:
    """Warnings are errors, but not those that PySpark gives of itself before 4.2.

    It leaves the socket open through which a result came.
    """
    if _SPARK < (4, 2):
        config.addinivalue_line("filterwarnings", "ignore:unclosed <socket:ResourceWarning")
        ignored = "ignore:Exception ignored in. <socket:pytest.PytestUnraisableExceptionWarning"
        config.addinivalue_line("filterwarnings", ignored)


def _set_temporary_folder(config: pytest.Config) -> None:
    """One temporary folder for the run and all programs it starts, removed when it succeeds.

    Queries that are killed, JVMs and servers leave files behind; they do so in here. In memory
    where there is room: most of a small micro-batch is Spark waiting for the disk.
    """
    if hasattr(
        config, "workerinput"
    ):  # a process of pytest-xdist: the first one's folder is its own
        return
    memory = "/dev/shm"
    roomy = os.path.isdir(memory) and shutil.disk_usage(memory).free > 8 << 30
    # a short name: PostgreSQL's sockets live below it, and its user must be able to pass
    folder = tempfile.mkdtemp(prefix="rm-tests-", dir=memory if roomy else None)
    os.chmod(folder, 0o755)
    os.environ["TMPDIR"] = tempfile.tempdir = folder


def pytest_sessionfinish(session: pytest.Session, exitstatus: int) -> None:
    if hasattr(session.config, "workerinput"):
        return
    if exitstatus == 0:  # what a failed run leaves is for whoever looks into it
        shutil.rmtree(os.environ["TMPDIR"], ignore_errors=True)


@pytest.fixture(scope="session")
def spark() -> Iterator[SparkSession]:
    # in here: the tests of kernels run without importing Spark
    from pyspark.sql import SparkSession

    from rivermouth.testing import session as test_session

    remote = os.environ.get("RIVERMOUTH_TEST_REMOTE")
    if remote is None:
        session = test_session()
        yield session
        session.stop()
    elif remote.startswith("sc://"):
        yield SparkSession.builder.remote(remote).getOrCreate()
    else:
        with _connect_server(remote) as url:
            session = SparkSession.builder.remote(url).getOrCreate()
            yield session
            session.stop()


@contextmanager
def _connect_server(master: str) -> Iterator[str]:
    """The address of a server in a process of its own, on a free port of loopback.

    ``builder.remote("local[2]")`` would start one in this process, always on port 15002, and
    warn of every setting that cannot be changed after the start.
    """
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    with subprocess.Popen(
        [sys.executable, "-c", SERVER, str(port), master],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    ) as server:
        assert server.stdin is not None
        assert server.stdout is not None
        assert server.stdout.readline() == "ready\n", "the Spark Connect server does not start"
        yield f"sc://127.0.0.1:{port}"
        server.stdin.close()


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if (since := item.get_closest_marker("since")) and _number(since.args[0]) > _SPARK:
            item.add_marker(pytest.mark.skip(f"needs Spark {since.args[0]}"))
        if "spark" in getattr(item, "fixturenames", ()) or _mentions_spark(item):
            item.add_marker(pytest.mark.spark)
    # files that take long come first, so that processes that share the files end together
    marks = ("slow", "spark")
    files = [{item.path for item in items if item.get_closest_marker(mark)} for mark in marks]
    items.sort(key=lambda item: [item.path not in found for found in files])


def _mentions_spark(item: pytest.Item) -> bool:
    doctest: Any = getattr(item, "dtest", None)
    return doctest is not None and any(
        re.search(r"\bspark\b", example.source) for example in doctest.examples
    )


@pytest.fixture(autouse=True)
def _spark_of_a_doctest(request: pytest.FixtureRequest) -> None:
    """Give a doctest that mentions ``spark`` the session; the others start none."""
    if _mentions_spark(request.node):
        request.node.dtest.globs["spark"] = request.getfixturevalue("spark")
