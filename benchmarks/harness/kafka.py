"""A real Kafka on loopback, for benchmarks and tests.

The jars come from Maven once, into ``.cache/kafka`` of the project; Maven is
asked through its own configuration, so a machine that goes through a mirror
needs nothing here. The Python clients live in an environment of their own
beside them: they are tools of the measurement, not parts of the library.
"""

from __future__ import annotations

import contextlib
import hashlib
import shutil
import socket
import subprocess
import sys
import tempfile
import time
import venv
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

from rivermouth.spark.runtime.java import find_java

__all__ = ["KafkaMissing", "broker", "client_python", "connector_jars", "free_ports", "versions"]

CACHE = Path(__file__).resolve().parents[2] / ".cache" / "kafka"
CLIENT = "confluent-kafka==2.16.1"
CLUSTER = "cml2ZXJtb3V0aC10ZXN0cw"  # any 16 bytes in base 64


class KafkaMissing(RuntimeError):
    """What is needed to bring or start Kafka is not on this machine."""


class Jar(NamedTuple):
    """A Maven artifact: group, name and version, as Maven writes them."""

    group: str
    name: str
    version: str


# Spark 4.3.0's own connector is not published everywhere yet; 4.2.0 runs on 4.3.0, and the
# versions beside it are the newest that do. Named one by one, without what they would pull in:
# the rest of their needs is Spark itself.
CONNECTOR = (
    Jar("org.apache.spark", "spark-sql-kafka-0-10_2.13", "4.2.0"),
    Jar("org.apache.spark", "spark-token-provider-kafka-0-10_2.13", "4.0.0"),
    Jar("org.apache.kafka", "kafka-clients", "3.9.2"),
    Jar("org.apache.commons", "commons-pool2", "2.12.0"),
)
BROKER = (Jar("org.apache.kafka", "kafka_2.13", "4.1.0"),)


def versions() -> dict[str, str]:
    """Versions of all that a figure measured with this Kafka may depend on."""
    client, _, version = CLIENT.partition("==")
    return {jar.name: jar.version for jar in (*BROKER, *CONNECTOR)} | {client: version}


def connector_jars() -> str:
    """Paths of Spark's Kafka connector and its needs, as ``spark.jars`` takes them.

    Raises
    ------
    KafkaMissing
        If the jars are not in the cache and ``mvn`` cannot bring them.
    """
    folder = fetched("connector", CONNECTOR, transitive=False)
    return ",".join(str(jar) for jar in sorted(folder.glob("*.jar")))


def client_python() -> Path:
    """The interpreter of an environment that has a Kafka client (librdkafka)."""
    home = CACHE / f"client-{CLIENT.replace('==', '-')}-py{sys.version_info.minor}"
    python = home / "bin" / "python"
    if not (home / "ready").exists():
        shutil.rmtree(home, ignore_errors=True)
        venv.create(home, with_pip=True)
        _run([str(python), "-m", "pip", "install", "--quiet", CLIENT], "pip brought no client")
        (home / "ready").touch()
    return python


@contextlib.contextmanager
def broker(
    address: str = "127.0.0.1", *, entering: Sequence[str] = (), within: Path | None = None
) -> Iterator[str]:
    """Run one Kafka broker (KRaft, free ports) and yield its address.

    Its data is a temporary folder; broker and folder are gone at exit.

    Parameters
    ----------
    address
        What it listens on.
    entering
        What its commands begin with, to run on another host.
    within
        Where the temporary folder is; it must be visible there.

    Raises
    ------
    KafkaMissing
        If the jars are missing or the broker does not come up.
    SessionError
        If there is no Java.
    """
    jars = fetched("broker", BROKER, transitive=True)
    with tempfile.TemporaryDirectory(prefix="rivermouth-kafka-", dir=within) as place:
        data = Path(place)
        port, controller = free_ports(2)
        properties = data / "server.properties"
        properties.write_text(_properties(data / "log", address, port, controller))
        java = find_java().home / "bin" / "java"
        kafka = [*entering, str(java), "-Xmx512m", "-cp", f"{jars}/*"]
        form = ["format", "--standalone", "--cluster-id", CLUSTER, "--config", str(properties)]
        _run([*kafka, "kafka.tools.StorageTool", *form], "the storage could not be formatted")
        with (data / "broker.out").open("wb") as out:
            process = subprocess.Popen(
                [*kafka, "kafka.Kafka", str(properties)], stdout=out, stderr=subprocess.STDOUT
            )
        try:
            _wait(process, address, port, data / "broker.out")
            yield f"{address}:{port}"
        finally:
            _stop(process)


