"""Commands of a running generation: read them from the store, begin, execute and answer them.

A background thread reads the log with each heartbeat; the coordinator's thread receives the
commands that were begun. Each of them is written into the audit log before it takes effect, and its
outcome afterwards. Commands overlap: copying a savepoint does not delay a cancel.
"""

import logging
from collections.abc import Callable
from concurrent.futures import Future
from contextlib import suppress
from dataclasses import dataclass
from typing import Literal, Protocol

from laminar_core.driver.checkpointing import Background, CheckpointAnswer
from laminar_core.driver.commands.savepoint_targets import SavepointTargets
from laminar_core.driver.events import CommandAnswered
from laminar_core.driver.hosting import CoordinatorHost
from laminar_core.errors import LaminarError, StorageUnavailable
from laminar_core.objectstore.opening import open_object_store
from laminar_core.protocol.commands import Answer, Begin, CommandFacts, ModeRefused, decide_commands
from laminar_core.protocol.types import CheckpointId, CheckpointKind, Generation
from laminar_core.records.audit import AuditEntry, AuditRecord
from laminar_core.records.commands import (
    CancelJob,
    ControlBegun,
    ControlCommand,
    ControlOutcome,
    ControlResult,
    SetMode,
    StopJob,
    TakeCheckpoint,
    TakeSavepoint,
)
from laminar_core.records.record import JsonObject
from laminar_core.store.audit_log import AuditLog
from laminar_core.store.checkpoint_store import CheckpointStore
from laminar_core.store.command_log import ControlEntry, ControlLog
from laminar_core.store.savepoint_export import export_savepoint
from laminar_core.store.savepoints import require_free

_log = logging.getLogger(__name__)


class CommandHost(CoordinatorHost, Protocol):
    """The coordinator, as commands see it: they may also end the job, or change how it runs.

    The methods that are added here are called in the coordinator's thread.
    """

    def take(self, kind: CheckpointKind, *, once: bool) -> "Future[CheckpointAnswer]":
        """Request a checkpoint; a stop that fails ``once`` is not tried again."""
        ...

    def set_mode(self, mode: SetMode) -> "JsonObject | ModeRefused":
        """Change how checkpoints align; return the new setting, or why it was refused."""
        ...

    def cancel(self, reason: str) -> None:
        """End the generation now."""
        ...

    def go_on(self, end: Callable[[], None]) -> None:
        """Continue the job after its stop checkpoint; call ``end`` if another request ends it."""
        ...


Ending = Literal["finished", "stopped"]

CopySavepoint = Callable[[ControlCommand, CheckpointId, Callable[[], bool]], str]
"""Copies this checkpoint to the command's target, until the callback reports that the copy is
pointless; returns its URI. Raises LaminarError.
"""


