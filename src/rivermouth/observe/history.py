"""The history of a run: a small local file of JSON lines that outlives the query.

Each line is a dict with one key that says what it is:

- ``about``: the ids of run and query, the name, the start, and the format's number; the first line
- ``totals``: counts up to a batch, as `log.Totals` has them; batches before it are counted there
- ``batch``: a micro-batch, as `reports.batch` has it
- ``shapes``: the shapes of an operator's table, as `shapes.outlines` has them; a new one replaces
  the one before
- ``corrections``: those of an exact aggregation so far; a new list replaces the one before
- ``end``: when the run ended, and why, if it failed

While the run lives, its writer touches the file every few seconds: a file without an end that has
not been touched for longer belongs to a process that is gone.
"""

from __future__ import annotations

import contextlib
import copy
import json
import os
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Literal

from rivermouth.errors import DefinitionError
from rivermouth.observe.log import Batch, Log, Totals

#: raised when a batch's names or their meaning change
FORMAT = 4
SUFFIX = ".jsonl"
#: environment variable that names the folder of histories
FOLDER = "RIVERMOUTH_HISTORY"

_MOST_BYTES = 32 << 20  # of a file, after which the older half of its batches goes
_MOST_RUNS = 50  # in the folder of histories, after which the oldest goes
_TOUCHED, _GONE = 3.0, 15.0  # seconds: between two touches, and until nobody touches any more

Status = Literal["running", "ended", "failed", "lost"]


def folder() -> Path:
    """Where histories go unless told otherwise: the user's folder for the state of programs."""
    if told := os.environ.get(FOLDER):
        return Path(told)
    state = os.environ.get("XDG_STATE_HOME") or Path.home() / ".local" / "state"
    return Path(state) / "rivermouth"


def new_path(run: str) -> Path:
    """A file for this run in the folder of histories, from which the oldest ones go."""
    runs = folder()
    runs.mkdir(parents=True, exist_ok=True)
    for old in files(runs)[_MOST_RUNS - 1 :]:
        old.unlink(missing_ok=True)
    return runs / f"{run}{SUFFIX}"


def files(runs: Path) -> list[Path]:
    """The histories in a folder, the one that was written last first; a file is its own list."""
    if runs.is_file():
        return [runs]
    found: dict[Path, float] = {}
    for path in runs.glob(f"*{SUFFIX}"):
        with contextlib.suppress(FileNotFoundError):  # gone since it was listed
            found[path] = path.stat().st_mtime
    return sorted(found, key=lambda path: -found[path])


