"""What a machine has and lacks, one check a function."""

from __future__ import annotations

import importlib.metadata
import os
import re
import shutil
import sys
import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from rivermouth.errors import SessionError
from rivermouth.spark.runtime.java import find_java

#: there; there but poor; not there and not needed; not there and needed
State = Literal["ok", "poor", "absent", "missing"]

_GIGABYTE = 1 << 30
_EXTRAS = {
    "postgres": "tables in PostgreSQL",
    "mysql": "tables in MySQL and MariaDB",
    "java": "a Java where there is none",
    "connect": "Spark Connect",
    "plot": "pictures",
}


@dataclass(frozen=True)
class Check:
    """One line of the report."""

    name: str
    state: State
    found: str
    todo: str = ""


def needed() -> Iterator[Check]:
    """What nothing runs without."""
    yield python()
    yield java()
    yield bash()
    for requirement in requirements():
        if requirement.extra is None:
            yield requirement.check()


def machine() -> Iterator[Check]:
    """What Spark has to live in."""
    yield cores()
    yield memory()
    yield temporary_folder()
    if "SPARK_HOME" in os.environ:
        yield spark_home(os.environ["SPARK_HOME"])


def extras() -> Iterator[Check]:
    """What can be installed on top."""
    for requirement in requirements():
        if requirement.extra in _EXTRAS:
            yield requirement.check()


def servers() -> Iterator[Check]:
    """What tests and benchmarks start by themselves, where it is there."""
    yield postgres()
    yield program("MariaDB", ["mariadbd"], "tests of MySQL tables")
    yield program("Chromium", ["chromium", "chromium-browser", "google-chrome"], "tests of pages")
    yield program("Maven", ["mvn"], "benchmarks with Kafka")


def python() -> Check:
    """The Python that runs this."""
    version = ".".join(map(str, sys.version_info[:3]))
    return Check("Python", "ok", f"{version}, {sys.executable}")


def java() -> Check:
    """The Java that a session of ours would take."""
    try:
        found = find_java()
    except SessionError as error:
        return Check("Java", "missing", error.there, error.todo)
    return Check("Java", "ok", f"{found.version} from {found.origin}, {found.home}")


def bash() -> Check:
    """The shell that Spark's launcher is written for."""
    found = shutil.which("bash")
    if found is None:
        return Check("bash", "missing", "not on the PATH", "Install it: it launches Spark.")
    return Check("bash", "ok", found)


@dataclass(frozen=True)
class Requirement:
    """A package that ours asks for, and the versions it may have: from `oldest` to below `bound`.

    Examples
    --------
    >>> Requirement.parse("pandas<3,>=2.2")
    Requirement(name='pandas', oldest='2.2', bound='3', extra=None)
    >>> Requirement.parse("psycopg[binary]>=3.2; extra == 'postgres'")
    Requirement(name='psycopg', oldest='3.2', bound='', extra='postgres')
    """

    name: str
    oldest: str
    bound: str
    extra: str | None

    @classmethod
    def parse(cls, line: str) -> Requirement:
        """The requirement that a line of a package's metadata states."""
        name = re.match(r"[\w.-]+", line)
        oldest = re.search(r">=([\d.]+)", line)
        bound = re.search(r"<([\d.]+)", line)
        extra = re.search(r"extra == ['\"](\w+)", line)
        assert name is not None
        return cls(
            name[0],
            oldest[1] if oldest else "",
            bound[1] if bound else "",
            extra[1] if extra else None,
        )

    def check(self) -> Check:
        """Whether a version that will do is installed."""
        try:
            version = importlib.metadata.version(self.name)
        except importlib.metadata.PackageNotFoundError:
            return self._lacking("not installed")
        if not self.admits(version):
            return self._lacking(f"{version} is installed, it must be {self.range}")
        return Check(self.name, "ok", f"{version}{_more_about(self.name)}")

    def admits(self, version: str) -> bool:
        """Whether `version` is in the range.

        Examples
        --------
        >>> pyspark = Requirement("pyspark", "4.3", "4.4", None)
        >>> [pyspark.admits(version) for version in ("4.2.9", "4.3.0", "4.3.10", "4.4.0", "4.10")]
        [False, True, True, False, False]
        """
        number = _numbers(version)
        return _numbers(self.oldest) <= number and (not self.bound or number < _numbers(self.bound))

    @property
    def range(self) -> str:
        """The range in words."""
        return f"{self.oldest} or newer" + (f", below {self.bound}" if self.bound else "")

    def _lacking(self, found: str) -> Check:
        bound = f",<{self.bound}" if self.bound else ""
        if self.extra is None:
            todo = f'Run: pip install "{self.name}>={self.oldest}{bound}"'
            return Check(self.name, "missing", found, todo)
        todo = f'For {_EXTRAS[self.extra]}: pip install "rivermouth[{self.extra}]"'
        return Check(self.name, "absent", found, todo)