class CommandDispatcher:
    """The commands of one generation. The coordinator's thread calls its public methods."""

    def __init__(
        self,
        store: CheckpointStore,
        generation: Generation,
        host: CommandHost,
        background: Background,
        copy: CopySavepoint | None = None,
        *,
        savepoints_under: tuple[str, ...] = (),
    ) -> None:
        self._store = store
        self._targets = SavepointTargets(store.objects.uri, savepoints_under)
        self._queue = CommandQueue(store, generation, host.now_ms, host.monotonic_ms, self._targets)
        """Used by the background thread only."""
        self._generation = generation
        self._host = host
        self._executor = background.control
        self._copies = background.copies
        self._copy = copy or self._copy_savepoint
        self._polling = self._closed = False
        self._running: dict[int, ControlCommand] = {}
        """Begun and not answered; of the coordinator's thread."""
        self._stops: dict[int, CheckpointId] = {}
        """Stop commands whose checkpoint is complete."""
        self._wanted_stops: dict[int, ControlCommand] = {}
        """Stop commands that did not fail, answered or not."""

    # --- in the coordinator's thread ------------------------------------------------------------

    def tick(self) -> None:
        """Start looking for commands, unless that is in progress."""
        if not (self._polling or self._closed):
            self._polling = True
            self._executor.submit(self._poll)

    def before_the_end(self, kind: CheckpointKind, end: Callable[[], None]) -> None:
        """Make the requested savepoints of the last committed checkpoint, then end the job."""
        waiting = [n for n in self._stops if n in self._running and self._has_target(n)]
        if kind is not CheckpointKind.STOP or not waiting:
            end()
            return

        failures: list[bool] = []

        def copied(failed: bool) -> None:  # noqa: FBT001 - the answer to one question
            failures.append(failed)
            if len(failures) < len(waiting):
                return
            if all(failures):
                self._host.go_on(end)
            else:  # Several targets: one that has its savepoint wants the job to end.
                end()

        for number in waiting:
            self._start_copy(number, self._stops.pop(number), copied)

    def _has_target(self, number: int) -> bool:
        action = self._running[number].action
        return isinstance(action, StopJob) and action.target is not None

    @property
    def stopped_by(self) -> str:
        """Return who stopped the job by a command, and why; empty if it was not stopped so."""
        first = next(iter(self._wanted_stops.values()), None)
        return "" if first is None else f"by {first.actor}: {first.reason}"

    def close(self, reason: str, ending: Ending | None) -> None:
        """Answer all open commands, because the generation is over; no more are begun.

        ``ending`` is how the job ended well; None if it did not.
        """
        self._closed = True
        for number in list(self._running):
            if ending is not None and number in self._wanted_stops and not self._has_target(number):
                taken_id = self._stops.get(number)
                answer = None if taken_id is None else CheckpointAnswer(taken_id, "completed", "")
                self._answer(number, "completed", f"the job has {ending}", answer)
            else:
                self._answer(number, "failed", f"the job ended before this was done: {reason}")

    def _polled(self, begun: list[ControlEntry]) -> None:
        self._polling = False
        for entry in begun:
            assert entry.command is not None, "begun without being understood"
            self._running[entry.number] = entry.command
            if self._closed:
                self._answer(entry.number, "failed", "the job ended before this was done")
            else:
                self._start(entry.number, entry.command)

    def _start(self, number: int, command: ControlCommand) -> None:
        match command.action:
            case TakeCheckpoint():
                self._take(number, CheckpointKind.MANUAL, self._checkpoint_taken)
            case TakeSavepoint():
                self._take(number, CheckpointKind.SAVEPOINT, self._savepoint_taken)
            case StopJob(target=None):
                self._wanted_stops[number] = command
                taken = self._host.take(CheckpointKind.STOP, once=False)
                taken.add_done_callback(lambda future: self._last_taken(number, future.result()))
            case StopJob():
                self._wanted_stops[number] = command
                self._take(number, CheckpointKind.STOP, self._stop_taken)
            case SetMode() as mode:
                self._set_mode(number, mode)
            case CancelJob():
                self._answer(number, "completed", "the job is cancelled")
                self._host.cancel(f"cancelled by {command.actor}: {command.reason}")

    def _take(
        self, number: int, kind: CheckpointKind, then: Callable[[int, CheckpointAnswer], None]
    ) -> None:
        def answered(future: "Future[CheckpointAnswer]") -> None:
            answer = future.result()
            if answer.outcome == "completed":
                then(number, answer)
            else:
                self._answer(number, "failed", f"{answer.outcome}: {answer.reason}", answer)

        self._host.take(kind, once=kind is CheckpointKind.STOP).add_done_callback(answered)

    def _checkpoint_taken(self, number: int, answer: CheckpointAnswer) -> None:
        self._answer(number, "completed", "", answer)

    def _savepoint_taken(self, number: int, answer: CheckpointAnswer) -> None:
        assert answer.checkpoint_id is not None, "completed without an id"
        self._start_copy(number, answer.checkpoint_id, lambda _: None)

    def _last_taken(self, number: int, answer: CheckpointAnswer) -> None:
        """It is tried until it completes or the generation ends; ``close`` answers."""
        if answer.outcome == "completed" and answer.checkpoint_id is not None:
            self._stops[number] = answer.checkpoint_id

    def _stop_taken(self, number: int, answer: CheckpointAnswer) -> None:
        """Its output is committed before it is copied, so such a savepoint never owes any."""
        assert answer.checkpoint_id is not None, "completed without an id"
        self._stops[number] = answer.checkpoint_id

    def _set_mode(self, number: int, mode: SetMode) -> None:
        holds = self._host.set_mode(mode)
        if isinstance(holds, ModeRefused):
            self._answer(number, "refused", holds.reason)
        else:
            self._answer(number, "completed", details=holds)

    def _start_copy(
        self, number: int, checkpoint_id: CheckpointId, then: Callable[[bool], None]
    ) -> None:
        command = self._running[number]
        answer = CheckpointAnswer(checkpoint_id, "completed", "")

        def run() -> None:
            try:
                uri, problem = self._copy(command, checkpoint_id, lambda: self._closed), ""
            except LaminarError as error:
                uri, problem = None, str(error)
            except Exception as error:  # noqa: BLE001 - nobody else would ever see it
                uri, problem = None, repr(error)
            self._host.post(lambda: copied(uri, problem))

        def copied(uri: str | None, problem: str) -> None:
            if uri is None:
                self._answer(number, "failed", f"it could not be copied: {problem}", answer)
            else:
                self._answer(number, "completed", "", answer, savepoint=uri)
            then(uri is None)

        self._copies.submit(run)

    def _answer(
        self,
        number: int,
        outcome: ControlOutcome,
        reason: str = "",
        answer: CheckpointAnswer | None = None,
        *,
        savepoint: str | None = None,
        details: JsonObject | None = None,
    ) -> None:
        command = self._running.pop(number, None)
        if command is None:
            return  # Answered when the generation ended.
        if outcome != "completed":
            self._wanted_stops.pop(number, None)
        result = ControlResult(
            outcome=outcome,
            reason=reason,
            generation=self._generation,
            answered_at_ms=self._host.now_ms(),
            checkpoint_id=None if answer is None else answer.checkpoint_id,
            savepoint=savepoint,
            details=details or {},
        )
        self._executor.submit(self._queue.put, number, result)
        self._host.notify(
            CommandAnswered(
                time_ms=result.answered_at_ms,
                number=number,
                command=command.action.kind,
                actor=command.actor,
                outcome=outcome,
                reason=reason,
                checkpoint_id=result.checkpoint_id,
                savepoint=savepoint,
            )
        )

    def _copy_savepoint(
        self, command: ControlCommand, checkpoint_id: CheckpointId, is_cancelled: Callable[[], bool]
    ) -> str:
        target = target_of(command)
        assert target is not None, "nothing is copied without a target"
        place = self._targets.resolve(target)  # As at the command's begin, links may differ.
        now_ms = self._host.now_ms()
        return export_savepoint(self._store, checkpoint_id, place, command.by, now_ms, is_cancelled)

    # --- in the background ----------------------------------------------------------------------

    def _poll(self) -> None:
        begun: list[ControlEntry] = []
        try:
            self._store.claims.check_claim(
                self._generation
            )  # Commands in another store are not ours.
            self._queue.take(begun)
        except LaminarError:
            pass  # The next heartbeat tries again.
        except Exception:  # noqa: BLE001 - it would be lost with the future
            _log.exception("commands cannot be taken; the next heartbeat tries again")
        finally:
            self._host.post(lambda: self._polled(begun))


