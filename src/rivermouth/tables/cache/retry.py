"""Retries with exponential backoff and full jitter, up to a bound."""

from __future__ import annotations

import random
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
    pauses.

    Parameters
    ----------
    name
        The table's, for messages.
    attempts
        How many there are before it gives up.
    sleep, chance
        How it waits, and a random number in [0, 1): others for tests.
    """

    def __init__(
        self,
        name: str,
        attempts: int,
        *,
        sleep: Callable[[float], None] = time.sleep,
        chance: Callable[[], float] = random.random,
    ) -> None:
        self._name, self._attempts = name, attempts
        self._sleep, self._chance = sleep, chance
        self._is_down = False
        self.loads, self.retries, self.seconds = 0, 0, 0.0

    def run(self, work: Callable[[], T], what: str) -> T:
        """What `work` gives; `what` names it in the message.

        Raises
        ------
        TableUnavailable
            If no attempt succeeded.
        """
        began, attempt, attempts = time.perf_counter(), 1, 1 if self._is_down else self._attempts
        try:
            while True:
                try:
                    result = work()
                except TRANSIENT as error:
                    self._is_down = attempt == attempts
                    if self._is_down:
                        raise self._unavailable(what, attempts, began, error) from error
                    self.retries += 1
                    self._sleep(self._chance() * min(_LONGEST, _FIRST * 2 ** (attempt - 1)))
                    attempt += 1
                else:
                    self._is_down = False
                    self.loads += 1
                    return result
        finally:
            self.seconds += time.perf_counter() - began

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
