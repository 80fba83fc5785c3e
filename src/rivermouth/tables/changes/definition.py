"""What a snapshot holds where its table follows changes: checked, with the columns of its key."""

from __future__ import annotations

from dataclasses import replace

import pyarrow as pa

from rivermouth.errors import ColumnError, DefinitionError, PlanError, missing_column
from rivermouth.spec.changes import Changes
from rivermouth.spec.conditions import AsOf
from rivermouth.tables.cache.snapshot import SnapshotSpec
from rivermouth.tables.changes.effect import ENDED
from rivermouth.tables.changes.feed import feed_of

_SKIP_LISTS = ("skiplist", "ideal_skiplist")


def following_spec(
    spec: SnapshotSpec, table: pa.Schema, changes: Changes | None, *, where: str
) -> SnapshotSpec:
    """The spec of a snapshot that follows these changes; None: as it is.

    Raises
    ------
    DefinitionError
        If the table cannot follow them, or not for this condition.
    """
    if changes is None:
        return spec
    for name in changes.key:
        if name not in table.names:
            raise missing_column(where, name, table.names, side=spec.source.name, by="key")
    if spec.index in _SKIP_LISTS and isinstance(spec.range, AsOf):
        raise PlanError(
            where,
            f"index={spec.index!r} cannot pass over rows that have changed",
            todo="Leave index out.",
        )
    tested = [test.column for test in getattr(spec.source, "where", ())]
    names = list(dict.fromkeys([*spec.schema.names, *changes.key, *tested]))
    fields = [table.field(name) for name in names]
    if changes.history is not None:
        _check_history(spec, table, changes.history, where=where)
        fields.append(pa.field(ENDED, pa.bool_()))
    schema = pa.schema(fields)
    check = getattr(feed_of(changes, spec.source, schema), "check", None)
    if check is not None:
        check(table)
    return replace(spec, schema=schema, changes=changes)


def _check_history(spec: SnapshotSpec, table: pa.Schema, history: str, *, where: str) -> None:
    if not isinstance(spec.range, AsOf) or spec.range.right != history:
        raise DefinitionError(
            where,
            f"history={history!r} keeps former rows for rm.asof on that column",
            there=f"the condition is on {[*(spec.schema.names)]}"
            if spec.range is None
            else f"the condition is {spec.range}",
            todo=f"Write rm.asof(..., {history!r}), or leave history out.",
        )
    if not pa.types.is_timestamp(table.field(history).type):
        raise ColumnError(
            where,
            f"history names column {history!r}, which is {table.field(history).type}",
            todo="Name a column of timestamps.",
        )
