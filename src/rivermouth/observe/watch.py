"""watch: a live page of running queries, and the histories that it is made of."""

from __future__ import annotations

import html
import os
import webbrowser
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING

from rivermouth.errors import DefinitionError
from rivermouth.observe.history import SUFFIX, Writer, new_path
from rivermouth.observe.recorder import HistoryFile, Recorder, recorder_of
from rivermouth.observe.reports import query_of
from rivermouth.observe.server import Server

if TYPE_CHECKING:
    from pyspark.sql.streaming.query import StreamingQuery

    from rivermouth.spark.exact.job import Running


class Watch:
    """A page that is being served, and the histories that are being written.

    Parameters
    ----------
    server
        What serves the page.
    files
        The histories, each with the recorder that writes it.
    path
        The history, or the folder of histories.
    """

    def __init__(
        self, server: Server | None, files: list[tuple[Recorder, HistoryFile]], path: Path
    ) -> None:
        self._server, self._files, self.path = server, files, path

    @property
    def url(self) -> str | None:
        """Where the page is; None without one."""
        return None if self._server is None else self._server.url

    def stop(self) -> None:
        """End the histories and the page. The queries run on."""
        for recorder, file in self._files:
            recorder.detach(file)
        if self._server is not None:
            self._server.stop()

    def __enter__(self) -> Watch:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.stop()

    def __repr__(self) -> str:
        return f"Watch({self.url or 'no page'}, history in {self.path})"

    def _repr_html_(self) -> str:
        path = html.escape(str(self.path))
        if self.url is None:
            return f"<p>History in <code>{path}</code></p>"
        return f'<p><a href="{self.url}">{self.url}</a>, history in <code>{path}</code></p>'


def watch(
    *queries: StreamingQuery | Running,
    history: str | os.PathLike[str] | None = None,
    page: bool = True,
    host: str = "127.0.0.1",
    port: int = 0,
    open: bool = False,  # noqa: A002  (as a reader would say it)
) -> Watch:
    """Serve a live page of queries on this machine, and keep their histories in small files.

    It looks at the queries' own progress reports, twice a second; no job runs. A finished run can
    be looked at again by ``rivermouth watch PATH``. All ends with this process, or by ``stop()``
    of what is returned; the queries run on.

    Parameters
    ----------
    queries
        What ``writeStream...start()`` or ``rm.exact(...).start()`` returned, one or several.
    history
        The folder for the histories, one file per run. None: the user's folder for the state of
        programs, or what ``RIVERMOUTH_HISTORY`` names; the newest 50 runs stay there.
    page
        False: write the histories only.
    host, port
        Where to listen. Other machines can look only if `host` says so; there is no password, so
        let them only where all may see it. Port 0: a free one.
    open
        Show the page in a browser, too.

    Returns
    -------
    Watch
        ``url``, ``path``, ``stop()``; also a context manager.

    Raises
    ------
    DefinitionError
        When there is no query, or the port is taken.
    """
    started = [query_of(one, where="watch") for one in queries]
    if not started:
        raise DefinitionError(
            "watch", "there is no query", todo="Give what writeStream...start() returned."
        )
    paths = [_path(query, history) for query in started]
    place = paths[0] if len(paths) == 1 else paths[0].parent
    server = Server(place, host=host, port=port) if page else None
    files = []
    for watched, query, path in zip(queries, started, paths, strict=True):
        writer = Writer(path, run=str(query.runId), query=str(query.id), name=query.name)
        file = HistoryFile(watched, writer)
        recorder = recorder_of(query)
        recorder.attach(file)
        files.append((recorder, file))
    watching = Watch(server, files, place)
    if open and watching.url is not None:
        webbrowser.open(watching.url)
    return watching


def _path(query: StreamingQuery, place: str | os.PathLike[str] | None) -> Path:
    if place is None:
        return new_path(str(query.runId))
    return Path(place) / f"{query.runId}{SUFFIX}"
