"""Values on their way from the driver to the workers."""

from __future__ import annotations

from types import ModuleType
from typing import TypeVar

from pyspark import cloudpickle

T = TypeVar("T")


def pickle_roundtrip(value: T) -> T:
    """`value` as a worker gets it; raises what Spark would where it cannot travel."""
    copy: T = cloudpickle.loads(cloudpickle.dumps(value))  # type: ignore[no-untyped-call]
    return copy


def pickle_by_value(module: ModuleType) -> None:
    """Send what a module defines along with what is sent, for workers that cannot import it."""
    cloudpickle.register_pickle_by_value(module)  # type: ignore[no-untyped-call]
