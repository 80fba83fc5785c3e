"""trips: moves and stays of objects, from positions that arrive out of order."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from pyspark.sql import DataFrame

from rivermouth.kernels.trajectory import processor as trajectory
from rivermouth.kernels.trajectory.processor import TrajectoryProcessor
from rivermouth.kernels.trajectory.routing import PositionRouter
from rivermouth.kernels.trips import fold
from rivermouth.kernels.trips.fold import Coordinates, TripFold
from rivermouth.kernels.trips.track_log import TrackLog
from rivermouth.spark.engines.stateful import Input, Operator, bucket_count, run
from rivermouth.spark.validation.trips import CheckedTrips, Late, Stop, check
from rivermouth.spec.conditions import Geometry, Metric
from rivermouth.spec.durations import Duration
from rivermouth.spec.identity import identity

WHERE = "trips"


def trips(
    positions: DataFrame,
    *,
    by: str | Sequence[str],
    time: str,
    point: Geometry,
    gap: Duration,
    stop: Stop | None = None,
    min_length: float = 0.0,
    metric: Metric = "planar",
    lateness: Duration | None = None,
    late: Late = "count",
    max_future: Duration = "1 hour",
    idle_timeout: Duration | None = None,
    buckets: int | None = None,
    early: bool = False,
) -> DataFrame:
    """Moves and stays of each object, one row each, once they have ended.

    Positions are taken in the order of their times, whatever the order of their arrival. A gap
    (more than `gap` between two positions) ends what is open. A stay is a longest run of positions
    within the radius of its first one, at least as long as the duration; the first position that
    begins one does. A move is what lies between; it begins with the last position of the stay
    before and ends with the first of the stay after, so that times and lengths add up. A position
    between two gaps is a point. Nothing is interpolated. A batch frame gives the same rows.

    A row is emitted when the watermark says that no position can change it: a move when the stay
    after it is long enough, and each when the gap has passed.

    Parameters
    ----------
    positions
        A batch or streaming frame; also the result of another of our operators.
    by
        The column, or columns, that tell objects apart.
    time
        The event time, a timestamp. Of an object's positions of one time the one with the least x,
        then y, counts; the others are counted as ``same_time``.
    point
        The place: ``rm.point("lon", "lat")``, or a column of points as WKB or GEOMETRY.
    gap
        The longest time between two positions of one row; exactly so long is no gap. An object
        that is silent for longer leaves the state.
    stop
        (radius, duration), as in ``(50, "5 minutes")``: both are reached, not exceeded. None: there
        are no stays.
    min_length
        Moves and points shorter than that are no rows; they are counted as ``too_short``.
    metric
        "planar": radius and lengths are in the coordinates' unit. "sphere": coordinates are
        degrees, radius and lengths are metres along great circles.
    lateness
        How much older than the newest position one may be; older ones are late and not used. None:
        the delay of the frame's own ``withWatermark``. It has no meaning for a batch frame.
    late
        "count": late and rejected positions are counted, in the query's metrics. "rows": they are
        in the result, too, with ``kind`` "late", "future" or "rejected"; `rm.rejected` selects
        them.
    max_future
        A position whose time is farther ahead of the wall clock is rejected: one wrong clock would
        make all others late. Times without a zone may be 14 hours farther ahead.
    idle_timeout
        End everything that is open when no position at all has come for so long. None: it stays
        open until positions come. It needs Spark's timers, with which an ``availableNow`` query
        does not end.
    buckets
        How many buckets the objects are hashed into. None: the session's shuffle partitions, at
        most 32. A checkpoint keeps its number.
    early
        Whether rows are emitted with the micro-batch that brings their first position, and again
        whenever they change: the result is then a changelog, in which open rows are revised as
        positions come. After every micro-batch it amounts to the rows of a batch frame of all
        positions so far (`rm.compact`), late ones left out.

    Returns
    -------
    DataFrame
        The object's columns, and

        kind
            "move", "stay" or "point".
        begin, end
            The times of the first and the last position.
        path
            WKB: a LINESTRING through all positions, a POINT where they are all at one place.
        length
            Of the path, in the coordinates' unit or in metres.
        duration
            From begin to end, in seconds.
        positions
            How many there are, first and last included.
        change, revision
            With ``early=True``: "insert", "update" or "delete", and how often the row has changed
            before. A row is known by its object and ``begin``. A batch frame gives inserts of
            revision 0.

        With ``late="rows"`` also ``record`` (the whole position, where it is not used) and
        ``reason`` (why it was rejected).

    Examples
    --------
    >>> from rivermouth import point, testing
    >>> walk = testing.frame(spark, '''
    ...     who | at timestamp        | x double | y double
    ...     ann | 2026-01-01 12:00:00 | 0        | 0
    ...     ann | 2026-01-01 12:01:00 | 90       | 0
    ...     ann | 2026-01-01 12:02:00 | 95       | 0
    ...     ann | 2026-01-01 12:09:00 | 92       | 0
    ...     ann | 2026-01-01 12:10:00 | 200      | 0
    ... ''')
    >>> found = trips(walk, by="who", time="at", point=point("x", "y"), gap="15 minutes",
    ...               stop=(10, "5 minutes"))
    >>> found.select("who", "kind", "length", "duration", "positions").orderBy("begin").show()
    +---+----+------+--------+---------+
    |who|kind|length|duration|positions|
    +---+----+------+--------+---------+
    |ann|move|  90.0|    60.0|        2|
    |ann|stay|   8.0|   480.0|        3|
    |ann|move| 108.0|    60.0|        2|
    +---+----+------+--------+---------+
    """
    checked = check(
        WHERE, positions, by=by, time=time, point=point, gap=gap, stop=stop,
        min_length=min_length, metric=metric, lateness=lateness, late=late,
        max_future=max_future, idle_timeout=idle_timeout, early=early,
    )  # fmt: skip
    count = bucket_count(positions.sparkSession, buckets, where=WHERE)
    made, query = checked.trips, checked.query  # no frame goes to workers

    def processor(bucket: int) -> TrajectoryProcessor:
        second = TripFold(made) if query.identity else None
        return TrajectoryProcessor(query, TripFold(made), bucket, TrackLog, early=second)

    state, timeout = _identity(checked), query.idle_timeout
    return run(
        [Input(checked.positions.frame, _router(checked, count))],
        Operator(
            WHERE, processor, checked.schema, query.output, count, state, state,
            None if timeout is None else timeout / 1e6,
        ),
    )  # fmt: skip


def _router(checked: CheckedTrips, count: int) -> Callable[[], PositionRouter]:
    positions, query, srid = checked.positions, checked.query, checked.srid
    by, time, place, schema = positions.by, positions.time, positions.place, positions.schema
    max_future, on_sphere = positions.max_future, checked.trips.segmentation.on_sphere
    columns = tuple(schema.names) if query.late_rows else (*by, time)
    coordinates = Coordinates(place, columns, srid, on_sphere)

    def router() -> PositionRouter:
        return PositionRouter(
            by, time, place, schema, count, max_future, srid=srid, on_sphere=on_sphere,
            only_points=True, enrich=coordinates,
        )  # fmt: skip

    return router


def _identity(checked: CheckedTrips) -> str:
    """What must be the same for state to be understood; another `min_length` can go on."""
    how, positions = checked.trips.segmentation, checked.positions
    return identity(
        format=[trajectory.FORMAT, fold.FORMAT],
        by=[f"{name} {positions.schema.field(name).type}" for name in positions.by],
        time=positions.time,
        point=positions.place,
        gap=how.gap,
        stop=None if how.radius is None else [how.radius, how.duration],
        on_sphere=how.on_sphere,
        **({"early": True} if checked.query.identity else {}),
    )
