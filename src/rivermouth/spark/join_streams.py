"""join_interval and join_window: two streams meet in space and time."""

from __future__ import annotations

import pyarrow as pa
from pyspark.sql import DataFrame
from pyspark.sql import types as t

from rivermouth.errors import ConditionError, DefinitionError
from rivermouth.kernels.skew.salting import Learning
from rivermouth.kernels.stream_join.processor import FORMAT, MeetingStepper
from rivermouth.kernels.stream_join.query import Meeting, result_schema
from rivermouth.kernels.stream_join.routing import MeetingRouter, Routing, routing
from rivermouth.kernels.stream_join.times import Interval, Windows
from rivermouth.spark.engines.stateful import Input, Operator, batch_number, bucket_count, run
from rivermouth.spark.validation.join_streams import (
    Asked,
    How,
    Late,
    Lateness,
    Times,
    check,
    check_names,
    is_bounded,
    lateness_of,
)
from rivermouth.spark.validation.join_table import Columns
from rivermouth.spec.conditions import Condition, Nearest
from rivermouth.spec.durations import Duration, microseconds, positive_seconds
from rivermouth.spec.grids import Grid
from rivermouth.spec.identity import Described, identity, text_v1
from rivermouth.spec.windows import Window
from rivermouth.tables.files import located
from rivermouth.tables.skew.salting_store import Crowding

_ZONES = 14 * 3_600_000_000  # how far a local time without a zone may be ahead of UTC


def join_interval(
    left: DataFrame,
    right: DataFrame,
    *,
    on: Condition,
    time: Times,
    between: tuple[Duration, Duration],
    how: How = "inner",
    columns: Columns = None,
    lateness: Lateness = None,
    late: Late = "count",
    max_future: Duration = "1 hour",
    idle_timeout: Duration | None = None,
    grid: Grid | None = None,
) -> DataFrame:
    """Pairs of rows of two streams that are near each other in space and in time.

    A pair comes out as soon as both rows are there, once, in whatever order they arrived. The
    same call takes two batch frames and gives the same rows. A frame may be joined with itself; a
    row meets itself then.

    Parameters
    ----------
    left, right
        Two streaming frames or two batch frames; also the results of other operators of ours.
    on
        What a pair must satisfy: any place of `join_table` but ``disjoint``, with or without
        ``& rm.keys(...)``. ``rm.nearest`` means the nearest among the right rows in the interval;
        it is answered when the clock has passed it. Of rows equally far the older comes first.
    time
        The column of times: one name, or (left name, right name). Timestamps of one type.
    between
        (lower, upper), both included: the right row's time less the left's. ``("-5 minutes",
        "0 seconds")`` are right rows of the five minutes before.
    how
        "inner": pairs. "left": also left rows that meet nothing, with nulls, once the clock says
        that nothing can come for them.
    columns
        What to bring from the right side: names, or {new name: name there}. None: all but the
        geometry and the equality columns that `on` names. A name that the left side has already
        is an error.
    lateness
        How much older than the newest row of its side a row may be; older ones are late and take
        no part. One length of time, or (left, right). None: the delay of the frames' own
        ``withWatermark``. It has no meaning for batch frames.
    late
        "count": late and rejected rows are counted, in the query's metrics. "rows": they
        come in the result, too, told apart by a first column ``kind`` ("row", "late", "future",
        "rejected") and ``side`` ("left", "right"); `rm.rejected` selects them.
    max_future
        A row whose time is farther ahead of the wall clock is rejected: one clock that is wrong
        would make all other rows late. Times without a zone may be 14 hours farther ahead.
    idle_timeout
        A side that is silent for so long no longer holds up the other; when both are, all that is
        waited for is told. None: a silent side stops the clock. It needs timers of Spark, with
        which an ``availableNow`` query does not end.
    grid
        ``rm.grid(...)``: how space and time are cut, where the choice is not left to the join.

    Returns
    -------
    DataFrame
        The left side's columns, those brought, and for ``rm.nearest`` a column ``distance``.

    Examples
    --------
    >>> from rivermouth import testing, point, dwithin
    >>> calls = testing.frame(spark, '''
    ...     who | at timestamp        | x double | y double
    ...     ann | 2026-01-01 12:00:00 | 0        | 0
    ...     bob | 2026-01-01 12:00:00 | 9        | 9
    ... ''')
    >>> cabs = testing.frame(spark, '''
    ...     cab | seen timestamp      | x double | y double
    ...     7   | 2026-01-01 11:58:00 | 0        | 1
    ...     8   | 2026-01-01 11:50:00 | 0        | 1
    ... ''')
    >>> near = join_interval(
    ...     calls, cabs, on=dwithin(point("x", "y"), point("x", "y"), distance=2),
    ...     time=("at", "seen"), between=("-5 minutes", "0 seconds"), columns=["cab"], how="left",
    ... )
    >>> sorted((row["who"], row["cab"]) for row in testing.rows(near))
    [('ann', '7'), ('bob', None)]
    """
    where = "join_interval"
    asked = check(where, left, right, on=on, time=time, how=how, columns=columns, late=late)
    return _join(asked, _interval(where, between), lateness, late, max_future, idle_timeout, grid)


