"""``%load_ext rivermouth``: frames and queries that end a cell are shown as `rm.show` shows them.

IPython's own registry of formatters is used; neither Spark's classes nor its settings are touched.
"""

from __future__ import annotations

from typing import Any

from rivermouth.observe.notebook.live import QueryView
from rivermouth.observe.notebook.show import show

_HTML = "text/html"
_FRAME = ("pyspark.sql.dataframe", "DataFrame")  # of which those of Spark Connect are, too
_QUERIES = (
    ("pyspark.sql.streaming.query", "StreamingQuery"),
    ("pyspark.sql.connect.streaming.query", "StreamingQuery"),
    ("rivermouth.spark.exact.job", "Running"),
)


def load_ipython_extension(shell: Any) -> None:
    """Show frames and queries in this notebook."""
    formatter = shell.display_formatter
    formatter.formatters[_HTML].for_type_by_name(*_FRAME, lambda frame: show(frame)._repr_html_())
    for query in _QUERIES:
        formatter.ipython_display_formatter.for_type_by_name(
            *query, lambda started: QueryView(started)._ipython_display_()
        )


def unload_ipython_extension(shell: Any) -> None:
    """Show them again as Spark does."""
    formatter = shell.display_formatter
    _forget(formatter.formatters[_HTML], _FRAME)
    for query in _QUERIES:
        _forget(formatter.ipython_display_formatter, query)


def _forget(formatter: Any, name: tuple[str, str]) -> None:
    """Remove a formatter by name; once it was used, IPython knows it by the type instead."""
    module, kind = name
    # types whose module has been imported by now
    known = {(each.__module__, each.__name__): each for each in formatter.type_printers}
    if (module, kind) in known:
        formatter.pop(known[module, kind])
    else:
        formatter.pop(f"{module}.{kind}", None)
