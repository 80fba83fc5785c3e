"""A running query in a notebook: its numbers, once a second, until it ends."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING, Any

from rivermouth.errors import RivermouthError
from rivermouth.observe import shapes
from rivermouth.observe.metrics import keys, metrics
from rivermouth.observe.notebook import markup
from rivermouth.observe.progress import line
from rivermouth.observe.recorder import failure_of, recorder_of
from rivermouth.observe.reports import query_of

if TYPE_CHECKING:
    from pyspark.sql.streaming.query import StreamingQuery

    from rivermouth.spark.exact.job import Running

_PAUSE = 1.0  # seconds between two looks
_RECENT = 60  # batches in the chart


class QueryView:
    """What `show` returns for a query; it follows the query once it is displayed."""

    def __init__(self, watched: StreamingQuery | Running) -> None:
        self._watched, self._query = watched, query_of(watched, where="show")
        self._outlines: tuple[str, Any, dict[str, Any]] | None = None  # operator, version, shapes

    def __repr__(self) -> str:
        return f"QueryView: {self._state()}; {line(metrics(self._watched))}"

    def _repr_html_(self) -> str:
        """The numbers as of now."""
        found = metrics(self._watched)
        return markup.block(
            markup.text(f"{self._query.name or 'query'}: {self._state()}", bold=True),
            markup.numbers(_tiles(found)),
            markup.bars(self._rates(), label=f"rows/s of the last {_RECENT} batches"),
            self._map(found),
            markup.table(_COLUMNS, [_row(*each) for each in found["operators"].items()]),
        )

    def _ipython_display_(self) -> None:
        """Display the numbers, and keep them up to date by a thread of their own."""
        from IPython.display import HTML, display  # a notebook has it

        page: Any = HTML  # IPython has no types
        handle = display(page(self._repr_html_()), display_id=True)  # type: ignore[no-untyped-call]
        if handle is not None:
            follow = threading.Thread(
                target=self._follow, args=(handle, page), name="rivermouth show", daemon=True
            )
            follow.start()

    def _follow(self, handle: Any, made: Any) -> None:
        over, pause = False, threading.Event()
        while not over:
            pause.wait(_PAUSE)
            over = not self._watched.isActive  # before the look
            handle.update(made(self._repr_html_()))

    def _state(self) -> str:
        if self._watched.isActive:
            return "running"
        failure = failure_of(self._query)
        return "ended" if failure is None else f"failed: {failure}"

    def _rates(self) -> list[float]:
        recorder = recorder_of(self._query)
        with recorder.lock:
            recent = list(recorder.log.recent)[-_RECENT:]
        return [batch["rows"] / max(batch["seconds"], 1e-3) for batch in recent]

    def _map(self, found: dict[str, Any]) -> str:
        """The table of the first operator that counts by row, each shape coloured by its count."""
        for name, key in keys(recorder_of(self._query).log.totals.operators).items():
            operator = found["operators"].get(key)
            if operator is None or operator["per_row"] is None:
                continue
            drawn = self._drawn(name, (operator["table"] or {}).get("version"))
            counts = operator["per_row"]
            if drawn is None or len(drawn["rings"]) != len(counts):
                continue
            titles = [
                f"{label or 'row'}: {count:,}"
                for label, count in zip(drawn["labels"], counts, strict=True)
            ]
            caption = f"{key}: matches per row of the table, 0 to {max([*counts, 0]):,}"
            chart = markup.drawn_map(
                drawn | {"labels": titles}, markup.graded(counts), caption=caption
            )
            return markup.text(caption, muted=True) + chart
        return ""

    def _drawn(self, name: str, version: Any) -> dict[str, Any] | None:
        """The shapes of an operator's table, read once for each of its versions."""
        if self._outlines is None or self._outlines[:2] != (name, version):
            try:
                found = shapes.of_operator(name)
            except RivermouthError:  # a table that is away for a while: there is no map without it
                return None
            if found is None:
                return None
            self._outlines = (name, version, found)
        return self._outlines[2]


_COLUMNS = ("operator", "rows in", "rows out", "matched", "late", "rejected", "table's age")


def _row(name: str, operator: dict[str, Any]) -> tuple[Any, ...]:
    rows, matched, table = operator["rows_in"], operator["matched"], operator["table"]
    return (
        name,
        rows,
        operator["rows_out"],
        f"{100 * matched / rows:.1f} %" if matched is not None and rows else "",
        "" if operator["late"] is None else operator["late"],
        sum(operator["rejected"].values()),
        f"{table['age_seconds']:.0f} s" if table else "",
    )


def _tiles(found: dict[str, Any]) -> dict[str, str]:
    """The numbers of a query as a whole; those that are not known are left out."""
    rate, latency, made = found["rows_per_second"], found["latency"], found["corrections"]
    tiles = {"batches": f"{found['batches']:,}", "rows": f"{found['rows']:,}"}
    if rate is not None:
        tiles["rows/s"] = f"{rate:,.0f}"
    if latency:
        tiles["latency p50"] = f"{latency['p50']:.2f} s"
        tiles["latency p99"] = f"{latency['p99']:.2f} s"
    if made is not None:
        tiles["corrections"] = f"{made['count']:,}"
        tiles["results by corrections"] = f"{made['results']:,}"
    return tiles
