"""Positions with the fences around them become events: arrays for `visits.walk`, and back.

What an object carries from one micro-batch to the next is its last position and its open fences,
each with its columns and the place of its run's first position. Places and fences are kept in two
pools while a micro-batch is folded: those carried, then those that are new; arrays hold where in
the pool one is.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from rivermouth.kernels.arrays import Bools, Floats, Ints
from rivermouth.kernels.fences import query as names
from rivermouth.kernels.fences.query import EVENTS, REASONS, FenceQuery
from rivermouth.kernels.fences.sketch import EventSketch
from rivermouth.kernels.fences.table import FenceTable, Ways
from rivermouth.kernels.fences.visits import (
    FENCE,
    NONE,
    PLACE,
    VERSION,
    VISIT,
    Moves,
    Past,
    Rules,
    has_way,
    walk,
)
from rivermouth.kernels.spatial.geometry import geometries_of
from rivermouth.kernels.state.groups import group
from rivermouth.kernels.trajectory.objects import NEVER
from rivermouth.kernels.trajectory.processor import Folded, Released
from rivermouth.spec.conditions import Geometry

_LAST, _AT, _VISITS = "last", "at", "visits"
_NUMBERS = [name for name in VISIT if name not in ("fence", "place")]


@dataclass(frozen=True)
class _Pools:
    """The places and the fences that a micro-batch knows; a fence's code is its number here."""

    places: pa.Array
    fences: pa.Table


