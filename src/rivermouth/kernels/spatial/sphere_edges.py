"""A point and the edges of one part, on the sphere: how far, and whether it lies inside.

Edges are arcs of great circles between unit vectors. Squared chords tell near from far; the
distance itself is taken once, of the nearest arc, by the haversine formula to an end or by the
angle from the arc's plane. All differences are taken of vectors that are near each other, so that
short arcs and short distances keep their precision: nanometres on the ground.

Whether a point lies inside: follow its meridian to the north pole, and count the edges on the way.
"""

from __future__ import annotations

import math

import numba
import numpy as np

from rivermouth.kernels.arrays import Floats
from rivermouth.kernels.spatial.box_tree import next_leaf
from rivermouth.kernels.spatial.plane_edges import EDGE_LEAF, Edges, Scratch
from rivermouth.kernels.spatial.sphere import RADIUS, great_circle

_ROUNDING = 1e-15  # more than a unit vector is off by
_FOOT, _BEGIN, _END = 0, 1, 2


@numba.njit(cache=True)
def sphere_distance(
    edges: Edges, part: int, xy: Floats, probe: Floats, q: int,
    far: float, enough: float, scratch: Scratch,
) -> float:  # fmt: skip
    """Metres from probe `q` to the edges of a part, infinite where the squared chord exceeds `far`.

    Where one is found whose squared chord is not above `enough`, it may be returned at once.
    """
    stack, gaps = scratch
    stack[0, 0], stack[0, 1], stack[0, 2] = 0, edges.first[part], edges.first[part + 1]
    gaps[0] = 0.0
    top, root = 1, edges.root[part]
    nearest, kind = -1, _BEGIN
    while top:
        top, low, high = next_leaf(stack, gaps, top, far, edges.box, root, EDGE_LEAF, probe, q)
        for e in range(low, high):
            square, which = _chord(edges.vector, e, probe, q)
            if square <= far and (nearest < 0 or square < far):
                far, nearest, kind = square, e, which
                if square <= enough:
                    top = 0
                    break
    if nearest < 0:
        return np.inf
    return _metres(edges, nearest, kind, xy, probe, q)


@numba.njit(cache=True, inline="always")
def _chord(vector: Floats, e: int, probe: Floats, q: int) -> tuple[float, int]:
    """The squared chord to the nearest point of an arc, and whether that is one of its ends."""
    ax, ay, az = vector[e, 0], vector[e, 1], vector[e, 2]
    px, py, pz = probe[q, 0] - ax, probe[q, 1] - ay, probe[q, 2] - az
    dx, dy, dz = vector[e, 3] - ax, vector[e, 4] - ay, vector[e, 5] - az
    length, own = dx * dx + dy * dy + dz * dz, px * px + py * py + pz * pz
    ox, oy, oz = px - dx, py - dy, pz - dz
    other = ox * ox + oy * oy + oz * oz
    # the foot lies on the arc where the point is before neither end: chords instead of tangents
    is_before = px * dx + py * dy + pz * dz <= length * own / 4
    if is_before or -(ox * dx + oy * dy + oz * dz) <= length * other / 4:
        return (own, _BEGIN) if own <= other else (other, _END)
    nx, ny, nz = ay * dz - az * dy, az * dx - ax * dz, ax * dy - ay * dx
    across = px * nx + py * ny + pz * nz
    square = across * across / (nx * nx + ny * ny + nz * nz)
    return 2.0 * square / (1.0 + math.sqrt(max(0.0, 1.0 - square))), _FOOT


