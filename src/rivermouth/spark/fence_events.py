"""fence_events: what moving objects do with respect to the shapes of a table."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import pyarrow as pa
from pyspark.sql import DataFrame

from rivermouth.kernels.fences.fold import FenceFold
from rivermouth.kernels.fences.query import FenceQuery
from rivermouth.kernels.fences.table import FenceTable
from rivermouth.kernels.table_join.matching import Matcher
from rivermouth.kernels.trajectory.processor import FORMAT, TrajectoryProcessor
from rivermouth.kernels.trajectory.routing import PositionRouter
from rivermouth.spark.engines.micro_batch import micro_batch
from rivermouth.spark.engines.stateful import Input, Operator, bucket_count, run
from rivermouth.spark.runtime.folders import SNAPSHOTS, shared_folder
from rivermouth.spark.validation.fence_events import WHERE, Checked, Confirmation, check
from rivermouth.spark.validation.relation import Columns
from rivermouth.spark.validation.trajectories import Late
from rivermouth.spec.caches import Cache, Full
from rivermouth.spec.conditions import Condition, Keys, Spatial, is_on_sphere, key_pairs, named
from rivermouth.spec.durations import Duration
from rivermouth.spec.identity import identity
from rivermouth.tables.cache.snapshot import SnapshotSpec
from rivermouth.tables.cache.snapshot_store import Version
from rivermouth.tables.changes.following import open_version
from rivermouth.tables.changes.overlay import LayeredVersion
from rivermouth.tables.shared_folder import SharedFolder
from rivermouth.tables.source import Source
from rivermouth.tables.worker_cache import WorkerCache


def fence_events(
    positions: DataFrame,
    table: Source,
    *,
    on: Condition,
    by: str | Sequence[str],
    time: str,
    events: Sequence[str] = ("enter", "exit"),
    dwell: Duration | None = None,
    min_inside: Confirmation = None,
    min_outside: Confirmation = None,
    gap: Duration | None = None,
    first_inside: bool = True,
    columns: Columns = None,
    cache: Cache | None = None,
    lateness: Duration | None = None,
    late: Late = "count",
    max_future: Duration = "1 hour",
    idle_timeout: Duration | None = None,
    buckets: int | None = None,
    early: bool = False,
) -> DataFrame:
    """Who entered, left, stayed in, crossed or was lost in which shape of a table, and when.

    Positions of an object are taken in the order of their event times, whatever order they come
    in: each waits until the watermark has passed it. Every event is given once. The same call
    takes a batch frame, and a stream of the same rows gives the same events in any order of
    arrival within the lateness.

    Parameters
    ----------
    positions
        A batch or streaming frame of positions of moving objects. A position that comes twice
        counts once; several of one object and time are taken in the order of their coordinates.
    table
        The fences: ``rm.tables.geojson(...)`` and the like.
    on
        When a position is inside: any spatial condition of `join_table`, with or without
        ``& rm.keys(...)``. ``rm.within(rm.point("lon", "lat"), "geometry")``,
        ``rm.dwithin(..., meters=200)``.
    by
        The column or columns that tell objects apart.
    time
        The column of event times, a timestamp.
    events
        Which events are given:

        "enter", "exit"
            The first position inside, and the first one outside, once `min_inside` and
            `min_outside` say that it lasts.
        "dwell"
            Once a visit, the first position inside that is `dwell` or more after entering.
        "cross"
            The straight way between two positions meets a fence that neither of them is in. In the
            plane of the coordinates; for ``rm.dwithin(meters=)`` along the great circle.
        "lost"
            An object that was inside has had no position for `gap`, at the time of its last
            position plus `gap`.
    dwell
        How long an object must be inside for "dwell".
    min_inside, min_outside
        How long an object must be inside without interruption to have entered, and outside to have
        left: a length of time between the first and the last position, or a number of positions.
        Shorter stays inside or outside are ignored. The event is that of the first position; it
        comes when the last one is known. None: one position is enough.
    gap
        An object without a position for longer is forgotten: visits end with "lost" (with "exit"
        if it was last seen outside), it leaves the state, and its next position is its first. None:
        objects are kept for ever.
    first_inside
        Whether an object that is inside at its first position has entered then. If not, it is
        inside without an "enter"; "dwell" and "exit" count from that position on.
    columns
        The table's columns that tell fences apart and are part of the result: names, or {new name:
        name in the table}. Rows that are equal in all of them are one fence. None: all but the
        geometry and the key columns that `on` names.
    cache
        ``rm.full(...)``: how the table is kept and when it is read again. With ``refresh=`` changes
        are followed: a fence whose shape changes stays the same fence; one that is removed gives an
        "exit" with reason "fence_removed" at the next position of each object in it.
    lateness
        How much older than the newest position one may be; older ones are late and ignored. None:
        the delay of the frame's own ``withWatermark``. It has no meaning for a batch frame.
    late
        "count": late and rejected positions are counted, in the query's metrics. "rows": they are
        in the result, too, in columns ``kind`` ("row", "late", "future", "rejected") and
        ``record``; `rm.rejected` selects them.
    max_future
        A position whose time is farther ahead of the wall clock is rejected: one wrong clock would
        make all others late. Times without a zone may be 14 hours farther ahead.
    idle_timeout
        When no position has come for so long, those that wait are processed. None: they wait. It
        needs Spark's timers, with which an ``availableNow`` query does not end.
    buckets
        Into how many parts the objects are divided. None: the session's shuffle partitions, at most
        32. A checkpoint keeps its number.
    early
        Whether events are emitted with the micro-batch that brings their positions, before the
        watermark has passed them. The result is then a changelog: events that a later position
        within the lateness changes are updated or deleted. After every micro-batch it amounts to
        the events of a batch frame of all positions so far (`rm.compact`), late ones left out.

    Returns
    -------
    DataFrame
        The columns of `by`, `time` and the position (those of the event), the fence's `columns`,
        and

        event
            One of `events`.
        entered
            When the visit began; null for "cross".
        seconds_inside
            How long the object has been inside until then, from its first position inside to the
            event; for "lost" to its last position. Null for "enter" and "cross".
        reason
            Of "enter" "entered" or "first_seen", of "exit" "left" or "fence_removed", else null;
            of rejected positions why.
        change, revision
            With ``early=True``: "insert", "update" or "delete", and how often the event has changed
            before. An event is known by the columns that come before ``entered``: the object, the
            time, the position, the fence and the kind. A batch frame gives inserts of revision 0.

    Notes
    -----
    Positions without a time, without a place (null, NaN, an unreadable or invalid geometry, another
    SRID than the table's), with a null in `by` or too far in the future are rejected.

    Examples
    --------
    >>> import json
    >>> from pathlib import Path
    >>> from tempfile import mkdtemp
    >>> from rivermouth import point, tables, testing, within
    >>> box = [[[0, 0], [9, 0], [9, 9], [0, 9], [0, 0]]]
    >>> feature = {"type": "Feature", "properties": {"zone": "port"},
    ...            "geometry": {"type": "Polygon", "coordinates": box}}
    >>> zones = Path(mkdtemp()) / "zones.geojson"
    >>> _ = zones.write_text(json.dumps({"type": "FeatureCollection", "features": [feature]}))
    >>> ships = testing.frame(spark, '''
    ...     ship | at timestamp        | x double | y double
    ...     ada  | 2026-01-01 12:00:00 | -5       | 5
    ...     ada  | 2026-01-01 12:10:00 | 5        | 5
    ...     ada  | 2026-01-01 12:40:00 | 15       | 5
    ... ''')
    >>> found = fence_events(
    ...     ships, tables.geojson(zones), on=within(point("x", "y"), "geometry"), by="ship",
    ...     time="at",
    ... )
    >>> [(row["event"], row["zone"], row["seconds_inside"]) for row in testing.rows(found)]
    [('enter', 'port', None), ('exit', 'port', 1800.0)]
    """
    checked = check(
        positions, table, on=on, by=by, time=time, events=events, dwell=dwell,
        min_inside=min_inside, min_outside=min_outside, gap=gap, first_inside=first_inside,
        columns=columns, cache=cache, lateness=lateness, late=late, max_future=max_future,
        idle_timeout=idle_timeout, early=early,
    )  # fmt: skip
    return events_of(checked, buckets)


def events_of(checked: Checked, buckets: int | None) -> DataFrame:
    """The events of a checked definition."""
    frame = checked.positions.frame
    count = bucket_count(frame.sparkSession, buckets, where=WHERE)
    folder = shared_folder(frame, checked.cache.path, where=WHERE, example=SNAPSHOTS)
    job = _Job.of(checked, count, folder)  # no frame goes to workers
    idle = checked.positions.idle_timeout
    state = _identity(checked)
    return run(
        [Input(frame, job.router)],
        Operator(
            WHERE, job.processor, checked.schema, checked.query.trajectory.output, count, state,
            state, None if idle is None else idle / 1e6,
        ),
        about=job,
    )  # fmt: skip


@dataclass(frozen=True)
class _Job:
    """What workers need to know.

    Parameters
    ----------
    query, keys, spatial, srid, spec, cache, fences, only
        As in `Checked`.
    schema
        The positions' schema as workers get it.
    count
        The number of buckets.
    max_future
        How far ahead of the wall clock a time may be, in microseconds.
    folder
        Where snapshots of the table are kept.
    """

    query: FenceQuery
    keys: Keys | None
    spatial: Spatial
    srid: int
    spec: SnapshotSpec
    cache: Full
    fences: tuple[tuple[str, str, pa.DataType], ...]
    schema: pa.Schema
    count: int
    max_future: int
    folder: SharedFolder
    only: str | None

    @classmethod
    def of(cls, checked: Checked, count: int, folder: SharedFolder) -> _Job:
        """The job of a checked definition."""
        return cls(
            checked.query, checked.keys, checked.spatial, checked.srid, checked.spec,
            checked.cache, checked.fences, checked.positions.schema, count,
            checked.positions.max_future, folder, checked.only,
        )  # fmt: skip

    @property
    def source(self) -> Source:
        """Where the fences come from."""
        return self.spec.source

    @property
    def label_columns(self) -> list[str]:
        """The table's columns that tell fences apart: what a map calls them by."""
        return [old for _, old, _ in self.fences]

    @property
    def key_columns(self) -> list[str]:
        """The positions' columns that are compared with keys of the table."""
        return [left for left, _ in key_pairs(self.keys)]

    def router(self) -> PositionRouter:
        """A task's router: it meets one version of the table."""
        version, trajectory = self.version(), self.query.trajectory
        table = self.table(version)
        left = list(dict.fromkeys([*named(self.spatial.left), *self.key_columns]))
        return PositionRouter(
            trajectory.by, trajectory.time, self.spatial.left, self.schema, self.count,
            self.max_future, srid=self.srid, on_sphere=is_on_sphere(self.spatial),
            enrich=lambda batch: table.locate(batch, left), only=self.only,
            note={"table": version.report(self.cache.refresh)},
        )  # fmt: skip

    def processor(self, bucket: int) -> TrajectoryProcessor:
        """A bucket's processor for one micro-batch."""
        early = self.fold() if self.query.trajectory.identity else None
        return TrajectoryProcessor(self.query.trajectory, self.fold(), bucket, early=early)

    def fold(self) -> FenceFold:
        """What makes events of positions, for one micro-batch."""
        return FenceFold(self.query, self.spatial.left, self.key_columns, self.table)

    def version(self) -> Version | LayeredVersion:
        """The version of the table that this micro-batch joins."""
        folder = self.folder.seen(where=WHERE)
        return open_version(self.spec, self.cache, folder, micro_batch())

    def table(self, version: Version | LayeredVersion | None = None) -> FenceTable:
        """A version of the table, None for that of this micro-batch; a worker keeps it open."""
        version = self.version() if version is None else version

        def make() -> FenceTable:
            flat = version.flat  # fences are few
            columns = flat.columns
            fences = {name: columns[old].cast(dtype) for name, old, dtype in self.fences}
            matcher = Matcher(self.keys, self.spatial, columns, flat.index, srid=self.srid)
            return FenceTable(
                self.keys, self.spatial, columns, pa.table(fences), matcher, version.number
            )

        folder = self.folder.seen(where=WHERE)
        return _tables.get((self.spec.digest, folder), make, version=version.name)


#: a worker keeps the newest version of each table
_tables: WorkerCache[tuple[str, str], FenceTable] = WorkerCache(size=16)


def _identity(checked: Checked) -> str:
    """What must be the same for state to be understood; events and their rules may change."""
    query = checked.query
    early = {"early": True} if query.trajectory.identity else {}
    return identity(
        format=FORMAT,
        by=query.trajectory.by,
        time=query.trajectory.time,
        on=(checked.keys, checked.spatial),
        fences=[old for _, old, _ in checked.fences],
        columns=[f"{field.name} {field.type}" for field in query.trajectory.positions],
        **early,
    )
