"""Rows that arrive while a query runs: files that appear in a folder, one after another."""

from __future__ import annotations

import threading
from pathlib import Path
from types import TracebackType

import pyarrow as pa
import pyarrow.parquet as pq

_EVERY = 0.5  # seconds between two files


class Arrivals:
    """The rows of a table as Parquet files that appear in `folder` over so many seconds.

    The first file is there where the ``with`` block begins, the others follow after `begin`; the
    end of the block stops them.
    """

    def __init__(self, table: pa.Table, folder: Path, *, seconds: float) -> None:
        self._table, self._folder = table, folder
        self._pieces = max(1, round(seconds / _EVERY))
        self._begin, self._stop = threading.Event(), threading.Event()
        self._failure: Exception | None = None
        self._thread = threading.Thread(target=self._run, name="arrivals", daemon=True)

    def __enter__(self) -> Arrivals:
        self._write(0)
        self._thread.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._stop.set()
        self._begin.set()
        self._thread.join()

    def begin(self) -> None:
        """Let the others follow the first file."""
        self._begin.set()

    @property
    def over(self) -> bool:
        """True after the last file; a failure to write one is raised here."""
        if self._failure is not None:
            raise self._failure
        return not self._thread.is_alive()

    def _run(self) -> None:
        self._begin.wait()
        try:
            for number in range(1, self._pieces):
                if self._stop.wait(_EVERY):
                    return
                self._write(number)
        except Exception as failure:  # for the thread that asks whether it is over
            self._failure = failure

    def _write(self, number: int) -> None:
        """Write a file under a name that Spark overlooks, then rename it: it appears whole."""
        rows = self._table.num_rows
        start, end = (rows * step // self._pieces for step in (number, number + 1))
        hidden = self._folder / f"_{number:06d}.parquet"
        pq.write_table(self._table.slice(start, end - start), hidden)
        hidden.rename(self._folder / f"{number:06d}.parquet")