class FenceFold:
    """The fold of `fence_events`.

    Parameters
    ----------
    query
        What is asked.
    place
        The position's geometry.
    keys
        The columns of the positions that the condition compares with keys of the table.
    table
        Opens the newest version of the table; called only where it is needed.
    """

    def __init__(
        self,
        query: FenceQuery,
        place: Geometry,
        keys: Sequence[str],
        table: Callable[[], FenceTable],
    ) -> None:
        self._query, self._place, self._keys, self._table = query, place, keys, table
        self._events: Counter[str] = Counter()
        self._sketch = EventSketch(query, place)
        visit = pa.struct(
            [
                ("fence", query.fence_type),
                ("place", query.place_type),
                *((name, pa.int64()) for name in _NUMBERS),
            ]
        )
        self._carry = pa.schema(
            [(_LAST, pa.int64()), (_AT, query.place_type), (_VISITS, pa.list_(visit))]
        )

    @property
    def carry(self) -> pa.Schema:
        """The last position's time and place, and the open fences."""
        return self._carry

    def counts(self) -> dict[str, int]:
        """How many events of each kind there were."""
        return dict(self._events)

    def sketch(self) -> dict[str, Any]:
        """Events per fence, and the newest events."""
        return self._sketch.report()

    def fold(self, released: Released) -> Folded:
        """The events of these positions, and what to carry on."""
        rows, query = released.rows, self._query
        first = _first_rows(rows, released.starts, [query.trajectory.time, *query.place])
        visits, visit_starts = _flattened(released.carry.column(_VISITS))
        pools, fences, old = self._pools(released, rows, first, visits)
        moves = self._moves(released, rows, first, fences, pools)
        objects = len(released.known)
        last = np.array(pc.fill_null(released.carry.column(_LAST), NONE))
        numbers = self._numbers(visits, old, objects)
        past = Past(last, np.arange(objects), visit_starts, numbers)
        gap = -1 if query.gap is None else query.gap
        if "cross" in query.events:
            pools, moves, past = self._crossed(pools, moves, past, rows, first, gap)
        exists = self._exists(pools, moves, past)
        rules = _rules(query, gap, released.watermark)
        events, kept, starts, lasts, places, stays = walk(moves, past, exists, rules)
        deadline = lasts + gap if gap >= 0 else np.full(len(lasts), NEVER)
        carry = self._carried(pools, kept, starts, lasts, places)
        results = self._results(released.objects, pools, events)
        self._sketch.add(results)
        return Folded(results, carry, deadline, stays)

    # -- in

    def _pools(
        self, released: Released, rows: pa.Table, first: Bools, visits: pa.Array
    ) -> tuple[_Pools, Ints, Ints]:
        """The pools; the codes of the fences of all rows, and of the visits."""
        new = rows.filter(pa.array(first)).select(list(self._query.place))
        places = pa.concat_arrays(
            [
                released.carry.column(_AT).combine_chunks(),
                visits.field("place"),
                _structs(new, self._query.place_type),
            ]
        )
        inside = rows.select(self._query.fence_columns)
        carried = pa.Table.from_struct_array(visits.field("fence"))
        all_fences = pa.concat_tables([carried, inside]).combine_chunks()
        codes, fences = _grouped(all_fences)
        return _Pools(places, fences), codes[len(visits) :], codes[: len(visits)]

    def _numbers(self, visits: pa.Array, codes: Ints, objects: int) -> Ints:
        """The carried visits as rows of `VISIT`."""
        numbers = np.empty((len(visits), len(VISIT)), np.int64)
        for at, name in enumerate(VISIT):
            if name in _NUMBERS:
                numbers[:, at] = visits.field(name).to_numpy()
        numbers[:, FENCE] = codes
        numbers[:, PLACE] = objects + np.arange(len(visits))
        return numbers

    def _moves(
        self, released: Released, rows: pa.Table, first: Bools, fences: Ints, pools: _Pools
    ) -> Moves:
        """The positions, each once, with the fences around it."""
        at = np.flatnonzero(first)
        inside = rows.column(names.INSIDE).to_numpy()
        before = np.concatenate([[0], np.cumsum(inside)])
        ends = np.append(at, len(inside))
        version = _last_of(rows.column(names.VERSION).to_numpy(), at)
        count = len(at)
        return Moves(
            np.searchsorted(at, released.starts),
            rows.column(self._query.trajectory.time).to_numpy()[at],
            len(pools.places) - count + np.arange(count),
            version,
            before[ends],
            fences[inside],
            np.zeros(count + 1, np.int64),
            np.empty(0, np.int64),
        )

    # -- ways

    def _crossed(
        self, pools: _Pools, moves: Moves, past: Past, rows: pa.Table, first: Bools, gap: int
    ) -> tuple[_Pools, Moves, Past]:
        """The positions with the fences that the ways to them meet, which the pool then has."""
        has, before = has_way(moves, past, gap)
        at = np.flatnonzero(has)
        if not len(at):
            return pools, moves, past
        table, points = self._table(), self._points(pools.places)
        found = rows.filter(pa.array(first))
        keys = [found.column(name).combine_chunks().take(pa.array(at)) for name in self._keys]
        ways = Ways(points[before[at]], points[moves.place[at]], keys)
        li, ri = table.met(ways)
        near, row = np.unique(ri, return_inverse=True)
        codes, fences = _grouped(
            pa.concat_tables([pools.fences, table.fences.take(pa.array(near))]).combine_chunks()
        )
        known, code = codes[: pools.fences.num_rows], codes[pools.fences.num_rows :][row]
        moves = moves._replace(fence=known[moves.fence])
        past.visits[:, FENCE] = known[past.visits[:, FENCE]]
        begin = np.maximum(before[at] - moves.place[0], -1)[li]  # -1: a position of earlier times
        fresh = ~(_is_around(moves, at[li], code) | _is_around(moves, begin, code))
        li, ri, code = li[fresh], ri[fresh], code[fresh]
        through = table.through(ways, li, ri)
        pairs = np.unique(np.column_stack([at[li[through]], code[through]]), axis=0)
        starts = np.searchsorted(pairs[:, 0], np.arange(len(moves.times) + 1))
        cross = np.ascontiguousarray(pairs[:, 1])
        crossed = moves._replace(cross_starts=starts, cross=cross)
        return _Pools(pools.places, fences), crossed, past

    def _points(self, places: pa.Array) -> Floats:
        """The coordinates of the places, NaN where one is no point."""
        columns = dict(zip(self._query.place, places.flatten(), strict=True))
        found = geometries_of(columns, self._place).only_points()
        xy = np.column_stack(found.xy)
        xy[~found.valid] = np.nan
        return xy

    def _exists(self, pools: _Pools, moves: Moves, past: Past) -> Bools:
        """Whether each fence is in the table yet; asked only where that may have changed."""
        versions = np.concatenate([moves.version, past.visits[:, VERSION]])
        if not len(moves.version) or versions.min() == versions.max():
            return np.ones(pools.fences.num_rows, dtype=bool)
        return self._table().has(pools.fences)

    # -- out

    def _carried(
        self, pools: _Pools, kept: Ints, starts: Ints, lasts: Ints, places: Ints
    ) -> pa.Table:
        fence = _structs(pools.fences.take(pa.array(kept[:, FENCE])), self._query.fence_type)
        columns = {
            "fence": fence,
            "place": pools.places.take(pa.array(kept[:, PLACE])),
            **{name: pa.array(kept[:, VISIT.index(name)]) for name in _NUMBERS},
        }
        visit = self._carry.field(_VISITS).type
        visits = pa.StructArray.from_arrays(list(columns.values()), fields=list(visit.value_type))
        offsets = pa.array(starts, pa.int32())
        return pa.table(
            {
                _LAST: pa.array(lasts),
                _AT: pools.places.take(pa.array(places)),
                _VISITS: pa.ListArray.from_arrays(offsets, visits, type=visit),
            },
            self._carry,
        )

    def _results(self, objects: pa.Table, pools: _Pools, events: Ints) -> pa.Table:
        query, output = self._query, self._query.trajectory.output
        who, event, time, place, fence, since, until, reason = np.ascontiguousarray(events.T)
        self._events.update({EVENTS[k]: n for k, n in enumerate(np.bincount(event).tolist()) if n})
        dtype, none = output.field(query.trajectory.time).type, since == NONE
        taken = objects.take(pa.array(who))
        at = pools.places.take(pa.array(place))
        around = pools.fences.take(pa.array(fence))
        started = event == names.ENTER
        return pa.table(
            {
                **dict(zip(query.trajectory.by, taken.columns, strict=True)),
                query.trajectory.time: pa.array(time).cast(dtype),
                **dict(zip(query.place, at.flatten(), strict=True)),
                **dict(zip(query.fences, around.columns, strict=True)),
                names.EVENT: pa.array(EVENTS).take(pa.array(event)),
                names.ENTERED: pa.array(since, mask=none).cast(dtype),
                names.SECONDS: pa.array((until - since) / 1e6, mask=none | started),
                names.REASON: pa.array(REASONS).take(pa.array(reason)),
            }
        )


