"""Paper A's three workloads, by our joins and by a query per record and table.

The workers import this module too.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Any

import pyarrow as pa
from examples import product_recall, time_slices, traffic

from benchmarks.harness.stores import asking
from benchmarks.suites.keys.key_cases import Batches

if TYPE_CHECKING:
    from pyspark.sql import DataFrame


@dataclass(frozen=True)
class Question:
    """A join of the plain form: a statement asked for each row, and what it brings.

    With `near`, a column and how far it may be from the row's on either side.
    """

    table: str
    by: str
    brings: pa.Schema
    near: tuple[str, int] | None = None

    def statement(self, rows: int) -> str:
        """The SQL text for the table of so many rows."""
        columns = ", ".join(self.brings.names)
        near = "" if self.near is None else f" AND {self.near[0]} BETWEEN %s AND %s"
        return f"SELECT {columns} FROM {name(self.table, rows)} WHERE {self.by} = %s{near}"

    def parameters(self, row: Mapping[str, Any]) -> list[Any]:
        """What the statement is given for a row."""
        if self.near is None:
            return [row[self.by]]
        column, reach = self.near
        return [row[self.by], row[column] - reach, row[column] + reach]


def name(table: str, rows: int) -> str:
    """What the table of so many rows is called in the store."""
    return f"{table}_{rows}"


_INT, _DOUBLE, _TEXT = pa.int64(), pa.float64(), pa.string()
_TIME = pa.timestamp("us", "UTC")
#: the workload's questions, in turn
RECALL = (
    Question("clicks", "customer", pa.schema({"product": _INT, "clicked_at": _TIME})),
    Question("products", "product", pa.schema({"title": _TEXT, "price": _DOUBLE})),
    Question("customers", "customer", pa.schema({"city": _TEXT, "segment": _TEXT})),
)
_TRAFFIC_TYPES = {"lanes": pa.int32()} | dict.fromkeys(("junction", "light", "district"), _INT)
TRAFFIC = tuple(
    Question(
        table,
        *traffic.TABLES[table],
        pa.schema({name: _TRAFFIC_TYPES.get(name, _DOUBLE) for name in columns}),
    )
    for table, columns in traffic.BROUGHT.items()
)
SLICES = (
    Question(
        "history", "road", pa.schema({"usual_s": _DOUBLE}), near=("second", time_slices.REACH)
    ),
)


def recall(ids: DataFrame, *, folder: str) -> DataFrame:
    """The example as it stands, on full caches."""
    return product_recall.recalled(ids, _sources(product_recall, folder))


def recall_by_record(ids: DataFrame, *, url: str, rows: int) -> DataFrame:
    """The plain form."""
    return _by_record(ids, RECALL, url, rows)


def delays(reports: DataFrame, *, folder: str) -> DataFrame:
    """The example as it stands, on full caches."""
    return traffic.delayed(reports, _sources(traffic, folder))


def delays_by_record(reports: DataFrame, *, url: str, rows: int) -> DataFrame:
    """The plain form."""
    return traffic.lost(_by_record(reports, TRAFFIC, url, rows))


def slices_by_record(live: DataFrame, *, url: str, rows: int) -> DataFrame:
    """The plain form of the joins by range."""
    return _by_record(live, SLICES, url, rows)


CASES: dict[str, Callable[..., DataFrame]] = {
    "recall": recall,
    "recall_by_record": recall_by_record,
    "traffic": delays,
    "traffic_by_record": delays_by_record,
    "slices_by_record": slices_by_record,
}


def _sources(example: ModuleType, folder: str) -> dict[str, object]:
    import rivermouth as rm

    return {
        table: rm.tables.parquet(str(Path(folder) / f"{table}.parquet")) for table in example.TABLES
    }


def _by_record(events: DataFrame, questions: Sequence[Question], url: str, rows: int) -> DataFrame:
    from pyspark.sql.pandas.types import from_arrow_schema, to_arrow_schema

    schema = to_arrow_schema(events.schema, timezone="UTC")
    for question in questions:
        for field in question.brings:
            schema = schema.append(field)
    statements = [(question.statement(rows), question) for question in questions]
    step = partial(_asked_in_turn, url=url, statements=statements, schema=schema)
    return events.mapInArrow(step, from_arrow_schema(schema))


def _asked_in_turn(
    batches: Batches, url: str, statements: Sequence[tuple[str, Question]], schema: pa.Schema
) -> Batches:
    """Each row of the records asks the first table, each row found the second, and so on."""
    ask = asking(url)
    for batch in batches:
        rows = batch.to_pylist()
        for statement, question in statements:
            rows = [
                row | dict(zip(question.brings.names, values, strict=True))
                for row in rows
                for values in ask(statement, question.parameters(row))
            ]
        yield pa.RecordBatch.from_pylist(rows, schema)
