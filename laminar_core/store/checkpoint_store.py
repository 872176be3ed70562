"""Checkpoints of one job: written in parts, completed by one create, verified.

Facts are read here, decisions are taken in ``protocol.recovery``, and carried out here. Every
method can be repeated after StorageUnavailable, which is never swallowed.
"""

from collections.abc import Callable, Generator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING, Self

from laminar_core.errors import (
    CorruptCheckpointError,
)
from laminar_core.objectstore.opening import ObjectStore, open_object_store
from laminar_core.protocol.recovery import (
    Decision,
    ReadManifest,
    RestoreFrom,
    VerifyFiles,
    commits_to_redrive,
    decide_restore,
    on_timeline,
)
from laminar_core.protocol.recovery_facts import (
    Absent,
    Base,
    BeingDeleted,
    ManifestFact,
    Readable,
    RestoreFacts,
    RestoreRequest,
    Unreadable,
)
from laminar_core.protocol.types import CheckpointId, Generation
from laminar_core.records.checkpoint_index import KnownCheckpoint
from laminar_core.records.manifest import CheckpointManifest
from laminar_core.records.paths import JobPaths, checkpoints_in
from laminar_core.store.attempts import Attempts
from laminar_core.store.checkpoint_index import CheckpointIndex
from laminar_core.store.claims import Claims
from laminar_core.store.file_scrub import DamageLog
from laminar_core.store.generations import Generations
from laminar_core.store.manifests import Manifests
from laminar_core.store.retention_log import RetentionLog
from laminar_core.store.summaries import CheckpointSummary, Known, summarise
from laminar_core.store.verification import (
    PartReport,
    VerifyReport,
    verify_files,
)

if TYPE_CHECKING:
    from laminar_core.store.checkpoint_parts import CheckpointParts


@dataclass(frozen=True, slots=True)
class Choice:
    """The decision for a new generation, with the manifests that it needs.

    ``manifest`` is the restored checkpoint's, or None. ``redrive`` are the manifests whose output
    is committed (again) before the job runs, in this order.
    """

    decision: Decision
    manifest: CheckpointManifest | None = None
    redrive: tuple[CheckpointManifest, ...] = ()


NEWEST = RestoreRequest()
"""Restore the newest checkpoint that verifies."""

Examine = Callable[[CheckpointManifest], str | None]
"""Returns a description of the damage to a checkpoint's files, or None."""


