"""Fence events as a definition: which events, and when an object counts as inside."""

from __future__ import annotations

from dataclasses import dataclass

import pyarrow as pa

from rivermouth.kernels.trajectory.query import Trajectory

#: the kinds of events, in the order of their codes
EVENTS = ("enter", "exit", "dwell", "cross", "lost")
ENTER, EXIT, DWELL, CROSS, LOST = range(len(EVENTS))

#: the result's columns besides those of the object, the position and the fence
EVENT, ENTERED, SECONDS, REASON = "event", "entered", "seconds_inside", "reason"
#: those of them that may change from one revision of an event to the next
VALUES = (ENTERED, SECONDS, REASON)

#: columns of routed rows: whether the position is inside a fence, and the table's version
INSIDE, VERSION = "_inside", "_version"

#: why an event happened, in the order of their codes; the first is null
REASONS = (None, "entered", "first_seen", "left", "fence_removed")
NO_REASON, ENTERED_IT, FIRST_SEEN, LEFT, REMOVED = range(len(REASONS))


def fence_column(number: int) -> str:
    """The name that a column of the fences has in the state."""
    return f"_fence{number}"


@dataclass(frozen=True)
class Hysteresis:
    """How long an observation must hold without interruption: both of these.

    Parameters
    ----------
    count
        So many positions, at least one.
    length
        So many microseconds between the first and the last of them.
    """

    count: int = 1
    length: int = 0


@dataclass(frozen=True)
class FenceQuery:
    """What is asked of an object's positions.

    Parameters
    ----------
    trajectory
        The object, the time, and how long positions are waited for.
    place
        The columns of the position.
    fences
        The fences' columns: names in the result; in the state they are called `fence_column`.
    events
        Which kinds of events are given.
    min_inside, min_outside
        When an object has entered, and when it has left.
    dwell
        After how many microseconds inside `dwell` is given; None: never.
    gap
        After how many microseconds without a position an object is lost; None: never.
    first_inside
        Whether an object that is inside when it is first seen has entered.
    """

    trajectory: Trajectory
    place: tuple[str, ...]
    fences: tuple[str, ...]
    events: frozenset[str]
    min_inside: Hysteresis = Hysteresis()
    min_outside: Hysteresis = Hysteresis()
    dwell: int | None = None
    gap: int | None = None
    first_inside: bool = True

    @property
    def fence_columns(self) -> list[str]:
        """The fences' columns in the state."""
        return [fence_column(number) for number in range(len(self.fences))]

    @property
    def fence_type(self) -> pa.StructType:
        """A fence as one value."""
        return _struct(self.trajectory.positions, self.fence_columns)

    @property
    def place_type(self) -> pa.StructType:
        """A position's place as one value."""
        return _struct(self.trajectory.positions, self.place)


def _struct(schema: pa.Schema, names: list[str] | tuple[str, ...]) -> pa.StructType:
    return pa.struct([schema.field(name) for name in names])
