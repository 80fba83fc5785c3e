"""What a batch of changes amounts to: the last state of each key, checked against the table.

======================================  ==========================================================
a change                                its effect
======================================  ==========================================================
whose key is null or NaN                is left out, and counted (``null_keys``)
an update of a key that is not there    adds the row, and is counted (``unknown_updates``)
a delete of a key that is not there     does nothing, and is counted (``absent_deletes``)
to a row that ``where=`` leaves out     is a delete
with a geometry that cannot be used     the row is there, without it; counted
                                        (``invalid_geometries``)
without a column, or of another type    is an error: the join must be defined anew
======================================  ==========================================================
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import shapely

from rivermouth.errors import TableInvalid
from rivermouth.kernels.arrays import Bools, Ints
from rivermouth.kernels.keys import key_index
from rivermouth.kernels.keys.values import missing
from rivermouth.kernels.spatial.geometry import from_wkb
from rivermouth.spec.conditions import Point, Spatial, is_on_sphere
from rivermouth.spec.filters import Filter
from rivermouth.tables.changes.feed import OPS, ChangeBatch
from rivermouth.tables.source import gone
from rivermouth.tables.sources.filtering import expression

#: a column of snapshots that keep history: whether the row says that there is none from then on
ENDED = "__rivermouth_ended"


@dataclass(frozen=True)
class Effect:
    """The last change of each key, in the order of these changes.

    Parameters
    ----------
    rows
        The key's row after it; of deletes only the key columns count.
    is_delete, is_update
        Which of them were deletes; for which keys the first change was an update.
    made
        When they were made; None where that is not known.
    changes
        How many changes there were.
    counts
        What was left out or mended, by reason.
    """

    rows: pa.Table
    is_delete: Bools
    is_update: Bools
    made: pa.Array | None
    changes: int
    counts: dict[str, int]

    def take(self, rows: Ints) -> Effect:
        """These of the changes."""
        index = pa.array(rows)
        return replace(
            self, rows=self.rows.take(index), is_delete=self.is_delete[rows],
            is_update=self.is_update[rows],
            made=None if self.made is None else self.made.take(index),
        )  # fmt: skip


@dataclass(frozen=True)
class Applying:
    """How the changes of one snapshot are read.

    Parameters
    ----------
    schema
        The snapshot's columns.
    key
        Those by which a row is known; with `history` the column from when on it holds is one.
    spatial
        The condition's spatial part.
    history
        That column, None where a row replaces the one before.
    where
        Which rows of the table count.
    name
        The table's name, for messages.
    """

    schema: pa.Schema
    key: tuple[str, ...]
    spatial: Spatial | None
    history: str | None
    where: Filter
    name: str

    def effect(self, batch: ChangeBatch) -> Effect:
        """What a batch amounts to."""
        op = _ops(batch.op, self.name)
        is_delete = op == OPS.index("delete")
        rows = self._fitted(batch, is_delete)
        if self.where:
            is_delete |= ~self._counting(rows)
        if self.history is not None:  # an end is a row like any other
            rows = rows.set_column(rows.column_names.index(ENDED), ENDED, pa.array(is_delete))
        keys = [rows[name].combine_chunks() for name in self.key]
        null_keys = int(np.count_nonzero(missing(keys)))
        known = key_index.build(keys)
        first, last = known.rows[known.start[:-1]], known.rows[known.start[1:] - 1]
        order = np.argsort(last)
        first, last = first[order], last[order]
        made, counts = self._usable(rows.take(pa.array(last)), is_delete[last])
        if null_keys:
            counts["null_keys"] = null_keys
        when = None if batch.made is None else batch.made.take(pa.array(last))
        is_update = op[first] == OPS.index("update")
        effect = Effect(made, is_delete[last], is_update, when, len(op), counts)
        if self.history is None:
            return effect
        none = np.zeros(len(last), dtype=bool)
        return replace(effect, is_delete=none, is_update=none)

    def _fitted(self, batch: ChangeBatch, is_delete: Bools) -> pa.Table:
        """The rows in the snapshot's columns and types."""
        columns, needed = [], bool(len(is_delete)) and not is_delete.all()
        for field in self.schema:
            if field.name == ENDED:
                column = pa.nulls(len(is_delete), pa.bool_())
            elif field.name == self.history:
                column = self._from_when(batch, is_delete, field)
            elif field.name in batch.rows.column_names:
                column = batch.rows[field.name]
            elif len(is_delete) and (needed or field.name in self.key):
                raise gone(field.name, batch.rows.column_names, where="changes", table=self.name)
            else:
                column = pa.nulls(len(is_delete), field.type)
            try:
                columns.append(column.cast(field.type))
            except (pa.ArrowInvalid, pa.ArrowNotImplementedError):
                raise TableInvalid(
                    self.name,
                    f"its changes have a column {field.name!r} that does not fit {field.type}",
                    there=f"it is {column.type}",
                    todo="If the table has changed, define the join anew.",
                ) from None
        return pa.table(columns, schema=self.schema)

    def _counting(self, rows: pa.Table) -> Bools:
        """Which rows the table's ``where=`` lets pass."""
        passed = expression(self.where, rows.schema, call=self.name)
        numbered = rows.append_column("__row", pa.array(np.arange(rows.num_rows)))
        counting = np.zeros(rows.num_rows, dtype=bool)
        counting[numbered.filter(passed)["__row"].to_numpy()] = True
        return counting

    def _from_when(self, batch: ChangeBatch, is_delete: Bools, field: pa.Field) -> pa.Array:
        """From when on each row holds: as it says, and of a delete when that was made."""
        if batch.made is None and is_delete.any():
            raise TableInvalid(
                self.name,
                f"its changes do not say when rows were deleted, and history={self.history!r} "
                "keeps them until then",
                todo="Name the feed's column of times (made=), or leave history out.",
            )
        made = pa.nulls(len(is_delete), field.type)
        if batch.made is not None:
            utc = batch.made.cast(pa.timestamp("us", "UTC"))
            made = (utc if field.type.tz else utc.cast(pa.timestamp("us"))).cast(field.type)
        if self.history not in batch.rows.column_names:
            return made
        own = batch.rows[self.history].combine_chunks().cast(field.type)
        return pc.if_else(pa.array(is_delete), made, own)

    def _usable(self, rows: pa.Table, is_delete: Bools) -> tuple[pa.Table, dict[str, int]]:
        """The rows with null for geometries that no index can hold."""
        spatial = self.spatial
        if spatial is None or isinstance(spatial.right, Point):
            return rows, {}
        column = rows[spatial.right].combine_chunks()
        shapes = shapely.from_wkb(column.to_numpy(zero_copy_only=False), on_invalid="ignore")
        there = column.is_valid().to_numpy(zero_copy_only=False)
        is_bad = there & ~shapely.is_valid(shapes)  # nothing is not valid
        if is_on_sphere(spatial):
            is_shape = (shapely.get_type_id(shapes) > 0) & ~shapely.is_empty(shapes)
            is_bad |= is_shape & ~from_wkb(column).shapes_on_sphere().valid
        if not is_bad.any():
            return rows, {}
        mended = pa.array(np.where(is_bad, None, column.to_numpy(False)), column.type)
        at = rows.column_names.index(spatial.right)
        rows = rows.set_column(at, rows.schema.field(at), mended)
        count = int(np.count_nonzero(is_bad & ~is_delete))
        return rows, {"invalid_geometries": count} if count else {}


def _ops(op: pa.Array, name: str) -> Ints:
    """The changes' kinds as numbers of `OPS`."""
    letters = {one[0]: one for one in ("insert", "update", "delete")}
    said = [letters.get(one, one) for one in op.to_pylist()]
    for one in set(said) - set(OPS):
        raise TableInvalid(
            name,
            f"a change is called {one!r}",
            todo=f"Name changes by one of {list(OPS)}.",
        )
    return np.array([OPS.index(one) for one in said], np.int64)
