"""What is measured on a stream of points, each a function DataFrame -> DataFrame.

The workers import this module too: what they need of it is kept between batches.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import cache, partial
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import shapely

from benchmarks.harness import tdrive
from benchmarks.harness.experiment import data
from benchmarks.suites.table_join import library, questions

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

Frame = Callable[..., "DataFrame"]
Batches = Iterator[pa.RecordBatch]


def scan(points: DataFrame) -> DataFrame:
    """Nothing: Spark reads the file and the sink throws the rows away."""
    return points


def identity(points: DataFrame) -> DataFrame:
    """Rows through Python and back, as they are."""
    return points.mapInArrow(_same, points.schema)


def identity_with_district(points: DataFrame) -> DataFrame:
    """Rows through Python and back with one more string column: what any join must cost."""
    return points.mapInArrow(_constant, _with_district(points))


def loop_over_batch(points: DataFrame) -> DataFrame:
    """The plain method, vectorised: each polygon in turn against all points of an Arrow batch."""
    return points.mapInArrow(partial(_located, locate=_loop_over_batch), _with_district(points))


def loop_over_records(points: DataFrame) -> DataFrame:
    """The plain method as the paper has it: each record in turn, each polygon until one fits."""
    return points.mapInArrow(partial(_located, locate=_loop_over_records), _with_district(points))


def joined(points: DataFrame, *, plan: str | None = None, index: str | None = None) -> DataFrame:
    """Our join."""
    import rivermouth as rm

    return rm.join_table(
        points,
        rm.tables.geojson(str(data(tdrive.DISTRICTS))),
        on=rm.within(rm.point("lon", "lat"), "geometry"),
        how="left",
        columns=["district"],
        cache=rm.full(index=index) if index else None,
        plan=plan,
    )


def unobserved(points: DataFrame) -> DataFrame:
    """Our join without a word about what it did: no counts, no reports, nothing gathered."""
    from unittest.mock import patch

    with patch("rivermouth.spark.engines.workers.run", _silently):
        return joined(points, plan="workers")


def _silently(frame: DataFrame, make: Callable[[], Any], schema: Any, **_: Any) -> DataFrame:
    """What `rivermouth.spark.engines.stateless.run` does, but for the reports."""

    def work(batches: Batches) -> Batches:
        step = make()
        step._counts, step._sketch = _Nothing(), None
        yield from step.batches(batches)

    return frame.mapInArrow(work, schema)


class _Nothing:
    def add(self, *_: Any) -> None:
        """Count nothing."""


def question(points: DataFrame, *, number: int, million: int) -> DataFrame:
    """A headline question of `questions`, asked by our join."""
    import rivermouth as rm

    asked = questions.headline(million)[number]
    return rm.join_table(
        points,
        rm.tables.parquet(str(asked.table()), geometry="geometry"),
        on=asked.place,
        columns={"row": "id"},
        plan="workers",
    )


def own_copy(points: DataFrame, *, million: int) -> DataFrame:
    """Small polygons, where each worker reads the table and builds shapely's tree for itself."""
    step = partial(_found, table=str(questions.polygons(million).table()))
    return points.mapInArrow(step, _with("row", points, "long"))


CASES: dict[str, Frame] = {
    "scan": scan,
    "identity": identity,
    "identity_with_district": identity_with_district,
    "workers": partial(joined, plan="workers"),
    "native": partial(joined, plan="native"),
    "unobserved": unobserved,
    "rtree": partial(joined, plan="workers", index="rtree"),
    "loop_over_batch": loop_over_batch,
    "loop_over_records": loop_over_records,
    "question": question,
    "own_copy": own_copy,
}


def _with_district(points: DataFrame) -> Any:
    return _with("district", points, "string")


def _with(name: str, points: DataFrame, kind: str) -> Any:
    from pyspark.sql.types import StructType

    return StructType(list(points.schema.fields)).add(name, kind)


def _same(batches: Batches) -> Batches:
    yield from batches


def _constant(batches: Batches) -> Batches:
    for batch in batches:
        yield batch.append_column("district", pa.repeat("朝阳区", batch.num_rows))


def _located(batches: Batches, locate: Callable[[Any, Any], Any]) -> Batches:
    names = pa.array(_districts()[0])
    for batch in batches:
        row = locate(batch["lon"].to_numpy(), batch["lat"].to_numpy())
        yield batch.append_column("district", names.take(pa.array(row, mask=row < 0)))


def _loop_over_batch(lon: Any, lat: Any) -> Any:
    points = shapely.points(lon, lat)
    row = np.full(len(points), -1)
    for number, shape in enumerate(_districts()[1]):
        row[shapely.contains(shape, points)] = number
    return row


def _loop_over_records(lon: Any, lat: Any) -> Any:
    shapes = _districts()[1]
    row = np.full(len(lon), -1)
    for record, place in enumerate(map(shapely.Point, lon, lat)):
        for number, shape in enumerate(shapes):
            if shape.contains(place):
                row[record] = number
                break
    return row


def _found(batches: Batches, table: str) -> Batches:
    ask = _own_tree(table)
    for batch in batches:
        left, right = ask(batch["x"].to_numpy(), batch["y"].to_numpy())
        yield batch.take(pa.array(left)).append_column("row", pa.array(right))


@cache
def _own_tree(table: str) -> library.Ask:
    return library.within(shapely.from_wkb(pq.read_table(table)["geometry"].to_numpy()))


@cache
def _districts() -> tuple[list[str], list[Any]]:
    return tdrive.districts()
