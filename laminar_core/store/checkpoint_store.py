"""Checkpoints of one job: written in parts, completed by one create, verified.

Facts are read here, decisions are taken in ``protocol.recovery``, and carried out here. Every
method can be repeated after StorageUnavailable, which is never swallowed.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Self

from laminar_core.errors import (
    ConfigurationError,
    CorruptCheckpointError,
    ErrorCode,
    ProtocolError,
)
from laminar_core.objectstore.opening import address, open_object_store
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
    Unreadable,
    Wish,
)
from laminar_core.protocol.types import CheckpointId, Generation
from laminar_core.records.damage import DamagedFile
from laminar_core.records.manifest import (
    CheckpointManifest,
    CommitRecord,
    HistoryRecord,
    TriggerRecord,
)
from laminar_core.records.manifest_versions import parse_manifest
from laminar_core.records.paths import number_in
from laminar_core.records.retention import TOMBSTONE_LENGTH_MAX, is_tombstone
from laminar_core.store.checkpoint_parts import CheckpointParts
from laminar_core.store.file_scrub import DamageLog, damage_by_listing
from laminar_core.store.records import bytes_in, create_or_confirm, read_record
from laminar_core.store.retention_log import RetentionLog
from laminar_core.store.summaries import CheckpointSummary, summarise
from laminar_core.store.verification import (
    PartReport,
    VerifyReport,
    verify_files,
)


@dataclass(frozen=True, slots=True)
class Choice:
    """The decision for a new generation, with the manifests that it needs.

    ``manifest`` is the restored checkpoint's, or None. ``redrive`` are the manifests whose output
    is committed (again) before the job runs, in this order.
    """

    decision: Decision
    manifest: CheckpointManifest | None = None
    redrive: tuple[CheckpointManifest, ...] = ()


ANY = Wish()
"""Restore the newest checkpoint that verifies."""

Examine = Callable[[CheckpointManifest], str | None]
"""Returns a description of the damage to a checkpoint's files, or None."""


