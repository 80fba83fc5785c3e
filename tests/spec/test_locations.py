"""Paths and URIs: names are joined before the query, and no secret is shown."""

import pickle

import pytest

import rivermouth as rm
from rivermouth.spec.locations import Location

KEYS = "AKIAKEY:s3cr3t%2Fk3y"
QUERY = "?endpoint_override=127.0.0.1%3A9000&scheme=http&region=eu-west-1"
SECRETS = ("AKIAKEY", "s3cr3t", "t0ken")


@pytest.mark.parametrize(
    ("folder", "joined"),
    [
        ("/data", "/data/v1"),
        ("/data/", "/data/v1"),
        ("/", "/v1"),
        ("/what?/now", "/what?/now/v1"),  # a question mark in a path is a letter
        ("s3://bucket", "s3://bucket/v1"),
        ("s3://bucket/a/", "s3://bucket/a/v1"),
        ("s3://bucket/a" + QUERY, "s3://bucket/a/v1" + QUERY),
        ("s3://bucket/a/" + QUERY, "s3://bucket/a/v1" + QUERY),
        ("s3://bucket" + QUERY, "s3://bucket/v1" + QUERY),
        (f"s3a://{KEYS}@bucket/a{QUERY}", f"s3a://{KEYS}@bucket/a/v1{QUERY}"),
        ("hdfs://ann@name:8020/a?replication=2", "hdfs://ann@name:8020/a/v1?replication=2"),
    ],
)
def test_a_name_is_joined_to_the_path_and_the_query_kept(folder, joined):
    location = Location(folder) / "v1"
    assert str(location) == joined
    assert isinstance(location, Location)
    assert location.name == "v1"


@pytest.mark.parametrize(
    ("written", "shown"),
    [
        ("/data/a@b:c?d=e", "/data/a@b:c?d=e"),
        (f"s3://{KEYS}@bucket/a", "s3://bucket/a"),
        (f"s3://{KEYS}@bucket/a{QUERY}&token=t0ken", f"s3://bucket/a{QUERY}"),
        ("s3://bucket/a?token=t0ken", "s3://bucket/a"),
        ("s3://bucket/a?endpoint_override=AKIAKEY:s3cr3t@host", "s3://bucket/a"),
        ("s3://AKIAKEY:s3cr3t/k3y@bucket/a", "s3://bucket/a"),  # a slash that was not escaped
        ("abfss://box:s3cr3t@here.dfs.example/a", "abfss://box@here.dfs.example/a"),
        ("hdfs://ann@name:8020/a", "hdfs://ann@name:8020/a"),
    ],
)
def test_credentials_are_not_shown(written, shown):
    location = Location(written)
    assert location.shown == shown
    assert repr(location) == repr(shown)
    assert str(pickle.loads(pickle.dumps(location))) == written
    assert location.redacted(f"no such URI: '{written}'") == f"no such URI: '{shown}'"


def test_keys_are_masked_in_what_others_say():
    location = Location(f"s3://{KEYS}@bucket/a{QUERY}")
    said = location.redacted("key AKIAKEY with s3cr3t/k3y (s3cr3t%2Fk3y) at 127.0.0.1 is refused")
    assert said == "key *** with *** (***) at 127.0.0.1 is refused"


def test_each_side_gets_what_it_understands():
    location = Location(f"s3a://{KEYS}@bucket/a{QUERY}")
    assert location.for_arrow == f"s3://{KEYS}@bucket/a{QUERY}"
    assert location.for_spark == "s3a://bucket/a"
    assert Location("s3://bucket/a" + QUERY).for_spark == "s3://bucket/a"
    assert Location("/what?/now").for_spark == Location("/what?/now").for_arrow == "/what?/now"


def test_settings_and_tables_show_no_credentials():
    path = f"s3://{KEYS}@bucket/a{QUERY}&token=t0ken"
    tables = [rm.tables.parquet(path), rm.tables.geojson(path)]
    for value in (
        rm.full(path=path), rm.by_hotspot(path=path), rm.grid(skew_path=path), *tables,
        *(table.identity for table in tables), *(table.name for table in tables),
    ):  # fmt: skip
        assert not any(secret in repr(value) for secret in SECRETS), value
    assert [table.name for table in tables] == ["a", "a"]
