"""One sensor for many streams: each tick makes a round of them, and each stream has its own cursor.

A round is bounded: by the time that the store may take, by its own time, and by the events that it
reports. What does not fit is left to the next tick, which begins there; so no stream waits for ever
because of another one. A stream that fails is named, and the others are not affected. Streams whose
store has not answered come last.
"""

import logging
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Generic, Protocol, TypeVar
from zlib import crc32

import dagster as dg

from laminar_core.host.clock import Clock, SystemClock
from laminar_core.sensors.background import WAIT_MS, BackgroundReads, Patience
from laminar_core.sensors.cursor import Cursor
from laminar_core.sensors.pauses import Pausable, Pause, read_pauses
from laminar_core.sensors.policy import AlertPolicy

ROUND_MS_MAX = 25_000
"""After this, a tick visits no more streams. Dagster ends a tick after 60 s."""

EVENTS_MAX = 300
"""After so many events, a tick visits no more streams: Dagster writes them one after the other."""

WHOLE_MS = 600_000
"""How often a tick says the lines of all streams, not only those that are new."""

LINE_LENGTH_MAX = 8_000

_NUMBER = re.compile(r"\d+")

Event = dg.AssetMaterialization | dg.AssetObservation | dg.AssetCheckEvaluation
PartitionRequest = dg.AddDynamicPartitionsRequest | dg.DeleteDynamicPartitionsRequest

Policies = Mapping[str, AlertPolicy]
"""The limits of each stream, by its name."""


@dataclass(frozen=True, slots=True)
class StreamTick:
    """One stream's part of a tick: the sensor's context, with the stream's own cursor."""

    instance: dg.DagsterInstance
    cursor: str | None
    log: logging.Logger
    repository_def: dg.RepositoryDefinition | None


class Visited(Protocol):
    """One stream's part of a sensor; ``reads`` are its reads of the store."""

    @property
    def reads(self) -> BackgroundReads:
        """Return the reads of the store."""
        ...


T = TypeVar("T", bound=Visited)


class StreamState(Cursor):
    """The state of a sensor for one stream, between ticks."""

    cursor: str | None = None
    said: int = 0
    """The digest of the last line that a tick said of it."""


class RoundCursor(Cursor):
    """The cursors of all streams; ``begin`` is the stream with which the next round begins.

    ``whole_ms`` is when a tick last said the lines of all of them.
    """

    streams: dict[str, StreamState] = {}  # noqa: RUF012 - a field, copied by pydantic
    begin: str = ""
    whole_ms: int = 0


@dataclass(slots=True)
class _Outcome:
    """The outcome of a tick, stream by stream."""

    states: dict[str, StreamState]
    is_whole: bool
    """Whether every line is news."""
    events: list[Event] = field(default_factory=list[Event])
    requests: list[dg.RunRequest] = field(default_factory=list[dg.RunRequest])
    partitions: list[PartitionRequest] = field(default_factory=list[PartitionRequest])
    lines: dict[str, str] = field(default_factory=dict[str, str])
    news: list[str] = field(default_factory=list[str])
    """Streams whose line is another one than in the last tick."""

    def add(self, stream: str, result: dg.SensorResult) -> None:
        """Add what one stream's part returned."""
        self.events += result.asset_events
        self.requests += result.run_requests or ()
        self.partitions += result.dynamic_partitions_requests or ()
        before = self.states[stream]
        line = str(result.skip_reason.skip_message or "") if result.skip_reason else ""
        self.say(stream, line)
        cursor = before.cursor if result.cursor is None else result.cursor
        self.states[stream] = StreamState(cursor=cursor, said=_digest(line))

    def rest(self, stream: str, line: str) -> None:
        """Leave a stream as it is, for the reason in ``line``, which each tick says again."""
        self.say(stream, line)
        self.news = [*(each for each in self.news if each != stream), stream]
        before = self.states[stream]
        self.states[stream] = before.model_copy(update={"said": _digest(line)})

    def say(self, stream: str, line: str) -> None:
        """Take the line of a stream, if it is another one; numbers in it do not count."""
        self.lines[stream] = line
        if line and (self.is_whole or _digest(line) != self.states[stream].said):
            self.news.append(stream)


