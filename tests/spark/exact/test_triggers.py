"""Late records are corrected while the stream runs once their event times span long enough."""

from __future__ import annotations

import datetime as dt
import time

import pytest

import rivermouth as rm

pytestmark = pytest.mark.spark

BEGIN = dt.datetime(2026, 11, 16, tzinfo=dt.UTC)
#: seconds of records in order of arrival; the last two are late, and eleven seconds apart
SECONDS = (0, 1, 2, 14, 30, 31, 60, 3, 14)
CUTS = [7, 1, 1]


def running(spark, folder, **settings):
    rows = [(BEGIN + dt.timedelta(seconds=second), 1) for second in SECONDS]
    stream = rm.testing.replay(
        spark.createDataFrame(rows, "at timestamp, cars bigint").coalesce(1), cuts=CUTS
    )
    summary = rm.summary(time="at", window=rm.tumbling("10 seconds"), n=rm.count())
    return rm.exact(
        stream, summary, store=folder, slack=rm.fixed("2 seconds"), wait="1 day", **settings
    ).start(processingTime="100 milliseconds")


def emitted(job):
    """The records of each window so far, and whether each is corrected."""
    found = job.results().select("records", "status").orderBy("window_start").collect()
    return [tuple(row) for row in found]


def test_late_records_that_span_long_enough_are_corrected_at_once(spark, tmp_path):
    job = running(spark, tmp_path / "store", span="10 seconds")
    try:
        deadline = time.monotonic() + 300
        while not job.corrections() and time.monotonic() < deadline:
            time.sleep(0.5)
        assert emitted(job)[:2] == [(4, "exact"), (2, "exact")]
        assert job.query.isActive
    finally:
        job.stop()


def test_late_records_of_a_shorter_span_wait(spark, tmp_path):
    job = running(spark, tmp_path / "store", span="11 seconds")
    try:
        deadline = time.monotonic() + 300
        while time.monotonic() < deadline:
            done = job.query.lastProgress
            if done is not None and done["batchId"] == len(CUTS) - 1:
                break
            time.sleep(0.5)
        time.sleep(5)  # several looks of the corrector
        assert job.corrections() == []
        assert emitted(job)[:2] == [(3, "early"), (1, "early")]
    finally:
        job.stop()
    assert emitted(job)[:2] == [(4, "exact"), (2, "exact")]
