"""Bases, heartbeats and ends of generations: what each execution records about itself."""

from collections.abc import Iterator

from laminar_core.errors import (
    CorruptCheckpointError,
    ErrorCode,
    ProtocolError,
    StorageUnavailable,
)
from laminar_core.objectstore.opening import ObjectStore
from laminar_core.protocol.recovery import (
    Base,
)
from laminar_core.protocol.types import CheckpointId, Generation
from laminar_core.records.audit_ref import AuditRef
from laminar_core.records.manifest import GenerationBase, GenerationEnd, Heartbeat
from laminar_core.records.partial_reset import PartialReset
from laminar_core.records.paths import JobPaths
from laminar_core.records.savepoint_use import SavepointUse
from laminar_core.store.bases import create_base, read_base
from laminar_core.store.claims import Claims
from laminar_core.store.generation_summary import GenerationSummary, read_generation
from laminar_core.store.records import create_or_confirm, read_record


class Generations:
    """The records of the generations of one job. Safe to use from several threads."""

    def __init__(self, objects: ObjectStore, paths: JobPaths, claims: Claims) -> None:
        self._objects = objects
        self._paths = paths
        self._claims = claims

    def record_base(
        self,
        generation: Generation,
        checkpoint_id: CheckpointId | None,
        savepoint: SavepointUse | None = None,
        *,
        reset: PartialReset | None = None,
        audited: AuditRef | None = None,
    ) -> None:
        """Write down what ``generation`` starts from, before it starts; None is a fresh start.

        ``savepoint``: the checkpoint is the copy of one. ``reset``: what does not continue from it.
        ``audited`` is the record of the audit log that announced the start.

        Raises:
            FencedError: a newer generation was faster and closed this one.
            StorageUnavailable: the store did not answer, or the base is not in the store in which
                ``generation`` was claimed: a generation must not run without its base.
        """
        record = GenerationBase(
            generation=generation,
            base_checkpoint_id=checkpoint_id,
            savepoint=savepoint,
            reset=reset,
            audited=audited,
        )
        if not create_base(self._objects, self._paths, record):
            self._claims.check_owner(generation)
            raise ProtocolError(
                ErrorCode.ILLEGAL_EVENT, f"generation {generation} started from another checkpoint"
            )
        self._claims.check_claim(generation)
        if self._objects.size(self._paths.base(generation)) is None:
            raise StorageUnavailable(
                ErrorCode.STORE_REPLACED,
                f"{self._objects.uri} does not have the base of generation {generation} of job "
                f"{self._paths.job}, which was just written: another store was in its place "
                "meanwhile",
            )

    def beat(self, generation: Generation, heartbeat: Heartbeat) -> None:
        """Show that the owner lives: ``sequence`` differs from call to call."""
        self._objects.put(self._paths.heartbeat(generation), heartbeat.to_bytes())

    def end(
        self,
        generation: Generation,
        outcome: str,
        reason: str,
        *,
        audited: AuditRef | None = None,
        gave_up: bool | None = None,
    ) -> None:
        """Write down that ``generation`` stopped by itself; the job can be claimed at once.

        ``audited`` is the record of the audit log that announced the end. ``gave_up``: its driver
        does not start another one.
        """
        record = GenerationEnd(
            generation=generation,
            outcome=outcome,
            reason=reason,
            audited=audited,
            gave_up=gave_up,
        )
        create_or_confirm(self._objects, self._paths.end(generation), record.to_bytes())

    def read_end(self, generation: Generation) -> GenerationEnd | None:
        """Return how ``generation`` ended; None if it runs, or its driver was killed."""
        return read_record(self._objects, self._paths.end(generation), GenerationEnd)

    def bases(self) -> tuple[Base, ...]:
        """Return the bases of all generations, oldest first, without closed ones.

        Raises:
            CorruptCheckpointError: neither a base nor its copy can be read, so no timeline can be
                known.
        """
        records = map(self._base_of_a_claim, self._claims.seen())
        return tuple(base_of(r) for r in records if r is not None and r.closed_by is None)

    def read_base(self, generation: Generation) -> GenerationBase | None:
        """Return the base of ``generation``; None if it has not started.

        Raises:
            CorruptCheckpointError: neither it nor its copy can be read.
        """
        return read_base(self._objects, self._paths, generation)

    def resets_after(self, generation: Generation) -> list[tuple[Generation, PartialReset]]:
        """Return what later generations have reset, oldest first.

        Checkpoints of ``generation`` and of earlier ones count on output that was withdrawn then.

        Raises:
            CorruptCheckpointError: a base cannot be read.
        """
        later = [b.generation for b in self.bases() if b.has_reset and b.generation > generation]
        found = ((later_one, self.read_base(later_one)) for later_one in later)
        return [(g, record.reset) for g, record in found if record is not None and record.reset]

    def _base_of_a_claim(self, generation: Generation) -> GenerationBase | None:
        """Return the base; None also for an unreadable one of a generation without a claim."""
        try:
            return self.read_base(generation)
        except CorruptCheckpointError:
            if self._objects.size(self._paths.claim(generation)) is None:
                return None
            raise

    def read_heartbeat(self, generation: Generation) -> Heartbeat | None:
        """Return the newest heartbeat of ``generation``; None if it is missing or damaged."""
        try:
            return read_record(self._objects, self._paths.heartbeat(generation), Heartbeat)
        except CorruptCheckpointError:
            return None

    def summaries(self) -> list[GenerationSummary]:
        """Return a summary of every generation, oldest first."""
        return [read_generation(self._objects, self._paths, g) for g in self._claims.claimed()]

    def summaries_below(self, generation: Generation) -> Iterator[GenerationSummary]:
        """Yield a summary of every generation before this one, newest first, each read on demand.

        Raises:
            StorageUnavailable: the store did not answer.
        """
        for older in reversed(self._claims.claimed()):
            if older < generation:
                yield read_generation(self._objects, self._paths, older)


def base_of(record: GenerationBase) -> Base:
    """Return the base as the fact that decisions need; the record must not be closed."""
    used = record.savepoint
    return Base(
        Generation(record.generation),
        record.base_checkpoint_id,
        None if used is None else used.timeline_floor,
        record.reset is not None,
    )
