"""The stateful engine: rows packed by bucket, one call per bucket and micro-batch, durable state.

Each input's rows are packed in the tasks that read them (`kernels.state.bucketing`), all inputs are
united, and a small number of buckets, not one group per key, goes through
``transformWithStateInPandas``. Results leave packed, too: the metrics are observed beside few
messages instead of many rows, and the messages are unpacked by a last ``mapInArrow``. The state is
Spark's: it is written and restored together with the checkpoint. On a batch frame the same
processor runs once per bucket over all of its rows, with a dict as its state.
"""

from __future__ import annotations

import json
import time
import uuid
from collections.abc import Callable, Iterable, Iterator, MutableMapping, Sequence
from dataclasses import dataclass
from functools import reduce
from typing import Any

import pandas as pd
import pyarrow as pa
from pyspark import TaskContext
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812  (as everybody writes it)
from pyspark.sql import types as t
from pyspark.sql.streaming.stateful_processor import (
    ExpiredTimerInfo,
    StatefulProcessor,
    StatefulProcessorHandle,
    TimerValues,
)

from rivermouth.errors import DefinitionError, SessionError, StateError
from rivermouth.kernels.state.bucket_keys import bucket_keys
from rivermouth.kernels.state.bucketing import (
    BucketProcessor,
    Combiner,
    Packer,
    Router,
    arrivals,
    decode,
    encode,
)
from rivermouth.kernels.state.pair_encoding import is_encoded, unpacked
from rivermouth.spark.engines import stateless
from rivermouth.spark.runtime.freeze_gc import freeze_gc
from rivermouth.spark.runtime.session import MOST_BUCKETS, ROCKSDB
from rivermouth.spark.runtime.versions import GroupWork, apply_in_arrow
from rivermouth.spec.durations import Duration, microseconds
from rivermouth.spec.identity import differences
from rivermouth.tables.worker_cache import WorkerCache

#: raised when the header of a bucket's state changes its form
FORMAT = 2
_PROVIDER = "spark.sql.streaming.stateStore.providerClass"
_HEADER = "door"  # the key of the header in every checkpoint since the first version
_ZONES = 14 * 3_600_000_000  # how far a local time without a zone may be ahead of UTC
_PACKED = t.StructType(
    [t.StructField("bucket", t.LongType()), t.StructField("message", t.BinaryType())]
)
_OUTPUT = t.StructType(
    [t.StructField("rows", t.BinaryType()), t.StructField("report", t.StringType())]
)
_OUT_ROWS = 1 << 16


@dataclass(frozen=True)
class Input:
    """One input of a stateful operator: its frame, and what assigns its rows to buckets."""

    frame: DataFrame
    router: Callable[[], Router]


@dataclass(frozen=True)
class Operator:
    """What runs in the buckets.

    Parameters
    ----------
    name
        Its name in metrics and errors.
    processor
        Creates the processor of a bucket, given by number, for one micro-batch.
    schema, arrow
        The result's schema, as Spark's and as Arrow's.
    buckets
        The number of buckets; see `bucket_count`.
    identity
        Tells this query's state from another's (`spec.identity`). A checkpoint whose state was
        written under another identity is an error.
    identity_v1
        The text that the first version wrote instead; its state is read, too.
    idle_timeout
        Seconds without input after which a bucket is processed again, None for never.
    """

    name: str
    processor: Callable[[int], BucketProcessor]
    schema: t.StructType
    arrow: pa.Schema
    buckets: int
    identity: str
    identity_v1: str
    idle_timeout: float | None = None

    def header(self, version: int = FORMAT) -> dict[str, Any]:
        """What the state says of the query that wrote it."""
        made = {"meaning": self.identity_v1} if version == 1 else {"identity": self.identity}
        return {"format": 1 if version == 1 else FORMAT, "buckets": self.buckets, **made}


def bucket_count(spark: SparkSession, buckets: int | None, *, where: str) -> int:
    """The number of buckets asked for, or the session's shuffle partitions up to 32."""
    if buckets is None:
        return min(int(spark.conf.get("spark.sql.shuffle.partitions") or 1), MOST_BUCKETS)
    if type(buckets) is not int or buckets < 1:
        raise DefinitionError(
            where, f"buckets is {buckets!r}", todo="Make it a whole number, one or more."
        )
    return buckets


def future_limit(max_future: Duration, times: pa.TimestampType, *, where: str) -> int:
    """How far ahead of the wall clock a time may be, in microseconds."""
    limit = microseconds(max_future, where=f"{where}(max_future=)")
    return limit if times.tz is not None else limit + _ZONES


