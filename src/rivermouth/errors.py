"""Every error the library raises on purpose.

    RivermouthError
    ├── DefinitionError      what was asked for cannot be done as written (also a ValueError)
    │   ├── ColumnError      a column that is missing, of the wrong type, or named twice
    │   ├── ConditionError   a condition that makes no sense, or not with these columns
    │   ├── PlanError        a plan, cache or index that cannot run this join
    │   └── SessionError     a Spark session or machine that lacks something
    ├── StateError           state that is not that of this query, or too large to hold
    ├── FolderError          a folder that not all hosts of the cluster share
    └── TableError           a dimension table that cannot be read, now
        ├── TableMissing     it is not there
        ├── TableUnavailable its store does not answer
        ├── TableInvalid     it is there, but its rows cannot be used
        ├── TableStale       no version younger than ``max_age`` can be had
        └── TableGap         changes of it are lost: it has to be loaded anew

A message has four parts, in this order: where, what, what is there, what to do.
"""

from __future__ import annotations

import difflib
from collections.abc import Iterable


class RivermouthError(Exception):
    """The root: ``except RivermouthError`` catches all of ours and nothing else.

    Parameters
    ----------
    where
        The operator or table the user called, as they wrote it.
    what
        What is wrong, one clause, no full stop.
    there
        What was found instead.
    todo
        What the reader can do about it.

    Examples
    --------
    >>> print(ColumnError("join_table", "no column 'lng'", there="the columns are ['lat', 'lon']",
    ...                   todo="Did you mean 'lon'?"))
    join_table: no column 'lng'; the columns are ['lat', 'lon']. Did you mean 'lon'?
    """

    def __init__(self, where: str, what: str, *, there: str = "", todo: str = "") -> None:
        self.where, self.what, self.there, self.todo = where, what, there, todo
        head = f"{where}: {what}" + (f"; {there}" if there else "")
        super().__init__(f"{head.rstrip('.')}. {todo}".rstrip())

    def __reduce__(self) -> tuple[object, ...]:
        return _rebuild, (type(self), self.where, self.what, self.there, self.todo)


def _rebuild(
    cls: type[RivermouthError], where: str, what: str, there: str, todo: str
) -> RivermouthError:
    return cls(where, what, there=there, todo=todo)


class DefinitionError(RivermouthError, ValueError):
    """What was asked for cannot be done as written."""


class ColumnError(DefinitionError):
    """A column that is missing, of the wrong type, or named twice."""


class ConditionError(DefinitionError):
    """A condition that makes no sense, or not with these columns."""


class PlanError(DefinitionError):
    """A plan, cache or index that cannot run this join."""


class SessionError(DefinitionError):
    """A Spark session or machine that lacks something."""


class StateError(RivermouthError):
    """A checkpoint whose state is not that of this query."""


class FolderError(RivermouthError):
    """A folder that not all hosts of the cluster share."""


class TableError(RivermouthError):
    """A dimension table that cannot be read, now."""


class TableMissing(TableError):
    """The table is not there."""


class TableUnavailable(TableError):
    """The table's store does not answer."""


class TableInvalid(TableError):
    """The table is there, but its rows cannot be used."""


class TableStale(TableError):
    """No version younger than ``max_age`` can be had."""


class TableGap(TableError):
    """Changes of the table are lost, so that it has to be loaded anew."""


def missing_column(
    where: str, name: str, names: Iterable[str], *, side: str, by: str = "on"
) -> ColumnError:
    """The error for a column that is not there, with the nearest name that is; `by` named it.

    Examples
    --------
    >>> print(missing_column("join_table", "lng", ["at", "lat", "lon"], side="the events"))
    join_table: on names column 'lng', which is not among the events' ['at', 'lat', 'lon'].
    Did you mean 'lon'?
    """
    known, owns = sorted(names), "'" if side.endswith("s") else "'s"
    return ColumnError(
        where,
        f"{by} names column {name!r}, which is not among {side}{owns} {known}",
        todo=did_you_mean(name, known) or "Name one of these.",
    )


def did_you_mean(name: str, names: Iterable[str]) -> str:
    """``Did you mean 'x'?`` for the nearest of `names`, or nothing where none is near."""
    folded = {known.casefold(): known for known in names}
    near = difflib.get_close_matches(name.casefold(), folded, n=1, cutoff=0.5)
    return f"Did you mean {folded[near[0]]!r}?" if near else ""