def requirements() -> list[Requirement]:
    """What our package asks for, by its own metadata."""
    return [Requirement.parse(line) for line in importlib.metadata.requires("rivermouth") or []]


def _numbers(version: str) -> tuple[int, ...]:
    return tuple(map(int, re.findall(r"\d+", version)))


def _more_about(name: str) -> str:
    if name != "shapely":
        return ""
    import shapely

    return f" with GEOS {shapely.geos_version_string}"


def cores() -> Check:
    """The cores that this process may use."""
    count = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()
    if (count or 1) < 2:
        return Check("Cores", "poor", "1", "Expect streams to be slow.")
    return Check("Cores", "ok", str(count))


def memory() -> Check:
    """The machine's memory; a session of ours takes a heap of 2 GB, and its workers some more."""
    size = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / _GIGABYTE
    if size < 4:
        return Check(
            "Memory", "poor", f"{size:.1f} GB", "Give a session less: local_session(memory='1g')."
        )
    return Check("Memory", "ok", f"{size:.1f} GB")


def temporary_folder() -> Check:
    """Where Spark puts what does not fit in memory."""
    try:
        with tempfile.NamedTemporaryFile(prefix="rivermouth-") as file:
            file.write(b"x")
    except OSError as error:
        return Check(
            "Temporary files",
            "missing",
            str(error),
            "Set TMPDIR to a folder that can be written.",
        )
    folder = tempfile.gettempdir()
    free = shutil.disk_usage(folder).free / _GIGABYTE
    if free < 1:
        return Check(
            "Temporary files", "poor", f"{folder}, {free:.1f} GB free", "Make room, or set TMPDIR."
        )
    return Check("Temporary files", "ok", f"{folder}, {free:.0f} GB free")


def spark_home(folder: str) -> Check:
    """A Spark of the user's own: it is started instead of the one that pyspark brings."""
    return Check(
        "SPARK_HOME", "poor", folder, "Unset it, unless that Spark is of pyspark's version."
    )


def postgres() -> Check:
    """PostgreSQL's server and PostGIS."""
    purpose = "tests of PostgreSQL tables"
    # Debian keeps the server's programs out of the PATH
    folders = sorted(map(str, Path("/usr/lib/postgresql").glob("*/bin")), reverse=True)
    server = program("PostgreSQL", ["postgres"], purpose, folders)
    if server.state != "ok":
        return server
    root = Path(server.found).resolve().parent.parent
    shared = [root / "share", Path("/usr/share/postgresql", root.name)]
    if not any(list(folder.glob("**/postgis.control")) for folder in shared):
        return Check(
            "PostgreSQL", "absent", f"{server.found}, without PostGIS", f"Install it for {purpose}."
        )
    return Check("PostgreSQL", "ok", f"{server.found}, with PostGIS")


def program(name: str, commands: Sequence[str], purpose: str, folders: Sequence[str] = ()) -> Check:
    """The first of `commands` that is on the PATH, in a folder for servers or in `folders`."""
    path = os.pathsep.join([os.environ.get("PATH", ""), "/usr/local/sbin", "/usr/sbin", *folders])
    found = next(filter(None, (shutil.which(command, path=path) for command in commands)), None)
    if found is None:
        return Check(name, "absent", "not on the PATH", f"Install it for {purpose}.")
    return Check(name, "ok", found)
