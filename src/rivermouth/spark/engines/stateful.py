"""The stateful engine: rows packed by bucket, one step per bucket and micro-batch, durable state.

Each side's rows are packed in the tasks that read them (`kernels.state.bucketing`), all sides
are united, and a small number of buckets, not one group per key, goes through
``transformWithStateInPandas``. What a step emits comes out packed, too: its report is observed
beside few messages instead of many rows, and the messages are unpacked by a last ``mapInArrow``.
The state is Spark's: it is written and restored together with the checkpoint. On a batch frame
the same step runs once per bucket over all of its rows, with a dict for its state.
"""

from __future__ import annotations

import json
import time
import uuid
from collections import OrderedDict
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

from rivermouth.errors import SessionError, StateError
from rivermouth.kernels.state.bucket_keys import bucket_keys
from rivermouth.kernels.state.bucketing import Packer, Router, Stepper, arrivals, decode, encode
from rivermouth.kernels.state.pair_encoding import is_folded, unfolded
from rivermouth.spark.engines import stateless
from rivermouth.spark.runtime.freeze_gc import settle
from rivermouth.spark.runtime.session import ROCKSDB

#: raised when the header of a bucket's state changes its form
FORMAT = 2
_MOST_BUCKETS = 32
_PROVIDER = "spark.sql.streaming.stateStore.providerClass"
_HEADER = "door"  # the name of the header in every checkpoint since the first version
_BATCH = "streaming.sql.batchId"  # a property of Spark's tasks
_PACKED = t.StructType(
    [t.StructField("bucket", t.LongType()), t.StructField("message", t.BinaryType())]
)
_SAID = t.StructType(
    [t.StructField("rows", t.BinaryType()), t.StructField("report", t.StringType())]
)
_OUT_ROWS = 1 << 16


@dataclass(frozen=True)
class Side:
    """One input of a stateful operator: its frame, and how its rows find their buckets."""

    frame: DataFrame
    router: Callable[[], Router]


@dataclass(frozen=True)
class Operator:
    """What runs in the buckets.

    Parameters
    ----------
    name
        What it is called in metrics and errors.
    make
        Makes the step of one micro-batch in bucket number so-and-so.
    schema, arrow
        The result's, in Spark's words and in Arrow's.
    buckets
        How many there are; `buckets_of` chooses.
    identity
        Tells this query's state from another's (`spec.identity`). A checkpoint whose state was
        written under another identity is an error.
    identity_v1
        The text by which the first version told it; its state is read on.
    idle
        Seconds without input after which a bucket takes a step of its own, None for never.
    """

    name: str
    make: Callable[[int], Stepper]
    schema: t.StructType
    arrow: pa.Schema
    buckets: int
    identity: str
    identity_v1: str
    idle: float | None = None


def buckets_of(spark: SparkSession, asked: int | None) -> int:
    """How many buckets: what was asked for, or the session's shuffle partitions up to 32."""
    if asked is not None:
        return asked
    return min(int(spark.conf.get("spark.sql.shuffle.partitions") or 1), _MOST_BUCKETS)


def batch_number() -> int | None:
    """The number of the micro-batch that this task belongs to, None outside of a stream."""
    context = TaskContext.get()
    said = context.getLocalProperty(_BATCH) if context else None
    return None if said is None else int(said)


