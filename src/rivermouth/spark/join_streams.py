"""join_interval and join_window: two streams joined in space and time."""

from __future__ import annotations

from dataclasses import replace

import pyarrow as pa
from pyspark.sql import DataFrame

from rivermouth.errors import ConditionError, DefinitionError
from rivermouth.kernels.stream_join.processor import FORMAT, StreamJoinProcessor
from rivermouth.kernels.stream_join.query import How, StreamJoin
from rivermouth.kernels.stream_join.routing import CellRouting, StreamJoinRouter, plan_routing
from rivermouth.kernels.stream_join.salting import SaltingContext
from rivermouth.kernels.stream_join.times import Interval, Windows
from rivermouth.spark.engines.micro_batch import batch_number
from rivermouth.spark.engines.stateful import (
    Input,
    Operator,
    bucket_count,
    future_limit,
    run,
)
from rivermouth.spark.runtime.folders import shared_folder
from rivermouth.spark.validation.join_streams import Checked, Late, Lateness, Times, check
from rivermouth.spark.validation.names import Suffixes
from rivermouth.spark.validation.relation import Columns
from rivermouth.spec.conditions import Condition, DWithin, Nearest, Point
from rivermouth.spec.durations import Duration, microseconds
from rivermouth.spec.grids import Grid
from rivermouth.spec.identity import Described, identity, text_v1
from rivermouth.spec.windows import Session, Window
from rivermouth.tables.shared_folder import SharedFolder
from rivermouth.tables.skew.salting_store import SaltingStore


