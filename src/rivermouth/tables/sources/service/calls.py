"""One call of a user's function: in the process's event loop, or in a thread; never for ever."""

from __future__ import annotations

import asyncio
import inspect
import os
import threading
from collections.abc import Awaitable, Callable
from typing import Any

from rivermouth.errors import RivermouthError, TableInvalid, TableUnavailable

#: what Python raises for a mistake in a program; to call again would not mend it
_MISTAKES = (
    ArithmeticError, AssertionError, AttributeError, ImportError, LookupError, NameError,
    NotImplementedError, SyntaxError, TypeError, ValueError,
)  # fmt: skip

#: answers of HTTP below 500 that another attempt may mend
_TRANSIENT = (408, 425, 429)


def call(function: Callable[[Any], Any], keys: Any, timeout: float | None, *, name: str) -> Any:
    """What `function` gives for `keys`, awaited where it is to be.

    Raises
    ------
    TableUnavailable
        After `timeout` seconds, or where the function fails with what may be transient.
    TableInvalid
        Where it fails with a mistake.
    """
    try:
        if is_async(function):
            return _awaited(function(keys), timeout)
        return _Call(function, keys).result(timeout)
    except RivermouthError:
        raise
    except TimeoutError as error:
        raise TableUnavailable(
            name,
            f"its function gave no answer within {timeout:g} s"
            if timeout is not None
            else "its function ran into a timeout of its own",
            todo="See that the service answers, or give service() a longer timeout=.",
        ) from error
    except Exception as error:
        raise _translated(error, name) from error


def is_async(function: Callable[..., Any]) -> bool:
    """Whether calling it gives something to be awaited, as far as it says so itself."""
    return inspect.iscoroutinefunction(function) or inspect.iscoroutinefunction(
        getattr(function, "__call__", None)  # noqa: B004  (of an object, which may be async)
    )


def _translated(error: Exception, name: str) -> RivermouthError:
    said = f"{type(error).__name__}: {error}".rstrip(": .")
    status = _status(error)
    is_refused = status is not None and 400 <= status < 500 and status not in _TRANSIENT
    if is_refused or (status is None and isinstance(error, _MISTAKES)):
        return TableInvalid(
            name,
            "its function failed in a way that another attempt would not mend",
            there=said,
            todo="Mend the function; for a fault that passes raise "
            "rivermouth.errors.TableUnavailable in it.",
        )
    return TableUnavailable(name, "its function failed", there=said)


def _status(error: Exception) -> int | None:
    """The HTTP status of an error of urllib, requests, httpx or aiohttp."""
    response = getattr(error, "response", None)
    found = (getattr(error, "code", None), getattr(error, "status", None),
             getattr(response, "status_code", None))  # fmt: skip
    return next((value for value in found if isinstance(value, int)), None)


class _Call(threading.Thread):
    """A plain function at work; past its time it is left to end by itself."""

    def __init__(self, function: Callable[[Any], Any], keys: Any) -> None:
        super().__init__(name="rivermouth-service", daemon=True)
        self._function, self._keys = function, keys
        self._answer: Any = None
        self._error: BaseException | None = None
        self.start()

    def run(self) -> None:
        """Call, and keep what came of it."""
        try:
            answer = self._function(self._keys)
            self._answer = _awaited(answer, None) if inspect.isawaitable(answer) else answer
        except BaseException as error:  # raised to who waits
            self._error = error

    def result(self, timeout: float | None) -> Any:
        """What the function gave or raised; a `TimeoutError` where it takes longer."""
        self.join(timeout)
        if self.is_alive():
            raise TimeoutError
        if self._error is not None:
            raise self._error
        return self._answer


def _awaited(answer: Awaitable[Any], timeout: float | None) -> Any:
    """What comes of `answer` in the process's event loop, where it is cancelled past its time."""

    async def within() -> Any:
        return await asyncio.wait_for(answer, timeout)

    return asyncio.run_coroutine_threadsafe(within(), _loops.get()).result()


class _Loops:
    """The event loop of this process, in a thread of its own; a forked process gets another."""

    def __init__(self) -> None:
        self._lock, self._process = threading.Lock(), -1
        self._loop: asyncio.AbstractEventLoop

    def get(self) -> asyncio.AbstractEventLoop:
        """The loop, running."""
        if self._process == os.getpid():
            return self._loop
        with self._lock:
            if self._process != os.getpid():
                self._loop = asyncio.new_event_loop()
                threading.Thread(
                    target=self._loop.run_forever, name="rivermouth-loop", daemon=True
                ).start()
                self._process = os.getpid()
            return self._loop


_loops = _Loops()
