"""Prometheus: read by its own parser, real names, and counters that never decrease."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.parser import text_string_to_metric_families
from tests.support.histories import batch, numbers
from tests.support.queries import PlayedQuery

from rivermouth.observe import prometheus
from rivermouth.observe.history import Writer
from rivermouth.observe.run_api import RunApi

Samples = dict[tuple[str, frozenset[tuple[str, str]]], float]
CABS = {"query": "cabs", "query_id": "7"}


def parsed(text: bytes) -> tuple[Samples, dict[str, str]]:
    """Every sample by its name and labels, and the type of every name."""
    samples: Samples = {}
    types = {}
    for family in text_string_to_metric_families(text.decode()):
        assert family.documentation, family.name
        for sample in family.samples:
            key = (sample.name, frozenset(sample.labels.items()))
            assert key not in samples
            samples[key] = sample.value
            types[sample.name] = family.type
    return samples, types


def value(samples: Samples, name: str, **labels: str) -> float:
    return samples[f"rivermouth_{name}", frozenset({**CABS, **labels}.items())]


def test_the_numbers_are_those_of_metrics_under_names_of_their_own() -> None:
    text = prometheus.text({("cabs", "7"): [numbers(batch(0), batch(1))]})
    samples, types = parsed(text)
    assert value(samples, "rows_total") == 200
    assert value(samples, "source_rows_total") == 200
    assert value(samples, "state_bytes") == 5_000_000
    assert value(samples, "latency_seconds", quantile="0.95") > 0.25
    drivers = {"operator": "join_table.drivers"}
    assert value(samples, "operator_cache_hits_total", **drivers) == 180
    assert value(samples, "operator_cache_hit_ratio", **drivers) == 0.9
    assert value(samples, "operator_cache_worker_bytes", **drivers, worker="host:1") == 900
    placed = {"operator": "join_table.districts.geojson"}
    assert value(samples, "operator_rejected_total", **placed, reason="null") == 50
    assert value(samples, "operator_settled_coverage", operator="aggregate", over="mean") == 0.94
    assert value(samples, "operator_state_bytes", operator="aggregate") == 4_000
    for name, kind in types.items():
        assert kind == ("counter" if name.endswith("_total") else "gauge")


def test_counts_of_an_operator_have_names_and_seconds() -> None:
    record = batch(0)["operators"]["rivermouth.aggregate.3"]
    record["counts"] |= {"replicated_rows": 4, "latency_us": 2_500_000}
    made = batch(0, operators={"rivermouth.join_interval.1": record})
    samples, _ = parsed(prometheus.text({("cabs", "7"): [numbers(made)]}))
    assert value(samples, "operator_replicated_rows_total", operator="join_interval") == 4
    assert value(samples, "operator_latency_seconds_total", operator="join_interval") == 2.5


def test_names_may_hold_anything() -> None:
    evil = 'a "b"\n\\c'
    samples, _ = parsed(
        prometheus.text({(evil, "7"): [numbers(batch(0))], ("x", "8"): [numbers()]})
    )
    assert (
        samples["rivermouth_rows_total", frozenset({"query": evil, "query_id": "7"}.items())] == 100
    )
    assert samples["rivermouth_rows_total", frozenset({"query": "x", "query_id": "8"}.items())] == 0


def test_no_counter_decreases_over_halved_files_restarts_and_lost_histories(tmp_path: Path) -> None:
    runs, before = RunApi(tmp_path), dict[Any, float]()

    def look() -> Samples:
        samples, types = parsed(runs.prometheus())
        counters = {key: of for key, of in samples.items() if types[key[0]] == "counter"}
        for key, of in before.items():
            assert counters[key] >= of, key
        before.update(counters)
        return samples

    for run, most in (("first", 20_000), ("second", 1 << 20), ("third", 1 << 20)):
        writer = Writer(tmp_path / f"{run}.jsonl", run=run, query="7", name="cabs", most_bytes=most)
        for number in range(60):
            writer.batch(batch(number))
            look()
        if run == "second":
            (tmp_path / "first.jsonl").unlink()
        if run != "third":
            writer.end(None)
    assert value(look(), "rows_total") == 3 * 60 * 100


def test_a_registry_of_the_user_s_own() -> None:
    report = {
        "batchId": 0,
        "timestamp": "2026-11-15T21:00:00.000Z",
        "batchDuration": 100,
        "durationMs": {"addBatch": 90},
        "sources": [{"numInputRows": 5, "metrics": {}}],
        "stateOperators": [],
        "observedMetrics": {},
    }
    query = PlayedQuery.ended(report)
    registry = CollectorRegistry()
    registry.register(prometheus.collector(query))  # type: ignore[arg-type]
    samples, _ = parsed(generate_latest(registry))
    labels = frozenset({"query": str(query.id), "query_id": str(query.id)}.items())
    assert samples["rivermouth_rows_total", labels] == 5


def test_what_is_no_query_is_told_so() -> None:
    with pytest.raises(ValueError, match=r"prometheus.collector: a int has no progress reports"):
        prometheus.collector(3)  # type: ignore[arg-type]