def join_window(
    left: DataFrame,
    right: DataFrame,
    *,
    on: Condition,
    time: Times,
    window: Window,
    how: How = "inner",
    columns: Columns = None,
    early: bool = False,
    lateness: Lateness = None,
    late: Late = "count",
    max_future: Duration = "1 hour",
    idle_timeout: Duration | None = None,
    grid: Grid | None = None,
) -> DataFrame:
    """Pairs of rows of two streams that are near each other in space and share a window.

    A pair comes out once per window that both rows are in, when the window closes: when the
    clock says that no row of it can come any more. The same call takes two batch frames.

    Parameters
    ----------
    left, right, on, time, columns, lateness, late, max_future, idle_timeout, grid
        As in `join_interval`; ``rm.nearest`` means the nearest among the window's right rows.
    window
        ``rm.tumbling("10 minutes")`` or ``rm.sliding("10 minutes", every="1 minute")``: the start
        belongs to a window, the end does not.
    how
        "inner": pairs. "left": also left rows that meet nothing in a window, once for each such
        window, when it closes.
    early
        Tell pairs when both rows are there, for all windows that they share. Left rows that meet
        nothing still wait for their windows to close. Not for ``rm.nearest``.

    Returns
    -------
    DataFrame
        The left side's columns, those brought, for ``rm.nearest`` a column ``distance``, and
        ``window_start`` (included) and ``window_end`` (not included).
    """
    where = "join_window"
    if not isinstance(window, Window):
        raise DefinitionError(
            where,
            f"{window!r} is not a window",
            todo='Write rm.tumbling("10 minutes") or rm.sliding("10 minutes", every="1 minute").',
        )
    asked = check(where, left, right, on=on, time=time, how=how, columns=columns, late=late)
    if early and isinstance(asked.place, Nearest):
        raise ConditionError(
            where,
            "early=True with rm.nearest",
            there="which row is nearest is known when its window closes",
            todo="Leave early= out, or ask with rm.dwithin.",
        )
    when = Windows(window.size_us, window.every_us, bool(early))
    return _join(asked, when, lateness, late, max_future, idle_timeout, grid)


def _interval(where: str, between: tuple[Duration, Duration]) -> Interval:
    if isinstance(between, str) or not hasattr(between, "__len__") or len(between) != 2:
        raise DefinitionError(
            where,
            f"between is {between!r}",
            todo='Give (lower, upper), as in ("-5 minutes", "0 seconds").',
        )
    if None in between:
        raise DefinitionError(
            where,
            "between has an end that is open",
            there="rows would have to be kept for ever",
            todo="Give a length of time.",
        )
    lower, upper = (microseconds(end, where=f"{where}(between=)") for end in between)
    if lower > upper:
        raise DefinitionError(
            where,
            f"nothing lies between {between[0]} and {between[1]}",
            todo="Put the lower end first; times before the left row's are negative.",
        )
    return Interval(lower, upper)


