"""The tables of settings, from rows made by hand, and the cells that a run has."""

from contextlib import ExitStack

import pytest
from benchmarks.suites.settings import setting_cases, setting_run, setting_tables, settings


def row(setting, operator, **measures):
    given = {"cpu_ms": 400.0, "batch_ms": 300.0, "files": 8.0, "bytes": 50_000.0} | measures
    spread = {name: [value * 0.9, value * 1.1] for name, value in given.items()}
    return {"setting": setting, "operator": operator, "spread": spread, **given}


def small(operator, **measures):
    return row(setting_cases.BASELINES[setting_cases.SMALL], operator, **measures)


def test_a_setting_stands_beside_the_baseline_of_its_micro_batches():
    off = row("no changelog", "trips", cpu_ms=500.0, bytes=200_000.0)
    head, trips = setting_tables.changelog({"rows": [small("trips"), off]})
    assert head[:3] == ["a micro-batch of 1,000 rows", "CPU, ms: with", "CPU, ms: without"]
    assert trips[:3] == ["`rm.trips`", "400 (360-440)", "500 (450-550) +25 %"]
    assert trips[-2:] == ["50 (45-55)", "200 (180-220) +300 %"]


def test_a_single_run_has_no_brackets():
    once = small("trips") | {"spread": {name: [400.0, 400.0] for name in small("trips")["spread"]}}
    _, trips = setting_tables.changelog({"rows": [once, row("no changelog", "trips")]})
    assert trips[1] == "400"


def test_what_was_not_measured_is_left_empty_and_what_was_refused_says_so():
    rows = [
        small("udf"), row("asynchronous", "udf", batch_ms=150.0), small("trips"), small("exact"),
        {"setting": "asynchronous", "operator": "trips", "refused": "Stateful queries do not"},
    ]  # fmt: skip
    head, udf, trips, exact = setting_tables.asynchronous({"rows": rows})
    column = head.index("time, ms: asynchronous")
    assert udf[column] == "150 (135-165) -50 %"
    assert trips[column] == "refused by Spark"
    assert exact[column] == ""


def test_every_setting_has_a_baseline_and_operators_that_there_are():
    for name, setting in setting_cases.SETTINGS.items():
        assert setting.rows in setting_cases.BASELINES, name
        assert set(setting.operators) <= set(setting_tables.LABELS)
    assert set(setting_cases.OPERATORS) <= set(setting_tables.LABELS)


def test_settings_of_a_session_have_one_of_their_own(monkeypatch):
    class Named(ExitStack):
        def __init__(self, name):
            super().__init__()
            self.name = name

    monkeypatch.setattr(setting_run, "runner", lambda conf, *, name: Named(name))
    with ExitStack() as stack:
        found = settings.sessions(stack, setting_cases.SETTINGS)
    small, large = (found[name] for name in setting_cases.BASELINES.values())
    assert small is large is found["asynchronous"]
    assert len({id(runner) for runner in found.values()}) == 6


@pytest.mark.parametrize("operator", settings.QUICK)
def test_a_smoke_test_has_operators_that_there_are(operator):
    assert operator in setting_cases.OPERATORS
