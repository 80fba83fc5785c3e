"""A summary: which windows of which groups, and what is computed of each."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from rivermouth.errors import DefinitionError
from rivermouth.spec.aggregates import Aggregate, Aggregator, check_aggregate, columns_of
from rivermouth.spec.showing import html_table
from rivermouth.spec.windows import Session, Window

START, END = "window_start", "window_end"
RECORDS, COVERAGE, SLACK, REVISION = "records", "coverage", "slack", "revision"
KIND, RECORD, REASON = "kind", "record", "reason"
#: of the log of `exact` only
PARTIALS = "_partials"
#: columns of every result; neither groups nor aggregates can have these names
RESERVED = (START, END, RECORDS, COVERAGE, SLACK, REVISION, KIND, RECORD, REASON)


@dataclass(frozen=True)
class Summary:
    """What is computed of each window of each group; defined once for stream, batch and correction.

    `by` names the columns that make a group (null is a group, too), `time` the event time.
    """

    by: tuple[str, ...]
    time: str
    window: Window | Session
    aggregates: tuple[tuple[str, Aggregate], ...]

    @property
    def columns(self) -> tuple[str, ...]:
        """The events' columns that are needed, each once: groups, time, aggregated ones."""
        used = (name for _, aggregate in self.aggregates for name in columns_of(aggregate))
        return tuple(dict.fromkeys([*self.by, self.time, *used]))

    def _repr_html_(self) -> str:
        """For notebooks."""
        made = ((name, str(aggregate)) for name, aggregate in self.aggregates)
        rows = [("by", self.by or "all"), ("time", self.time), ("window", self._windows), *made]
        return html_table("summary", rows)

    def __str__(self) -> str:
        aggregates = ", ".join(
            f"{name}={repr(aggregate) if isinstance(aggregate, Aggregator) else aggregate}"
            for name, aggregate in self.aggregates
        )
        windows = self._windows
        if isinstance(self.window, Window):
            windows = f"{self.window.size} every {self.window.every}{self._start}"
        return f"{aggregates} by {list(self.by)} over {windows}"

    @property
    def _windows(self) -> str:
        if isinstance(self.window, Session):
            return f"sessions with pauses shorter than {self.window.gap}"
        size, every = self.window.size, self.window.every
        return (f"{size}" if size == every else f"{size}, one every {every}") + self._start

    @property
    def _start(self) -> str:
        start = self.window.start if isinstance(self.window, Window) else None
        return f" from {start} on" if start else ""


def summary(
    *, by: str | Sequence[str] = (), time: str, window: Window | Session, **aggregates: Aggregate
) -> Summary:
    """What is computed of each window of each group, for `aggregate`, `correct` and `exact`.

    Parameters
    ----------
    by
        The columns that make a group, one name or several; none: all records are one group.
        Null is a group of its own, as in Spark.
    time
        The column of event time.
    window
        `tumbling`, `sliding` or `session`.
    aggregates
        What the result's columns are called, and what they hold.

    Examples
    --------
    >>> from rivermouth.spec.aggregates import count, sum
    >>> from rivermouth.spec.windows import sliding
    >>> print(summary(by="road", time="at", window=sliding("1 hour", every="1 minute"),
    ...               total=sum("cars"), n=count()))
    total=sum('cars'), n=count() by ['road'] over 1:00:00 every 0:01:00
    """
    keys = (by,) if isinstance(by, str) else tuple(by)
    if not isinstance(window, (Window, Session)):
        raise DefinitionError(
            "summary",
            f"window={window!r} is not a window",
            todo='Write rm.tumbling("10 minutes"), rm.sliding("10 minutes", every="1 minute") or '
            'rm.session("10 minutes").',
        )
    if not aggregates:
        raise DefinitionError(
            "summary", "no aggregate is named", todo="Give at least one, as in n=rm.count()."
        )
    for name in (time, *keys):
        if not isinstance(name, str):
            raise DefinitionError("summary", f"{name!r} does not name a column", todo="Write text.")
    _check_names(keys, aggregates)
    checked = tuple((name, check_aggregate(name, each)) for name, each in aggregates.items())
    return Summary(keys, time, window, checked)


def _check_names(keys: Sequence[str], aggregates: dict[str, Aggregate]) -> None:
    """No two columns of the result may have one name; Spark ignores their case."""
    taken = {name: f"{name!r} is a column of every result" for name in RESERVED}
    for name in (*keys, *aggregates):
        if name.casefold() in taken:
            raise DefinitionError(
                "summary",
                f"a column of the result would be called {name!r}",
                there=taken[name.casefold()],
                todo="Give the aggregate another name." if name in aggregates else "Rename it.",
            )
        taken[name.casefold()] = f"{name!r} is named in by" if name in keys else "it is there twice"