def run(sides: Sequence[Side], operator: Operator) -> DataFrame:
    """The operator's rows: in a stream as they become known, in batch all of them.

    Raises
    ------
    SessionError
        When a side streams and the session keeps its state where this operator cannot.
    """
    packed = reduce(
        DataFrame.unionAll, (_packed(side, i, operator.buckets) for i, side in enumerate(sides))
    )
    grouped, arrow = packed.groupBy("bucket"), operator.arrow
    if packed.isStreaming:
        _check_provider(packed.sparkSession, operator.name)
        said = grouped.transformWithStateInPandas(
            _Buckets(operator, len(sides)),
            _SAID,
            outputMode="Append",
            timeMode="None" if operator.idle is None else "ProcessingTime",
        )
    else:
        said = grouped.applyInArrow(_whole_bucket(operator, len(sides)), _SAID)
    observed = said.observe(
        stateless.report_name(operator.name), F.collect_list("report").alias(stateless.REPORTS)
    )
    return observed.filter(F.col("rows").isNotNull()).mapInArrow(
        _unpack(arrow), stateless.nullable(operator.schema)
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


def _packed(side: Side, number: int, buckets: int) -> DataFrame:
    """The side's messages, each with the key of its bucket."""
    make, keys = side.router, bucket_keys(buckets)

    def work(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        context = TaskContext.get()
        router = make()
        packer = Packer(number, buckets, context.partitionId() if context else 0)
        for batch in batches:
            yield from _rows(packer.add(router.route(batch, _now())), keys)
        yield from _rows(packer.end(router.note()), keys)
        settle()

    return side.frame.mapInArrow(work, _PACKED)


def _rows(messages: Iterable[tuple[int, bytes]], keys: Sequence[int]) -> Iterator[pa.RecordBatch]:
    for bucket, message in messages:
        columns = [pa.array([keys[bucket]], pa.int64()), pa.array([message], pa.binary())]
        yield pa.RecordBatch.from_arrays(columns, _PACKED.names)


def _now() -> int:
    return time.time_ns() // 1000


def _unpack(arrow: pa.Schema) -> Callable[..., Iterator[pa.RecordBatch]]:
    """What a task behind the state operator does: messages become rows again."""

    def work(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            for message in batch.column("rows"):
                yield from unfolded(decode(message.as_buffer())[0], arrow)
        settle()

    return work


class _Buckets(StatefulProcessor):
    """A step per bucket and micro-batch, over Spark's own state."""

    def __init__(self, operator: Operator, sides: int) -> None:
        self._operator, self._sides = operator, sides
        self._numbers = {key: bucket for bucket, key in enumerate(bucket_keys(operator.buckets))}
        self._name = uuid.uuid4().hex

    def init(self, handle: StatefulProcessorHandle) -> None:
        """The state is one map from texts to bytes."""
        self._handle = handle
        self._store = _SparkStore(handle.getMapState("state", "name string", "value binary"))

    def handleInputRows(  # noqa: N802  (Spark's name)
        self,
        key: Any,
        rows: Iterator[pd.DataFrame],
        timerValues: TimerValues,  # noqa: N803
    ) -> Iterator[pd.DataFrame]:
        """A step over what came for this bucket."""
        yield from self._step(key, (message for frame in rows for message in frame["message"]))
        if self._operator.idle is not None:
            self._wait(self._operator.idle)

    def handleExpiredTimer(  # noqa: N802
        self,
        key: Any,
        timerValues: TimerValues,  # noqa: N803
        expiredTimerInfo: ExpiredTimerInfo,  # noqa: N803
    ) -> Iterator[pd.DataFrame]:
        """A step over nothing: no side has been heard of for the stated time."""
        yield from self._step(key, ())

    def close(self) -> None:
        """Nothing is held that Spark does not close; the task is over."""
        settle()

    def _step(self, key: Any, messages: Iterable[bytes]) -> Iterator[pd.DataFrame]:
        bucket, operator = self._numbers[int(key[0])], self._operator
        token = _checked_token(self._store, operator)
        hint = _hints.take((self._name, bucket), token)
        stepper = operator.make(bucket)
        found = arrivals(messages, sides=self._sides, now=_now(), last=False)
        for rows, report in _said(stepper.step(self._store, found, hint), stepper.report):
            yield pd.DataFrame({"rows": [rows], "report": [report]})
        token = uuid.uuid4().hex
        self._store[_HEADER] = json.dumps({**_header(operator), "token": token}).encode()
        _hints.put((self._name, bucket), token, hint)

    def _wait(self, idle: float) -> None:
        """Have a step taken when so many seconds have passed since this one.

        From now on, not from the beginning of the micro-batch as Spark's time of it would have it:
        a step that came earlier than that would find that the wait is not over.
        """
        for timer in list(self._handle.listTimers()):
            self._handle.deleteTimer(timer)
        self._handle.registerTimer(_now() // 1000 + int(idle * 1000) + 1)


def _whole_bucket(operator: Operator, sides: int) -> Callable[..., Iterator[pa.RecordBatch]]:
    """What a bucket of a batch frame goes through: one step over all that there is."""
    numbers = {key: bucket for bucket, key in enumerate(bucket_keys(operator.buckets))}

    def work(
        key: tuple[pa.Scalar, ...], batches: Iterator[pa.RecordBatch]
    ) -> Iterator[pa.RecordBatch]:
        messages = [message.as_buffer() for batch in batches for message in batch.column("message")]
        stepper = operator.make(numbers[key[0].as_py()])
        found = arrivals(messages, sides=sides, now=_now(), last=True)
        for rows, report in _said(stepper.step({}, found, {}), stepper.report):
            columns = [pa.array([rows], pa.binary()), pa.array([report], pa.string())]
            yield pa.RecordBatch.from_arrays(columns, _SAID.names)

    return work


def _said(
    tables: Iterable[pa.Table], report: Callable[[], dict[str, Any]]
) -> Iterator[tuple[bytes | None, str | None]]:
    """Rows and reports as `_SAID` has them: the tables in pieces, the report at the end."""
    for table in tables:
        most = table.num_rows if is_folded(table.schema) else _OUT_ROWS
        for begin in range(0, table.num_rows, most):
            yield encode(table.slice(begin, most).combine_chunks(), {}), None
    yield None, json.dumps({"buckets": [report()]})


def _header(operator: Operator) -> dict[str, Any]:
    return {"format": FORMAT, "buckets": operator.buckets, "identity": operator.identity}


def _header_v1(operator: Operator) -> dict[str, Any]:
    return {"format": 1, "buckets": operator.buckets, "meaning": operator.identity_v1}


def _checked_token(store: MutableMapping[str, bytes], operator: Operator) -> str | None:
    """The token that the last step left in this state, None in a new one."""
    if _HEADER not in store:
        return None
    found = json.loads(store[_HEADER])
    token: str = found.pop("token")
    expected = _header_v1(operator) if found["format"] == 1 else _header(operator)
    for what, wanted in expected.items():
        if found[what] != wanted:
            raise StateError(
                operator.name,
                f"the checkpoint's state is not this query's: its {what} is {found[what]!r}",
                there=f"this query's is {wanted!r}",
                todo=f"Give buckets={found[what]} to keep this checkpoint."
                if what == "buckets"
                else "Start with a new checkpoint folder.",
            )
    return token


class _SparkStore(MutableMapping[str, bytes]):
    """Spark's map state as the mapping that steps know."""

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


class _Hints:
    """What steps left for the next over the same state, as long as this worker lives.

    Each is kept with the token that its step wrote into the state. A state that bears another
    token was written by another worker, by a batch that ran again, or by another query.
    """

    def __init__(self, most: int) -> None:
        self._most = most
        self._kept: OrderedDict[tuple[str, int], tuple[str, dict[str, Any]]] = OrderedDict()

    def take(self, place: tuple[str, int], token: str | None) -> dict[str, Any]:
        """The hint that goes with this state, or an empty one."""
        known, hint = self._kept.pop(place, (None, {}))
        return hint if token is not None and known == token else {}

    def put(self, place: tuple[str, int], token: str, hint: dict[str, Any]) -> None:
        """Keep `hint` for the state that bears `token`."""
        self._kept[place] = (token, hint)
        while len(self._kept) > self._most:
            self._kept.popitem(last=False)


_hints = _Hints(most=128)