def _join(
    asked: Asked,
    when: Interval | Windows,
    lateness: Lateness,
    late: Late,
    max_future: Duration,
    idle_timeout: Duration | None,
    grid: Grid | None,
) -> DataFrame:
    grid = _checked(grid or Grid(), asked)
    silent = positive_seconds(idle_timeout, where=f"{asked.where}(idle_timeout=)")
    far = microseconds(max_future, where=f"{asked.where}(max_future=)")
    if isinstance(asked.kind, t.TimestampNTZType):
        far += _ZONES
    schema = asked.output(windows=isinstance(when, Windows), late_rows=late == "rows")
    check_names(asked.where, schema, asked.frames[0].schema)
    inputs = asked.arrow(0), asked.arrow(1)
    arrow = result_schema(
        *inputs, asked.columns,
        distance=asked.place.name if isinstance(asked.place, Nearest) else None,
        window=inputs[0].field(asked.time[0]).type if isinstance(when, Windows) else None,
        late_rows=late == "rows",
    )  # fmt: skip
    meeting = Meeting(
        asked.equal, asked.place, asked.time, when, asked.how, asked.columns, arrow,
        lateness_of(asked, lateness), grid.bin_us or when.bin, asked.srid,
        None if silent is None else round(silent * 1e6), late == "rows",
    )  # fmt: skip
    buckets = bucket_count(asked.frames[0].sparkSession, grid.buckets, where=asked.where)
    dealt = routing(meeting, buckets, cell=grid.cell, spread=grid.spread)
    crowding = _crowding(asked, grid, dealt)
    return run(
        [
            _side(meeting, side, dealt, far, asked.frames[side], inputs[side], crowding)
            for side in (0, 1)
        ],
        Operator(
            asked.where,
            lambda bucket: MeetingStepper(meeting, dealt, bucket, _learning(crowding)),
            schema,
            arrow,
            buckets,
            *_identities(meeting, dealt, inputs),
            silent,
        ),
    )


def _side(
    meeting: Meeting,
    side: int,
    dealt: Routing,
    far: int,
    frame: DataFrame,
    rows: pa.Schema,
    crowding: Crowding | None,
) -> Input:
    def made() -> MeetingRouter:
        batch = batch_number()
        crowds = None if crowding is None or batch is None else crowding.before(batch)
        return MeetingRouter(meeting, side, dealt, far, rows, crowds)

    return Input(frame, made)


def _crowding(asked: Asked, grid: Grid, dealt: Routing) -> Crowding | None:
    if grid.learn is None:
        return None
    if dealt.single is None:
        raise DefinitionError(
            asked.where,
            "grid(learn=) between two columns of shapes",
            there="rows of both sides are in several buckets already",
            todo="Leave it out; smaller cells spread crowded places.",
        )
    if not asked.frames[0].isStreaming:  # it may be part of a stream's `foreachBatch`
        return None
    return Crowding(located(grid.learn), dealt.grid.buckets, where=asked.where)


def _learning(crowding: Crowding | None) -> Learning | None:
    batch = batch_number()
    if crowding is None or batch is None:
        return None
    return Learning(batch, crowding.publish, (crowding.where, crowding.folder))


def _identities(
    join: Meeting, routing: Routing, inputs: tuple[pa.Schema, pa.Schema]
) -> tuple[str, str]:
    """What must be the same for state to be understood, and how the first version wrote it."""
    columns = [[f"{field.name} {field.type}" for field in side] for side in inputs]
    times = (
        Described("windows", (join.when.size, join.when.every, join.when.early))
        if isinstance(join.when, Windows)
        else Described("interval", (join.when.lower, join.when.upper))
    )
    grid = Described("grid", (routing.grid.buckets, routing.grid.cell, routing.grid.spread))
    parts = {
        "keys": join.equal,
        "place": join.place,
        "time": join.time,
        "when": times,
        "how": join.how,
        "bin": join.bin,
        "routing": Described("routing", (grid, routing.single, routing.reach)),
    }
    v1 = " ".join(part if isinstance(part, str) else text_v1(part) for part in parts.values())
    return identity(format=FORMAT, columns=columns, **parts), f"{FORMAT} {v1} {columns}"


def _checked(grid: Grid, asked: Asked) -> Grid:
    if grid.cell is not None and not is_bounded(asked.place):
        raise DefinitionError(
            asked.where,
            "grid(cell=) has no meaning for this condition",
            there="rows that meet may be any distance apart",
            todo="Leave it out, or bound the distance in on=.",
        )
    return grid
