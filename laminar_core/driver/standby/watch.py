"""Watch the driver of a job: its process if it is on this host, otherwise its heartbeat."""

from collections.abc import Callable
from typing import TypeVar

from laminar_core.driver.standby.decision import (
    End,
    OwnerState,
    StandbyBounds,
    StandbyFacts,
    TakeOver,
    Wait,
    decide_standby,
)
from laminar_core.errors import CorruptCheckpointError, StorageUnavailable
from laminar_core.host.clock import Clock
from laminar_core.protocol.silence import Silence
from laminar_core.protocol.types import Generation
from laminar_core.records.manifest import GenerationClaim, GenerationEnd, Heartbeat, Owner, Record
from laminar_core.store.checkpoint_store import CheckpointStore
from laminar_core.store.owner import is_gone, is_running, is_visible
from laminar_core.store.records import read_record

R = TypeVar("R", bound=Record)

POLL_MS = 50
"""Time between two looks at a process of this host."""
LOOK_MS = 1_000
"""Time between two looks at the store while the process cannot be seen: a driver's heartbeat."""
LOOK_AT_LIVING_MS = 5_000
"""Time between two looks at the store while the process lives: its death is noticed without."""


class DriverWatch:
    """Watches whichever driver owns the job. Only one thread may use it."""

    def __init__(self, store: CheckpointStore, clock: Clock, bounds: StandbyBounds) -> None:
        self._store = store
        self._clock = clock
        self._bounds = bounds
        self._owner: Owner | None = None
        """The process that owns the job, if it is visible from here."""
        self._seen: tuple[Generation, Heartbeat | None, str | None] | None = None
        """The generation, heartbeat and end at the last look that was answered."""
        self._since_ms = 0.0
        """The first look at which they were like this."""
        self._looks = 0

    def wait(
        self, is_over: Callable[[], bool], on_wait: Callable[[Generation | None, Wait], None]
    ) -> TakeOver | End | None:
        """Wait until there is something to do; None: ``is_over`` became true before.

        ``on_wait`` gets each new reason to wait, with the newest generation.
        """
        before: tuple[Generation | None, Wait] | None = None
        while not is_over():
            try:
                facts = self.look()
            except StorageUnavailable:  # What was not seen is no silence.
                self._owner, self._seen = None, None
            else:
                decision = decide_standby(facts, self._bounds)
                if not isinstance(decision, Wait):
                    return decision
                if (facts.generation, decision) != before:
                    before = facts.generation, decision
                    on_wait(*before)
            self._pause(is_over)
        return None

    def look(self) -> StandbyFacts:
        """Read the facts from the store and the system.

        Raises:
            StorageUnavailable: the store did not answer.
        """
        generation = self._store.claims.last()
        if generation is None:
            self._owner = None
            return StandbyFacts()
        paths = self._store.paths
        claim = self._read(paths.claim(generation), GenerationClaim)
        self._owner = claim.owner if claim is not None and is_visible(claim.owner) else None
        state = self._owner_state()  # First: what a dead process has recorded is final.
        end = self._read(paths.end(generation), GenerationEnd)
        heartbeat = self._read(paths.heartbeat(generation), Heartbeat)
        return StandbyFacts(
            generation=generation,
            owner=state,
            outcome=None if end is None else end.outcome,
            outcome_reason="" if end is None else end.reason,
            gave_up=end is not None and end.gave_up is True,
            has_beaten=heartbeat is not None,
            silence=self._silence(generation, heartbeat, end),
        )

    def _owner_state(self) -> OwnerState:
        if self._owner is None:
            return "unknown"
        return "running" if is_running(self._owner) else "gone"

    def _silence(
        self, generation: Generation, heartbeat: Heartbeat | None, end: GenerationEnd | None
    ) -> Silence:
        now_ms = self._clock.monotonic_ms()
        seen = generation, heartbeat, None if end is None else end.outcome
        if seen != self._seen:
            self._seen, self._since_ms, self._looks = seen, now_ms, 0
        self._looks += 1
        return Silence(now_ms - self._since_ms, self._looks)

    def _read(self, key: str, record_type: type[R]) -> R | None:
        """Return the record; None if it is missing or damaged."""
        try:
            return read_record(self._store.objects, key, record_type)
        except CorruptCheckpointError:
            return None

    def _pause(self, is_over: Callable[[], bool]) -> None:
        """Wait for the next look; shorter if the process ends."""
        pause_ms = LOOK_MS if self._owner is None else LOOK_AT_LIVING_MS
        until_ms = self._clock.monotonic_ms() + pause_ms
        while not is_over() and self._clock.monotonic_ms() < until_ms:
            self._clock.wait_ms(POLL_MS)
            if self._owner is not None and is_gone(self._owner):
                return
