"""Connections that a process keeps: few to one address, used again, and opened anew when lost."""

from __future__ import annotations

import atexit
import os
import threading
from collections.abc import Callable, Hashable, Iterator
from contextlib import contextmanager, suppress
from typing import Any, Generic, Protocol, TypeVar

from rivermouth.errors import TableUnavailable

LIMIT = 4  # connections of one process to one address


class Address(Hashable, Protocol):
    """Where a server is."""

    @property
    def connect_timeout(self) -> float | None:
        """Seconds that a connection is waited for; None: for ever."""
        ...

    @property
    def shown(self) -> str:
        """The address without secrets."""
        ...


A = TypeVar("A", bound=Address)
C = TypeVar("C", bound=Any)
T = TypeVar("T")


class _Pool(Generic[C]):
    """The connections of this process to one address."""

    def __init__(self) -> None:
        self.idle: list[C] = []
        self.places = threading.BoundedSemaphore(LIMIT)


class Pools(Generic[A, C]):
    """The connections of this process, by address.

    Parameters
    ----------
    where
        The table's function, for errors.
    opened
        Opens a connection and sets its session up.
    is_sound
        Whether a connection is open and nothing is under way on it.
    is_lost
        Whether an error says that the connection it came from is gone.
    """

    def __init__(
        self,
        where: str,
        opened: Callable[[A], C],
        is_sound: Callable[[C], bool],
        is_lost: Callable[[C, Exception], bool],
    ) -> None:
        self._where, self._opened = where, opened
        self._is_sound, self._is_lost = is_sound, is_lost
        # By process: a connection that came over a fork belongs to the parent.
        self._pools: dict[tuple[int, A], _Pool[C]] = {}
        self._lock = threading.Lock()
        atexit.register(self.close)

    def run(self, address: A, work: Callable[[C], T]) -> T:
        """Do `work` with a connection.

        `work` only reads, so it is done once more where the server turns out to have closed a
        connection since it was last used.
        """
        with self._place(address) as pool:
            kept = self._kept(pool)
            connection = kept or self._opened(address)
            try:
                return work(connection)
            except Exception as error:
                if connection is not kept or not self._is_lost(connection, error):
                    raise
                _close(connection)
                connection = self._opened(address)
                return work(connection)
            finally:
                self._give_back(pool, connection)

    def close(self) -> None:
        """Close the idle connections of this process; they are opened anew when needed."""
        with self._lock:
            for (process, _), pool in self._pools.items():
                while process == os.getpid() and pool.idle:
                    _close(pool.idle.pop())

    @contextmanager
    def _place(self, address: A) -> Iterator[_Pool[C]]:
        """One of the `LIMIT` places; waits for it as long as for a connection."""
        with self._lock:
            pool = self._pools.setdefault((os.getpid(), address), _Pool())
        if not pool.places.acquire(timeout=address.connect_timeout):
            raise TableUnavailable(
                self._where,
                f"all {LIMIT} connections of this process to {address.shown} are busy",
                todo="Use fewer threads, or a longer connect_timeout=.",
            )
        try:
            yield pool
        finally:
            pool.places.release()

    def _kept(self, pool: _Pool[C]) -> C | None:
        """A connection that was used before and looks sound, or None."""
        while pool.idle:
            connection = pool.idle.pop()
            if self._is_sound(connection):
                return connection
        return None

    def _give_back(self, pool: _Pool[C], connection: C) -> None:
        """Keep `connection` for the next one who asks, unless something is under way on it."""
        if self._is_sound(connection):
            pool.idle.append(connection)
        else:
            _close(connection)


def _close(connection: Any) -> None:
    with suppress(Exception):  # closed already, or nobody listens: gone either way
        connection.close()