def run(inputs: Sequence[Input], operator: Operator, *, about: Any = None) -> DataFrame:
    """The operator's rows: in a stream as they become known, in batch all of them.

    As in the stateless engine, `stateless.about` finds `about` by the name of the reports.

    Raises
    ------
    SessionError
        When an input streams and the session's state store cannot hold this operator's state.
    """
    packed = reduce(
        DataFrame.unionAll, (_packed(one, i, operator.buckets) for i, one in enumerate(inputs))
    )
    if packed.isStreaming:
        _check_provider(packed.sparkSession, operator.name)
        output = packed.groupBy("bucket").transformWithStateInPandas(
            _StatefulBuckets(operator, len(inputs)),
            _OUTPUT,
            outputMode="Append",
            timeMode="None" if operator.idle_timeout is None else "ProcessingTime",
        )
    else:
        work = _batch_bucket(operator, len(inputs))
        output = apply_in_arrow(packed, "bucket", work, _OUTPUT)
    observed_as = stateless.report_name(operator.name, about)
    observed = output.observe(observed_as, F.collect_list("report").alias(stateless.REPORTS))
    return observed.filter(F.col("rows").isNotNull()).mapInArrow(
        _unpack(operator.arrow), stateless.nullable(operator.schema)
    )


def _check_provider(spark: SparkSession, name: str) -> None:
    provider = spark.conf.get(_PROVIDER, "")
    if provider != ROCKSDB:
        raise SessionError(
            name,
            "the session's state store cannot hold this operator's state",
            there=f"{_PROVIDER} is {provider or 'not set'}",
            todo=f'Set it before the query starts: spark.conf.set("{_PROVIDER}", "{ROCKSDB}").',
        )


