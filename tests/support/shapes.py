"""Small shapes on a small grid, so that boundaries meet all the time."""

import numpy as np
import shapely
from hypothesis import strategies as st

_STEP = 2.0**-10
coordinates = st.integers(0, 8).map(float)
spots = st.tuples(coordinates, coordinates)


def points():
    return spots.map(shapely.Point)


def lines():
    return st.lists(spots, min_size=2, max_size=4, unique=True).map(shapely.LineString)


@st.composite
def polygons(draw):
    """A valid polygon, perhaps of several parts or with a hole: a hull less a hull, or plus one."""
    hull = shapely.MultiPoint(
        draw(st.lists(spots, min_size=3, max_size=6, unique=True))
    ).convex_hull
    other = shapely.MultiPoint(
        draw(st.lists(spots, min_size=3, max_size=6, unique=True))
    ).convex_hull
    made = draw(st.sampled_from([shapely.difference, shapely.union]))(hull, other)
    parts = [part for part in shapely.get_parts(made) if part.geom_type == "Polygon"]
    return shapely.unary_union(parts) if parts else shapely.box(0, 0, 1, 1)


def any_shape():
    multi = st.lists(spots, min_size=1, max_size=3, unique=True).map(shapely.MultiPoint)
    nothing = st.sampled_from([None, shapely.Point(), shapely.Polygon()])
    return st.one_of(points(), lines(), polygons(), multi, nothing)


def pool(seed, count, kind="any"):
    """Shapes of a seed, many at once: drawing them one by one is most of a property test's time.

    Their coordinates are multiples of a power of two, so that a corner either lies on another
    shape's edge or clearly beside it: of one that is 1e-16 beside it, GEOS says another thing when
    that shape is prepared.
    """
    rng = np.random.default_rng(seed)

    def hull(n):
        return shapely.MultiPoint(rng.integers(0, 9, (n, 2)).astype(float)).convex_hull

    def polygon():
        made = (shapely.difference, shapely.union)[rng.integers(2)](hull(6), hull(5))
        made = shapely.set_precision(made, _STEP)
        parts = [part for part in shapely.get_parts(made) if part.geom_type == "Polygon"]
        return shapely.unary_union(parts) if parts else shapely.box(0, 0, 1, 1)

    def point():
        return shapely.Point(rng.integers(0, 9, 2).astype(float))

    def other():
        xy = rng.integers(0, 9, (int(rng.integers(2, 5)), 2)).astype(float)
        made = [shapely.LineString(xy), shapely.MultiPoint(xy), None, shapely.Polygon(), hull(2)]
        return made[rng.integers(len(made))]

    makers = {"polygons": [polygon], "points": [point], "any": [polygon, point, other]}[kind]
    shapes = [makers[rng.integers(len(makers))]() for _ in range(count)]
    return [s if s is None or s.is_empty or s.is_valid else None for s in shapes]


def array(shapes):
    made = np.empty(len(shapes), dtype=object)
    made[:] = shapes
    return made
