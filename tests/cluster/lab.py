"""The lab: a Spark cluster, PostgreSQL, Kafka, an S3 server and HDFS, each on a host of its own.

Every part starts when it is first asked for. All hosts see ``/mnt/shared``, which plays the
network file system, Spark in ``/opt/spark`` and Java in ``/opt/java``, and call each other by
name: ``spark://master:7077``. An environment that a test makes is in ``/opt/rivermouth``.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import urllib.request
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from functools import cached_property
from pathlib import Path
from typing import Any, Self

import pyarrow.fs
import pyspark
from benchmarks.harness import kafka
from tests.cluster.hosts import ROOT, Host, Network, Site, network, wait_for
from tests.support.hdfs import client_environment, hdfs
from tests.support.servers import Place, Server, mariadb_server, postgres_server

from rivermouth.spark.runtime.java import find_java, launch_home
from rivermouth.spark.runtime.session import ROCKSDB

SITE = Site("rmlab", "10.77.0")
ALL_WORKERS = tuple(f"worker-{number}" for number in range(1, 7))
WORKERS = ALL_WORKERS[:3]
SHARED = "/mnt/shared"  # as hosts see it
MASTER = "spark://master:7077"
BUCKET = "lab"  # on the S3 server
INSTALLED = "/opt/rivermouth"  # for an environment that hosts have, empty at the start
#: what earlier versions left behind names its files by this path, so that all hosts share it, too
PERSISTED = "/tmp/rivermouth-persisted"

_SPARK, _JAVA, _LAUNCHER = "/opt/spark", "/opt/java", "/opt/java-launcher"
_LIBHDFS = "/opt/hadoop/lib/native"  # empty until there is an HDFS
_NAMES = ("master", *ALL_WORKERS, "driver", "client", "postgres", "mariadb", "kafka", "s3", "hdfs")
#: JVMs that start soon and stay small: two cores are many hosts here
_SMALL = "-XX:+UseSerialGC -XX:TieredStopAtLevel=1"
_DAEMON = {"SPARK_DAEMON_MEMORY": "256m", "SPARK_DAEMON_JAVA_OPTS": _SMALL}
_PATIENCE = 300.0  # seconds for a server to start: all hosts share two cores
_SECRETS = {"AWS_ACCESS_KEY_ID": "lab", "AWS_SECRET_ACCESS_KEY": "lab"}


@contextmanager
def lab() -> Iterator[Lab]:
    """A lab without hosts yet, which is gone afterwards."""
    with ExitStack() as stack:
        java = find_java()
        binds = {
            SHARED: SITE.folder / "shared",
            INSTALLED: SITE.folder / "installed",
            PERSISTED: SITE.folder / "persisted",
            _SPARK: Path(pyspark.__file__).parent,
            _JAVA: java.home,
            _LAUNCHER: SITE.folder / "java",
            _LIBHDFS: SITE.folder / "libhdfs",
        }
        opened = stack.enter_context(network(SITE, _NAMES, binds))
        made = launch_home(replace(java, home=Path(_JAVA)))  # starts the Java that hosts see
        (SITE.folder / "java" / "bin").mkdir()
        (SITE.folder / "java" / "bin" / "java").write_bytes((made / "bin" / "java").read_bytes())
        (SITE.folder / "java" / "bin" / "java").chmod(0o755)
        (SITE.folder / "java" / "lib").symlink_to(f"{_JAVA}/lib")  # libjvm is looked for there
        yield Lab(opened, stack)


class Lab:
    """The lab's hosts and servers; `lab` opens it."""

    def __init__(self, network: Network, stack: ExitStack) -> None:
        self.network, self._stack = network, stack
        self.shared, self.installed = SITE.folder / "shared", SITE.folder / "installed"
        self.persisted = SITE.folder / "persisted"
        self._logs = SITE.folder / "logs"
        self._logs.mkdir()

    def host(self, name: str) -> Host:
        return self.network.host(name)

    @cached_property
    def postgres(self) -> Server:
        """A PostgreSQL with PostGIS."""
        return self._stack.enter_context(postgres_server(self._place("postgres")))

    @cached_property
    def mariadb(self) -> Server:
        """A MariaDB."""
        return self._stack.enter_context(mariadb_server(self._place("mariadb")))

    @cached_property
    def kafka(self) -> str:
        """A broker's address."""
        place = self._place("kafka")
        broker = kafka.broker(place.address, entering=place.entering, within=place.folder)
        return self._stack.enter_context(broker)

    @cached_property
    def s3(self) -> dict[str, str]:
        """The environment in which ``s3://lab`` is the bucket of a server here."""
        host = self.host("s3")
        server = [sys.executable, "-m", "moto.server", "--host", "0.0.0.0", "--port", "5000"]
        self.spawn("s3", server, env={"MOTO_S3_CUSTOM_ENDPOINTS": f"http://{host.address}:5000"})
        wait_for(
            lambda: _answers(f"http://{host.address}:5000/"), "no S3 server", seconds=_PATIENCE
        )
        outside = pyarrow.fs.S3FileSystem(
            access_key="lab", secret_key="lab", region="us-east-1",
            endpoint_override=f"http://{host.address}:5000", allow_bucket_creation=True,
        )  # fmt: skip
        outside.create_dir(BUCKET)
        return {
            **_SECRETS,
            "AWS_ENDPOINT_URL": "http://s3:5000",
            "AWS_DEFAULT_REGION": "us-east-1",
        }

    @cached_property
    def hdfs(self) -> str:
        """The URI of an HDFS; libhdfs is on all hosts from now on."""
        library = Path(client_environment()["ARROW_LIBHDFS_DIR"], "libhdfs.so")
        self._stack.enter_context(hdfs(self._place("hdfs")))
        shutil.copy(library, SITE.folder / "libhdfs")
        return "hdfs://hdfs:8020"

    def _clients(self) -> dict[str, str]:
        """The environment by which pyarrow finds the servers that have been asked for."""
        s3 = self.s3 if "s3" in vars(self) else {}
        if "hdfs" not in vars(self):
            return s3
        hadoop = client_environment(spark_jars=f"{_SPARK}/jars", java_home=_LAUNCHER)
        return {**s3, **hadoop, "ARROW_LIBHDFS_DIR": _LIBHDFS}

    def cluster(self, workers: Sequence[str] = WORKERS, *, hide: Sequence[Path] = ()) -> str:
        """The URL of a master that has these workers, of one core each, and no others.

        `hide` is what workers that start now do not see.
        """
        if not self.network.hosts.get("master"):
            master = ["org.apache.spark.deploy.master.Master", "--host", "master"]
            self.spawn(
                "master", [f"{_SPARK}/bin/spark-class", *master, "--port", "7077"],
                env={**_DAEMON, "SPARK_MASTER_OPTS": "-Dspark.worker.timeout=15"},
            )  # fmt: skip
            wait_for(self._workers, "no master", seconds=_PATIENCE)
        for name in ALL_WORKERS:
            host = self.network.hosts.get(name)
            if name not in workers and host is not None:
                host.kill()
            elif name in workers and (host is None or not host.processes("deploy.worker.Worker")):
                self.network.host(name, hide=hide)
                self.start_worker(name)
        wait_for(lambda: self._workers() == {*workers}, "workers are missing", seconds=_PATIENCE)
        return MASTER

    def start_worker(self, name: str) -> None:
        """Start Spark's worker on its host, which is started if it does not run."""
        worker = ["org.apache.spark.deploy.worker.Worker", "--cores", "1", "--memory", "1g"]
        folders = {"SPARK_WORKER_DIR": "/tmp/work", "SPARK_LOCAL_DIRS": "/tmp/local"}
        self.spawn(name, [f"{_SPARK}/bin/spark-class", *worker, "--host", name, MASTER],
                   env={**_DAEMON, **folders})  # fmt: skip

    def _workers(self) -> set[str] | None:
        """The workers that the master has, by its own page; None where there is no master."""
        page = _answers(f"http://{self.host('master').address}:8080/json/")
        try:
            known = json.loads(page or "")["workers"]
        except ValueError:  # a master that has not come up yet may answer with another page
            return None
        return {worker["host"] for worker in known if worker["state"] == "ALIVE"} or {""}

    def spawn(
        self, name: str, command: Sequence[str], *, env: Mapping[str, str], **pipes: Any
    ) -> subprocess.Popen[str]:
        """Start a program on a host; what it says goes to a log of the lab."""
        with self.log(name).open("a") as log:
            given = {"stdout": log, "stderr": log} | pipes
            return self.host(name).spawn(command, env={**self.environment(), **env}, **given)

    def log(self, name: str) -> Path:
        """What programs on a host have said."""
        return self._logs / f"{name}.log"

    def environment(self) -> dict[str, str]:
        """What programs on a host find in their environment."""
        return {
            "JAVA_HOME": _LAUNCHER,
            "SPARK_HOME": _SPARK,
            "SPARK_LOG_DIR": "/tmp/logs",
            "PATH": os.pathsep.join(
                [f"{_SPARK}/bin", f"{sys.base_prefix}/bin", os.environ["PATH"]]
            ),
        }

    @property
    def python(self) -> dict[str, str]:
        """The environment in which hosts that see this project run its code."""
        path = os.pathsep.join([str(ROOT / "src"), str(ROOT)])
        return {"PYTHONPATH": path, "PYTHONDONTWRITEBYTECODE": "1", **self._clients()}

    def settings(self) -> dict[str, str]:
        """The Spark settings of an application on the cluster."""
        return {
            "spark.master": MASTER,
            "spark.driver.memory": "1g",
            "spark.driver.extraJavaOptions": _SMALL,
            "spark.executor.memory": "640m",
            "spark.executor.extraJavaOptions": _SMALL,
            "spark.ui.enabled": "false",
            "spark.ui.showConsoleProgress": "false",
            "spark.sql.shuffle.partitions": "3",
            "spark.sql.session.timeZone": "UTC",
            "spark.sql.execution.arrow.pyspark.enabled": "true",
            "spark.sql.streaming.stateStore.providerClass": ROCKSDB,
            "spark.sql.streaming.stateStore.rocksdb.changelogCheckpointing.enabled": "true",
            **{f"spark.executorEnv.{name}": value for name, value in self.python.items()},
        }

    def driver(self, *, on: str = "driver", **settings: str) -> Driver:
        """A driver on a host of its own; `settings` go before those of the lab.

        ``remote="sc://..."`` makes it a client of Spark Connect.
        """
        given = settings if "remote" in settings else {**self.settings(), **settings}
        return Driver(self, on, given)

    def _place(self, name: str) -> Place:
        host = self.host(name)
        (host.folder / "data").mkdir(exist_ok=True)
        return Place(host.address, tuple(host.entering()), host.folder / "data")