def _packed(source: Input, number: int, buckets: int) -> DataFrame:
    """The input's messages, each with the key of its bucket."""
    make, keys = source.router, bucket_keys(buckets)

    def work(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        context = TaskContext.get()
        router = make()
        combiner = router if isinstance(router, Combiner) else None
        task = context.partitionId() if context else 0
        packer = Packer(number, buckets, task, combiner=combiner)
        for batch in batches:
            yield from _rows(packer.add(router.route(batch, _now())), keys)
        yield from _rows(packer.end(router.note()), keys)
        freeze_gc()

    return source.frame.mapInArrow(work, _PACKED)


def _rows(messages: Iterable[tuple[int, bytes]], keys: Sequence[int]) -> Iterator[pa.RecordBatch]:
    for bucket, message in messages:
        columns = [pa.array([keys[bucket]], pa.int64()), pa.array([message], pa.binary())]
        yield pa.RecordBatch.from_arrays(columns, _PACKED.names)


def _now() -> int:
    return time.time_ns() // 1000


def _unpack(arrow: pa.Schema) -> Callable[..., Iterator[pa.RecordBatch]]:
    """The task behind the state operator: messages become rows again."""

    def work(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            for message in batch.column("rows"):
                yield from unpacked(decode(message.as_buffer())[0], arrow)
        freeze_gc()

    return work


class _StatefulBuckets(StatefulProcessor):
    """Runs the operator's processor over a bucket's state in Spark, once per micro-batch."""

    def __init__(self, operator: Operator, inputs: int) -> None:
        self._operator, self._inputs = operator, inputs
        self._numbers = {key: bucket for bucket, key in enumerate(bucket_keys(operator.buckets))}
        self._id = uuid.uuid4().hex

    def init(self, handle: StatefulProcessorHandle) -> None:
        """The state is one map from strings to bytes."""
        self._handle = handle
        self._store = _SparkStore(handle.getMapState("state", "name string", "value binary"))

    def handleInputRows(  # noqa: N802  (Spark's name)
        self,
        key: Any,
        rows: Iterator[pd.DataFrame],
        timerValues: TimerValues,  # noqa: N803
    ) -> Iterator[pd.DataFrame]:
        """Process this bucket's messages."""
        yield from self._process(key, (message for frame in rows for message in frame["message"]))
        if self._operator.idle_timeout is not None:
            self._set_timer(self._operator.idle_timeout)

    def handleExpiredTimer(  # noqa: N802
        self,
        key: Any,
        timerValues: TimerValues,  # noqa: N803
        expiredTimerInfo: ExpiredTimerInfo,  # noqa: N803
    ) -> Iterator[pd.DataFrame]:
        """Process without input: none has come for the idle timeout."""
        yield from self._process(key, ())

    def close(self) -> None:
        """Spark closes what is open; the task is over."""
        freeze_gc()

    def _process(self, key: Any, messages: Iterable[bytes]) -> Iterator[pd.DataFrame]:
        bucket, operator = self._numbers[int(key[0])], self._operator
        token = _checked_token(self._store, operator)
        cache = _worker_caches.pop((self._id, bucket), version=token) or {}
        processor = operator.processor(bucket)
        found = arrivals(messages, sides=self._inputs, now=_now(), last=False)
        for rows, report in _output(processor.process(self._store, found, cache), processor):
            yield pd.DataFrame({"rows": [rows], "report": [report]})
        token = uuid.uuid4().hex
        self._store[_HEADER] = json.dumps({**operator.header(), "token": token}).encode()
        _worker_caches.put((self._id, bucket), cache, version=token)

    def _set_timer(self, seconds: float) -> None:
        """Process again when so many seconds have passed without input.

        They count from now, not from the beginning of the micro-batch as Spark's processing time
        does: a timer that fired earlier would find the timeout not reached.
        """
        for timer in list(self._handle.listTimers()):
            self._handle.deleteTimer(timer)
        self._handle.registerTimer(_now() // 1000 + int(seconds * 1000) + 1)


def _batch_bucket(operator: Operator, inputs: int) -> GroupWork:
    """What processes a bucket of a batch frame: one call over all of its rows."""
    numbers = {key: bucket for bucket, key in enumerate(bucket_keys(operator.buckets))}

    def work(
        key: tuple[pa.Scalar, ...], batches: Iterator[pa.RecordBatch]
    ) -> Iterator[pa.RecordBatch]:
        messages = [message.as_buffer() for batch in batches for message in batch.column("message")]
        processor = operator.processor(numbers[key[0].as_py()])
        found = arrivals(messages, sides=inputs, now=_now(), last=True)
        for rows, report in _output(processor.process({}, found, {}), processor):
            columns = [pa.array([rows], pa.binary()), pa.array([report], pa.string())]
            yield pa.RecordBatch.from_arrays(columns, _OUTPUT.names)

    return work


def _output(
    tables: Iterable[pa.Table], processor: BucketProcessor
) -> Iterator[tuple[bytes | None, str | None]]:
    """The rows of `_OUTPUT`: the tables in pieces, then the processor's report."""
    seconds, began = 0.0, time.perf_counter()
    for table in tables:
        most = table.num_rows if is_encoded(table.schema) else _OUT_ROWS
        for begin in range(0, table.num_rows, most):
            message = encode(table.slice(begin, most).combine_chunks(), {})
            seconds += time.perf_counter() - began
            yield message, None
            began = time.perf_counter()
    seconds += time.perf_counter() - began
    yield None, json.dumps({"buckets": [{**processor.report(), "seconds": seconds}]})


def _checked_token(store: MutableMapping[str, bytes], operator: Operator) -> str | None:
    """The token that the previous micro-batch left in this state, None in a new one."""
    if _HEADER not in store:
        return None
    found = json.loads(store[_HEADER])
    for what, wanted in operator.header(found["format"]).items():
        if found[what] != wanted:
            raise StateError(
                operator.name,
                "the checkpoint's state is not this query's",
                there=differences(found[what], wanted)
                if what == "identity"
                else f"its {what} is {found[what]!r}, here {wanted!r}",
                todo=f"Give buckets={found[what]} to keep this checkpoint."
                if what == "buckets"
                else "Start with a new checkpoint folder.",
            )
    token: str = found["token"]
    return token


class _SparkStore(MutableMapping[str, bytes]):
    """Spark's map state as a Python mapping."""

    def __init__(self, state: Any) -> None:
        self._state = state

    def __getitem__(self, name: str) -> bytes:
        found = self._state.getValue((name,))
        if found is None:
            raise KeyError(name)
        return bytes(found[0])

    def __setitem__(self, name: str, value: bytes) -> None:
        self._state.updateValue((name,), (value,))

    def __delitem__(self, name: str) -> None:
        self._state.removeKey((name,))

    def __iter__(self) -> Iterator[str]:
        return iter([name for (name,) in self._state.keys()])  # noqa: SIM118  (not a dict)

    def __len__(self) -> int:
        return sum(1 for _ in self)

    def __contains__(self, name: object) -> bool:
        return bool(self._state.containsKey((name,)))


#: what processors left for the next call over the same state, each with the token that was written
#: into the state at the same time: a state with another token was written by another worker, by a
#: batch that ran again, or by another query
_worker_caches: WorkerCache[tuple[str, int], dict[str, Any]] = WorkerCache(size=128)
