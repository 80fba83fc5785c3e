"""Shapes in shapely's tree: what no other index is built for."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest
import shapely

from rivermouth.kernels.spatial.geometry import from_wkb
from rivermouth.kernels.spatial.strtree import StrTree

BOXES = shapely.box([0, 5, 20], [0, 5, 20], [1, 6, 21], [1, 6, 21])


@pytest.mark.parametrize("k", [1, 2])
@pytest.mark.parametrize("limit", [None, 3.0])
def test_a_shape_whose_distance_overflows_is_as_far_as_can_be(k, limit):
    probe = shapely.points([0.5, 1e300, 7.0], [0.5, 1e300, 7.0])
    given = from_wkb(pa.array(shapely.to_wkb(probe)))
    left, right, distance = StrTree(BOXES).nearest(given, k, limit)
    with np.errstate(over="ignore"):
        far = shapely.distance(BOXES[:, None], probe).T
    order = np.argsort(far, axis=1, kind="stable")[:, :k]
    expected = [
        (row, column, far[row, column])
        for row in range(len(probe))
        for column in order[row]
        if limit is None or far[row, column] <= limit
    ]
    assert list(zip(left, right, distance, strict=True)) == expected
