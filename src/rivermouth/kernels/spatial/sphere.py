"""Great circles on a sphere of the Earth's mean radius, the one that PostGIS uses."""

from __future__ import annotations

import math

import numba
import numpy as np

from rivermouth.kernels.arrays import Floats

RADIUS = 6_371_008.7714


@numba.njit(cache=True, inline="always")
def great_circle(lon: float, lat: float, other_lon: float, other_lat: float) -> float:
    """Metres between two points in degrees (haversine); longitudes may wrap."""
    phi, other_phi = math.radians(lat), math.radians(other_lat)
    s = math.sin((other_phi - phi) / 2)
    t = math.sin(math.radians(other_lon - lon) / 2)
    h = s * s + math.cos(phi) * math.cos(other_phi) * t * t
    return 2 * RADIUS * math.atan2(math.sqrt(h), math.sqrt(max(0.0, 1.0 - h)))


@numba.njit(cache=True)
def great_circles(lon: Floats, lat: Floats, other_lon: Floats, other_lat: Floats) -> Floats:
    """Metres between the points of two columns, pair by pair."""
    meters = np.empty(len(lon))
    for k in range(len(lon)):
        meters[k] = great_circle(lon[k], lat[k], other_lon[k], other_lat[k])
    return meters


def unit_vectors(lon: Floats, lat: Floats) -> Floats:
    """Points in degrees as vectors of length one: poles and antimeridian are not special there."""
    lam, phi = np.radians(lon), np.radians(lat)
    return np.column_stack([np.cos(phi) * np.cos(lam), np.cos(phi) * np.sin(lam), np.sin(phi)])
