"""The page "On a cluster": its code, and its application where the lab's hosts see it."""

from __future__ import annotations

import re
import sys
from collections.abc import Mapping

from tests.cluster import inputs
from tests.cluster.hosts import ROOT
from tests.cluster.lab import SHARED, Lab

PAGE = (ROOT / "docs" / "cluster.md").read_text()


def blocks(heading: str, language: str = "sh") -> list[str]:
    """The page's code in one language under a heading."""
    (section,) = re.findall(rf"^## {heading}\n(.*?)(?=^## |\Z)", PAGE, re.MULTILINE | re.DOTALL)
    return re.findall(rf"^```{language}\n(.*?)^```$", section, re.MULTILINE | re.DOTALL)


def lay_out(lab: Lab, settings: Mapping[str, str]) -> None:
    """Put the application, what it reads and Spark's settings into the shared folder."""
    (lab.shared / "app.py").write_text(*blocks("An application", "python no-run"))
    lines = [
        *blocks("Settings", "properties"),
        *(f"{name} {settings[name]}\n" for name in settings),
    ]
    (lab.shared / "conf").mkdir(exist_ok=True)
    (lab.shared / "conf" / "spark-defaults.conf").write_text("".join(lines))
    if not (lab.shared / "inputs").exists():
        inputs.write(lab.shared / "inputs")
    for name in ("taxis", "districts.geojson"):
        (lab.shared / name).unlink(missing_ok=True)
        (lab.shared / name).symlink_to(f"inputs/{name}")


def shell_environment(lab: Lab) -> dict[str, str]:
    """Start a master and three workers; what a shell on the driver's host finds."""
    lab.cluster()
    lay_out(lab, lab.settings())
    around = lab.environment()
    return {
        **around,
        **lab.python,
        "PATH": f"{sys.prefix}/bin:{around['PATH']}",
        "PYSPARK_PYTHON": sys.executable,
        "SPARK_CONF_DIR": f"{SHARED}/conf",
    }
