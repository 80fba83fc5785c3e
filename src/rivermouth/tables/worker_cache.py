"""What a process keeps between tasks: few values by key, the least recently used evicted first."""

from __future__ import annotations

import os
import threading
from collections import OrderedDict
from collections.abc import Callable, Hashable
from typing import Any, Generic, TypeVar

K = TypeVar("K", bound=Hashable)
V = TypeVar("V")


class WorkerCache(Generic[K, V]):
    """Up to `size` values of this process. Safe to use from threads, and after a fork.

    Nothing comes over a fork: a connection, a lock or a thread belongs to the process that made
    it. A value may have a `version`; one of another version is never given out, but replaced.

    Parameters
    ----------
    size
        How many values are kept.
    evicted
        Called with a value that has to leave, as to close it.

    Examples
    --------
    >>> cache = WorkerCache(size=2)
    >>> cache.get("a", lambda: 1), cache.get("a", lambda: 2), cache.get("a", lambda: 3, version=7)
    (1, 1, 3)
    >>> _ = cache.get("b", lambda: 4), cache.get("c", lambda: 5)
    >>> cache.get("a", lambda: 6), cache.pop("c"), cache.pop("c")
    (6, 5, None)
    """

    def __init__(self, size: int, evicted: Callable[[V], None] = lambda _: None) -> None:
        self._size, self._evicted = size, evicted
        self._values: OrderedDict[K, tuple[Any, V]] = OrderedDict()
        self._process, self._lock = os.getpid(), threading.RLock()

    def find(self, key: K) -> V | None:
        """The value of `key`, None where there is none."""
        with self._locked():
            known = self._values.get(key)
            return None if known is None else known[1]

    def get(self, key: K, make: Callable[[], V], *, version: Any = None) -> V:
        """The value of `key`, made if there is none of this version."""
        with self._locked():
            known = self._values.get(key)
            value = make() if known is None or known[0] != version else known[1]
            self.put(key, value, version=version)
            return value

    def put(self, key: K, value: V, *, version: Any = None) -> None:
        """Keep a value, as the most recently used."""
        with self._locked():
            leaving = [self._values.pop(key, (None, value))[1]]
            self._values[key] = (version, value)
            while len(self._values) > self._size:
                leaving.append(self._values.popitem(last=False)[1][1])
        for old in leaving:
            if old is not value:
                self._evicted(old)

    def pop(self, key: K, *, version: Any = None) -> V | None:
        """Take the value of `key` out; None where there is none of this version."""
        with self._locked():
            known = self._values.pop(key, None)
            return known[1] if known is not None and known[0] == version else None

    def values(self) -> list[V]:
        """All values, the least recently used first."""
        with self._locked():
            return [value for _, value in self._values.values()]

    def _locked(self) -> Any:
        if self._process != os.getpid():
            self._process, self._lock = os.getpid(), threading.RLock()
            self._values = OrderedDict()
        return self._lock
