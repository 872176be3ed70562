"""The client for commands.

Leave a command in the store of a running job, and wait for the result.
"""

from collections.abc import Callable
from dataclasses import dataclass

from laminar_core.errors import ConfigurationError, ErrorCode, LaminarError
from laminar_core.host.clock import Clock
from laminar_core.protocol.types import Generation
from laminar_core.records.actor import Actor
from laminar_core.records.commands import Action, CancelJob, ControlCommand, ControlResult, StopJob
from laminar_core.records.limits import TIME_MS_MAX
from laminar_core.records.manifest import GenerationEnd, Owner
from laminar_core.store.checkpoint_store import CheckpointStore
from laminar_core.store.command_log import ControlLog
from laminar_core.store.owner import this_process

POLL_MS = 250
_DRIVER_CHECK_MS = 5_000
"""Time between two checks whether a driver is alive to answer."""


@dataclass(frozen=True, slots=True)
class Asked:
    """A command that was left in the store."""

    number: int
    generation: Generation
    expires_at_ms: int


def _nobody(what: str) -> None:
    del what


class ControlClient:
    """Leaves commands for one job, and waits for what becomes of them."""

    def __init__(
        self, store: CheckpointStore, clock: Clock, identify: Callable[[], Owner] = this_process
    ) -> None:
        """Open the client; ``identify`` describes this process, differently each time."""
        self._identify = identify
        self._store = store
        self._clock = clock
        self._log = ControlLog(store.objects, store.paths)

    def ask(
        self,
        action: Action,
        *,
        actor: Actor,
        timeout_ms: int,
        generation: Generation | None = None,
    ) -> Asked:
        """Leave a command for the running driver; it is not begun after the timeout.

        ``generation``: the command is for this one, which the caller knows to be alive.

        Raises:
            ConfigurationError: the job is not running.
            StorageUnavailable: the store did not answer; the command may be there.
        """
        generation = generation or self._live_generation()
        now_ms = self._clock.now_ms()
        command = ControlCommand(
            command_id=_id_of(self._identify()),
            job=self._store.job,
            generation=generation,
            action=action,
            actor=actor.name,
            actor_kind=actor.kind,
            reason=actor.reason,
            run_id=actor.run_id,
            requested_at_ms=now_ms,
            expires_at_ms=min(now_ms + timeout_ms, TIME_MS_MAX),
        )
        return Asked(self._log.append(command), generation, command.expires_at_ms)

    def wait(
        self, asked: Asked, timeout_ms: float, progress: Callable[[str], None] = _nobody
    ) -> ControlResult:
        """Wait for the result, which may be a refusal; ``progress`` receives messages.

        Raises:
            LaminarError: the driver ended without an answer, or the time is over.
            StorageUnavailable: the store did not answer.
        """
        started_ms = self._clock.monotonic_ms()
        check_ms = started_ms + _DRIVER_CHECK_MS
        while True:
            over = self._clock.monotonic_ms() >= check_ms and self._is_over(asked.generation)
            result = self._log.result(asked.number)  # After the look: what was answered counts.
            if result is not None:
                return result
            if over:
                raise LaminarError(
                    ErrorCode.COMMAND_NOT_DONE,
                    f"generation {asked.generation} of job {self._store.job} ended without an "
                    f"answer to command {asked.number}: see `laminar control list`",
                )
            waited_ms = self._clock.monotonic_ms() - started_ms
            begun = self._log.begun(asked.number) is not None
            if waited_ms >= timeout_ms:
                raise _timeout(asked, waited_ms, begun=begun)
            waits = f"generation {asked.generation} has not begun it yet"
            progress("it is being done" if begun else waits)
            if self._clock.monotonic_ms() >= check_ms:
                check_ms = self._clock.monotonic_ms() + _DRIVER_CHECK_MS
            self._clock.wait_ms(POLL_MS)

    def wait_until_over(
        self,
        asked: Asked,
        action: Action,
        timeout_ms: float,
        progress: Callable[[str], None] = _nobody,
    ) -> ControlResult:
        """Wait as ``wait`` does; for an ``action`` that ends the job, also until it has ended."""
        result = self.wait(asked, timeout_ms, progress)
        if result.outcome == "completed" and isinstance(action, StopJob | CancelJob):
            progress("the job ends")
            self.wait_for_end(asked.generation, timeout_ms)
        return result

    def wait_for_end(self, generation: Generation, timeout_ms: float) -> GenerationEnd | None:
        """Wait until ``generation`` has written down that it is over; None if it never will."""
        deadline_ms = self._clock.monotonic_ms() + timeout_ms
        check_ms = self._clock.monotonic_ms() + _DRIVER_CHECK_MS
        while (end := self._store.generations.read_end(generation)) is None:
            now_ms = self._clock.monotonic_ms()
            if now_ms >= deadline_ms or (now_ms >= check_ms and self._is_over(generation)):
                return self._store.generations.read_end(generation)
            if now_ms >= check_ms:
                check_ms = now_ms + _DRIVER_CHECK_MS
            self._clock.wait_ms(POLL_MS)
        return end

    def _live_generation(self) -> Generation:
        """Return the generation whose driver lives.

        Raises:
            ConfigurationError: there is none; the message has the evidence.
        """
        generation = self._store.claims.newest()
        if generation is None:
            raise self._not_running("it has never run")
        if (end := self._store.generations.read_end(generation)) is not None:
            raise self._not_running(f"generation {generation}, the last one, {end.outcome}")
        signs = self._store.claims.owner_signs(generation, self._clock.wait_ms)
        if signs == "gone":
            raise self._not_running(f"the driver of generation {generation} is gone")
        if signs == "silent":
            raise self._not_running(f"the driver of generation {generation} gives no sign of life")
        return generation

    def _is_over(self, generation: Generation) -> bool:
        """Return whether no driver will answer.

        Neither this one, nor a later one that would have to.
        """
        newest = self._store.claims.newest()
        if newest is None or newest > generation:
            return False  # A later one says what became of it.
        return self._store.claims.owner_signs(generation, self._clock.wait_ms) in {
            "ended",
            "gone",
            "silent",
        }

    def _not_running(self, why: str) -> ConfigurationError:
        return ConfigurationError(
            ErrorCode.NO_LIVE_DRIVER,
            f"job {self._store.job} is not running: {why}; start it with `laminar run`",
        )


def _id_of(owner: Owner) -> str:
    process = f"{owner.host_id}/{owner.boot_id}/{owner.pid}/{owner.pid_start_time}"
    return f"{process}/{owner.claim_number}"


def _timeout(asked: Asked, waited_ms: float, *, begun: bool) -> LaminarError:
    what = "it is being done and may still succeed" if begun else "no driver has taken it up"
    return LaminarError(
        ErrorCode.COMMAND_TIMEOUT,
        f"no answer to command {asked.number} within {waited_ms / 1000:.0f} s, {what}: see "
        "`laminar control list`",
    )
