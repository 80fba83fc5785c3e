"""The checks of ``rivermouth doctor``."""

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
from rivermouth.spark.runtime import versions
from rivermouth.spark.runtime.java import find_java

#: found; found with a problem; optional and not found; required and not found
State = Literal["ok", "warning", "absent", "missing"]

_GIGABYTE = 1 << 30
_EXTRAS = {
    "postgres": "tables in PostgreSQL",
    "mysql": "tables in MySQL and MariaDB",
    "java": "a Java where there is none",
    "connect": "Spark Connect",
    "plot": "pictures",
    "pipelines": "declared pipelines",
}


@dataclass(frozen=True)
class Check:
    """One line of the report."""

    name: str
    state: State
    found: str
    todo: str = ""


def required() -> Iterator[Check]:
    """What every command needs."""
    yield Check("Python", "ok", f"{sys.version.split()[0]}, {sys.executable}")
    yield pyspark()
    yield java()
    if bash := shutil.which("bash"):
        yield Check("bash", "ok", bash)
    else:
        yield Check("bash", "missing", "not on the PATH", "Install it: it launches Spark.")
    yield from (each.check() for each in requirements() if each.extra is None)


def machine() -> Iterator[Check]:
    """Cores, memory and disk."""
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()
    yield _low("Cores", (cores or 1) < 2, str(cores), "Expect streams to be slow.")
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / _GIGABYTE
    # a local session takes a heap of 2 GB, and its workers some more
    todo = "Give a session less: local_session(memory='1g')."
    yield _low("Memory", memory < 4, f"{memory:.1f} GB", todo)
    yield temporary_folder()
    if home := os.environ.get("SPARK_HOME"):  # started instead of the Spark in pyspark
        yield spark_home(Path(home))


def spark_home(home: Path) -> Check:
    """Whether the Spark that is started is of PySpark's version, by the name of its first jar."""
    found = sorted(home.glob("jars/spark-core_*.jar"))
    version = found[0].stem.rpartition("-")[2] if found else "none"
    name = f"{home}, Spark {version}"
    try:
        here = versions.installed()
    except SessionError:  # without PySpark; another check says so
        here = version if found else versions.RANGE
    if here == version:
        return Check("SPARK_HOME", "ok", name)
    todo = f"Unset it, or set it to a Spark of pyspark's version, {here}."
    return Check("SPARK_HOME", "warning", name, todo)


def extras() -> Iterator[Check]:
    """Packages for optional features."""
    return (each.check() for each in requirements() if each.extra in _EXTRAS)


def servers() -> Iterator[Check]:
    """Programs that tests and benchmarks start."""
    yield postgres()
    yield program("MariaDB", ["mariadbd"], "tests of MySQL tables")
    yield program("Chromium", ["chromium", "chromium-browser", "google-chrome"], "tests of pages")
    yield program("Maven", ["mvn"], "benchmarks with Kafka")


def pyspark() -> Check:
    """The installed PySpark, and what its version lacks."""
    try:
        return spark_version("PySpark", versions.installed())
    except SessionError as error:
        return Check("PySpark", "missing", error.what, error.todo)


def spark_version(name: str, *found: str) -> Check:
    """A version of Spark, or those of a client and a server, and what one of them lacks.

    Examples
    --------
    >>> spark_version("PySpark", "4.3.0")
    Check(name='PySpark', state='ok', found='4.3.0', todo='')
    >>> spark_version("PySpark", "4.1.4").found
    '4.1.4, which lacks the type GEOMETRY, real-time mode from Python'
    """
    missed = ", ".join(each.name for each in versions.lacking(*found))
    shown = " with a client of ".join(dict.fromkeys(found))
    if versions.number(found[0]) > versions.NEWEST:
        todo = f"Expect surprises: rivermouth is tested on Spark {versions.RANGE}."
        return Check(name, "warning", f"{shown}, newer than any that was tried", todo)
    return Check(name, "ok", f"{shown}, which lacks {missed}" if missed else shown)


