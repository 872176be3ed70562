"""The driver's side of the log of commands: what is there, what is taken up, what is answered."""

from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass

from laminar_core.driver.commands.savepoint_targets import SavepointTargets
from laminar_core.errors import LaminarError, StorageUnavailable
from laminar_core.objectstore.opening import open_object_store
from laminar_core.protocol.commands import Answer, Begin, CommandFacts, decide_commands
from laminar_core.protocol.types import Generation
from laminar_core.records.audit import AuditEntry, AuditRecord
from laminar_core.records.commands import ControlBegun, ControlCommand, ControlResult
from laminar_core.store.audit_log import AuditLog
from laminar_core.store.checkpoint_store import CheckpointStore
from laminar_core.store.command_log import ControlEntry, ControlLog
from laminar_core.store.savepoints import require_empty

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
        """As the decision wants them."""
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


class ControlTaker:
    """Of one generation; one thread calls it. Rules: ``protocol.commands``."""

    def __init__(
        self,
        store: CheckpointStore,
        generation: Generation,
        now_ms: Callable[[], int],
        monotonic_ms: Callable[[], float],
        targets: SavepointTargets,
    ) -> None:
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
        """Since when a command has been there that is found now, at the earliest.

        A driver that looks regularly finds it at once. After it was asleep, or the store was away,
        the command may be as old as the last look, and whoever left it may have given up.
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
        """Whether it is ours to answer; else somebody else was faster, and it is read again."""
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
        """What is known to go wrong is said before a checkpoint is taken for it."""
        target = None if entry.command is None else target_of(entry.command)
        if target is None:
            return None
        try:
            require_empty(open_object_store(self._targets.resolve(target)))
        except LaminarError as error:
            return str(error)  # Also if that store does not answer: others must not wait for it.
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
    """Where a savepoint is to go; None if the command wants none."""
    return getattr(command.action, "target", None)


def _patience_ms(command: ControlCommand) -> int:
    """How long whoever left the command waits for it: a difference of two times of one clock."""
    return command.expires_at_ms - command.requested_at_ms
