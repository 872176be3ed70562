"""Ask where partitions end, every few seconds and in a thread, so that no reader waits for it.

A client that reads committed messages sees only its own end. Whether there are more messages,
behind an open transaction, follows from the ends of both isolation levels. That request takes time.
"""

import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

from laminar_core.connectors.base import SplitStatus
from laminar_core.connectors.kafka.facts import Bounds, Place
from laminar_core.connectors.kafka.split_reading import SplitReading
from laminar_core.host.clock import Clock

ASK_INTERVAL_MS = 2_000
"""Time between two questions."""

ANSWER_AGE_MAX_MS = 10_000
"""Answers older than this are ignored."""

Ask = Callable[[Sequence[Place]], Mapping[Place, Bounds]]
Run = Callable[[Callable[[], None]], None]


def in_a_thread(work: Callable[[], None]) -> None:
    """Run ``work`` in a daemon thread: the process can end before it."""
    threading.Thread(target=work, name="kafka-ends", daemon=True).start()


@dataclass(frozen=True, slots=True)
class _Answer:
    bounds: Mapping[Place, Bounds] = field(default_factory=dict[Place, Bounds])
    asked_ms: float = 0.0


class PartitionEnds:
    """Keeps the ends of partitions that the brokers last returned.

    ``ask`` may wait and may fail; ``run`` calls it in another thread. After a failure the last
    answer stays, until it is too old.
    """

    def __init__(self, ask: Ask, clock: Clock, run: Run = in_a_thread) -> None:
        self._ask = ask
        self._clock = clock
        self._run = run
        self._answer = _Answer()  # Replaced as a whole, so no lock is needed.
        self._is_asking = False
        self._next_ask_ms = 0.0

    def known(self, places: Sequence[Place]) -> Mapping[Place, Bounds]:
        """Return the ends that are known, and ask again if it is time to. Never waits."""
        now_ms = self._clock.monotonic_ms()
        if places and not self._is_asking and now_ms >= self._next_ask_ms:
            self._is_asking = True
            self._next_ask_ms = now_ms + ASK_INTERVAL_MS
            asked = tuple(places)
            self._run(lambda: self._fetch(asked, now_ms))
        answer = self._answer
        return answer.bounds if now_ms - answer.asked_ms <= ANSWER_AGE_MAX_MS else {}

    @property
    def asked_ms(self) -> float:
        """When the question was asked that was answered last, by the monotonic clock."""
        return self._answer.asked_ms

    def _fetch(self, places: Sequence[Place], asked_ms: float) -> None:
        try:
            self._answer = _Answer(self._ask(places), asked_ms)
        except Exception:  # noqa: BLE001, S110 - reading goes on; the client reports what is wrong
            pass
        finally:
            self._is_asking = False


def status_of(split: SplitReading, bounds: Bounds | None, now_ms: int) -> SplitStatus:
    """Return the state of a split that is not done; ``now_ms`` is a wall clock. Pure.

    What is not known to be caught up counts as behind: its rows may be there, and would be late.
    """
    if bounds is None:
        return SplitStatus(split.split_id)
    end, stable_end = bounds.end, bounds.stable_end
    if split.end_offset is not None:
        end, stable_end = min(end, split.end_offset), min(stable_end, split.end_offset)
    has_rows = split.next_time_ms is not None
    lag = max(end - split.offset, 0)
    if not has_rows and split.offset == stable_end < end:
        # Committed meanwhile, its messages are read, and the offset is another one.
        return SplitStatus(
            split.split_id,
            blocked=f"{split.split} has a transaction open from offset {stable_end} on",
            lag_rows=lag,
        )
    return SplitStatus(
        split.split_id,
        caught_up=not has_rows and lag == 0,
        lag_rows=lag,
        lag_seconds=_lag_seconds(split, lag, now_ms),
    )


def _lag_seconds(split: SplitReading, lag: int, now_ms: int) -> float | None:
    """Return the age of the next message; that of the last one if it is on its way.

    A partition that stands still has had no message for an unknown time: its last one would make
    it look far behind.
    """
    if lag == 0 and split.next_time_ms is None:
        return 0.0
    time_ms = split.next_time_ms
    if time_ms is None and split.moved:
        time_ms = split.last_time_ms
    if time_ms is None or time_ms <= 0:  # A message may have no time, or that of no clock.
        return None
    return max(now_ms - time_ms, 0) / 1000
