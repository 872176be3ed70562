"""Decide whether a generation starts from a savepoint, and whether it may.

The start was requested with ``from_savepoint``; or an earlier generation was interrupted after it
had recorded the savepoint as its base, so the import is repeated.
"""

from collections.abc import Iterator, Mapping

from laminar_core.connectors.base import Committer
from laminar_core.driver.options import JobOptions
from laminar_core.driver.recovery.compatibility import mismatches
from laminar_core.driver.recovery.evolution import evolution
from laminar_core.driver.recovery.inserting import arranged
from laminar_core.driver.recovery.renaming import renamed
from laminar_core.driver.recovery.source_changes import source_changes
from laminar_core.errors import ConfigurationError, ErrorCode
from laminar_core.host.clock import Clock
from laminar_core.objectstore.opening import open_object_store
from laminar_core.plan.plan import Plan
from laminar_core.protocol.recovery import RestoreFrom
from laminar_core.protocol.recovery_facts import RestoreRequest
from laminar_core.protocol.types import CheckpointKind, Generation
from laminar_core.records.audit_ref import AuditRef
from laminar_core.records.manifest import fingerprint_of
from laminar_core.store.checkpoint_store import CheckpointStore, Choice
from laminar_core.store.savepoint_import import (
    SavepointImport,
    floor_of,
    for_another_job,
    import_savepoint,
    is_of_this_job,
    reopen,
    unfinished_import,
    uses_of_savepoints,
)
from laminar_core.store.savepoints import FoundSavepoint, read_savepoint


class Importer:
    """Brings savepoints in for one generation after the other."""

    def __init__(
        self,
        plan: Plan,
        options: JobOptions,
        store: CheckpointStore,
        clock: Clock,
        committers: Mapping[str, Committer],
    ) -> None:
        self._plan = plan
        self._options = options
        self._store = store
        self._clock = clock
        self._committers = committers
        self._found: FoundSavepoint | None = None
        self._brought: SavepointImport | None = None

    def look(self) -> Generation | None:
        """Refuse what can be refused before the job is claimed, and before anything is copied.

        A job that has already started from the savepoint of another one before continues as it is.
        What is read here was there before the claim, so no older generation can still add to it.
        Returns the generation it comes from, None if there is none.

        Raises:
            ConfigurationError: there is no savepoint, or a sink shows other output.
            IncompatibleStateError: it does not fit the pipeline or the job.
            CorruptCheckpointError: its record is damaged.
        """
        if self._options.from_savepoint is None:
            return None
        objects = open_object_store(self._options.from_savepoint)
        used = uses_of_savepoints(self._store)
        try:
            found = read_savepoint(objects)
        except ConfigurationError:
            if any(use.claimed and use.uri == objects.uri for use in used):
                return None  # Deleted, or about to be, because the job has gone over to it.
            raise
        ours = is_of_this_job(self._store, found.record.origin)
        if not ours and any(use.sha256 == found.sha256 for use in used):
            return None  # The same command again: the job goes on from where it is.
        self._check(found)
        self._found = found
        return Generation(found.record.origin.generation)

    @property
    def uri(self) -> str | None:
        """The URI of the imported savepoint that is the generation's start.

        None if there is none.
        """
        return None if self._brought is None else self._brought.use.uri

    def bring_in(self, generation: Generation, *, first: bool) -> Choice | None:
        """Copy the savepoint that ``generation`` is to start from; None if it starts otherwise.

        Raises:
            As ``look`` does, and StorageUnavailable.
        """
        self._brought = None
        claim = self._options.claim_savepoint
        found = self._found if first else None
        if found is None:
            asked = first and self._options.restore_request != RestoreRequest()
            base = None if asked else unfinished_import(self._store)
            if base is None or base.savepoint is None:
                return None
            found, claim = reopen(base, self._store.job), base.savepoint.claimed
        self._check(found)
        forget = frozenset(self._moved_sinks(found))
        now_ms = self._clock.now_ms()
        brought = import_savepoint(
            self._store, found, generation, now_ms, claim=claim, forget=forget
        )
        self._brought = brought
        decision = RestoreFrom(brought.manifest.checkpoint_id)
        return Choice(decision, brought.manifest, (brought.manifest,))

    def go_over(self, audited: AuditRef) -> bool:
        """Make what was brought in the base of its generation; False if nothing was.

        ``audited`` is the record of the audit log that announced it.

        Raises:
            FencedError: a newer generation was faster.
            StorageUnavailable: the store did not answer.
        """
        if self._brought is None:
            return False
        self._brought.record_base(audited)
        self._found = None  # It is the job's own now: a restart continues from the copy.
        self._brought.publish()
        return True

    def _check(self, found: FoundSavepoint) -> None:
        floor_of(self._store, found)
        cut = found.record.cut()
        if not is_of_this_job(self._store, found.record.origin):
            self._refuse_other_output(found)
            cut = for_another_job(cut, frozenset(self._moved_sinks(found)))
        accepted, workers = self._options.accepted, self._options.parallelism
        named = renamed(cut, self._plan, self._options.renames)
        for problem in named.problems:
            raise ConfigurationError(ErrorCode.INVALID_OPTION, problem)
        cut = arranged(named.manifest, self._plan)
        changes = source_changes(cut, self._plan, accepted)
        evolved = evolution(changes.fitted, self._plan, changes, accepted)
        for mismatch in mismatches(cut, self._plan, workers, changes, evolved):
            raise mismatch.error

    def _moved_sinks(self, found: FoundSavepoint) -> Iterator[str]:
        """Sinks that write elsewhere than where the savepoint's job did: they start anew there."""
        if is_of_this_job(self._store, found.record.origin):
            return
        named = renamed(found.record.cut(), self._plan, self._options.renames)
        before = arranged(named.manifest, self._plan).fingerprint
        now = self._plan.descriptions()
        for operator_id in self._committers:
            if before.get(operator_id) != fingerprint_of(now[operator_id]):
                yield operator_id

    def _refuse_other_output(self, found: FoundSavepoint) -> None:
        """Refuse a sink whose output is neither empty nor exactly the output of the savepoint.

        A savepoint that stopped its job was made after the commit of its output. A sink's last
        commit may be older, if there was no output since.
        """
        origin = found.record.origin
        has_stopped = found.record.cut().kind in (CheckpointKind.STOP, CheckpointKind.FINAL)
        moved = set(self._moved_sinks(found))
        for operator_id, committer in self._committers.items():
            visible = committer.last_committed()
            is_its_own = has_stopped and operator_id not in moved
            if visible is None or (is_its_own and visible <= origin.checkpoint_id):
                continue
            raise ConfigurationError(
                ErrorCode.INVALID_OPTION,
                f"sink {operator_id} shows output up to checkpoint {visible}, not exactly the "
                f"output of the savepoint (up to {origin.checkpoint_id} of job {origin.job}): "
                "write to another place, or take a savepoint that stops the job",
            )
