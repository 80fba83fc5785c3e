"""A table in memory, as a user would write one, that can also be slow, down, or changed."""

from __future__ import annotations

import math
import time
from dataclasses import dataclass, field

import numpy as np
import pyarrow as pa

from rivermouth.errors import TableUnavailable


@dataclass
class Weather:
    """What befalls a store, and what it was asked."""

    fails: int = 0  # so many of the next statements
    delay: float = 0.0
    error: Exception = field(
        default_factory=lambda: TableUnavailable("memory", "it is down", todo="Wait.")
    )
    asked: list = field(default_factory=list)  # the keys of each statement
    at_work: int = 0
    most_at_work: int = 0


@dataclass(frozen=True)
class MemoryTable:
    """Rows in a list; answers an equality by going through all of them."""

    table: pa.Table
    weather: Weather = field(default_factory=Weather, compare=False)
    name: str = "memory"

    @property
    def identity(self):
        return f"memory:{id(self.table)}"

    def schema(self):
        return self.table.schema

    def read(self, columns):
        self._befall([()])
        return self.table.select(columns)

    def lookup(self, condition, columns, left):
        names = [name for name, _ in condition.pairs]
        asked = list(zip(*(left[name].to_pylist() for name in names), strict=True))
        self._befall(asked)
        numbers = {key: number for number, key in enumerate(asked)}
        keys = self.table.select([name for _, name in condition.pairs]).to_pylist()
        rows = [
            (numbers[key], row)
            for row, key in enumerate(tuple(line.values()) for line in keys)
            if key in numbers and not any(_is_nothing(part) for part in key)
        ]
        table = self.table.take(pa.array([row for _, row in rows], pa.int64())).select(columns)
        return np.array([number for number, _ in rows], np.int64), table

    def _befall(self, asked):
        weather = self.weather
        weather.asked.append(asked)
        weather.at_work += 1
        weather.most_at_work = max(weather.most_at_work, weather.at_work)
        time.sleep(weather.delay)
        weather.at_work -= 1
        if weather.fails:
            weather.fails -= 1
            raise weather.error


def _is_nothing(value):
    return value is None or (isinstance(value, float) and math.isnan(value))
