"""Asking a store until it answers: pauses that grow and differ, and a clear end."""

from __future__ import annotations

import random
import time
from collections.abc import Callable
from typing import TypeVar

from rivermouth.errors import TableUnavailable

T = TypeVar("T")

_FIRST, _LONGEST = 0.5, 30.0  # seconds that the first pause, and any, may last

#: what may pass if one waits; anything else is raised at once
PASSING = (TableUnavailable, ConnectionError, TimeoutError)


class Asking:
    """Asks a table's store, again if it must; remembers how that went.

    Between attempts it waits a random part of a time that doubles ("full jitter"), so that the
    workers of a stream do not fall upon a store that comes back all at once. After it has given up
    once it asks only once each time, until it is answered: a store that is down costs no further
    pauses.

    Parameters
    ----------
    name
        The table's, for messages.
    attempts
        How often it asks before it gives up.
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

    def ask(self, work: Callable[[], T], what: str) -> T:
        """What `work` gives; `what` names it in the message.

        Raises
        ------
        TableUnavailable
            If the store did not answer any attempt.
        """
        began = time.perf_counter()
        attempts = 1 if self._is_down else self._attempts
        try:
            return self._until_answered(work, what, attempts, began)
        finally:
            self.seconds += time.perf_counter() - began

    def _until_answered(self, work: Callable[[], T], what: str, attempts: int, began: float) -> T:
        for number in range(1, attempts + 1):
            try:
                answer = work()
            except PASSING as error:
                if number == attempts:
                    self._is_down = True
                    raise self._unavailable(what, attempts, began, error) from error
                self.retries += 1
                self._sleep(self._chance() * min(_LONGEST, _FIRST * 2 ** (number - 1)))
                continue
            self._is_down = False
            self.loads += 1
            return answer
        raise AssertionError("there is at least one attempt")

    def _unavailable(
        self, what: str, attempts: int, began: float, error: Exception
    ) -> TableUnavailable:
        times = "once" if attempts == 1 else f"{attempts} times"
        return TableUnavailable(
            self._name,
            f"asking for {what} failed {times} within {time.perf_counter() - began:.1f} s",
            there=f"the last error is: {error}",
            todo="Mend the store and start the query again, it goes on where it was; or let "
            "incremental() have more attempts=, or on_unavailable='miss'.",
        )
