"""What a result was measured on and with: machine, versions, commit."""

from __future__ import annotations

import os
import platform
import re
import shutil
import subprocess
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
PACKAGES = ("pyspark", "shapely", "numpy", "pyarrow", "numba", "pandas")


def machine() -> dict[str, Any]:
    """Processor, cores this process may use, memory, kernel, and the load average of now."""
    return {
        "cpu": _first(r"^model name\s*:\s*(.*)$", "/proc/cpuinfo") or platform.machine(),
        "cores": len(os.sched_getaffinity(0)),
        "memory_gb": round(int(_first(r"^MemTotal:\s*(\d+)", "/proc/meminfo") or 0) / 2**20, 1),
        "kernel": platform.release(),
        "load_before": round(os.getloadavg()[0], 2),
    }


def versions() -> dict[str, str]:
    """Versions of Python, Java and the packages a figure may depend on."""
    found = {"python": platform.python_version(), "java": java_version()}
    for package in PACKAGES:
        try:
            found[package] = version(package)
        except PackageNotFoundError:
            continue
    if "shapely" in found:
        import shapely

        found["geos"] = shapely.geos_version_string
    return found


def java_version() -> str:
    """What the Java that Spark will take calls itself, or "none"."""
    home = os.environ.get("JAVA_HOME")
    java = Path(home, "bin", "java") if home else shutil.which("java")
    if not java:
        return "none"
    said = subprocess.run([java, "-version"], capture_output=True, text=True, check=False).stderr
    quoted = re.search(r'version "([^"]+)"', said)
    return quoted.group(1) if quoted else "unknown"


def commit() -> str:
    """The git commit of the project, with a "+" where files differ from it."""
    try:
        head = _git("rev-parse", "--short=12", "HEAD")
        return head + ("+" if _git("status", "--porcelain", "--untracked-files=no") else "")
    except (OSError, subprocess.CalledProcessError):
        return "unknown"


def _git(*words: str) -> str:
    asked = ["git", "-C", str(ROOT), *words]
    return subprocess.run(asked, capture_output=True, text=True, check=True).stdout.strip()


def _first(pattern: str, path: str) -> str | None:
    found = re.search(pattern, Path(path).read_text(), re.MULTILINE)
    return found.group(1).strip() if found else None
