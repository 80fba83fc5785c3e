"""A database driver: its connections, pooled by address, and what its errors mean."""

from __future__ import annotations

import atexit
import threading
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager, suppress
from typing import Any, ClassVar, Generic, TypeVar

from rivermouth.errors import TableError, TableInvalid, TableMissing, TableUnavailable
from rivermouth.tables.worker_cache import WorkerCache

LIMIT = 4  # connections of one process to one address

A = TypeVar("A", bound=Any)  # an address: hashable, with `shown`, `redacted` and the timeouts
C = TypeVar("C", bound=Any)
T = TypeVar("T")

#: by what went wrong: the error, what it says, and what to do
FAULTS: dict[str, tuple[type[TableError], str, str]] = {
    "timeout": (
        TableUnavailable,
        "{table} did not answer within {limit}",
        "Give its columns an index, or raise statement_timeout=.",
    ),
    "denied": (TableUnavailable, "{table} may not be read", "GRANT SELECT on it to this user."),
    "missing": (
        TableMissing,
        "{table} does not exist",
        "Check its name; if it was dropped, define the join again.",
    ),
    "unreachable": (
        TableUnavailable,
        "the server of {table}, {address}, does not answer",
        "Check that it runs, that this host reaches it, and user and password.",
    ),
    "invalid": (
        TableInvalid,
        "{table} cannot be read",
        "If the table has changed, define the join again; else correct these rows.",
    ),
}


class Driver(ABC, Generic[A, C]):
    """Opens connections to one kind of database, and says what the driver's errors mean."""

    #: the table's function, for errors
    call: ClassVar[str]
    #: the driver's own errors
    errors: ClassVar[type[Exception]]
    faults: ClassVar[dict[str, tuple[type[TableError], str, str]]] = FAULTS

    @abstractmethod
    def open(self, address: A) -> C:
        """A new connection, its session set up."""

    @abstractmethod
    def fault(self, error: Any) -> str:
        """What went wrong, a key of `faults`."""

    def run(self, address: A, table: str, work: Callable[[C], T]) -> T:
        """Do `work`, which only reads, with a connection; `table` is named in errors."""
        with self.translated(address, table), closing(self.open(address)) as connection:
            return work(connection)

    @contextmanager
    def translated(self, address: A, table: str) -> Iterator[None]:
        """Raise the driver's errors as a `TableError`, without secrets."""
        try:
            yield
        except self.errors as error:
            kind, what, todo = self.faults[self.fault(error)]
            seconds = address.statement_timeout
            what = what.format(
                table=table,
                address=address.shown,
                limit="its time limit" if seconds is None else f"{seconds:g} s",
            )
            said = address.redacted(str(error.args[-1] if error.args else error)).rstrip(".")
            # not "from error": its own text may hold the password, and a traceback would print it
            raise kind(self.call, what, there=said, todo=todo) from None


class _Pool(Generic[C]):
    """The connections of this process to one address."""

    def __init__(self) -> None:
        self.idle: list[C] = []
        self.slots = threading.BoundedSemaphore(LIMIT)

    def close(self) -> None:
        """Close the idle connections."""
        while self.idle:
            _close(self.idle.pop())


class PooledDriver(Driver[A, C]):
    """Keeps up to `LIMIT` connections to an address, and replaces those that are lost."""

    def __init__(self) -> None:
        self._pools: WorkerCache[A, _Pool[C]] = WorkerCache(64, evicted=_Pool.close)
        atexit.register(self.close)

    @abstractmethod
    def is_idle(self, connection: C) -> bool:
        """Whether a connection is open and no statement is running on it."""

    @abstractmethod
    def is_lost(self, connection: C, error: Exception) -> bool:
        """Whether an error says that its connection is gone."""

    def run(self, address: A, table: str, work: Callable[[C], T]) -> T:
        """Do `work`, which only reads, with a pooled connection; `table` is named in errors.

        It is done once more where the server has closed a connection since it was last used.
        """
        with self.translated(address, table), self._slot(address) as pool:
            kept = self._kept(pool)
            connection = kept or self.open(address)
            try:
                return work(connection)
            except Exception as error:
                if connection is not kept or not self.is_lost(connection, error):
                    raise
                _close(connection)
                connection = self.open(address)
                return work(connection)
            finally:
                if self.is_idle(connection):
                    pool.idle.append(connection)
                else:
                    _close(connection)

    def close(self) -> None:
        """Close the idle connections of this process; new ones are opened when needed."""
        for pool in self._pools.values():
            pool.close()

    @contextmanager
    def _slot(self, address: A) -> Iterator[_Pool[C]]:
        """One of the `LIMIT` slots; waits for it as long as for a connection."""
        pool = self._pools.get(address, _Pool)
        if not pool.slots.acquire(timeout=address.connect_timeout):
            raise TableUnavailable(
                self.call,
                f"all {LIMIT} connections of this process to {address.shown} are busy",
                todo="Use fewer threads, or a longer connect_timeout=.",
            )
        try:
            yield pool
        finally:
            pool.slots.release()

    def _kept(self, pool: _Pool[C]) -> C | None:
        """A connection that was used before and is idle, or None."""
        while pool.idle:
            connection = pool.idle.pop()
            if self.is_idle(connection):
                return connection
        return None


def _close(connection: Any) -> None:
    with suppress(Exception):  # closed already, or the server is gone
        connection.close()