class Writer:
    """Writes a run's history, line by line; each is whole on disk before the next begins."""

    def __init__(
        self,
        path: Path,
        *,
        run: str,
        query: str,
        name: str | None,
        most_bytes: int = _MOST_BYTES,
    ) -> None:
        self.path, self._most = path, most_bytes
        self._totals = Totals()
        self._touched = time.monotonic()
        path.parent.mkdir(parents=True, exist_ok=True)
        path.unlink(missing_ok=True)
        about = {"run": run, "query": query, "name": name, "started": time.time()}
        self._write({"about": {"format": FORMAT, **about}})

    def totals(self, totals: Totals) -> None:
        """Say what was counted before this history; batches up to then add nothing."""
        self._totals = copy.deepcopy(totals)
        self._write({"totals": vars(totals)})

    def batch(self, batch: Batch) -> None:
        """Add a micro-batch."""
        self._totals.add(batch)
        self._write({"batch": batch})
        if self.path.stat().st_size > self._most:
            self._halve()

    def shapes(self, shapes: dict[str, Any]) -> None:
        """Add the shapes of an operator's table."""
        self._write({"shapes": shapes})

    def corrections(self, made: list[dict[str, Any]]) -> None:
        """Say which corrections there were so far."""
        self._write({"corrections": made})

    def alive(self) -> None:
        """Say that the run goes on although there is nothing new."""
        if time.monotonic() - self._touched > _TOUCHED:
            os.utime(self.path)
            self._touched = time.monotonic()

    def end(self, failure: str | None) -> None:
        """Say that the run is over, and why, if it failed."""
        self._write({"end": {"at": time.time(), "failure": failure}})

    def _write(self, line: dict[str, Any]) -> None:
        with self.path.open("a", encoding="utf-8") as file:
            file.write(_line(line))

    def _halve(self) -> None:
        """Leave out the older half of the batches, but not what they count.

        Readers notice that the file is another one.
        """
        about, *lines = self.path.read_text(encoding="utf-8").splitlines(keepends=True)
        lines = [line for line in lines if not line.startswith('{"totals"')]
        batches = [number for number, line in enumerate(lines) if line.startswith('{"batch"')]
        gone = set(batches[: len(batches) // 2])
        with tempfile.NamedTemporaryFile(
            "w", encoding="utf-8", dir=self.path.parent, prefix=".", delete=False
        ) as file:
            file.writelines([about, _line({"totals": vars(self._totals)})])
            file.writelines(line for number, line in enumerate(lines) if number not in gone)
        Path(file.name).replace(self.path)


class Reader:
    """What a history says so far; `refresh` reads on.

    Raises
    ------
    DefinitionError
        When the file is no history, or one of another format.
    """

    def __init__(self, path: Path) -> None:
        self.path, self.log = path, Log()
        self.shapes: dict[str, dict[str, Any]] = {}
        self.corrections: list[dict[str, Any]] | None = None
        self.about: dict[str, Any] = {}
        self.end: dict[str, Any] | None = None
        self._file, self._offset = 0, 0
        self.refresh()

    @property
    def status(self) -> Status:
        """How the run is: "lost" is a run whose process ended without saying so."""
        if self.end is not None:
            return "failed" if self.end["failure"] else "ended"
        return "running" if time.time() - self.path.stat().st_mtime < _GONE else "lost"

    def refresh(self) -> None:
        """Read what was added; a line that is not whole yet waits for the next time."""
        for line in self._lines():
            ((kind, what),) = line.items()
            if kind == "batch":
                self.log.add(what)
            elif kind == "totals":
                self.log.totals = Totals(**what)
            elif kind == "shapes":
                self.shapes[what["operator"]] = what
            elif kind == "corrections":
                self.corrections = what
            elif kind == "about":
                self.about = _of_this_format(what, self.path)
            elif kind == "end":
                self.end = what
        if not self.about:
            raise _not_understood(self.path)

    def _lines(self) -> Iterator[dict[str, Any]]:
        with self.path.open("rb") as file:
            number = os.fstat(file.fileno()).st_ino
            if number != self._file:
                self._file, self._offset, self.log = number, 0, Log()
            file.seek(self._offset)
            for line in file:
                if not line.endswith(b"\n"):
                    return
                self._offset += len(line)
                yield _parsed(line, self.path)


def _line(what: dict[str, Any]) -> str:
    return json.dumps(what, separators=(",", ":")) + "\n"


def _parsed(line: bytes, path: Path) -> dict[str, Any]:
    try:
        found = json.loads(line)
    except ValueError:
        found = None
    if not isinstance(found, dict) or len(found) != 1:
        raise _not_understood(path)
    return found


def _of_this_format(about: dict[str, Any], path: Path) -> dict[str, Any]:
    if about["format"] != FORMAT:
        raise DefinitionError(
            "watch",
            f"{path} is a history in format {about['format']}",
            there=f"this version reads format {FORMAT}",
            todo="Read it with the version of rivermouth that wrote it, or run the query again.",
        )
    return about


def _not_understood(path: Path) -> DefinitionError:
    return DefinitionError(
        "watch",
        f"{path} is not a history that this version can read",
        todo="Give a file that rm.watch wrote, or the folder of such files.",
    )