class CheckpointStore:
    """Everything durable of one job. Safe to use from several threads.

    It consists of five parts. ``claims`` decide who owns the job. ``generations`` record what each
    execution started from, its heartbeats and its end. ``parts`` are the files of checkpoints.
    ``manifests`` complete checkpoints. ``attempts`` record triggers, outcomes and commits. The
    methods of the store itself need several of these.
    """

    def __init__(self, objects: ObjectStore, job: str) -> None:
        self.objects = objects
        self.paths = paths = JobPaths(job)
        self.job = job
        self.claims = Claims(objects, paths)
        self.generations = Generations(objects, paths, self.claims)
        self.manifests = Manifests(objects, paths, self.claims)
        self.attempts = Attempts(objects, paths, self.claims)

    @cached_property
    def parts(self) -> "CheckpointParts":
        """The files of checkpoints. Lists and plans do not need them, so neither Arrow."""
        from laminar_core.store.checkpoint_parts import CheckpointParts  # noqa: PLC0415

        return CheckpointParts(self.objects, self.paths)

    @classmethod
    def open(cls, uri: str, job: str) -> Self:
        """Open the job's part of the store at ``uri``; nothing is read or written yet.

        Raises:
            ConfigurationError: ``uri`` or ``job`` is not usable.
        """
        return cls(open_object_store(uri), job)

    def verify(self, checkpoint_id: CheckpointId) -> VerifyReport:
        """Read every byte of a checkpoint and compare with its manifest.

        Raises:
            ConfigurationError: there is no such completed checkpoint (NO_SUCH_CHECKPOINT), or
                retention deletes it, or has deleted it (BEING_DELETED).
        """
        try:
            manifest = self.manifests.read(checkpoint_id)
        except CorruptCheckpointError as error:
            path = self.paths.relative(self.paths.manifest(checkpoint_id))
            return VerifyReport(checkpoint_id, (PartReport(path, 0, str(error)),))
        return self.verify_files(manifest)

    def verify_files(self, manifest: CheckpointManifest) -> VerifyReport:
        """Read every byte of the files that a manifest lists.

        Raises:
            ConfigurationError: files are missing because retention deletes them (BEING_DELETED).
        """
        report = verify_files(self.objects, self.paths, manifest)
        if report.problem:
            self.manifests.require_kept(manifest.checkpoint_id)
        return report

    @contextmanager
    def reading(self, *checkpoint_ids: CheckpointId) -> Generator[None]:
        """Read files of these checkpoints; what retention deletes meanwhile is not damaged.

        Raises:
            ConfigurationError: a file is missing because retention deletes it (BEING_DELETED).
        """
        try:
            yield
        except CorruptCheckpointError:
            for checkpoint_id in checkpoint_ids:
                self.manifests.require_kept(checkpoint_id)
            raise

    def list_summaries(self) -> list[CheckpointSummary]:
        """Summarise each checkpoint that left any object, by ascending id; reads no state.

        Of old checkpoints the index is read, if there is one, instead of each manifest.

        Raises:
            CorruptCheckpointError: a base cannot be read, so orphans cannot be recognised.
        """
        committed = set(self.attempts.committed_ids())
        ended = self.attempts.ended_ids()
        bases = self.generations.bases()
        damaged = DamageLog(self.objects, self.paths).ids()
        sizes = self.objects.sizes(self.paths.checkpoints)
        names = {key.removeprefix(self.paths.checkpoints)[:11] for key in sizes}
        indexed = CheckpointIndex(self.objects, self.paths).read(sizes)
        summaries: list[CheckpointSummary] = []
        for checkpoint_id in sorted({*checkpoints_in(names), *ended, *committed}):
            known = indexed.get(checkpoint_id)
            is_committed = checkpoint_id in committed
            if known is None:
                summary = self._summary_of(checkpoint_id, bases, committed=is_committed)
            else:
                is_deleted = self.paths.deletion(checkpoint_id) in sizes
                summary = _summary(
                    checkpoint_id, known, bases, committed=is_committed, deleted=is_deleted
                )
            if checkpoint_id in damaged:
                summary = replace(summary, damaged=True)
            summaries.append(summary)
        return summaries

    def choose_checkpoint(
        self, request: RestoreRequest = NEWEST, examine: Examine | None = None
    ) -> Choice:
        """Choose what the generation that was claimed last continues from; changes nothing.

        Call it after ``claims.claim`` and before ``generations.record_base``: this order makes the
        choice safe. Files are verified from the newest checkpoint on, and no further than needed.
        By default every byte is read; a caller that does not restore may pass a cheaper
        ``examine``.

        Raises:
            CorruptCheckpointError: a base cannot be read, so the timeline is unknown.
        """
        facts = self._listed_facts()
        found: dict[CheckpointId, CheckpointManifest] = {}
        while True:
            match decide_restore(facts, request):
                case ReadManifest(checkpoint_id):
                    fact = self._manifest_fact(checkpoint_id, found)
                    facts = replace(facts, manifests={**facts.manifests, checkpoint_id: fact})
                case VerifyFiles(checkpoint_id):
                    manifest = found[checkpoint_id]
                    problem = examine(manifest) if examine else self._problem_of(manifest)
                    damage = {**facts.damage, checkpoint_id: problem}
                    facts = replace(facts, damage=damage)
                case RestoreFrom(checkpoint_id) as decision:
                    redrive = commits_to_redrive(facts, checkpoint_id)
                    newest = _newest_commit(facts, found, checkpoint_id, redrive)
                    if newest is None or self._is_committed(newest):
                        manifests = tuple(found[c] for c in redrive)
                        return Choice(decision, found[checkpoint_id], manifests)
                    # To commit once more does no harm; to leave it out would lose rows.
                    facts = replace(facts, committed=facts.committed - {newest})
                case decision:
                    return Choice(decision)

    def _problem_of(self, manifest: CheckpointManifest) -> str | None:
        return verify_files(self.objects, self.paths, manifest).problem

    def _is_committed(self, checkpoint_id: CheckpointId) -> bool:
        """Whether the commit record is one, and of this checkpoint."""
        try:
            record = self.attempts.read_commit(checkpoint_id)
        except CorruptCheckpointError:
            return False
        return record is not None and record.checkpoint_id == checkpoint_id

    def _listed_facts(self) -> RestoreFacts:
        bases = self.generations.bases()
        doomed = RetentionLog(self.objects, self.paths).being_deleted()
        committed = self.attempts.committed_ids()
        return RestoreFacts(
            candidates=frozenset(self.attempts.ids()),
            bases=bases,
            committed=frozenset(committed),
            newest_commit_by=self._committer(committed[-1]) if committed else None,
            manifests=dict.fromkeys(doomed, BeingDeleted()),
        )

    def _committer(self, checkpoint_id: CheckpointId) -> Generation | None:
        try:
            record = self.attempts.read_commit(checkpoint_id)
        except CorruptCheckpointError:
            return self.claims.newest()  # Unknown: better to ask than to start empty.
        return None if record is None else Generation(record.generation)

    def _manifest_fact(
        self, checkpoint_id: CheckpointId, found: dict[CheckpointId, CheckpointManifest]
    ) -> ManifestFact:
        if self.manifests.is_being_deleted(checkpoint_id):
            return BeingDeleted()
        try:
            manifest = self.manifests.find(checkpoint_id)
        except CorruptCheckpointError as error:
            return Unreadable(str(error), self._reserved_by(checkpoint_id))
        if manifest is None:
            return Absent()
        found[checkpoint_id] = manifest
        return Readable(
            Generation(manifest.generation),
            manifest.parent_checkpoint_id,
            manifest.completed_at_ms,
        )

    def _reserved_by(self, checkpoint_id: CheckpointId) -> Generation | None:
        try:
            trigger = self.attempts.read_trigger(checkpoint_id)
        except CorruptCheckpointError:
            return None
        return None if trigger is None else Generation(trigger.generation)

    def _summary_of(
        self, checkpoint_id: CheckpointId, bases: Sequence[Base], *, committed: bool
    ) -> CheckpointSummary:
        try:
            known = (
                self.manifests.find(checkpoint_id)
                or self.attempts.read_outcome(checkpoint_id)
                or self.attempts.read_trigger(checkpoint_id)
            )
        except CorruptCheckpointError as error:
            return summarise(checkpoint_id, None, committed=committed, problem=str(error))
        deleted = self.manifests.is_being_deleted(checkpoint_id)
        return _summary(checkpoint_id, known, bases, committed=committed, deleted=deleted)


def _summary(
    checkpoint_id: CheckpointId,
    known: Known | None,
    bases: Sequence[Base],
    *,
    committed: bool,
    deleted: bool,
) -> CheckpointSummary:
    summary = summarise(checkpoint_id, known, committed=committed)
    if deleted:
        return replace(summary, deleted=True)
    completed = isinstance(known, CheckpointManifest | KnownCheckpoint)
    if not completed or on_timeline(checkpoint_id, Generation(known.generation), bases):
        return summary
    return replace(summary, orphan=True, withdrawn=committed)


def _newest_commit(
    facts: RestoreFacts,
    found: Mapping[CheckpointId, CheckpointManifest],
    restored_id: CheckpointId,
    redrive: Sequence[CheckpointId],
) -> CheckpointId | None:
    """The commit record that everything older rests on; None if there is none."""
    newest = found[redrive[0]].parent_checkpoint_id if redrive else restored_id
    return newest if newest in facts.committed else None
