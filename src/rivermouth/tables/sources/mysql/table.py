"""A table in MySQL or MariaDB."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
from pymysql.cursors import SSCursor

from rivermouth.errors import TableInvalid
from rivermouth.kernels.keys import key_index
from rivermouth.spec.conditions import Condition
from rivermouth.tables.source import srid_of
from rivermouth.tables.sources.mysql.address import MySQLAddress
from rivermouth.tables.sources.mysql.catalog import describe
from rivermouth.tables.sources.mysql.driver import Connection, MySQLDriver
from rivermouth.tables.sources.mysql.types import bound, json_values, typed
from rivermouth.tables.sources.probes import Probes, answerable, probes_of
from rivermouth.tables.sources.sql import statements
from rivermouth.tables.sources.sql.relation import (
    NUMBER,
    Columns,
    Dialect,
    Relation,
    parts_of,
    probe_types,
)
from rivermouth.tables.sources.sql.table import Batches, Left, SQLTable, Statement, batches

_SRID_SIZE = 4  # bytes before the WKB of a geometry


@dataclass(frozen=True, repr=False)
class MySQLTable(SQLTable):
    """The rows of a table or view, by primary key, or else as the server gives them."""

    address: MySQLAddress

    function = "mysql"
    driver = MySQLDriver()
    dialect = Dialect(lambda name, _: f"%({name})s", bound)

    def __post_init__(self) -> None:
        parts_of(self.table, call=self.call, outer="database")

    def _catalog(self, connection: Connection) -> Relation:
        return describe(connection, self.table, self.address.settings["database"])

    def _statement(
        self, relation: Relation, condition: Condition, columns: Columns, left: Left
    ) -> Statement:
        """The records are sent as one JSON text, without those that cannot match."""
        keys, span = answerable(condition, where=self.call)
        probes = probes_of(left, keys, span, relation.schema, where=self.call)
        values = {name: json_values(name, column) for name, column in probes.columns.items()}
        kept = np.flatnonzero(~key_index.missing(list(values.values())))
        sent = {name: column.take(pa.array(kept)) for name, column in values.items()}
        types = probe_types(relation, keys, span)
        kinds = {name: types[name].sent for name in sent}
        for name, column in probes.columns.items():
            if pa.types.is_decimal(column.type):  # as many digits before the point as there can be
                kinds[name] = f"DECIMAL(65, {min(column.type.scale, 30)})"
        declared = ["n BIGINT", *(f"{name} {kind}" for name, kind in kinds.items())]
        paths = [f"{name} PATH '$[{number}]'" for number, name in enumerate(declared)]
        records = f"JSON_TABLE(%(records)s, '$[*]' COLUMNS ({', '.join(paths)}))"
        rows = list(zip(range(len(kept)), *(v.to_pylist() for v in sent.values()), strict=True))
        return Statement(
            statements.lookup(relation, columns, keys, span, records),
            {**relation.parameters, "records": json.dumps(rows, ensure_ascii=False)},
            [NUMBER, *columns],
            Probes(probes.rows[kept], sent),
        )

    def _execute(self, connection: Connection, statement: Statement) -> Batches:
        try:
            cursor = connection.cursor(SSCursor)
            cursor.execute(statement.text, statement.parameters)
            yield from batches(cursor, statement.schema, self._array)
            cursor.close()
        except BaseException:
            connection.close()  # rows are still under way on it
            raise

    def _array(self, field: pa.Field, values: list[Any], _: int) -> pa.Array:
        if srid_of(field) is not None:
            values = [None if value is None else value[_SRID_SIZE:] for value in values]
        try:
            return typed(field.type, values)
        except (pa.ArrowException, TypeError, ValueError) as error:
            raise TableInvalid(
                self.call,
                f"column {field.name!r} of {self.table} holds a value that cannot be read as "
                f"{field.type}",
                there=str(error).splitlines()[0].rstrip("."),
                todo="If its type has changed, define the join again; else make a view without "
                "such values, as in NULLIF(day, '0000-00-00').",
            ) from None
