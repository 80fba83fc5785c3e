"""Frames whose rows can be taken out of Spark, and put back, whatever their types."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pyspark.sql import DataFrame


def places(frame: DataFrame) -> dict[str, int]:
    """The columns of Spark's GEOMETRY type, each with its SRID; -1 where each row has its own.

    Asked by the type's name: this room does not import pyspark.
    """
    return {
        field.name: getattr(field.dataType, "srid")  # noqa: B009 - only GeometryType has it
        for field in frame.schema.fields
        if field.dataType.typeName() == "geometry"
    }


def plain(frame: DataFrame) -> DataFrame:
    """`frame` with its GEOMETRY columns as structs of srid and WKB.

    Parquet has no GEOMETRY(ANY), and ``DataFrame.toArrow`` of Spark 4.3 fails on a null one.
    """
    spatial = places(frame)
    return frame.selectExpr(
        *(
            f"if(`{name}` is null, null, named_struct('srid', st_srid(`{name}`), "
            f"'wkb', st_asbinary(`{name}`))) as `{name}`"
            if name in spatial
            else f"`{name}`"
            for name in frame.columns
        )
    )


def spatial(frame: DataFrame, srids: dict[str, int]) -> DataFrame:
    """`frame` with the columns named by `srids` made GEOMETRY again; undoes `plain`."""
    return frame.selectExpr(
        *(
            f"st_geomfromwkb(`{name}`.wkb, "
            f"{srids[name] if srids[name] >= 0 else f'`{name}`.srid'}) as `{name}`"
            if name in srids
            else f"`{name}`"
            for name in frame.columns
        )
    )