def join_interval(
    left: DataFrame,
    right: DataFrame,
    *,
    on: Condition,
    time: Times,
    between: tuple[Duration, Duration],
    how: How = "inner",
    columns: Columns = None,
    suffixes: Suffixes = None,
    lateness: Lateness = None,
    late: Late = "count",
    max_future: Duration = "1 hour",
    idle_timeout: Duration | None = None,
    buckets: int | None = None,
    grid: Grid | None = None,
) -> DataFrame:
    """Pairs of rows of two streams that are near each other in space and in time.

    A pair is emitted once, as soon as both rows are there, in whatever order they arrived. The
    same call takes two batch frames and gives the same rows. In a join of a frame with itself a
    row is its own partner, too.

    Parameters
    ----------
    left, right
        Two streaming frames or two batch frames; also the results of other operators of ours.
    on
        What a pair must satisfy: any spatial condition of `join_table` but ``disjoint``, with or
        without ``& rm.keys(...)``, or keys alone. ``rm.nearest`` means the nearest among the right
        rows in the interval; they are emitted when the watermark has passed it. Of rows at the
        same distance the older comes first.
    time
        The time column: one name, or (left name, right name). Timestamps of one type.
    between
        (lower, upper), both included: the right row's time less the left's. ``("-5 minutes",
        "0 seconds")`` are right rows of the five minutes before.
    how
        "inner": pairs. "left", "right", "full": also rows of that side, or of both, without a
        partner, with nulls, once the watermark says that none can come; not "right" and "full" of
        ``rm.nearest``. "semi": left rows alone that have a partner, once each, as soon as
        it is there. "anti": left rows alone that have none, once the watermark says so.
    columns
        What to bring from the right side: names, or {new name: name there}. None: all but the
        geometry and the key columns that `on` names.
    suffixes
        What is appended to the names that both sides have, the left's and the right's, as in
        ``("", "_right")``. None: such a name is an error.
    lateness
        How much older than the newest row of its side a row may be; older ones are late and not
        joined. One length of time, or (left, right). None: the delay of the frames' own
        ``withWatermark``. It has no meaning for batch frames.
    late
        "count": late and rejected rows are counted, in the query's metrics. "rows": they are in
        the result, too, with a first column ``kind`` ("row", "late", "future", "rejected") and
        ``side`` ("left", "right"); `rm.rejected` selects them.
    max_future
        A row whose time is farther ahead of the wall clock is rejected: one wrong clock would
        make all other rows late. Times without a zone may be 14 hours farther ahead.
    idle_timeout
        A side without input for so long no longer holds back the watermark; when both have none,
        everything that waits is emitted. None: a side without input stops the watermark. It needs
        Spark's timers, with which an ``availableNow`` query does not end.
    buckets
        Into how many parts the join is divided. None: the session's shuffle partitions, at most
        32. A checkpoint keeps its number.
    grid
        ``rm.grid(...)``: the cells of space and bins of time, where the defaults do not fit.

    Returns
    -------
    DataFrame
        The left side's columns, those brought, and for ``rm.nearest`` the distances.

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
    checked = check(
        where, left, right, on=on, time=time, when=_interval(where, between), how=how,
        columns=columns, suffixes=suffixes, lateness=lateness, late=late,
        idle_timeout=idle_timeout, bin_us=grid.bin_us if grid else None,
    )  # fmt: skip
    return _join(checked, max_future, buckets, grid or Grid())


def join_window(
    left: DataFrame,
    right: DataFrame,
    *,
    on: Condition,
    time: Times,
    window: Window,
    how: How = "inner",
    columns: Columns = None,
    suffixes: Suffixes = None,
    early: bool = False,
    lateness: Lateness = None,
    late: Late = "count",
    max_future: Duration = "1 hour",
    idle_timeout: Duration | None = None,
    buckets: int | None = None,
    grid: Grid | None = None,
) -> DataFrame:
    """Pairs of rows of two streams that are near each other in space and share a window.

    A pair is emitted once per window that both rows are in, when the window closes: when the
    watermark says that no more rows of it can come. The same call takes two batch frames.

    Parameters
    ----------
    left, right, on, time, columns, suffixes, lateness
    late, max_future, idle_timeout, buckets, grid
        As in `join_interval`; ``rm.nearest`` means the nearest among the window's right rows.
    window
        ``rm.tumbling("10 minutes")`` or ``rm.sliding("10 minutes", every="1 minute")``: the start
        belongs to a window, the end does not.
    how
        "inner": pairs. "left", "right", "full": also rows of that side, or of both, without a
        partner in a window, once for each such window, when it closes. "semi" and "anti": left
        rows alone, once for each of their windows in which they have a partner, or have none; not
        with `early`.
    early
        Emit pairs when both rows are there, for all windows that they share. Rows without a
        partner still wait for their windows to close. Not for ``rm.nearest``.

    Returns
    -------
    DataFrame
        The left side's columns, those brought, for ``rm.nearest`` the distances, and
        ``window_start`` (included) and ``window_end`` (excluded).
    """
    where = "join_window"
    if isinstance(window, Session):
        raise DefinitionError(
            where,
            "two streams cannot be joined by sessions",
            there="which records share a session depends on those of both sides that are to come",
            todo="Write rm.tumbling(...) or rm.sliding(...), or use rm.join_interval(between=...).",
        )
    if not isinstance(window, Window):
        raise DefinitionError(
            where,
            f"{window!r} is not a window",
            todo='Write rm.tumbling("10 minutes") or rm.sliding("10 minutes", every="1 minute").',
        )
    checked = check(
        where, left, right, on=on, time=time,
        when=Windows(window.size_us, window.every_us, bool(early), window.start_us), how=how,
        columns=columns, suffixes=suffixes, lateness=lateness, late=late,
        idle_timeout=idle_timeout, bin_us=grid.bin_us if grid else None,
    )  # fmt: skip
    if early and checked.join.is_nearest:
        raise ConditionError(
            where,
            "early=True with rm.nearest",
            there="which row is nearest is known when its window closes",
            todo="Leave early= out, or ask with rm.dwithin.",
        )
    return _join(checked, max_future, buckets, grid or Grid())


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
            "between has an open end",
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


def _join(checked: Checked, max_future: Duration, buckets: int | None, grid: Grid) -> DataFrame:
    where, inputs = checked.where, checked.inputs  # no frame goes to workers
    join = replace(checked.join, index=grid.index)
    _check_index(where, join)
    if grid.cell is not None and _is_unbounded(join):
        raise DefinitionError(
            where,
            "grid(cell=) has no meaning for this condition",
            there="partners may be any distance apart",
            todo="Leave it out, or bound the distance in on=.",
        )
    count = bucket_count(checked.frames[0].sparkSession, buckets, where=where)
    routing = plan_routing(join, count, cell=grid.cell, salts=grid.salt)
    folder = _skew_folder(checked, grid, routing)
    future = future_limit(max_future, join.output.field(join.time[0]).type, where=where)

    def salting_store() -> SaltingStore | None:
        if folder is None:
            return None
        return SaltingStore(folder.seen(where=where), routing.grid.buckets, where=where)

    def router(side: int) -> StreamJoinRouter:
        batch, store = batch_number(), salting_store()
        schedule = None if store is None or batch is None else store.schedule(batch)
        return StreamJoinRouter(join, side, routing, future, inputs[side], schedule)

    def processor(bucket: int) -> StreamJoinProcessor:
        batch, store = batch_number(), salting_store()
        if store is None or batch is None:
            return StreamJoinProcessor(join, routing, bucket)
        salting = SaltingContext(batch, store.publish, where, store.folder.shown)
        return StreamJoinProcessor(join, routing, bucket, salting)

    left, right = checked.frames
    joined = run(
        [Input(left, lambda: router(0)), Input(right, lambda: router(1))],
        Operator(
            where, processor, checked.schema, join.output, count,
            *_identities(join, routing, inputs),
            None if join.idle_timeout is None else join.idle_timeout / 1e6,
        ),
    )  # fmt: skip
    is_final = list(checked.names) == checked.schema.names
    return joined if is_final else joined.toDF(*checked.names)


def _is_unbounded(join: StreamJoin) -> bool:
    """Whether partners may be any distance apart."""
    if isinstance(join.spatial, (DWithin, Nearest)):
        return join.spatial.limit is None
    return join.spatial is None


def _check_index(where: str, join: StreamJoin) -> None:
    is_of_points = isinstance(join.spatial, DWithin) and all(
        isinstance(side.geometry, Point) for side in join.sides
    )
    if join.index is not None and not is_of_points:
        raise DefinitionError(
            where,
            f"grid(index={join.index!r}) cannot serve this condition",
            there=str(join.keys if join.spatial is None else join.spatial),
            todo="Leave it out; it is for rm.dwithin between two rm.point.",
        )


def _skew_folder(checked: Checked, grid: Grid, routing: CellRouting) -> SharedFolder | None:
    if grid.skew_path is None:
        return None
    if routing.home_side is None:
        which = "with how='full'" if routing.both_home else "between two columns of shapes"
        raise DefinitionError(
            checked.where,
            f"grid(skew_path=) {which}",
            there="rows of both sides are in several buckets already",
            todo="Leave it out; smaller cells spread dense areas.",
        )
    if not checked.frames[0].isStreaming:  # it may be part of a stream's `foreachBatch`
        return None
    example = "grid=rm.grid(skew_path='/shared/skew')"
    return shared_folder(checked.frames[0], grid.skew_path, where=checked.where, example=example)


def _described(when: Windows) -> Described:
    parts = (when.size, when.every, when.early)
    if when.start:
        return Described("windows_from", (*parts, when.start))
    return Described("windows", parts)


def _identities(
    join: StreamJoin, routing: CellRouting, inputs: tuple[pa.Schema, pa.Schema]
) -> tuple[str, str]:
    """What must be the same for state to be understood, and how the first version wrote it."""
    columns = [[f"{field.name} {field.type}" for field in side] for side in inputs]
    times = (
        _described(join.when)
        if isinstance(join.when, Windows)
        else Described("interval", (join.when.lower, join.when.upper))
    )
    grid = Described("grid", (routing.grid.buckets, routing.grid.cell, routing.grid.salts))
    parts = {
        "keys": join.keys,
        "place": join.spatial,
        "time": join.time,
        "when": times,
        "how": join.how,
        "bin": join.bin,
        "routing": Described("routing", (grid, routing.home_side, routing.reach))
        if routing.lattice is None
        else Described("lattice", (grid, *routing.lattice)),
    }
    v1 = " ".join(part if isinstance(part, str) else text_v1(part) for part in parts.values())
    return identity(format=FORMAT, columns=columns, **parts), f"{FORMAT} {v1} {columns}"
