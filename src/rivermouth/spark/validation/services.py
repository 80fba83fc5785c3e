"""What can be done with a table that answers keys and cannot be read."""

from __future__ import annotations

from rivermouth.errors import PlanError
from rivermouth.spec.caches import Cache, Full
from rivermouth.spec.conditions import Condition
from rivermouth.tables.sources.service.table import ServiceTable


def check_service(table: ServiceTable, on: Condition, cache: Cache, *, where: str) -> None:
    """Raise a `PlanError` where a service would have to be read whole, or asked by no key."""
    if isinstance(cache, Full):
        raise not_readable(table, where=where, todo="Use cache=rm.incremental(), or rm.external().")
    table.check_condition(on)


def not_readable(table: ServiceTable, *, where: str, todo: str) -> PlanError:
    """The error for a service where the whole table is needed."""
    return PlanError(
        where, f"{table.name} is a service: it answers keys and cannot be read whole", todo=todo
    )