class Driver:
    """A process with a Spark session, which calls functions of test modules for us."""

    def __init__(self, lab: Lab, host: str, settings: Mapping[str, str]) -> None:
        self._log, pipe = lab.log(host), subprocess.PIPE
        environment = lab.python | {"PYSPARK_PYTHON": sys.executable}
        self.process = lab.spawn(
            host, [sys.executable, "-m", "tests.cluster.programs.driver", json.dumps({**settings})],
            env=environment, stdin=pipe, stdout=pipe,
        )  # fmt: skip
        self._answer()

    def call(self, function: str, **arguments: Any) -> Any:
        """What ``module:function`` gives, called with the session and these arguments."""
        assert self.process.stdin is not None
        self.process.stdin.write(json.dumps({"function": function, "arguments": arguments}) + "\n")
        self.process.stdin.flush()
        return self._answer()

    def _answer(self) -> Any:
        assert self.process.stdout is not None
        line = self.process.stdout.readline()
        if not line:
            end = self._log.read_text()[-4000:]
            raise RuntimeError(f"the driver ended with {self.process.wait()}:\n{end}")
        answer = json.loads(line)
        if "error" in answer:
            raise RuntimeError(answer["error"])
        return answer["value"]

    def close(self) -> None:
        """Stop the session and end the process."""
        self.process.communicate(timeout=60)  # closes its input

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *failure: object) -> None:
        self.close()


def _answers(url: str) -> str | None:
    try:
        with urllib.request.urlopen(url, timeout=2) as answer:
            return str(answer.read().decode())
    except OSError:
        return None