LOOK_PAUSE_MAX_MS = 10_000
"""Between two looks at the log; the driver takes one with each heartbeat."""


@dataclass(slots=True)
class _Open:
    """A command that has no result yet, and what this driver has done about it."""

    entry: ControlEntry
    found_ms: float
    """Monotonic time of the driver: before this the command was not there, or not for long."""
    begun: ControlBegun | None = None
    intent: AuditEntry | None = None
    audited: AuditRecord | None = None
    started: bool = False
    result: ControlResult | None = None

    def facts(self, generation: Generation) -> CommandFacts:
        """Return the command's facts for the decision."""
        command, begun = self.entry.command, self.entry.begun
        by_us = self.begun is not None
        return CommandFacts(
            number=self.entry.number,
            addressed_to=None if command is None else Generation(command.generation),
            expires_ms=0.0 if command is None else self.found_ms + _patience_ms(command),
            begun_by=generation if by_us else begun and Generation(begun.generation),
            started=self.started,
            problem=self.entry.problem,
        )


class CommandQueue:
    """Takes up the commands of one generation, in one thread. Rules: ``protocol.commands``."""

    def __init__(
        self,
        store: CheckpointStore,
        generation: Generation,
        now_ms: Callable[[], int],
        monotonic_ms: Callable[[], float],
        targets: SavepointTargets,
    ) -> None:
        self._store = store
        self._targets = targets
        self._log = ControlLog(store.objects, store.paths)
        self._audit = AuditLog(store.objects, store.paths, now_ms)
        self._generation = generation
        self._now_ms = now_ms
        self._monotonic_ms = monotonic_ms
        self._looked_ms: float | None = None
        """When the log was last read."""
        self._read_up_to: int | None = None
        self._open: dict[int, _Open] = {}

    def take(self, begun: list[ControlEntry]) -> None:
        """Read what is new, and answer what is not to be carried out; add the rest to ``begun``.

        Raises:
            StorageUnavailable: the store did not answer. What is in ``begun`` is ours all the same;
                call again for the rest.
        """
        self._read()
        self._decide(begun)

    def _read(self) -> None:
        found_ms = self._found_ms()
        if self._read_up_to is None:
            numbers = self._log.numbers()
            found = self._log.unanswered()
            self._open = {entry.number: _Open(entry, found_ms) for entry in found}
            self._read_up_to = max([*numbers, *self._open], default=0)
        for entry in self._log.read_after(self._read_up_to):
            self._open[entry.number] = _Open(entry, found_ms)
            self._read_up_to = entry.number

    def _found_ms(self) -> float:
        """Return the earliest time at which a command that is found now may have been left.

        A driver that looks regularly finds it at once. After the driver was suspended, or the store
        was unavailable, the command may be as old as the last look, and its client may have given
        up.
        """
        before_ms, self._looked_ms = self._looked_ms, self._monotonic_ms()
        slept = before_ms is not None and self._looked_ms - before_ms > LOOK_PAUSE_MAX_MS
        return before_ms if before_ms is not None and slept else self._looked_ms

    def _decide(self, begun: list[ControlEntry]) -> None:
        for number, known in list(self._open.items()):
            if known.result is not None:  # The store did not take it the first time.
                self.put(number, known.result)
        facts = [known.facts(self._generation) for known in self._open.values()]
        for decision in decide_commands(facts, self._generation, self._monotonic_ms()):
            known = self._open[decision.number]
            if isinstance(decision, Begin) and (problem := self._target_problem(known.entry)):
                decision = Answer(decision.number, "refused", problem)  # noqa: PLW2901 - it is now
            if isinstance(decision, Answer):
                if decision.verdict == "interrupted" or self._take_up(known):
                    self.put(decision.number, self._verdict(decision))
            elif self._begin(known):
                begun.append(known.entry)

    def _take_up(self, known: _Open) -> bool:
        """Take the command up; return False if another process was faster, and read it again."""
        if known.begun is None:
            now_ms = self._now_ms()
            known.begun = ControlBegun(generation=self._generation, begun_at_ms=now_ms)
        number = known.entry.number
        if self._log.begin(number, known.begun):
            return True
        self._open[number] = _Open(self._log.entry(number), known.found_ms)
        return False

    def _begin(self, known: _Open) -> bool:
        """Make it ours, then write it into the audit log, then let it take effect."""
        command = known.entry.command
        assert command is not None, "begun without being understood"
        if not self._take_up(known):
            return False
        if known.intent is None:
            known.intent = self._audit.entry(
                action=command.action.kind,
                actor=command.by,
                after={"command": known.entry.number, **command.action.model_dump(mode="json")},
            )
        known.audited = self._audit.write(known.intent)
        known.started = True
        return True

    def _verdict(self, decision: Answer) -> ControlResult:
        return ControlResult(
            outcome=decision.verdict,
            reason=decision.reason,
            generation=self._generation,
            answered_at_ms=self._now_ms(),
        )

    def _target_problem(self, entry: ControlEntry) -> str | None:
        """Return a known problem of the target, before a checkpoint is taken for it."""
        target = None if entry.command is None else target_of(entry.command)
        if target is None:
            return None
        try:
            require_free(self._store, open_object_store(self._targets.resolve(target)))
        except LaminarError as error:
            return str(error)  # Also if that store does not answer: others must not wait for it.
        except Exception as error:  # noqa: BLE001 - others must not wait for this either
            return repr(error)
        return None

    def put(self, number: int, result: ControlResult) -> None:
        """Write the result; if the store does not take it, it is tried again with the next poll."""
        known = self._open[number]
        known.result, known.started = result, True
        with suppress(StorageUnavailable):
            self._log.answer(number, result)
            if known.audited is not None:
                self._audit.conclude(
                    known.audited,
                    "done" if result.outcome == "completed" else "failed",
                    reason=result.reason,
                    after={"command": number, "checkpoint_id": result.checkpoint_id},
                )
            del self._open[number]


def target_of(command: ControlCommand) -> str | None:
    """Return the target of the command's savepoint; None if it has none."""
    return getattr(command.action, "target", None)


def _patience_ms(command: ControlCommand) -> int:
    """Return how long the client waits: a difference of two times of one clock."""
    return command.expires_at_ms - command.requested_at_ms
