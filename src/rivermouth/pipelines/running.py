"""A pipeline's queries: started, followed by a line each, stopped without a loss."""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from rich.console import Console

from rivermouth.errors import DefinitionError, RivermouthError
from rivermouth.observe.progress import follow_all, line
from rivermouth.pipelines.building import Builder
from rivermouth.pipelines.checking import Declared, check
from rivermouth.pipelines.nodes import Mistake, Parsed, parse
from rivermouth.pipelines.sinks import Sink

_EVERY = 30.0  # seconds between two lines where there is no terminal
# Spark gives the driver's worker of a stateful query 10 s to start; a busy machine may need more
_TOO_SLOW, _ATTEMPTS = "Python worker failed to connect back", 10
_PAUSE = 0.2  # seconds between two looks
_OURS = re.compile(r"rivermouth\.errors\.\w+: (.*)")


class PipelineError(DefinitionError):
    """A file with mistakes; `mistakes` has all of them, in the file's order."""

    def __init__(self, path: str, mistakes: list[Mistake]) -> None:
        self.path, self.mistakes = path, mistakes
        count = "a mistake" if len(mistakes) == 1 else f"{len(mistakes)} mistakes"
        super().__init__(path, f"it has {count}", there="; ".join(map(str, mistakes)))

    def __reduce__(self) -> tuple[object, ...]:
        return type(self), (self.path, self.mistakes)

    @property
    def lines(self) -> list[str]:
        """A line for each mistake, as compilers write them."""
        return [f"{self.path}:{mistake}" for mistake in self.mistakes]


class RunError(RivermouthError):
    """A query that failed, with its reason and without the plan that Spark adds."""


@dataclass
class Pipeline:
    """A file that was read, and found to be without mistakes as far as it says itself."""

    path: Path
    parsed: Parsed
    declared: Declared
    sinks: dict[str, Any] = field(default_factory=dict)

    @classmethod
    def read(cls, path: Path, environment: Mapping[str, str] | None = None) -> Pipeline:
        """Read and check a file, without Spark.

        Raises
        ------
        PipelineError
            With every mistake that the file alone shows.
        """
        try:
            text = path.read_text(encoding="utf-8")
        except (OSError, UnicodeDecodeError) as error:
            raise DefinitionError(
                "run", f"{path} cannot be read", there=str(error), todo="Name a pipeline's file."
            ) from error
        parsed = parse(text, environment)
        declared, mistakes = check(parsed, path.resolve().parent)
        pipeline = cls(path, parsed, declared)
        pipeline._fail_for(mistakes)
        return pipeline

    @property
    def name(self) -> str:
        """What the file calls it, or the file's own name."""
        return str(self.declared.settings.get("name") or self.path.stem)

    @property
    def settings(self) -> dict[str, str]:
        """The session's settings that the file names."""
        given = self.declared.settings.get("spark") or {}
        return {
            name: str(value).lower() if isinstance(value, bool) else str(value)
            for name, value in given.items()
        }

    def define(self, spark: Any) -> None:
        """Make every call of the file; schemas are read, nothing runs.

        Raises
        ------
        PipelineError
            With every mistake that the tables' and sources' columns show.
        """
        builder = Builder(self.declared, spark, self.path.resolve().parent)
        self.sinks = builder.all()
        self._fail_for(builder.mistakes)

    def start(self, *, once: bool = False) -> Queries:
        """Start a query for each sink; batch frames are written at once."""
        trigger: dict[str, Any] = {}
        if once:
            trigger = {"availableNow": True}
        elif (every := self.declared.settings.get("trigger")) is not None:
            trigger = {"processingTime": every}
        beside = self.path.resolve().parent / "checkpoints"
        folder = f"{self.declared.settings.get('checkpoints') or beside}/{self.name}"

        def starting(name: str) -> Any:
            sink = self.sinks[name]
            if not isinstance(sink, Sink):
                return sink.start(name=name, **trigger)  # an exact aggregation
            return sink.start(name, f"{folder}/{name}", trigger)

        started = Queries(starting)
        try:
            for name, sink in self.sinks.items():
                if isinstance(sink, Sink) and not sink.frame.isStreaming:
                    sink.run()
                else:
                    started.start(name)
        except BaseException:
            started.stop()
            raise
        return started

    @contextmanager
    def redacting(self) -> Iterator[None]:
        """Raise what fails in this block without the values of the environment's variables."""
        try:
            yield
        except RivermouthError as error:
            if (said := self.parsed.redacted(str(error))) != str(error):
                raise RunError(self.name, said) from None
            raise
        except Exception as error:
            raise RunError(self.name, self.parsed.redacted(_reason(error))) from None

    def _fail_for(self, mistakes: list[Mistake]) -> None:
        if mistakes:
            shown = [Mistake(each.mark, self.parsed.redacted(each.text)) for each in mistakes]
            raise PipelineError(str(self.path), sorted(set(shown)))


class Queries:
    """The running queries of a pipeline, by the names of their sinks.

    Parameters
    ----------
    starting
        Starts the query of a sink, or goes on from its checkpoint.
    """

    def __init__(self, starting: Callable[[str], Any]) -> None:
        self._starting, self._running = starting, dict[str, Any]()

    @property
    def names(self) -> list[str]:
        """Of the sinks whose frames are streams."""
        return list(self._running)

    def start(self, name: str) -> None:
        """Start one."""
        self._running[name] = self._starting(name)

    def wait(self) -> None:
        """Wait until all have ended; raises what ended one."""
        self._follow(None, Console(quiet=True))

    def follow(self, say: Callable[[str], None], *, is_terminal: bool) -> None:
        """Show a line for each query until all have ended; raises what ended one.

        Where there is no terminal a line is written now and then instead.
        """
        last = [time.monotonic()]

        def now_and_then(numbers: Mapping[str, Any]) -> bool:
            if time.monotonic() - last[0] >= _EVERY:
                last[0] = time.monotonic()
                for name, of in numbers.items():
                    say(f"{name}  {line(of)}")
            return False

        self._follow(None if is_terminal else now_and_then, Console())

    def _follow(self, until: Callable[[Any], bool] | None, console: Console) -> None:
        for attempt in range(1, _ATTEMPTS + 1):
            try:
                follow_all(self._streams, until=until, console=console)
                break
            except Exception as error:
                if attempt == _ATTEMPTS or _TOO_SLOW not in str(error):
                    raise
                for name, stream in self._streams.items():
                    if _TOO_SLOW in str(stream.exception()):
                        self._start_again(name)
        for query in self._running.values():
            query.awaitTermination()  # an exact aggregation's last corrections

    def _start_again(self, name: str) -> None:
        """Start one, and the next only when this one's workers have had time to start."""
        self.start(name)
        until, stream = time.monotonic() + _EVERY, self._streams[name]
        while stream.isActive and not stream.lastProgress and time.monotonic() < until:
            time.sleep(_PAUSE)

    def stop(self) -> None:
        """Stop all; each goes on where it was when the pipeline is started again."""
        for query in self._running.values():
            query.stop()

    @property
    def _streams(self) -> dict[str, Any]:
        return {name: getattr(query, "query", query) for name, query in self._running.items()}


def _reason(error: Exception) -> str:
    """What Spark says, without the plan; of an error of ours its own sentence."""
    text = str(error).strip()
    ours = _OURS.findall(text)
    if ours:
        return str(ours[-1]).strip()
    return text.partition("=== Streaming Query ===")[0].partition("JVM stacktrace")[0].strip()
