"""A Delta table's own change data, read by deltalake: a position is a version of the table."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from deltalake.exceptions import DeltaError

from rivermouth.errors import TableGap
from rivermouth.spec.identity import identity
from rivermouth.tables.changes.feed import ChangeBatch
from rivermouth.tables.source import Source
from rivermouth.tables.sources.delta import DeltaFiles

_WHERE = "changes.delta"
_TYPE, _VERSION, _TIME = "_change_type", "_commit_version", "_commit_timestamp"
_OPS = {"insert": "insert", "update_postimage": "update", "delete": "delete"}


@dataclass(frozen=True)
class DeltaFeed:
    """The changes from each version of a Delta table to the next.

    A version that was written without change data is read from the files that it added and
    removed; one whose files were removed since (``VACUUM``) is lost.
    """

    source: DeltaFiles

    @property
    def identity(self) -> str:
        """That of the table."""
        return identity(feed="delta", path=self.source.path.shown)

    def start(self) -> int:
        """The newest version."""
        return int(self.source.revision())

    def table_at(self, position: Any) -> Source:
        """The table's rows at a version."""
        return replace(self.source, version=position)

    def read(self, position: Any, columns: Sequence[str], limit: int) -> ChangeBatch:
        """The changes of all versions after one."""
        newest = self.start()
        if newest < position:
            raise TableGap(
                _WHERE,
                f"{self.source.path!r} is at version {newest}, before the {position} that was read",
                todo="The table is loaded anew.",
            )
        if newest == position:
            return ChangeBatch(pa.array([], pa.string()), pa.table({}), position)
        rows = self._rows(position, newest, columns)
        rows = rows.filter(pc.not_equal(rows[_TYPE], "update_preimage"))
        is_delete = pc.equal(rows[_TYPE], "delete").to_numpy()
        # within a version a row that is deleted and inserted again is deleted first
        order = np.lexsort((~is_delete, rows[_VERSION].to_numpy()))
        rows = rows.take(pa.array(order)).combine_chunks()
        made = rows[_TIME].cast(pa.timestamp("us")).cast(pa.timestamp("us", "UTC"))
        op = pa.array([_OPS[one] for one in rows[_TYPE].to_pylist()], pa.string())
        return ChangeBatch(op, rows.select(list(columns)), newest, made.combine_chunks())

    def _rows(self, position: int, newest: int, columns: Sequence[str]) -> pa.Table:
        try:
            table = self.source.opened()
            found = table.load_cdf(position + 1, newest, columns=[*columns, _TYPE, _VERSION, _TIME])
            return _plain(pa.table(found))
        except (DeltaError, ValueError, OSError, pa.ArrowException) as error:
            said = self.source.path.redacted(str(error)).splitlines()[0].rstrip(".")
            raise TableGap(
                _WHERE,
                f"the changes of {self.source.path!r} from version {position} to {newest} cannot "
                "be read",
                there=said,
                todo="The table is loaded anew.",
            ) from None


def _plain(rows: pa.Table) -> pa.Table:
    """The rows without views, which Arrow cannot take rows of."""
    plain = {pa.string_view(): pa.string(), pa.binary_view(): pa.binary()}
    fields = [field.with_type(plain.get(field.type, field.type)) for field in rows.schema]
    return rows.cast(pa.schema(fields))
