"""Parts drawn on the sphere: each edge is the shorter arc of the great circle through its ends.

A ring is followed by the longitudes that it passes, so that three cases need no care later:

- An edge that passes the antimeridian is marked (`wraps`).
- A pole has every longitude. An edge to a pole runs along the meridian of its other end; where the
  longitude written for the pole is another one, an edge without length turns from one to the other.
  So a polygon that is drawn up to latitude 90 in the plane covers what it covers there.
- An edge over a pole, between meridians 180 degrees apart, is cut there.

Two ends that are opposite points of the sphere have no shorter arc, and an edge that is written
from one longitude to the same one around the Earth is none: both are ambiguous (`is_ambiguous`).
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from rivermouth.kernels.arrays import Bools, Floats, Ints
from rivermouth.kernels.spatial.parts import Parts
from rivermouth.kernels.spatial.sphere import unit_vectors

_AROUND = 360.0
_OPPOSITE = 1e-10  # the sum of two unit vectors that are as good as opposite
#: more than the rounding of a unit vector
PAD = 1e-15


@dataclass(frozen=True)
class SphereParts:
    """Parts on the sphere.

    Parameters
    ----------
    parts
        The parts with their edges as longitudes and latitudes, cut and turned at poles; one point
        of the sphere has one pair of coordinates.
    vector
        The edges' ends as unit vectors, six numbers each.
    lon
        The longitudes of the ends as the ring passes them.
    wraps
        Whether each edge passes the antimeridian: 1 eastward, -1 westward, 0 not.
    has_north
        Whether a polygon contains the north pole, or the sectors beside those it turns through.
    """

    parts: Parts
    vector: Floats
    lon: Floats
    wraps: Ints
    has_north: Bools

    @property
    def boxes(self) -> tuple[Floats, Floats]:
        """The low and the high corner of the box around each arc."""
        a, b = self.vector[:, :3], self.vector[:, 3:]
        low, high = np.minimum(a, b), np.maximum(a, b)
        normal = np.cross(a, b - a)
        length = np.linalg.norm(normal, axis=1)
        arcs = np.flatnonzero(length > 0)
        a, b, n = a[arcs], b[arcs], normal[arcs] / length[arcs, None]
        for axis in range(3):
            # the great circle is farthest along the axis where that lies beside the normal
            top = -n * n[:, [axis]]
            top[:, axis] += 1.0
            for sign in (1.0, -1.0):
                point = sign * top
                on = (np.cross(a, point) * n).sum(axis=1) > 0
                on &= (np.cross(point, b) * n).sum(axis=1) > 0
                most = sign * np.linalg.norm(point, axis=1)
                low[arcs[on], axis] = np.minimum(low[arcs[on], axis], most[on])
                high[arcs[on], axis] = np.maximum(high[arcs[on], axis], most[on])
        return low - PAD, high + PAD


def is_ambiguous(parts: Parts) -> Bools:
    """Which edges have no shorter arc."""
    ends = parts.ends
    around = np.abs(ends[:, 2] - ends[:, 0]) >= _AROUND
    same_pole = (np.abs(ends[:, 1]) == 90.0) & (ends[:, 1] == ends[:, 3])
    gap = unit_vectors(ends[:, 0], ends[:, 1]) + unit_vectors(ends[:, 2], ends[:, 3])
    opposite = np.linalg.norm(gap, axis=1) < _OPPOSITE
    meridian = (np.abs(ends[:, 1]) == 90.0) & (ends[:, 0] == ends[:, 2])  # from pole to pole
    return np.asarray((around & ~same_pole) | (opposite & ~meridian))


def on_sphere(parts: Parts) -> SphereParts:
    """The parts drawn on the sphere; none of their edges may be ambiguous."""
    ends, wraps, of = _Path(parts).drawn()
    lon = ends[:, ::2].copy()
    for at in (0, 2):
        ends[np.abs(ends[:, at + 1]) == 90.0, at] = 0.0
    vector = np.hstack([unit_vectors(*ends[:, :2].T), unit_vectors(*ends[:, 2:].T)])
    drawn = Parts(ends, parts.ring[of], parts.part[of], parts.row, parts.is_area)
    return SphereParts(drawn, vector, lon, wraps, _has_north(drawn, lon, wraps))


class _Path:
    """The edges of parts, with more of them where a ring touches or passes a pole."""

    def __init__(self, parts: Parts) -> None:
        raw = parts.ends
        self._written = raw[:, 2] - raw[:, 0]
        self._a, self._b = _normal(raw[:, 0]), _normal(raw[:, 2])
        self._lat_a, self._lat_b = raw[:, 1], raw[:, 3]

    def drawn(self) -> tuple[Floats, Ints, Ints]:
        """Longitude and latitude of either end, the wraps, and which edge each is of."""
        a, b, lat_a, lat_b = self._a, self._b, self._lat_a, self._lat_b
        pole_a, pole_b = np.abs(lat_a) == 90.0, np.abs(lat_b) == 90.0
        is_over = ~pole_a & ~pole_b & (np.abs(b - a) == 180.0) & (lat_a + lat_b != 0.0)
        through = pole_a & pole_b & (lat_a != lat_b)
        pole = np.where(lat_a + lat_b > 0, 90.0, -90.0)
        # up to four steps an edge: to a pole, a turn there, and on; or from pole to pole
        plain = ~(pole_a | pole_b | is_over)
        to_pole = (~pole_a & pole_b) | is_over
        turn = (pole_a | pole_b | is_over) & ~through
        on = (pole_a & ~pole_b) | is_over
        at = np.where(pole_a, lat_a, np.where(pole_b, lat_b, pole))
        rows = [np.flatnonzero(mask) for mask in (plain, to_pole, turn, on, through, through)]
        p, t, u, o, h, _ = rows
        zero = np.zeros(len(h))
        of = np.concatenate(rows)
        lon_a = np.concatenate([a[p], a[t], a[u], b[o], a[h], a[h]])
        lat_1 = np.concatenate([lat_a[p], lat_a[t], at[u], at[o], lat_a[h], zero])
        lon_b = np.concatenate([b[p], a[t], b[u], b[o], a[h], a[h]])
        lat_2 = np.concatenate([lat_b[p], at[t], at[u], lat_b[o], zero, lat_b[h]])
        wraps = np.concatenate(
            [_wraps(a[p], b[p]), np.zeros(len(t)), self._turned(u), np.zeros(len(o) + 2 * len(h))]
        ).astype(np.int64)
        order = np.argsort(of, kind="stable")  # within an edge the steps stand in order
        ends = np.column_stack([lon_a, lat_1, lon_b, lat_2])
        return ends[order], wraps[order], of[order]

    def _turned(self, rows: Ints) -> Floats:
        """How often a turn at a pole passes the antimeridian, as it is written."""
        a, b = self._a[rows], self._b[rows]
        written = self._written[rows]
        return np.round((a + written - b) / _AROUND)


def _normal(lon: Floats) -> Floats:
    turned = np.fmod(lon, _AROUND)  # exact, as are the differences
    return np.asarray(turned - _AROUND * ((turned >= 180.0) * 1.0 - (turned < -180.0)))


def _wraps(a: Floats, b: Floats) -> Floats:
    return np.where(a - b > 180.0, 1.0, np.where(b - a > 180.0, -1.0, 0.0))


def _has_north(drawn: Parts, lon: Floats, wraps: Ints) -> Bools:
    """For each part, whether the north pole is on the inner side of an odd number of its rings.

    A ring that does not go around the poles encloses what has none of them; one that does, the
    smaller of the two sides.
    """
    step = np.radians(lon[:, 1] - lon[:, 0] + _AROUND * wraps)
    tan_a, tan_b = (np.tan(np.radians(drawn.ends[:, lat]) / 2) for lat in (1, 3))
    turn = np.tan(step / 2)
    area = 2 * np.arctan2(turn * (tan_a + tan_b), 1 + tan_a * tan_b)  # between arc and equator
    poles = drawn.ends[:, 1] * (np.abs(drawn.ends[:, 1]) == 90.0) / 90.0
    area = np.where((poles != 0) & (drawn.ends[:, 1] == drawn.ends[:, 3]), step * poles, area)
    rings = int(drawn.ring[-1]) + 1 if len(drawn.ring) else 0
    around = np.bincount(drawn.ring, wraps, rings)
    north = np.bincount(drawn.ring, area, rings) * np.sign(around) >= 0
    part_of = np.zeros(rings, np.int64)
    part_of[drawn.ring] = drawn.part
    inside = (around % 2 != 0) & north & drawn.is_area[part_of]
    return np.asarray(np.bincount(part_of, inside, len(drawn.row)) % 2 == 1)
