"""Retries with exponential backoff and full jitter, up to a bound; then a circuit breaker."""

from __future__ import annotations

import math
import random
import threading
import time
from collections.abc import Callable
from typing import TypeVar

from rivermouth.errors import TableUnavailable

T = TypeVar("T")

_FIRST, _LONGEST = 0.5, 30.0  # seconds that the first pause, and any, may last

#: errors that may be transient; anything else is raised at once
TRANSIENT = (TableUnavailable, ConnectionError, TimeoutError)


class RetryPolicy:
    """Queries a table's store, again after a transient error; counts loads and retries.

    Between attempts it waits a random part of a time that doubles ("full jitter"), so that the
    workers of a stream do not all query a store that comes back at once. After it has given up
    once it makes one attempt each time, until one succeeds: a store that is down costs no further
    pauses. With `reset_timeout` the circuit is open then: for so long the store is not queried at
    all, after that by one caller at a time, until one succeeds and closes it. A call among several
    may fail by its own fault: of those it takes two in a row to open the circuit. Safe to use from
    threads.

    Parameters
    ----------
    name
        The table's, for messages.
    attempts
        How many there are before it gives up.
    reset_timeout
        How many seconds the circuit stays open; None: there is no circuit breaker.
    sleep, chance, clock
        How it waits, a random number in [0, 1), and the time in seconds: others for tests.
    """

    def __init__(
        self,
        name: str,
        attempts: int,
        *,
        reset_timeout: float | None = None,
        sleep: Callable[[float], None] = time.sleep,
        chance: Callable[[], float] = random.random,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._name, self._attempts, self._reset_timeout = name, attempts, reset_timeout
        self._sleep, self._chance, self._clock = sleep, chance, clock
        self._lock = threading.Lock()
        self._failures, self._is_open = 0, False  # calls given up since one succeeded
        self._next_trial = -math.inf
        self.loads, self.retries, self.seconds, self.circuit_opens = 0, 0, 0.0, 0

    def run(self, work: Callable[[], T], what: str, *, is_alone: bool = True) -> T:
        """What `work` gives; `what` names it in the message.

        `is_alone` says that no other call goes with it.

        Raises
        ------
        TableUnavailable
            If no attempt succeeded, or the circuit is open.
        """
        began, attempt = time.perf_counter(), 1
        try:
            while True:
                self._pass_circuit(what)
                try:
                    result = work()
                except TRANSIENT as error:
                    if self._gives_up(attempt, is_alone):
                        raise self._unavailable(what, attempt, began, error) from error
                    self._sleep(self._chance() * min(_LONGEST, _FIRST * 2 ** (attempt - 1)))
                    attempt += 1
                else:
                    with self._lock:
                        self._failures, self._is_open = 0, False
                        self.loads += 1
                    return result
        finally:
            with self._lock:
                self.seconds += time.perf_counter() - began

    def _pass_circuit(self, what: str) -> None:
        """Let an attempt through, or raise where the circuit is open."""
        with self._lock:
            if not self._is_open or self._reset_timeout is None:
                return
            now = self._clock()
            if now >= self._next_trial:
                self._next_trial = now + self._reset_timeout  # of the others, meanwhile
                return
            wait = self._next_trial - now
        raise TableUnavailable(
            self._name,
            f"fetching {what} was not tried, the store being down",
            there=f"it is tried again in {wait:.1f} s",
            todo="Restore the store, or give incremental() another reset_timeout=.",
        )

    def _gives_up(self, attempt: int, is_alone: bool) -> bool:
        """Whether this failure was the last attempt; others' last attempt is ours, too."""
        with self._lock:
            if attempt < self._attempts and not self._failures:
                self.retries += 1
                return False
            self._failures += 1
            if self._reset_timeout is not None and (is_alone or self._failures > 1):
                self.circuit_opens += not self._is_open
                self._is_open = True
                self._next_trial = self._clock() + self._reset_timeout
            return True

    def _unavailable(
        self, what: str, attempts: int, began: float, error: Exception
    ) -> TableUnavailable:
        times = "once" if attempts == 1 else f"{attempts} times"
        return TableUnavailable(
            self._name,
            f"fetching {what} failed {times} within {time.perf_counter() - began:.1f} s",
            there=f"the last error is: {error}",
            todo="Restore the store and start the query again, it goes on where it was; or give "
            "incremental() more attempts=, or on_unavailable='miss'.",
        )