def free_ports(count: int) -> list[int]:
    """Ports of loopback that nobody listens on right now, all different."""
    with contextlib.ExitStack() as stack:
        sockets = [stack.enter_context(socket.socket()) for _ in range(count)]
        for one in sockets:
            one.bind(("127.0.0.1", 0))
        return [one.getsockname()[1] for one in sockets]


def _properties(log: Path, address: str, port: int, controller: int) -> str:
    """The broker's configuration: one node that is broker and controller."""
    lines = {
        "process.roles": "broker,controller",
        "node.id": "1",
        "controller.listener.names": "CONTROLLER",
        "controller.quorum.bootstrap.servers": f"{address}:{controller}",
        "listeners": f"PLAINTEXT://{address}:{port},CONTROLLER://{address}:{controller}",
        "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT",
        "log.dirs": str(log),
        "num.partitions": "1",
        # One broker cannot replicate, and nobody else will join a group.
        "offsets.topic.replication.factor": "1",
        "offsets.topic.num.partitions": "1",
        "transaction.state.log.replication.factor": "1",
        "transaction.state.log.min.isr": "1",
        "group.initial.rebalance.delay.ms": "0",
    }
    return "".join(f"{key}={value}\n" for key, value in lines.items())


def _wait(
    process: subprocess.Popen[bytes], address: str, port: int, out: Path, seconds: float = 120
) -> None:
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline and process.poll() is None:
        with contextlib.suppress(OSError), socket.create_connection((address, port), 1):
            return
        time.sleep(0.1)
    end = out.read_text(errors="replace")[-2000:]
    raise KafkaMissing(f"kafka: the broker did not come up in {seconds:.0f} s. It said:\n{end}")


def _stop(process: subprocess.Popen[bytes]) -> None:
    process.terminate()
    try:
        process.wait(10)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()


def fetched(name: str, jars: Sequence[Jar], *, transitive: bool) -> Path:
    """The cache's folder with these jars, brought by Maven the first time."""
    pom = _pom(jars, transitive=transitive)
    folder = CACHE / f"{name}-{hashlib.sha256(pom.encode()).hexdigest()[:12]}"
    if folder.exists():
        return folder
    mvn = shutil.which("mvn")
    if mvn is None:
        raise KafkaMissing(
            f"kafka: the {name}'s jars are not in {CACHE} and there is no `mvn` to bring them. "
            "Install Maven (Debian: apt-get install maven)."
        )
    CACHE.mkdir(parents=True, exist_ok=True)
    # Into a folder of another name first: a fetch cut short leaves nothing that looks whole.
    with tempfile.TemporaryDirectory(dir=CACHE) as place:
        work = Path(place)
        (work / "pom.xml").write_text(pom)
        copy = ["dependency:copy-dependencies", f"-DoutputDirectory={work / 'jars'}"]
        _run([mvn, "-q", "-B", "-f", str(work / "pom.xml"), *copy], f"Maven brought no {name}")
        (work / "jars").rename(folder)
    return folder


def _pom(jars: Sequence[Jar], *, transitive: bool) -> str:
    """A project that needs these jars and is nothing else."""
    every = "<exclusion><groupId>*</groupId><artifactId>*</artifactId></exclusion>"
    alone = f"<exclusions>{every}</exclusions>"
    needs = "".join(
        f"<dependency><groupId>{jar.group}</groupId><artifactId>{jar.name}</artifactId>"
        f"<version>{jar.version}</version>{'' if transitive else alone}</dependency>"
        for jar in jars
    )
    return (
        "<project><modelVersion>4.0.0</modelVersion><groupId>rivermouth</groupId>"
        "<artifactId>kafka</artifactId><version>1</version><packaging>pom</packaging>"
        f"<dependencies>{needs}</dependencies></project>"
    )


def _run(command: Sequence[str], failure: str) -> None:
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        raise KafkaMissing(f"kafka: {failure}. It said:\n{(done.stdout + done.stderr)[-2000:]}")
