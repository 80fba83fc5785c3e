"""The city that does not exist: a map without gaps or overlaps, whatever the seed."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pyarrow.compute as pc
import pytest
import shapely

import rivermouth as rm
from rivermouth.testing.city import ENCLAVE, ISLAND, City, city
from rivermouth.testing.taxis import positions

SEEDS = range(20)


@pytest.fixture(scope="module")
def merewick() -> City:
    return city()


@pytest.mark.parametrize("seed", SEEDS)
def test_districts_and_water_fill_the_extent_without_overlap(seed: int) -> None:
    made = city(seed)
    areas = [*made.districts, made.water]
    assert len(made.names) == len(made.districts) == 14
    assert shapely.is_valid(areas).all()
    assert shapely.coverage_is_valid(areas)  # borders are the same vertices on both sides
    assert shapely.union_all(areas).equals(made.extent)
    assert shapely.area(areas).sum() == pytest.approx(made.extent.area, rel=1e-12)


def test_a_seed_always_gives_the_same_city_and_another_seed_another(merewick: City) -> None:
    assert city() == merewick
    assert city(seed=8) != merewick


def test_borders_wind(merewick: City) -> None:
    shapes = np.array(merewick.districts)
    smooth = shapely.length(shapely.simplify(shapes, 0.002))
    assert (shapely.get_num_coordinates(shapes) > 100).all()
    assert (shapely.length(shapes) > 1.01 * smooth).all()
    assert np.median(shapely.length(shapes) / smooth) > 1.03


def test_an_island_a_river_between_banks_and_an_enclave(merewick: City) -> None:
    district = dict(zip(merewick.names, merewick.districts, strict=True))
    assert len(merewick.water.interiors) == 1
    assert shapely.Polygon(merewick.water.interiors[0]).equals(district[ISLAND])
    (hole,) = district["Old Town"].interiors
    assert shapely.Polygon(hole).equals(district[ENCLAVE])
    assert not district["Old Town"].intersects(district["Harbour"])


def test_the_file_is_a_table(merewick: City, tmp_path: Path) -> None:
    merewick.write(tmp_path / "districts.geojson")
    table = rm.tables.geojson(tmp_path / "districts.geojson").read(["district", "geometry"])
    assert table["district"].to_pylist() == list(merewick.names)
    read = shapely.from_wkb(table["geometry"].to_pylist())
    assert [a.equals(b) for a, b in zip(read, merewick.districts, strict=True)] == [True] * 14
    assert json.loads((tmp_path / "districts.geojson").read_text()) == json.loads(
        json.dumps(merewick.geojson())
    )


def test_taxis_are_the_same_for_the_same_seed(merewick: City) -> None:
    some = positions(merewick, taxis=20, seconds=300, seed=3)
    again = positions(merewick, taxis=20, seconds=300, seed=3)
    assert str(some.to_pydict()) == str(again.to_pydict())  # as text, for NaN is not NaN
    assert some["lon"] != positions(merewick, taxis=20, seconds=300, seed=4)["lon"]


def test_taxis_report_in_the_order_of_time_each_as_often(merewick: City) -> None:
    table = positions(merewick, taxis=20, seconds=300, every=10)
    at = table["at"].to_numpy()
    assert (at[1:] >= at[:-1]).all()
    assert {entry["counts"] for entry in table["taxi"].value_counts().to_pylist()} == {30}


def test_taxis_drive_on_land_and_on_bridges_only(merewick: City) -> None:
    table = positions(merewick, taxis=200, seconds=3600)
    lon, lat = table["lon"].to_numpy(), table["lat"].to_numpy()
    dry = sum(shapely.contains_xy(shape, lon, lat) for shape in merewick.districts)
    assert dry.max() == 1
    wet = shapely.contains_xy(merewick.water, lon, lat)
    assert 0.01 < wet.mean() < 0.2
    # where the water is wide there are no bridges: the bay is empty
    bay = merewick.water.buffer(-0.012)
    assert not shapely.contains_xy(bay, lon, lat).any()


def test_taxis_drive_at_the_speed_of_taxis(merewick: City) -> None:
    table = positions(merewick, taxis=50, seconds=1800, every=10)
    good = table.filter(pc.is_finite(table["lon"])).filter(pc.field("lon") != 0)
    for taxi in range(50):
        own = good.filter(pc.field("taxi") == taxi)
        lon, lat = np.radians(own["lon"].to_numpy()), np.radians(own["lat"].to_numpy())
        north = np.diff(lat)
        east = np.diff(lon) * np.cos(lat[1:])
        hours = np.diff(own["at"].to_numpy()) / np.timedelta64(1, "h")
        speed = 6371 * np.hypot(north, east) / hours
        assert speed.max() < 150  # the warp stretches some streets
        assert np.median(speed[speed > 12]) > 15


def test_about_one_position_in_a_hundred_is_bad(merewick: City) -> None:
    table = positions(merewick, taxis=200, seconds=3600)
    lon, rows = table["lon"], table.num_rows
    null = lon.null_count
    nan = pc.sum(pc.is_nan(lon)).as_py()
    zero = pc.sum(pc.equal(lon, 0)).as_py()
    assert null / rows == pytest.approx(0.004, rel=0.2)
    assert nan / rows == pytest.approx(0.002, rel=0.2)
    assert zero / rows == pytest.approx(0.003, rel=0.2)
