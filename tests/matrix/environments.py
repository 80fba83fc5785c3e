"""An environment for each version of Spark: that PySpark, and all else from ``.venv``."""

from __future__ import annotations

import subprocess
import sys
import sysconfig
import tempfile
import venv
from pathlib import Path

ROOT = Path(__file__).parents[2]
#: by minor version: the newest patch and its archive's hash; the last one is the lock's own
SPARKS = {
    "4.0": ("4.0.5", "a0d44b0e7faf0458ad83b7aa664e7ed8b96beed8a55d66ce3b0dfac2309dfca6"),
    "4.1": ("4.1.4", "bcbd5e18690cf79d438e97210ad06fb8d451a251bb77becc2b0418868d2acd73"),
    "4.2": ("4.2.1", "d79b7c8ee41e66a9202fe6f600ca90b931ca571ae9dbdf31c58d2672e5102da0"),
    "4.3": ("4.3.0", ""),
}
OLDEST, NEWEST = min(SPARKS), max(SPARKS)


def python(minor: str) -> Path:
    """The Python that runs tests on a version of Spark; its environment is made if need be.

    It has nothing but that version's PySpark. What it does not have it finds in the environment
    of this process, which the lock has made.
    """
    if minor == NEWEST:
        return Path(sys.executable)
    folder = ROOT / ".venvs" / f"spark-{minor}"
    program, made = folder / "bin" / "python", folder / ".made"
    wanted = f"{SPARKS[minor]} {sys.version} {sysconfig.get_path('purelib')}"
    if not made.exists() or made.read_text() != wanted:
        venv.create(folder, clear=True, symlinks=True)
        _install(program, *SPARKS[minor])
        _add_packages_of_this(program)
        made.write_text(wanted)
    return program


def _install(program: Path, version: str, digest: str) -> None:
    with tempfile.NamedTemporaryFile("w", suffix=".txt") as file:
        file.write(f"pyspark=={version} --hash=sha256:{digest}\n")
        file.flush()
        pip = [sys.executable, "-m", "pip", "--disable-pip-version-check", "--python", str(program)]
        options = ["--quiet", "--no-deps", "--require-hashes", "-r", file.name]
        subprocess.run([*pip, "install", *options], check=True)


def _add_packages_of_this(program: Path) -> None:
    """Put this environment's packages behind the other's own."""
    code = "import sysconfig; print(sysconfig.get_path('purelib'))"
    own = subprocess.check_output([program, "-c", code], text=True).strip()
    line = f"import site; site.addsitedir({sysconfig.get_path('purelib')!r})\n"
    Path(own, "packages-of-the-lock.pth").write_text(line)