class Round(Generic[T]):
    """The streams of one sensor."""

    def __init__(
        self, sensor: Pausable, parts: Mapping[str, T], patience: Patience, clock: Clock
    ) -> None:
        """Take the streams; all their reads share ``patience``."""
        self._sensor = sensor
        self._parts, self._patience, self._clock = parts, patience, clock

    def run(
        self,
        context: dg.SensorEvaluationContext,
        visit: Callable[[T, StreamTick], dg.SensorResult],
    ) -> dg.SensorResult:
        """Visit the streams, and put their results together."""
        before, streams = RoundCursor.read(context.cursor), list(self._parts)
        pauses, now_ms = read_pauses(context.instance, streams), self._clock.now_ms()
        self._patience.renew()
        began_ms = self._clock.monotonic_ms()
        is_whole = not 0 <= now_ms - before.whole_ms < WHOLE_MS
        outcome = _Outcome({s: before.streams.get(s, StreamState()) for s in streams}, is_whole)
        order = self._order(before.begin)
        for stream in order:
            took_ms = self._clock.monotonic_ms() - began_ms
            if took_ms > ROUND_MS_MAX or len(outcome.events) >= EVENTS_MAX:
                break
            if (pause := pauses.get(stream, Pause())).applies(self._sensor, now_ms):
                outcome.rest(stream, str(pause))
                continue
            self._visit(context, stream, visit, outcome)
        begin = next((stream for stream in order if stream not in outcome.lines), "")
        whole_ms = now_ms if is_whole else before.whole_ms
        cursor = RoundCursor(streams=outcome.states, begin=begin, whole_ms=whole_ms)
        line = _line(outcome, len(order))
        if outcome.requests:
            context.log.info("%s", line)
        return dg.SensorResult(
            asset_events=outcome.events,
            run_requests=outcome.requests or None,
            dynamic_partitions_requests=outcome.partitions,
            cursor=cursor.model_dump_json(),
            skip_reason=None if outcome.requests else line,
        )

    def _order(self, begin: str) -> list[str]:
        """Begin where the last round had to end; who still waits for the store comes last."""
        streams = list(self._parts)
        at = streams.index(begin) if begin in self._parts else 0
        rotated = [*streams[at:], *streams[:at]]
        return sorted(rotated, key=lambda stream: self._parts[stream].reads.is_reading)

    def _visit(
        self,
        context: dg.SensorEvaluationContext,
        stream: str,
        visit: Callable[[T, StreamTick], dg.SensorResult],
        outcome: _Outcome,
    ) -> None:
        cursor = outcome.states[stream].cursor
        part = StreamTick(context.instance, cursor, context.log, context.repository_def)
        try:
            outcome.add(stream, visit(self._parts[stream], part))
        except Exception as error:
            if len(self._parts) == 1:
                raise
            line = f"it failed: {type(error).__name__}: {' '.join(str(error).split())}"
            context.log.exception("%s: %s", stream, line)
            outcome.rest(stream, line)


def make_round(
    sensor: Pausable,
    streams: Iterable[str],
    part: Callable[[str, BackgroundReads], T],
    clock: Clock | None = None,
    reads: BackgroundReads | None = None,
) -> Round[T]:
    """Return a round of the streams; ``reads`` are those of all, in place of one for each."""
    patience = Patience(WAIT_MS)
    parts = {
        stream: part(stream, reads or BackgroundReads(WAIT_MS, patience)) for stream in streams
    }
    return Round(sensor, parts, patience, clock or SystemClock())


def described(streams: Sequence[str]) -> str:
    """Return a name for the streams of a sensor, for its description."""
    return streams[0] if len(streams) == 1 else f"{len(streams)} streams"


def _line(outcome: _Outcome, count: int) -> str:
    """Return what a tick says: the lines that are new, and how many streams have none.

    With a single stream it is the stream's own line.
    """
    if count == 1:
        return next(iter(outcome.lines.values()))
    said = [f"{stream}: {outcome.lines[stream]}" for stream in outcome.news]
    if quiet := len(outcome.lines) - len(outcome.news):
        said.append(f"{_streams(quiet)} as before")
    if left := count - len(outcome.lines):
        said.append(f"left to the next tick: {_streams(left)}")
    line = "; ".join(said)
    return line if len(line) <= LINE_LENGTH_MAX else f"{line[:LINE_LENGTH_MAX]}…"


def _digest(line: str) -> int:
    return crc32(_NUMBER.sub("", line).encode())


def _streams(count: int) -> str:
    return f"{count} stream{'s' if count > 1 else ''}"