def _rules(query: FenceQuery, gap: int, watermark: int) -> Rules:
    return Rules(
        np.array([event in query.events for event in EVENTS]),
        query.min_inside.count, query.min_inside.length,
        query.min_outside.count, query.min_outside.length,
        -1 if query.dwell is None else query.dwell, gap, query.first_inside, watermark,
    )  # fmt: skip


def _first_rows(rows: pa.Table, starts: Ints, columns: Sequence[str]) -> Bools:
    """Which rows begin a position: those that differ from the row before, or begin an object."""
    first = np.zeros(rows.num_rows, dtype=bool)
    first[starts[:-1][np.diff(starts) > 0]] = True
    for name in columns:
        column = rows.column(name).combine_chunks()
        if pa.types.is_struct(column.type):
            column = pc.struct_field(column, "wkb")
        if len(column) > 1:
            first[1:] |= pc.not_equal(column[1:], column[:-1]).to_numpy(zero_copy_only=False)
    return first


def _last_of(values: Ints, starts: Ints) -> Ints:
    """The largest value of each run of rows."""
    return np.maximum.reduceat(values, starts) if len(starts) else np.empty(0, np.int64)


def _grouped(fences: pa.Table) -> tuple[Ints, pa.Table]:
    """The code of each row's fence, and the fences in the order of their codes."""
    columns = [column.combine_chunks() for column in fences.columns]
    groups = group(columns, fences.num_rows)
    return groups.code, fences.take(pa.array(groups.first))


def _is_around(moves: Moves, position: Ints, code: Ints) -> Bools:
    """Whether each fence is around a position; never around that before the first."""
    count = 1 + max(int(moves.fence.max(initial=0)), int(code.max(initial=0)))
    of = np.repeat(np.arange(len(moves.times)), np.diff(moves.fence_starts))
    return np.isin(position * count + code, of * count + moves.fence)


def _flattened(lists: pa.ChunkedArray) -> tuple[pa.Array, Ints]:
    """The values of all lists, and where each list starts in them."""
    column = lists.combine_chunks()
    sizes = pc.fill_null(pc.list_value_length(column), 0).to_numpy()
    return column.flatten(), np.concatenate([[0], np.cumsum(sizes)]).astype(np.int64)


def _structs(table: pa.Table, dtype: pa.StructType) -> pa.Array:
    """The rows as one column of structs."""
    arrays = [column.combine_chunks() for column in table.columns]
    return pa.StructArray.from_arrays(arrays, fields=list(dtype))
