"""HDFS, a name node and a data node, and the library by which pyarrow speaks to it.

The servers' jar comes from Maven; all else that they need is among PySpark's jars, which are of
the same version. ``libhdfs.so`` is in no package of Python, Debian or Maven: it is compiled once
of Hadoop's sources, which the crate ``hdfs-sys`` carries and cargo fetches, into ``.cache/hdfs``.
"""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import subprocess
import tempfile
import urllib.request
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from signal import SIGTERM

import pyspark
import pytest
from benchmarks.harness import kafka
from tests.support.servers import LOOPBACK, Place, Server, _running

from rivermouth.spark.runtime.java import find_java

SPARK_JARS = Path(pyspark.__file__).parent / "jars"
CACHE = kafka.CACHE.with_name("hdfs")
_CRATE, _SOURCES = "0.3.1", "hdfs_3_3"
_NODES = "org.apache.hadoop.hdfs.server"
_STATE = "Hadoop:service=NameNode,name=FSNamesystemState"
_COMPILED = (
    *("exception.c", "jni_helper.c", "hdfs.c", "jclasses.c"),
    *(f"os/posix/{name}.c" for name in ("mutexes", "thread", "thread_local_storage")),
)


class HdfsMissing(RuntimeError):
    """What is needed to bring or start HDFS is not on this machine."""


@contextlib.contextmanager
def hdfs(place: Place = LOOPBACK) -> Iterator[str]:
    """Run an empty HDFS of one data node and yield its URI; skips where it cannot be had."""
    with _skipping():
        jars = server_jars()
    port, page = kafka.free_ports(2) if place == LOOPBACK else (8020, 9870)
    uri, state = f"hdfs://{place.address}:{port}", f"http://{place.address}:{page}/jmx?qry={_STATE}"
    with tempfile.TemporaryDirectory(prefix="rivermouth-hdfs-", dir=place.folder) as made:
        folder = Path(made)
        write_configuration(folder / "conf", _settings(folder, place.address, uri, page))
        paths = os.pathsep.join(map(str, [folder / "conf", jars / "*", SPARK_JARS / "*"]))
        java = str(find_java().home / "bin" / "java")
        node = [java, "-Xmx256m", "-XX:+UseSerialGC", "-cp", paths]
        names, data = [*node, f"{_NODES}.namenode.NameNode"], [*node, f"{_NODES}.datanode.DataNode"]
        _run([*place.entering, *names, "-format", "-nonInteractive"], "it was not formatted")

        def server(command: Sequence[str], log: str, ready: Callable[[], bool]) -> Server:
            return Server(
                command, user="root", log=folder / log, stop=SIGTERM, url=uri, ready=ready,
                place=place,
            )  # fmt: skip

        with (
            _running(server(names, "names.log", lambda: _data_nodes(state) is not None)),
            _running(server(data, "data.log", lambda: bool(_data_nodes(state)))),
        ):
            yield uri


def client_environment(
    *, spark_jars: str | Path = SPARK_JARS, java_home: str | Path | None = None
) -> dict[str, str]:
    """The environment in which pyarrow opens ``hdfs://``; skips where it cannot be had."""
    with _skipping():
        return {
            "ARROW_LIBHDFS_DIR": str(libhdfs()),
            "CLASSPATH": f"{spark_jars}/*",
            "JAVA_HOME": str(java_home or find_java().home),
            # of a JVM in each Python process, which would take a quarter of the memory
            "LIBHDFS_OPTS": "-Xmx128m -XX:+UseSerialGC",
        }


def server_jars() -> Path:
    """The folder of the servers' jar, of the version of PySpark's Hadoop."""
    [client] = SPARK_JARS.glob("hadoop-client-api-*.jar")
    version = client.stem.removeprefix("hadoop-client-api-")
    jar = kafka.Jar("org.apache.hadoop", "hadoop-client-minicluster", version)
    return kafka.fetched("hdfs", [jar], transitive=False)


