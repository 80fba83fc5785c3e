"""Layers, lazy imports, types and style, checked by tools."""

import pathlib
import subprocess
import sys

import pytest

ROOT = pathlib.Path(__file__).parents[1]


def run(*command):
    return subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)


def test_layers_are_kept():
    done = run(str(pathlib.Path(sys.executable).with_name("lint-imports")), "--no-cache")
    assert done.returncode == 0, done.stdout


@pytest.mark.parametrize("heavy", ["pyspark", "numpy", "pyarrow", "shapely", "numba", "pandas"])
def test_importing_the_package_imports_nothing_heavy(heavy):
    """Workers import it too, and a heavy `__init__` doubles their start."""
    done = run(sys.executable, "-c", f"import sys, rivermouth; sys.exit({heavy!r} in sys.modules)")
    assert done.returncode == 0


def test_every_public_name_is_there_and_listed_once():
    code = "import rivermouth as rm; [getattr(rm, name) for name in rm.__all__]; print(*rm.__all__)"
    done = run(sys.executable, "-W", "error", "-c", code)
    assert done.returncode == 0, done.stderr
    names = done.stdout.split()
    assert names == sorted(set(names))


def test_an_unknown_name_is_an_attribute_error():
    done = run(sys.executable, "-c", "import rivermouth as rm; rm.joint_able")
    assert "module 'rivermouth' has no attribute 'joint_able'" in done.stderr
