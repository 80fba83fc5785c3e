"""The runs that a page shows, as what its requests are answered with."""

from __future__ import annotations

import json
import threading
from collections.abc import Mapping, Sequence
from datetime import datetime
from itertools import accumulate, islice
from pathlib import Path
from typing import Any

from rivermouth.errors import RivermouthError
from rivermouth.observe import history, prometheus
from rivermouth.observe.advice import advice
from rivermouth.observe.history import Reader
from rivermouth.observe.latency import waits
from rivermouth.observe.log import Batch
from rivermouth.observe.metrics import keys, summarise
from rivermouth.observe.operators import cache_summary, known_load_cv

_SHOWN_PLACES = 8  # batches whose records are dots on the map


class RunApi:
    """The histories in a folder, or the one in a file; safe to ask from many threads.

    What was answered once is kept until the run has news, so that many clients cost little more
    than one.
    """

    def __init__(self, place: Path) -> None:
        self._place = place
        self._lock = threading.Lock()
        self._readers: dict[str, Reader] = {}
        self._answers: dict[str, tuple[object, bytes]] = {}
        self._counted: dict[str, dict[str, dict[str, Any]]] = {}  # by query and run

    def listed(self) -> bytes:
        """All runs, the newest first: key, name, status, start, batches, rows."""
        with self._lock:
            return _encoded([_entry(key, reader) for key, reader in self._ordered()])

    def run(self, key: str, after: int) -> bytes | None:
        """A run's metrics, advice and the batches since number `after` of it; None for no run."""
        with self._lock:
            reader = self._current().get(key)
            if reader is None:
                return None
            news = (reader.log.totals.batches, reader.status, reader.corrections, after)
            known, answer = self._answers.get(key, (None, b""))
            if known != news:
                answer = _encoded(_page_of(key, reader, after))
                self._answers[key] = (news, answer)
            return answer

    def shapes(self, key: str, operator: str) -> bytes | None:
        """The shapes of an operator's table; None where there are none."""
        with self._lock:
            reader = self._current().get(key)
            if reader is None:
                return None
            names = {key: name for name, key in keys(reader.shapes).items()}
            found = reader.shapes.get(names.get(operator, ""))
            return None if found is None else _encoded(found)

    def everything(self) -> list[dict[str, Any]]:
        """All runs, the newest first: the page of each, and its shapes by operator."""
        with self._lock:
            return [
                {
                    "page": _page_of(key, reader, 0),
                    "shapes": {of: reader.shapes[name] for name, of in keys(reader.shapes).items()},
                }
                for key, reader in self._ordered()
            ]

    def prometheus(self) -> bytes:
        """The metrics of queries that run, as Prometheus text; of each with its runs before.

        A history that is deleted goes on counting here, so that no counter decreases.
        """
        with self._lock:
            readers = self._ordered()[::-1]
            for key, reader in readers:
                numbers = summarise(reader.log, reader.corrections)
                known = self._counted.setdefault(reader.about["query"], {})
                rows = max(numbers["rows"], known.get(key, numbers)["rows"])
                known[key] = {**numbers, "rows": rows}
            running = [reader.about for _, reader in readers if reader.status == "running"]
            queries = {
                (about["name"] or about["query"], about["query"]): list(
                    self._counted[about["query"]].values()
                )
                for about in running
            }
        return prometheus.text(queries)

    def _ordered(self) -> list[tuple[str, Reader]]:
        """By their start, the newest first: an order that stays while runs go on."""
        return sorted(self._current().items(), key=lambda run: -run[1].about["started"])

    def _current(self) -> dict[str, Reader]:
        """The readers of all files, read up to now; files that are no histories are passed over."""
        found: dict[str, Reader] = {}
        for path in history.files(self._place):
            try:
                reader = self._readers.get(path.stem) or Reader(path)
                reader.refresh()
            except (RivermouthError, OSError):
                continue
            found[path.stem] = reader
        self._readers = found
        return found


def _entry(key: str, reader: Reader) -> dict[str, Any]:
    return {
        "key": key,
        "name": reader.about["name"],
        "started": reader.about["started"],
        "status": reader.status,
        "batches": reader.log.totals.batches,
        "rows": reader.log.totals.rows,
    }


def _page_of(key: str, reader: Reader, after: int) -> dict[str, Any]:
    batches, seen = list(reader.log.recent), reader.log.totals.batches
    numbers = summarise(reader.log, reader.corrections)
    fresh = min(len(batches), max(0, seen - after))
    names = keys(reader.log.totals.operators)
    return {
        "run": _entry(key, reader),
        "failure": reader.end["failure"] if reader.end else None,
        "seen": seen,
        "metrics": numbers,
        "advice": advice(numbers),
        "corrections": _growing(reader.corrections or []),
        "batches": briefly(batches, names)[len(batches) - fresh :],
        "maps": [names[name] for name in reader.shapes if name in names],
        "places": _places(batches, names),
        "events": {
            names[name]: record["events"]
            for name, record in reader.log.totals.operators.items()
            if record.get("events")
        },
    }


def briefly(batches: Sequence[Batch], names: Mapping[str, str]) -> list[dict[str, Any]]:
    """What charts show of each batch: times in seconds, counts of this batch alone."""
    return [
        {
            "at": datetime.fromisoformat(batch["at"]).timestamp(),
            "seconds": batch["seconds"],
            "wait": float(wait),
            "rows": batch["rows"],
            "state": batch["state"],
            "operators": {
                names[name]: _operator(operator) for name, operator in batch["operators"].items()
            },
        }
        for batch, wait in zip(batches, waits(batches), strict=True)
    ]


def _growing(corrections: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """When each correction was made, and how many results had been put right by then."""
    together = accumulate(made["rows"] for made in corrections)
    return [
        {"at": made["at"], "results": made["rows"], "together": total}
        for made, total in zip(corrections, together, strict=True)
    ]


def _operator(record: Mapping[str, Any]) -> dict[str, Any]:
    cache = cache_summary(record["cache"])
    return {
        **record["counts"],
        "rejected": sum(record["rejected"].values()),
        "seconds": record["seconds"],
        "load_cv": known_load_cv(record["loads"]),
        "age": record["table"]["age_seconds"] if record["table"] else None,
        "hit_ratio": cache["hit_ratio"] if cache else None,
        "state": record["state"],
        "routing": record["routing"],
        "gauges": {name: of["mean"] for name, of in (record["gauges"] or {}).items()},
    }


def _places(batches: Sequence[Batch], names: Mapping[str, str]) -> dict[str, list[list[float]]]:
    """Where some records of the newest batches were, by operator."""
    found: dict[str, list[list[float]]] = {}
    for batch in islice(reversed(batches), _SHOWN_PLACES):
        for name, operator in batch["operators"].items():
            if operator["sketch"]:
                found.setdefault(names[name], []).extend(operator["sketch"]["places"])
    return found


def _encoded(what: Any) -> bytes:
    return json.dumps(what, separators=(",", ":")).encode()
