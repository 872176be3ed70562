"""A driver without Spark: real claims, checkpoints, answers and ends in a store."""

from collections.abc import Callable
from dataclasses import dataclass, replace

from laminar_core.host.clock import Clock
from laminar_core.protocol.recovery import RestoreFrom
from laminar_core.protocol.recovery_facts import RestoreRequest
from laminar_core.protocol.types import CheckpointId, CheckpointKind, Generation
from laminar_core.records.actor import Actor
from laminar_core.records.commands import CancelJob, ControlBegun, ControlResult, StopJob
from laminar_core.records.manifest import CheckpointManifest, Heartbeat
from laminar_core.store.audit_log import AuditLog
from laminar_core.store.checkpoint_store import CheckpointStore
from laminar_core.store.command_log import ControlEntry, ControlLog
from tests.store.stores import claimant, write


@dataclass(frozen=True)
class Options:
    """The options of ``laminar run`` that change the store."""

    workers: int | None = None
    restore: int | None = None
    expect_generation: int | None = None
    reason: str = "started"
    actor: str = "test"
    take_over: bool = False

    @property
    def by(self) -> Actor:
        return Actor(self.actor, reason=self.reason)


class PlayedDriver:
    """One generation. ``how`` is what it is told to do; ``tell`` hears its events."""

    def __init__(
        self,
        store: CheckpointStore,
        how: str,
        options: Options,
        clock: Clock,
        tell: Callable[..., None],
    ) -> None:
        self.store, self.how, self.options = store, how, options
        self.clock, self.tell = clock, tell
        self.log = ControlLog(store.objects, store.paths)
        self.generation = Generation(0)
        self.outcome: str | None = None
        self._seen = 0

    def start(self) -> None:
        """Up to the point where it knows what it continues from.

        Raises:
            LaminarError: it may not have the job.
        """
        options, expected = self.options, self.options.expect_generation
        self._seen = max(self.log.numbers(), default=0)
        self.store.objects.create()
        self.generation = self.store.claims.claim(
            replace(claimant(), actor=options.by),
            wait_ms=self.clock.wait_ms,
            take_over=options.take_over,
            expected=None if expected is None else Generation(expected),
        )
        base = wanted(self.store, options)
        AuditLog(self.store.objects, self.store.paths, self.clock.now_ms).append(
            action="restore" if base else "start-fresh",
            actor=options.by,
            after={"generation": self.generation, "parallelism": options.workers},
        )
        self.store.generations.record_base(self.generation, base)
        self.tell(
            "generation-started",
            generation=self.generation,
            rejected=[],
            restored_checkpoint_id=base,
            parallelism=options.workers,
        )

    def run(self) -> None:
        """Up to the first rows."""
        self.tell("workers-running", generation=self.generation, pids=[], hosts=[])
        heartbeat = Heartbeat(sequence=1, at_ms=self.clock.now_ms(), progress={"rows_in": 70})
        self.store.generations.beat(self.generation, heartbeat)
        self.checkpoint()
        self.tell("data-flowing", generation=self.generation)

    def checkpoint(self, kind: CheckpointKind = CheckpointKind.PERIODIC) -> None:
        checkpoint_id = (self.store.attempts.highest_id() or 0) + 1
        written = write(self.store, checkpoint_id, self.generation)
        self.store.manifests.publish(CheckpointManifest(**dict(written) | {"kind": kind}))
        self.tell("checkpoint-completed", checkpoint_id=checkpoint_id)

    def look(self) -> None:
        """Carry out the commands since the last poll, as the driver's dispatcher does."""
        for entry in self.log.read_after(self._seen):
            self._seen = entry.number
            self._obey(entry)

    def end(self, outcome: str) -> None:
        self.outcome = outcome
        self.store.generations.end(self.generation, outcome, "")
        if outcome != "cancelled":
            self.tell(
                "finished", outcome=outcome, rows_in=30, rows_out=3, rows_late=0, checkpoints=3
            )

    def _obey(self, entry: ControlEntry) -> None:
        assert entry.command is not None
        action = entry.command.action
        self.log.begin(entry.number, ControlBegun(generation=self.generation, begun_at_ms=1))
        goes_on = self.how == "goes-on" or entry.command.generation != self.generation
        if not goes_on and isinstance(action, StopJob):
            self.checkpoint(CheckpointKind.STOP)
        result = ControlResult(
            outcome="refused" if goes_on else "completed",
            reason="it goes on" if goes_on else "",
            generation=self.generation,
            answered_at_ms=1,
        )
        self.log.answer(entry.number, result)
        if not goes_on:
            self.end("cancelled" if isinstance(action, CancelJob) else "stopped")


def wanted(store: CheckpointStore, options: Options) -> CheckpointId | None:
    """Return the checkpoint that a start with these options continues from."""
    restore = options.restore
    request = RestoreRequest(checkpoint_id=None if restore is None else CheckpointId(restore))
    decision = store.choose_checkpoint(request).decision
    return decision.checkpoint_id if isinstance(decision, RestoreFrom) else None
