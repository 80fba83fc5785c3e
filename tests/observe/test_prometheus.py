"""Prometheus text: every number of a run, in the form that the format asks for."""

from __future__ import annotations

import re

from tests.support.histories import batch

from rivermouth.observe import prometheus
from rivermouth.observe.metrics import summarise

LINE = re.compile(r'[a-z_]+\{(?:[a-z]+="(?:[^"\\\n]|\\["\\n])*",?)+\} -?[\d.]+(?:e-?\d+)?')


def test_every_line_is_a_sample_and_every_name_has_one_type_before_its_samples() -> None:
    numbers = summarise([batch(0), batch(1)])
    text = prometheus.together([('a "b"\n\\c', numbers), ("other", numbers)])
    typed: list[str] = []
    for line in text.splitlines():
        if line.startswith("# TYPE "):
            typed.append(line.split()[2])
        else:
            assert LINE.fullmatch(line), line
            assert line.startswith(typed[-1] + "{")
    assert len(typed) == len(set(typed))


def test_the_numbers_are_those_of_metrics() -> None:
    numbers = summarise([batch(0), batch(1)])
    lines = prometheus.text(numbers, query="cabs").splitlines()
    operator = 'query="cabs",operator="join_table.drivers"'
    assert 'rivermouth_rows{query="cabs"} 200' in lines
    assert 'rivermouth_state_bytes{query="cabs"} 5000000' in lines
    assert f"rivermouth_operator_cache_hits{{{operator}}} 180" in lines
    assert f"rivermouth_operator_cache_hit_ratio{{{operator}}} 0.9" in lines
    aside = 'query="cabs",operator="join_table.districts.geojson",reason="null"'
    assert f"rivermouth_operator_rejected{{{aside}}} 50" in lines
    coverage = 'query="cabs",operator="aggregate",name="settled_coverage",over="mean"'
    assert f"rivermouth_operator_gauge{{{coverage}}} 0.94" in lines
    assert any(
        line.startswith('rivermouth_latency_seconds{query="cabs",quantile="0.95"}')
        for line in lines
    )


def test_a_run_without_a_batch() -> None:
    assert prometheus.text(summarise([]), query="q") == (
        '# TYPE rivermouth_batches counter\nrivermouth_batches{query="q"} 0\n'
        '# TYPE rivermouth_rows counter\nrivermouth_rows{query="q"} 0\n'
    )