def libhdfs() -> Path:
    """The folder of ``libhdfs.so``, compiled the first time."""
    folder = CACHE / f"libhdfs-{_CRATE}-{_SOURCES}"
    if folder.exists():
        return folder
    home = find_java().home
    for program in ("cargo", "gcc"):
        if shutil.which(program) is None:
            raise HdfsMissing(f"hdfs: libhdfs is not in {CACHE} and there is no `{program}`")
    if not (home / "include" / "jni.h").exists():
        raise HdfsMissing(f"hdfs: {home} has no jni.h to compile libhdfs with")
    CACHE.mkdir(parents=True, exist_ok=True)
    # into a folder of another name first: what is cut short leaves nothing that looks whole
    with tempfile.TemporaryDirectory(dir=CACHE) as made:
        work = Path(made)
        (work / "made").mkdir()
        _compile(_fetch_sources(work), home, work / "made" / "libhdfs.so")
        (work / "made").rename(folder)
    return folder


def _fetch_sources(work: Path) -> Path:
    """The sources of libhdfs, out of the crate."""
    (work / "lib.rs").touch()
    (work / "Cargo.toml").write_text(
        '[package]\nname = "sources"\nversion = "0.0.0"\nedition = "2021"\n'
        f'[lib]\npath = "lib.rs"\n[dependencies]\nhdfs-sys = "={_CRATE}"\n'
    )
    manifest = ["--manifest-path", str(work / "Cargo.toml")]
    _run(
        ["cargo", "vendor", "--quiet", *manifest, str(work / "vendor")], "cargo brought no sources"
    )
    return work / "vendor" / "hdfs-sys" / "libhdfs"


def _compile(sources: Path, java: Path, library: Path) -> None:
    own = sources / _SOURCES
    folders = [java / "include", java / "include" / "linux", sources, own]
    folders += [own / "os", own / "os" / "posix", own / "include"]
    flags = ["-shared", "-fPIC", "-O2", "-w", "-fcommon", *(f"-I{folder}" for folder in folders)]
    files = [str(own / name) for name in _COMPILED]
    jvm = [f"-L{java / 'lib' / 'server'}", "-ljvm", "-lpthread"]
    _run(["gcc", *flags, *files, *jvm, "-o", str(library)], "libhdfs was not compiled")


def write_configuration(folder: Path, settings: Mapping[str, str]) -> None:
    """Write Hadoop's two files of settings; each of its programs reads both."""
    folder.mkdir()
    lines = "".join(
        f"<property><name>{name}</name><value>{value}</value></property>"
        for name, value in settings.items()
    )
    for file in ("core-site.xml", "hdfs-site.xml"):
        (folder / file).write_text(f"<configuration>{lines}</configuration>")


def _settings(folder: Path, address: str, uri: str, page: int) -> dict[str, str]:
    return {
        "fs.defaultFS": uri,
        "dfs.namenode.name.dir": (folder / "names").as_uri(),
        "dfs.datanode.data.dir": (folder / "data").as_uri(),
        "dfs.replication": "1",
        "dfs.permissions.enabled": "false",
        "dfs.namenode.http-address": f"{address}:{page}",
        "dfs.datanode.address": f"{address}:0",
        "dfs.datanode.http.address": f"{address}:0",
        "dfs.datanode.ipc.address": f"{address}:0",
        # the data node's address has a name on its own host only
        "dfs.namenode.datanode.registration.ip-hostname-check": "false",
    }


def _data_nodes(state: str) -> int | None:
    """How many data nodes the name node has, by its own page; None where it does not answer."""
    try:
        with urllib.request.urlopen(state, timeout=2) as answer:
            [found] = json.load(answer)["beans"]
    except (OSError, ValueError):
        return None
    return int(found["NumLiveDataNodes"])


@contextlib.contextmanager
def _skipping() -> Iterator[None]:
    """Skip the test where something cannot be brought; a failure where servers are required."""
    try:
        yield
    except (HdfsMissing, kafka.KafkaMissing) as missing:
        if os.environ.get("RIVERMOUTH_REQUIRE_SERVERS") == "1":
            raise
        pytest.skip(str(missing))


def _run(command: Sequence[str], failure: str) -> None:
    done = subprocess.run(command, capture_output=True, text=True)
    if done.returncode:
        raise HdfsMissing(f"hdfs: {failure}. It said:\n{(done.stdout + done.stderr)[-2000:]}")