class CheckpointStore(CheckpointParts):
    """Everything durable of one job. Safe to use from several threads."""

    @classmethod
    def open(cls, uri: str, job: str) -> Self:
        """Open the job's part of the store at ``uri``; nothing is read or written yet.

        Raises:
            ConfigurationError: ``uri`` or ``job`` is not usable.
        """
        return cls(open_object_store(uri), job)

    # Writing a checkpoint, in this order.

    def record_trigger(self, record: TriggerRecord) -> bool:
        """Reserve the id for its generation.

        Return False if another generation has the id: take the next one.

        Raises:
            FencedError: a newer generation is claimed. Retention may have forgotten ids that this
                one would take for free.
            StorageUnavailable: the store did not answer, or is not that of the generation.
        """
        self.check_owner(Generation(record.generation))
        key = self.paths.trigger(CheckpointId(record.checkpoint_id))
        created = create_or_confirm(self.objects, key, record.to_bytes())
        self.check_claim(Generation(record.generation))  # What is reserved elsewhere is not.
        return created

    def publish(self, manifest: CheckpointManifest) -> None:
        """Complete the checkpoint. Its output may be committed only after this returned.

        Raises:
            FencedError: a newer generation is claimed. The manifest may be there all the same;
                whether it counts, and is committed, is for the newer generation to decide.
            StorageUnavailable: the store did not answer; call again with the same manifest.
        """
        self.check_owner(Generation(manifest.generation))
        self._create_manifest(manifest)

    def publish_if_whole(self, manifest: CheckpointManifest) -> tuple[DamagedFile, ...]:
        """Complete the checkpoint if all its files exist; return the missing ones.

        Files are compared with a listing before the manifest is created, so a checkpoint that
        cannot be restored never counts. Retention cannot delete them meanwhile: the manifest names
        files of the newest checkpoint, and new ones.

        Raises:
            As ``publish`` does.
        """
        self.check_owner(Generation(manifest.generation))
        damage = damage_by_listing(self.objects, self.paths, manifest)
        if not damage:
            self._create_manifest(manifest)
        return damage

    def _create_manifest(self, manifest: CheckpointManifest) -> None:
        """The caller has checked the owner: a zombie leaves no orphan if it can be helped."""
        generation, checkpoint_id = _ids(manifest)
        created = create_or_confirm(
            self.objects, self.paths.manifest(checkpoint_id), manifest.to_bytes()
        )
        self.check_owner(generation)  # The fence: after the create, before any commit.
        if not created:
            raise ProtocolError(
                ErrorCode.OBJECT_EXISTS, f"checkpoint {checkpoint_id} was published before"
            )

    def record_commit(self, record: CommitRecord) -> None:
        """Write down that the output is visible; a record that is there already stays."""
        key = self.paths.commit(CheckpointId(record.checkpoint_id))
        create_or_confirm(self.objects, key, record.to_bytes())

    def record_outcome(self, record: HistoryRecord) -> None:
        """Record how the attempt ended; the first record stands.

        Raises:
            StorageUnavailable: the store did not answer, or is not that of the generation.
        """
        self.check_claim(Generation(record.generation))
        key = self.paths.outcome(CheckpointId(record.checkpoint_id))
        create_or_confirm(self.objects, key, record.to_bytes())

    # Reading.

    def attempted_ids(self) -> list[CheckpointId]:
        """Return the ids with any object under ``checkpoints/``, ascending."""
        return _numbers(self.objects.children(self.paths.checkpoints))

    def completed_ids(self) -> list[CheckpointId]:
        """Return the ids with a manifest, ascending, without checkpoints that are being deleted.

        Damaged checkpoints and orphans are included.
        """
        keys = set(self.objects.list(self.paths.checkpoints))
        numbers = {number_in(key.removeprefix(self.paths.checkpoints)[:11]) for key in keys}
        ids = sorted(CheckpointId(number) for number in numbers if number)
        return [
            c
            for c in ids
            if self.paths.manifest(c) in keys
            and self.paths.deletion(c) not in keys
            and not self._is_tombstone(self.paths.manifest(c))
        ]

    def committed_ids(self) -> list[CheckpointId]:
        """Return the ids with a commit record, ascending."""
        return _numbers(self.objects.children(self.paths.commits))

    def ended_ids(self) -> list[CheckpointId]:
        """Return the ids with a recorded outcome, ascending."""
        return _numbers(self.objects.children(self.paths.history))

    def highest_checkpoint_id(self) -> CheckpointId | None:
        """Return the highest id ever used, including deleted checkpoints; None if there is none."""
        found = [*self.attempted_ids(), *self.ended_ids(), *self.committed_ids()]
        return max(found, default=None)

    def read_trigger(self, checkpoint_id: CheckpointId) -> TriggerRecord | None:
        """Return the reservation of the id, or None."""
        return read_record(self.objects, self.paths.trigger(checkpoint_id), TriggerRecord)

    def read_commit(self, checkpoint_id: CheckpointId) -> CommitRecord | None:
        """Return the commit record, or None."""
        return read_record(self.objects, self.paths.commit(checkpoint_id), CommitRecord)

    def read_outcome(self, checkpoint_id: CheckpointId) -> HistoryRecord | None:
        """Return the recorded outcome of the attempt, or None."""
        return read_record(self.objects, self.paths.outcome(checkpoint_id), HistoryRecord)

    def history(self) -> list[HistoryRecord]:
        """Return all recorded outcomes, by ascending id.

        Raises:
            CorruptCheckpointError: one of them cannot be read.
        """
        records = (self.read_outcome(checkpoint_id) for checkpoint_id in self.ended_ids())
        return [record for record in records if record is not None]

    def read_manifest(self, checkpoint_id: CheckpointId) -> CheckpointManifest:
        """Read a manifest and check that it belongs to this checkpoint.

        Raises:
            ConfigurationError: there is no such completed checkpoint.
            CorruptCheckpointError: it cannot be read, or it is that of another checkpoint.
        """
        manifest = self.find_manifest(checkpoint_id)
        if manifest is None:
            deleted = self.is_being_deleted(checkpoint_id)
            reason = ", retention deleted it" if deleted else ""
            raise ConfigurationError(
                ErrorCode.NO_SUCH_CHECKPOINT,
                f"job {self.job} in {self.objects.uri} has no completed checkpoint "
                f"{checkpoint_id}{reason}: see `laminar checkpoints list`",
            )
        return manifest

    def find_manifest(self, checkpoint_id: CheckpointId) -> CheckpointManifest | None:
        """Read a manifest like ``read_manifest``; return None if the checkpoint never completed."""
        key = self.paths.manifest(checkpoint_id)
        try:
            data = self.objects.get(key)
            if data is None or is_tombstone(data):
                return None
            manifest = parse_manifest(data)
        except CorruptCheckpointError as error:
            raise CorruptCheckpointError(
                error.code, f"{address(self.objects, key)}: {error}"
            ) from error
        if (manifest.job, manifest.checkpoint_id) != (self.job, checkpoint_id):
            raise CorruptCheckpointError(
                ErrorCode.MANIFEST_UNREADABLE,
                f"{address(self.objects, key)} is the manifest of checkpoint "
                f"{manifest.checkpoint_id} of job {manifest.job}: put the right one back",
            )
        return manifest

    def verify(self, checkpoint_id: CheckpointId) -> VerifyReport:
        """Read every byte of a checkpoint and compare with its manifest.

        Raises:
            ConfigurationError: there is no such completed checkpoint.
        """
        try:
            manifest = self.read_manifest(checkpoint_id)
        except CorruptCheckpointError as error:
            path = self.paths.relative(self.paths.manifest(checkpoint_id))
            return VerifyReport(checkpoint_id, (PartReport(path, 0, str(error)),))
        return verify_files(self.objects, self.paths, manifest)

    def list_summaries(self) -> list[CheckpointSummary]:
        """Summarise each checkpoint that left any object, by ascending id; reads no state.

        Raises:
            CorruptCheckpointError: a base cannot be read, so orphans cannot be told.
        """
        committed = set(self.committed_ids())
        ended = self.ended_ids()
        bases = self.bases()
        damaged = DamageLog(self.objects, self.paths).ids()
        return [
            replace(
                self._summary_of(checkpoint_id, bases, committed=checkpoint_id in committed),
                damaged=checkpoint_id in damaged,
            )
            for checkpoint_id in sorted({*self.attempted_ids(), *ended, *committed})
        ]

    # Restoring.

    def choose_checkpoint(self, wish: Wish = ANY, examine: Examine | None = None) -> Choice:
        """Choose what the generation that was claimed last continues from; changes nothing.

        Call it after ``claim_generation`` and before ``record_base``: this order makes the choice
        safe. Files are verified from the newest checkpoint on, and no further than needed. By
        default every byte is read; a caller that does not restore may pass a cheaper ``examine``.

        Raises:
            CorruptCheckpointError: a base cannot be read, so the timeline is unknown.
        """
        facts = self._listed_facts()
        found: dict[CheckpointId, CheckpointManifest] = {}
        while True:
            match decide_restore(facts, wish):
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

    def is_being_deleted(self, checkpoint_id: CheckpointId) -> bool:
        """Return whether retention has marked the checkpoint: it is being deleted, or was."""
        return self.objects.size(self.paths.deletion(checkpoint_id)) is not None

    def _is_committed(self, checkpoint_id: CheckpointId) -> bool:
        """Whether the commit record is one, and of this checkpoint."""
        try:
            record = self.read_commit(checkpoint_id)
        except CorruptCheckpointError:
            return False
        return record is not None and record.checkpoint_id == checkpoint_id

    def _listed_facts(self) -> RestoreFacts:
        bases = self.bases()
        doomed = RetentionLog(self.objects, self.paths).being_deleted()
        committed = self.committed_ids()
        return RestoreFacts(
            candidates=frozenset(self.attempted_ids()),
            bases=bases,
            committed=frozenset(committed),
            newest_commit_by=self._committer(committed[-1]) if committed else None,
            manifests=dict.fromkeys(doomed, BeingDeleted()),
        )

    def _committer(self, checkpoint_id: CheckpointId) -> Generation | None:
        try:
            record = self.read_commit(checkpoint_id)
        except CorruptCheckpointError:
            return self.newest_generation()  # Unknown: better to ask than to start empty.
        return None if record is None else Generation(record.generation)

    def _manifest_fact(
        self, checkpoint_id: CheckpointId, found: dict[CheckpointId, CheckpointManifest]
    ) -> ManifestFact:
        if self.is_being_deleted(checkpoint_id):
            return BeingDeleted()
        try:
            manifest = self.find_manifest(checkpoint_id)
        except CorruptCheckpointError as error:
            return Unreadable(str(error), self._reserved_by(checkpoint_id))
        if manifest is None:
            return Absent()
        found[checkpoint_id] = manifest
        return Readable(
            Generation(manifest.generation), _parent_id(manifest), manifest.completed_at_ms
        )

    def _reserved_by(self, checkpoint_id: CheckpointId) -> Generation | None:
        try:
            trigger = self.read_trigger(checkpoint_id)
        except CorruptCheckpointError:
            return None
        return None if trigger is None else Generation(trigger.generation)

    def _summary_of(
        self, checkpoint_id: CheckpointId, bases: Sequence[Base], *, committed: bool
    ) -> CheckpointSummary:
        try:
            known = (
                self.find_manifest(checkpoint_id)
                or self.read_outcome(checkpoint_id)
                or self.read_trigger(checkpoint_id)
            )
        except CorruptCheckpointError as error:
            return summarise(checkpoint_id, None, committed=committed, problem=str(error))
        summary = summarise(checkpoint_id, known, committed=committed)
        if self.is_being_deleted(checkpoint_id):
            return replace(summary, deleted=True)
        orphan = isinstance(known, CheckpointManifest) and not on_timeline(
            checkpoint_id, Generation(known.generation), bases
        )
        return replace(summary, orphan=orphan, withdrawn=orphan and committed)

    def is_complete(self, checkpoint_id: CheckpointId) -> bool:
        """Return whether there is a manifest, readable or not, that is not being deleted."""
        key = self.paths.manifest(checkpoint_id)
        if self.objects.size(key) is None or self.is_being_deleted(checkpoint_id):
            return False
        return not self._is_tombstone(key)

    def _is_tombstone(self, key: str) -> bool:
        """Only what is as short as a tombstone is read, to see whether it is one."""
        size_bytes = self.objects.size(key)
        if size_bytes is None or size_bytes > TOMBSTONE_LENGTH_MAX:
            return False
        return is_tombstone(bytes_in(self.objects, key) or b"")


def _newest_commit(
    facts: RestoreFacts,
    found: Mapping[CheckpointId, CheckpointManifest],
    restored_id: CheckpointId,
    redrive: Sequence[CheckpointId],
) -> CheckpointId | None:
    """The commit record that everything older rests on; None if there is none."""
    newest = _parent_id(found[redrive[0]]) if redrive else restored_id
    return newest if newest in facts.committed else None


def _parent_id(manifest: CheckpointManifest) -> CheckpointId | None:
    parent_id = manifest.parent_checkpoint_id
    return None if parent_id is None else CheckpointId(parent_id)


def _ids(manifest: CheckpointManifest) -> tuple[Generation, CheckpointId]:
    return Generation(manifest.generation), CheckpointId(manifest.checkpoint_id)


def _numbers(names: Iterable[str]) -> list[CheckpointId]:
    found = (number_in(name) for name in names)
    return sorted(CheckpointId(number) for number in found if number is not None)