@numba.njit(cache=True)
def _metres(edges: Edges, e: int, kind: int, xy: Floats, probe: Floats, q: int) -> float:
    """Metres to an arc whose nearest point is of this kind, whichever way the arc was drawn."""
    ends, vector = edges.ends, edges.vector
    if kind == _BEGIN:
        return great_circle(xy[q, 0], xy[q, 1], ends[e, 0], ends[e, 1])
    if kind == _END:
        return great_circle(xy[q, 0], xy[q, 1], ends[e, 2], ends[e, 3])
    a, b = 0, 3
    if (ends[e, 0], ends[e, 1]) > (ends[e, 2], ends[e, 3]):
        a, b = 3, 0
    ax, ay, az = vector[e, a], vector[e, a + 1], vector[e, a + 2]
    dx, dy, dz = vector[e, b] - ax, vector[e, b + 1] - ay, vector[e, b + 2] - az
    px, py, pz = probe[q, 0] - ax, probe[q, 1] - ay, probe[q, 2] - az
    nx, ny, nz = ay * dz - az * dy, az * dx - ax * dz, ax * dy - ay * dx
    n = math.sqrt(nx * nx + ny * ny + nz * nz)
    sine = abs(px * nx + py * ny + pz * nz) / n
    # the cosine as the length of what lies in the arc's plane: along `a`, and across it
    along = probe[q, 0] * ax + probe[q, 1] * ay + probe[q, 2] * az
    tx, ty, tz = ny * az - nz * ay, nz * ax - nx * az, nx * ay - ny * ax
    beside = (probe[q, 0] * tx + probe[q, 1] * ty + probe[q, 2] * tz) / n
    return RADIUS * math.atan2(sine, math.sqrt(along * along + beside * beside))


@numba.njit(cache=True)
def in_sphere_polygon(
    edges: Edges, part: int, has_north: bool, lon: float, probe: Floats, q: int, scratch: Scratch
) -> bool:
    """Whether a point lies in a polygon; on its boundary either, to the rounding of the vectors."""
    box, lons, wraps = edges.box, edges.lon, edges.wraps
    z = probe[q, 2]
    stack = scratch.stack
    stack[0, 0], stack[0, 1], stack[0, 2] = 0, edges.first[part], edges.first[part + 1]
    top, root, is_in = 1, edges.root[part], has_north
    while top:
        top -= 1
        node, low, high = stack[top, 0], stack[top, 1], stack[top, 2]
        at = root + node
        if z > box[at, 5]:
            continue  # all of it is farther south
        if z < box[at, 2] and edges.ring[low] == edges.ring[high - 1]:
            # all of it is farther north: crossed by where the run begins and ends
            is_in ^= (lons[low, 0] > lon) != (lons[high - 1, 1] > lon)
            is_in ^= wraps[low] != wraps[high]
            continue
        if high - low > EDGE_LEAF:
            middle = (low + high) // 2
            stack[top, 0], stack[top, 1], stack[top, 2] = 2 * node + 1, low, middle
            top += 1
            stack[top, 0], stack[top, 1], stack[top, 2] = 2 * node + 2, middle, high
            top += 1
            continue
        for e in range(low, high):
            wraps_here = wraps[e] != wraps[e + 1]
            if ((lons[e, 0] > lon) != (lons[e, 1] > lon)) != wraps_here:
                is_in ^= _is_north(
                    edges.vector, e, (lons[e, 1] > lons[e, 0]) != wraps_here, probe, q
                )
    return is_in


@numba.njit(cache=True)
def _is_north(vector: Floats, e: int, is_eastward: bool, probe: Floats, q: int) -> bool:
    """Whether an arc that meets a point's meridian does so north of the point."""
    ax, ay, az = vector[e, 0], vector[e, 1], vector[e, 2]
    dx, dy, dz = vector[e, 3] - ax, vector[e, 4] - ay, vector[e, 5] - az
    z = probe[q, 2]
    # an arc rises over its ends by less than this; far from it the latitude alone decides
    bulge = (dx * dx + dy * dy + dz * dz) / 4 + _ROUNDING
    if z < min(az, az + dz) - bulge:
        return True
    if z > max(az, az + dz) + bulge:
        return False
    px, py, pz = probe[q, 0] - ax, probe[q, 1] - ay, probe[q, 2] - az
    turn = px * (ay * dz - az * dy) + py * (az * dx - ax * dz) + pz * (ax * dy - ay * dx)
    return bool(turn < 0.0 if is_eastward else turn > 0.0)
