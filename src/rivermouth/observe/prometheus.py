"""Metrics for Prometheus: counters over a query's life, and gauges of its newest batch.

A counter of a query goes on when the query is started again from its checkpoint: it is the sum
over the query's runs.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, NamedTuple

from prometheus_client import generate_latest
from prometheus_client.metrics_core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from rivermouth.observe.metrics import metrics
from rivermouth.observe.reports import query_of

if TYPE_CHECKING:
    from pyspark.sql.streaming.query import StreamingQuery

Metrics = Mapping[str, Any]
#: by a query's name and id the metrics of its runs, the newest last
Queries = Mapping[tuple[str, str], Sequence[Metrics]]

_QUERY = {
    "batches": "Micro-batches that are counted",
    "missed_batches": "Micro-batches that are not counted, as their reports were gone",
    "rows": "Input rows, each once",
    "source_rows": "Input rows as Spark's sources count them",
}
_QUERY_GAUGES = {
    "rows_per_second": "Input rows per second of the batches' time",
    "last_batch_seconds": "Duration of the newest micro-batch",
    "backlog": "Rows that the source has not given yet",
}
_OPERATOR = {
    "rows_in": "Rows that came into the operator",
    "rows_out": "Rows that the operator emitted",
    "matched": "Input rows with at least one match",
    "unmatched": "Input rows without a match",
    "late": "Input rows behind a join's watermark, or with a window that has closed",
    "future": "Input rows too far ahead of the wall clock",
    "seconds": "Time in the operator's own code, summed over tasks",
}
_TABLE = ("rows", "version", "age_seconds", "load_seconds")
_CACHE_GAUGES = frozenset({"entries", "rows", "bytes", "workers", "hit_ratio"})


class _Sample(NamedTuple):
    name: str
    about: str
    value: float | None
    labels: Mapping[str, str] = MappingProxyType({})
    is_counter: bool = False


@dataclass(frozen=True)
class QueryCollector(Collector):
    """What a registry of `prometheus_client` asks: the metrics of queries at this moment."""

    queries: Callable[[], Queries]

    def collect(self) -> Iterable[Metric]:
        """One family per metric, with a sample per query, operator and so on."""
        families: dict[str, CounterMetricFamily | GaugeMetricFamily] = {}
        for (name, query_id), runs in self.queries().items():
            for sample in _summed(runs):
                labels = {"query": name, "query_id": query_id, **sample.labels}
                make = CounterMetricFamily if sample.is_counter else GaugeMetricFamily
                family = families.get(sample.name) or make(
                    f"rivermouth_{sample.name}", f"{sample.about}.", labels=list(labels)
                )
                families[sample.name] = family
                family.add_metric(list(labels.values()), sample.value or 0)
        return families.values()


def collector(*queries: StreamingQuery) -> QueryCollector:
    """A collector of running queries, for a registry of your own.

    Examples
    --------
    >>> prometheus_client.REGISTRY.register(collector(query))  # doctest: +SKIP
    """
    started = [query_of(query, where="prometheus.collector") for query in queries]
    named = {(query.name or str(query.id), str(query.id)): query for query in started}
    return QueryCollector(lambda: {of: [metrics(query)] for of, query in named.items()})


def text(queries: Queries) -> bytes:
    """The metrics of queries in Prometheus' text format."""
    return generate_latest(QueryCollector(lambda: queries))


def _summed(runs: Sequence[Metrics]) -> Iterable[_Sample]:
    """The newest run's samples; counters with those of the runs before."""
    found: dict[tuple[str, ...], _Sample] = {}
    for numbers in runs:
        found = {key: sample for key, sample in found.items() if sample.is_counter}
        for sample in _samples(numbers):
            if sample.value is not None:
                key = (sample.name, *sample.labels.values())
                before = found[key].value if key in found else 0
                found[key] = sample._replace(value=(before or 0) + sample.value)
    return found.values()


def _samples(numbers: Metrics) -> Iterator[_Sample]:
    for name, about in _QUERY.items():
        yield _counter(name, about, numbers[name])
    if made := numbers["corrections"]:
        yield _counter("corrections", "Corrections of an exact aggregation", made["count"])
        yield _counter("corrected_results", "Results that corrections wrote", made["results"])
    for name, about in _QUERY_GAUGES.items():
        yield _Sample(name, about, numbers[name])
    for quantile, seconds in (numbers["latency"] or {}).items():
        about = "Estimated time from a row's arrival to the end of its micro-batch"
        yield _Sample("latency_seconds", about, seconds, {"quantile": f"0.{quantile[1:]}"})
    for name, value in (numbers["state"] or {}).items():
        yield _Sample(f"state_{name}", f"State stores of the query: {name}", value)
    for operator, entries in numbers["operators"].items():
        for sample in _of_operator(entries):
            labels = {"operator": operator, **sample.labels}
            yield sample._replace(name=f"operator_{sample.name}", labels=labels)


def _of_operator(entries: Metrics) -> Iterator[_Sample]:
    for name, about in _OPERATOR.items():
        yield _counter(name, about, entries[name])
    for reason, count in entries["rejected"].items():
        about = "Input rows that could not take part, by reason"
        yield _counter("rejected", about, count, reason=reason)
    for name, count in entries["counts"].items():
        if name.endswith("_us"):
            name, count = f"{name.removesuffix('_us')}_seconds", count / 1e6
        yield _counter(name, f"Count of the operator: {name}", count)
    about = "Coefficient of variation of rows per task in the newest micro-batch"
    yield _Sample("load_cv", about, entries["load_cv"])
    for name in _TABLE if entries["table"] else ():
        yield _Sample(
            f"table_{name}", f"Newest version of the table: {name}", entries["table"][name]
        )
    cache = dict(entries["cache"] or {})
    for worker, held in cache.pop("per_worker", {}).items():
        for name, value in held.items():
            about = f"Cache of a worker: {name}"
            yield _Sample(f"cache_worker_{name}", about, value, {"worker": worker})
    for name, value in cache.items():
        about, is_counter = f"Caches of all workers: {name}", name not in _CACHE_GAUGES
        yield _Sample(f"cache_{name}", about, value, is_counter=is_counter)
    for name, value in (entries["state"] or {}).items():
        yield _Sample(f"state_{name}", f"State of the operator: {name}", value)
    for name, values in (entries["gauges"] or {}).items():
        for over, value in values.items():
            yield _Sample(name, f"Over the operator's buckets: {name}", value, {"over": over})


def _counter(name: str, about: str, value: float | None, **labels: str) -> _Sample:
    return _Sample(name, about, value, labels, is_counter=True)
