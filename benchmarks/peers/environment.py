"""Environments of their own for peers: a venv and a folder of jars under ``.cache/peers/NAME``.

Packages come from wherever pip and Maven are set up to look; nothing here names a host.
"""

from __future__ import annotations

import shutil
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from benchmarks.harness.machine import ROOT

DEPENDENCY = "org.apache.maven.plugins:maven-dependency-plugin:3.6.1"
POM = """\
<project>
 <modelVersion>4.0.0</modelVersion>
 <groupId>peers</groupId><artifactId>{name}</artifactId><version>1</version>
 <dependencies>
{needed}
 </dependencies>
</project>
"""
NEEDED = """\
  <dependency>
   <groupId>{}</groupId><artifactId>{}</artifactId><version>{}</version>
  </dependency>"""


class PeerUnavailable(RuntimeError):
    """A peer cannot be had on this machine; the benchmark goes on without it and says so."""


@dataclass(frozen=True)
class Environment:
    """What a peer needs, pinned: Python packages and Maven coordinates.

    With `whole`, what the jars need comes with them.
    """

    name: str
    packages: Sequence[str]
    jars: Sequence[str] = ()
    whole: bool = False

    @property
    def folder(self) -> Path:
        """Where it is kept."""
        return ROOT / ".cache" / "peers" / self.name

    @property
    def python(self) -> Path:
        """Its interpreter."""
        return self.folder / "venv" / "bin" / "python"

    @property
    def versions(self) -> dict[str, str]:
        """Package and artifact names with their versions, for the JSON."""
        pins = dict(package.split("==") for package in self.packages)
        return pins | {jar.split(":")[1]: jar.split(":")[2] for jar in self.jars}

    @property
    def is_made(self) -> bool:
        """Whether it is there, with these very versions."""
        return self._stamp.exists() and self._stamp.read_text() == self._wanted

    @property
    def _stamp(self) -> Path:
        return self.folder / "_made"

    @property
    def _wanted(self) -> str:
        return "\n".join((*self.packages, *self.jars))

    def jar_paths(self) -> list[Path]:
        """Where the jars are, once made."""
        if self.whole:
            return sorted(self._jars.glob("*.jar"))
        return [self._jars / "{1}-{2}.jar".format(*jar.split(":")) for jar in self.jars]

    def make(self) -> Environment:
        """Make the environment where it is missing; itself.

        Raises
        ------
        PeerUnavailable
            When a package or jar cannot be had here.
        """
        if self.is_made:
            return self
        if self.packages:
            _run(sys.executable, "-m", "venv", str(self.folder / "venv"))
            pip = (str(self.python), "-m", "pip", "install", "--quiet")
            _run(*pip, "--disable-pip-version-check", *self.packages)
        if self.whole:
            self._copy_whole()
        else:
            for jar in self.jars:
                self._maven(f"{DEPENDENCY}:copy", f"-Dartifact={jar}")
        self._stamp.write_text(self._wanted)
        return self

    @property
    def _jars(self) -> Path:
        return self.folder / "jars"

    def _copy_whole(self) -> None:
        self.folder.mkdir(parents=True, exist_ok=True)
        pom = self.folder / "pom.xml"
        needed = "\n".join(NEEDED.format(*jar.split(":")) for jar in self.jars)
        pom.write_text(POM.format(name=self.name, needed=needed))
        self._maven(f"{DEPENDENCY}:copy-dependencies", f"--file={pom}", "-DincludeScope=runtime")

    def _maven(self, *words: str) -> None:
        _run("mvn", "-B", "-q", *words, f"-DoutputDirectory={self._jars}")


def _run(program: str, *words: str) -> None:
    if shutil.which(program) is None:
        raise PeerUnavailable(f"{program} is not on the PATH")
    done = subprocess.run([program, *words], capture_output=True, text=True, check=False)
    if done.returncode:
        said = (done.stderr or done.stdout).strip().splitlines()
        raise PeerUnavailable(f"{program} {words[-1]}: {said[-1] if said else 'failed'}")