def java() -> Check:
    """The Java that a local session would use."""
    try:
        found = find_java()
    except SessionError as error:
        return Check("Java", "missing", error.there, error.todo)
    return Check("Java", "ok", f"{found.version} from {found.origin}, {found.home}")


@dataclass(frozen=True)
class Requirement:
    """A package that rivermouth requires, from version `oldest` to below `bound`.

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
        """The requirement in a line of a package's metadata."""

        def part(pattern: str) -> str:
            found = re.search(pattern, line)
            return found[1] if found else ""

        extra = part(r"extra == ['\"](\w+)")
        return cls(part(r"^([\w.-]+)"), part(r">=([\d.]+)"), part(r"<([\d.]+)"), extra or None)

    def check(self) -> Check:
        """Whether a version in the range is installed."""
        try:
            version = importlib.metadata.version(self.name)
        except importlib.metadata.PackageNotFoundError:
            return self._lacking("not installed")
        if not self.admits(version):
            bound = f", below {self.bound}" if self.bound else ""
            return self._lacking(
                f"{version} is installed, it must be {self.oldest} or newer{bound}"
            )
        return Check(self.name, "ok", f"{version}{_geos() if self.name == 'shapely' else ''}")

    def admits(self, version: str) -> bool:
        """Whether `version` is in the range.

        Examples
        --------
        >>> spark = Requirement("pyspark", "4.3", "4.4", "spark")
        >>> [spark.admits(version) for version in ("4.2.9", "4.3.0", "4.3.10", "4.4.0", "4.10")]
        [False, True, True, False, False]
        """
        oldest, number, bound = (
            tuple(map(int, re.findall(r"\d+", each))) for each in (self.oldest, version, self.bound)
        )
        return oldest <= number and (not bound or number < bound)

    def _lacking(self, found: str) -> Check:
        if self.extra is not None:
            todo = f'For {_EXTRAS[self.extra]}: pip install "rivermouth[{self.extra}]"'
            return Check(self.name, "absent", found, todo)
        bound = f",<{self.bound}" if self.bound else ""
        todo = f'Run: pip install "{self.name}>={self.oldest}{bound}"'
        return Check(self.name, "missing", found, todo)


def requirements() -> list[Requirement]:
    """The packages that rivermouth's own metadata requires."""
    return [Requirement.parse(line) for line in importlib.metadata.requires("rivermouth") or []]


def _geos() -> str:
    import shapely

    return f" with GEOS {shapely.geos_version_string}"


def _low(name: str, low: bool, found: str, todo: str) -> Check:
    return Check(name, "warning", found, todo) if low else Check(name, "ok", found)


def temporary_folder() -> Check:
    """The folder for what does not fit in Spark's memory."""
    try:
        with tempfile.NamedTemporaryFile(prefix="rivermouth-") as file:
            file.write(b"x")
    except OSError as error:
        todo = "Set TMPDIR to a folder that can be written."
        return Check("Temporary files", "missing", str(error), todo)
    folder = tempfile.gettempdir()
    free = shutil.disk_usage(folder).free / _GIGABYTE
    found = f"{folder}, {free:.1f} GB free"
    return _low("Temporary files", free < 1, found, "Make room, or set TMPDIR.")


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
    if any(list(folder.glob("**/postgis.control")) for folder in shared):
        return Check("PostgreSQL", "ok", f"{server.found}, with PostGIS")
    todo = f"Install it for {purpose}."
    return Check("PostgreSQL", "absent", f"{server.found}, without PostGIS", todo)


def program(name: str, commands: Sequence[str], purpose: str, folders: Sequence[str] = ()) -> Check:
    """The first of `commands` that is on the PATH, in a folder for servers or in `folders`."""
    path = os.pathsep.join([os.environ.get("PATH", ""), "/usr/local/sbin", "/usr/sbin", *folders])
    found = next(filter(None, (shutil.which(command, path=path) for command in commands)), None)
    if found is None:
        return Check(name, "absent", "not on the PATH", f"Install it for {purpose}.")
    return Check(name, "ok", found)
