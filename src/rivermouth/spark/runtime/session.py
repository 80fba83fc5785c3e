"""A Spark of our own, for the command line, the demo, tests and benchmarks.

Operators never build a session: they take the one that their frame belongs to.
"""

from __future__ import annotations

import atexit
import os
import shutil
import sys
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from rivermouth.spark.runtime.java import find_java, launch_home
from rivermouth.spark.runtime.versions import check_local, installed

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

ROCKSDB = "org.apache.spark.sql.execution.streaming.state.RocksDBStateStoreProvider"
#: of a stateful operator, however many shuffle partitions there are, unless more are asked for
MOST_BUCKETS = 32
#: settings of a session that runs for a minute or two: the JVM's second compiler costs more than it
#: saves there (the demo took 31 CPU-seconds with it and 15 without); without it the default code
#: cache, of 48 MB, is too small
SHORT_LIVED = {
    "spark.driver.defaultJavaOptions": "-XX:TieredStopAtLevel=1 -XX:ReservedCodeCacheSize=240m "
    "-XX:+UseSerialGC"
}
_LOGGING = Path(__file__).with_name("log4j2.properties")


def local_session(
    name: str = "rivermouth",
    *,
    cores: int = 2,
    memory: str = "2g",
    conf: Mapping[str, str] | None = None,
) -> SparkSession:
    """A running session on this machine, bound to loopback, which only speaks of errors.

    A session that runs in this process already is returned as Spark does it: with the settings
    that can still be changed.

    Parameters
    ----------
    name
        The application's name.
    cores
        How many tasks run at once; also the number of shuffle partitions.
    memory
        The JVM's heap. Python workers come on top of it.
    conf
        Spark settings that go before ours.

    Raises
    ------
    SessionError
        When there is no Spark or Java to run it on.
    """
    check_local()
    from pyspark.sql import SparkSession

    builder = SparkSession.builder.appName(name).master(f"local[{cores}]")
    for key, value in (settings(cores=cores, memory=memory) | dict(conf or {})).items():
        builder = builder.config(key, value)
    with launch_environment():
        return builder.getOrCreate()


def cluster_session(
    master: str, *, name: str = "rivermouth", conf: Mapping[str, str] | None = None
) -> SparkSession:
    """A session on a cluster, with the settings of this host's Spark and those of `conf`.

    ``sc://HOST:PORT`` is a server of Spark Connect, anything else a master's URL. Workers run the
    Python that PYSPARK_PYTHON or ``spark.pyspark.python`` names, or one as this.
    """
    is_connect = master.startswith("sc://")
    installed() if is_connect else check_local()
    from pyspark.sql import SparkSession

    builder = SparkSession.builder.appName(name)
    for key, value in dict(conf or {}).items():
        builder = builder.config(key, value)
    if is_connect:
        return builder.remote(master).getOrCreate()
    with launch_environment(python=os.environ.get("PYSPARK_PYTHON", sys.executable)):
        return builder.master(master).getOrCreate()


def settings(*, cores: int, memory: str) -> dict[str, str]:
    """The Spark settings of a session of ours, without its master."""
    folder = tempfile.mkdtemp(prefix="rivermouth-spark-")
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    return {
        "spark.driver.memory": memory,
        "spark.driver.bindAddress": "127.0.0.1",
        "spark.driver.host": "127.0.0.1",
        "spark.driver.extraJavaOptions": (
            f"-Dlog4j2.configurationFile={_LOGGING.as_uri()} -Djava.io.tmpdir={folder}"
        ),
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
        "spark.local.dir": folder,
        "spark.sql.warehouse.dir": f"{folder}/warehouse",
        "spark.sql.shuffle.partitions": str(cores),
        "spark.sql.session.timeZone": "UTC",
        "spark.sql.execution.arrow.pyspark.enabled": "true",
        "spark.sql.streaming.stateStore.providerClass": ROCKSDB,
        # a micro-batch writes its changes and uploads no new files of RocksDB
        "spark.sql.streaming.stateStore.rocksdb.changelogCheckpointing.enabled": "true",
    }


@contextmanager
def launch_environment(python: str | None = None) -> Iterator[None]:
    """What a JVM that is launched in this block needs of the environment.

    `python` is what workers run; None: what runs this process.

    PYSPARK_PYTHON stays set: contexts made later start their workers by it. JAVA_HOME is put
    back, as programs that this process starts may want the real one.
    """
    os.environ["PYSPARK_PYTHON"] = python or sys.executable
    before = os.environ.get("JAVA_HOME")
    os.environ["JAVA_HOME"] = str(launch_home(find_java()))
    try:
        yield
    finally:
        if before is None:
            del os.environ["JAVA_HOME"]
        else:
            os.environ["JAVA_HOME"] = before
