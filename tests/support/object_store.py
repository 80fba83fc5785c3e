"""An S3 server on loopback (moto), and the jars by which Spark speaks to it."""

from __future__ import annotations

import contextlib
import os
import socket
import sys
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from signal import SIGTERM

import pyarrow.fs
import pytest
from benchmarks.harness import kafka
from tests.support.servers import Server, _free_port, _running

KEY, SECRET = "AKIARIVERMOUTH", "s3cr3t/k3y"
_SDK = "software.amazon.awssdk"
_HADOOP = [  # as Spark 4.3's Hadoop
    kafka.Jar("org.apache.hadoop", "hadoop-aws", "3.5.0"),
    kafka.Jar("software.amazon.s3.analyticsaccelerator", "analyticsaccelerator-s3", "1.3.1"),
]
_SDK_JARS = [
    kafka.Jar(_SDK, "s3", "2.35.4"),
    kafka.Jar(_SDK, "s3-transfer-manager", "2.35.4"),
    kafka.Jar(_SDK, "sts", "2.35.4"),
]


@dataclass(frozen=True)
class ObjectStore:
    """A running server, with a bucket in it."""

    endpoint: str
    bucket: str = "lake"

    def uri(self, folder: str, scheme: str = "s3") -> str:
        """A folder of the bucket, with keys and all that pyarrow must know in it."""
        keys = f"{KEY}:{SECRET.replace('/', '%2F')}"
        query = f"?endpoint_override={self.endpoint}&scheme=http&region=us-east-1"
        return f"{scheme}://{keys}@{self.bucket}/{folder}{query}"

    @property
    def files(self) -> pyarrow.fs.S3FileSystem:
        """The store, without any code of ours."""
        return pyarrow.fs.S3FileSystem(
            access_key=KEY, secret_key=SECRET, endpoint_override=self.endpoint, scheme="http",
            region="us-east-1", allow_bucket_creation=True,
        )  # fmt: skip

    def names(self, folder: str) -> list[str]:
        """The files in a folder, by their paths in it."""
        selector = pyarrow.fs.FileSelector(f"{self.bucket}/{folder}", recursive=True)
        found = self.files.get_file_info(selector)
        start = len(f"{self.bucket}/{folder}/")
        return sorted(i.path[start:] for i in found if i.type == pyarrow.fs.FileType.File)

    def spark_settings(self) -> dict[str, str]:
        """What Hadoop's ``s3a`` must know to speak to it; the jars are fetched by Maven."""
        return {
            "spark.jars": s3a_jars(),
            "spark.hadoop.fs.s3a.endpoint": f"http://{self.endpoint}",
            "spark.hadoop.fs.s3a.endpoint.region": "us-east-1",
            "spark.hadoop.fs.s3a.access.key": KEY,
            "spark.hadoop.fs.s3a.secret.key": SECRET,
            "spark.hadoop.fs.s3a.path.style.access": "true",
            # its client for whole files needs a Netty beside Spark's
            "spark.hadoop.fs.s3a.optimized.copy.from.local.enabled": "false",
        }


def s3a_jars() -> str:
    """Hadoop's ``s3a`` and what it needs, as ``spark.jars`` takes it; skips where they are not."""
    try:
        # by parts: Hadoop asks for all of the SDK, of which it needs a thirtieth
        folders = [
            kafka.fetched("s3a", _HADOOP, transitive=False),
            kafka.fetched("s3-sdk", _SDK_JARS, transitive=True),
        ]
    except kafka.KafkaMissing as missing:
        if os.environ.get("RIVERMOUTH_REQUIRE_SERVERS") == "1":
            raise
        pytest.skip(str(missing))
    return ",".join(str(jar) for folder in folders for jar in sorted(folder.glob("*.jar")))


@contextlib.contextmanager
def object_store() -> Iterator[tuple[ObjectStore, Server]]:
    """A fresh S3 server with an empty bucket, and the server to be stopped."""
    pytest.importorskip("moto.server", reason="moto is not installed", exc_type=ImportError)
    port = _free_port()
    with tempfile.TemporaryDirectory(prefix="rivermouth-s3-") as folder:
        server = Server(
            [sys.executable, "-m", "moto.server", "-H", "127.0.0.1", "-p", str(port)],
            user="root",
            log=Path(folder) / "log",
            stop=SIGTERM,
            url=f"127.0.0.1:{port}",
            ready=lambda: _answers(port),
        )
        with _running(server):
            store = ObjectStore(server.url)
            store.files.create_dir(store.bucket)
            yield store, server


def _answers(port: int) -> bool:
    with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", port), 1):
        return True
    return False
