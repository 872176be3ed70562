"""Import a savepoint into a job's store: copy it into a checkpoint that a generation starts from.

The order makes a crash at any point safe:

1. reserve an id above every id of this job, and above the savepoint's checkpoint;
2. copy the files and read them back;
3. record the base, which names the copy and the savepoint: from here on the job has switched;
4. publish the manifest.

A crash before 3 leaves files that no manifest names, and an id that is not used again. After a
crash between 3 and 4 the next generation finds the base without its manifest, and imports again.

A savepoint of this very job is a step back on its timeline: later checkpoints do not count any
more, and their output is withdrawn. A savepoint of another job has no past here: output that it had
not committed stays with that job, and the job here must not have checkpoints of its own.
"""

from collections.abc import Mapping
from collections.abc import Set as AbstractSet
from dataclasses import dataclass

from laminar_core._version import __version__
from laminar_core.codec.digest import sha256_hex
from laminar_core.errors import (
    ConfigurationError,
    CorruptCheckpointError,
    ErrorCode,
    IncompatibleStateError,
)
from laminar_core.objectstore.opening import open_object_store
from laminar_core.protocol.recovery import on_timeline
from laminar_core.protocol.types import NO_CHECKPOINT, CheckpointId, CheckpointKind, Generation
from laminar_core.records.audit_ref import AuditRef
from laminar_core.records.limits import NUMBER_IMPORTED_MAX
from laminar_core.records.manifest import (
    CheckpointManifest,
    GenerationBase,
    HistoryRecord,
    TriggerRecord,
)
from laminar_core.records.manifest_fields import SubtaskEntry
from laminar_core.records.savepoint import SavepointDeletion, SavepointOrigin, relocated
from laminar_core.records.savepoint_use import SavepointUse
from laminar_core.store.checkpoint_store import CheckpointStore
from laminar_core.store.records import bytes_in, create_and_read_back, create_or_confirm
from laminar_core.store.savepoints import FoundSavepoint, delete_savepoint, read_savepoint


@dataclass(frozen=True, slots=True)
class SavepointImport:
    """A savepoint whose files are in the job's store. It has no effect before ``publish``."""

    store: CheckpointStore
    manifest: CheckpointManifest
    use: SavepointUse

    def record_base(self, audited: AuditRef | None = None) -> None:
        """Record that the generation starts from the savepoint.

        ``audited`` is the announcing record.

        Raises:
            FencedError: a newer generation was faster.
        """
        generation = Generation(self.manifest.generation)
        base_id = self.manifest.checkpoint_id
        self.store.generations.record_base(generation, base_id, self.use, audited=audited)

    def publish(self) -> None:
        """Complete the copy; call it after ``record_base``.

        Raises:
            FencedError: a newer generation is claimed, and decides.
        """
        manifest = self.manifest
        self.store.manifests.publish(manifest)
        self.store.attempts.record_outcome(
            HistoryRecord(
                checkpoint_id=manifest.checkpoint_id,
                generation=manifest.generation,
                kind=manifest.kind,
                outcome="completed",
                reason=f"imported from {self.use.uri}",
                triggered_at_ms=manifest.triggered_at_ms,
                ended_at_ms=manifest.completed_at_ms,
                duration_ms=manifest.duration_ms,
                size_bytes=manifest.size_bytes,
                inflight_bytes=manifest.inflight_bytes,
                mode=manifest.mode,
            )
        )


def is_of_this_job(store: CheckpointStore, origin: SavepointOrigin) -> bool:
    """Return whether this job made the savepoint, even if its store was elsewhere then."""
    if origin.job != store.job or origin.claim_sha256 is None:
        return False
    claim = bytes_in(store.objects, store.paths.claim(Generation(origin.generation)))
    return claim is not None and sha256_hex(claim) == origin.claim_sha256


def floor_of(store: CheckpointStore, found: FoundSavepoint) -> CheckpointId:
    """Return the newest checkpoint of the job that stays on the timeline; 0: none.

    Raises:
        IncompatibleStateError: going over to the savepoint would lose or repeat output.
    """
    origin = found.record.origin
    checkpoint_id, generation = origin.checkpoint_id, Generation(origin.generation)
    _require_room(found.objects.uri, origin)
    if not is_of_this_job(store, origin):
        if store.manifests.ids() or store.attempts.committed_ids():
            raise _refused(
                f"job {store.job} has checkpoints of its own, and {found.objects.uri} is of "
                f"another one ({origin.job} in {origin.store}): start it under a new name with "
                "--job, or leave --from-savepoint away to continue"
            )
        return NO_CHECKPOINT
    if not on_timeline(checkpoint_id, generation, store.generations.bases()):
        raise _refused(
            f"job {store.job} was restored to an older checkpoint than {checkpoint_id}, from which "
            f"{found.objects.uri} was made, and withdrew its output: start it under a new name "
            "with --job"
        )
    if resets := store.generations.resets_after(generation):
        raise _refused(
            f"generation {resets[-1][0]} of job {store.job} withdrew output of "
            f"{', '.join(resets[-1][1].operators)}, which {found.objects.uri} counts on: start it "
            "under a new name with --job"
        )
    return checkpoint_id


def import_savepoint(
    store: CheckpointStore,
    found: FoundSavepoint,
    generation: Generation,
    now_ms: int,
    *,
    claim: bool,
    forget: AbstractSet[str] = frozenset(),
) -> SavepointImport:
    """Reserve an id and copy the files (steps 1 and 2), for the generation that was claimed last.

    ``forget``: operators that start without state.

    Raises:
        IncompatibleStateError: see ``floor_of``.
        CorruptCheckpointError: a file of the savepoint is damaged, or the store does not keep it.
        StorageUnavailable: one of the stores does not answer.
    """
    floor = floor_of(store, found)
    cut = found.record.cut()
    if not floor:
        cut = for_another_job(cut, forget)
    checkpoint_id = _reserve(store, found.record.origin, generation, now_ms)
    about = {
        "job": store.job,
        "generation": generation,
        "checkpoint_id": checkpoint_id,
        "parent_checkpoint_id": floor or None,
        "imported_from": found.objects.uri,
    }
    manifest = _manifest(cut, about, now_ms)
    for source, target in zip(cut.files(), manifest.files(), strict=True):
        create_and_read_back(store.objects, store.paths.absolute(target.path), found.read(source))
    use = SavepointUse(
        uri=found.objects.uri, sha256=found.sha256, claimed=claim, timeline_floor=floor
    )
    return SavepointImport(store, manifest, use)


def uses_of_savepoints(store: CheckpointStore) -> list[SavepointUse]:
    """Return the savepoints that generations of this job started from, oldest first."""
    records = (
        store.generations.read_base(b.generation)
        for b in store.generations.bases()
        if b.floor is not None
    )
    return [r.savepoint for r in records if r is not None and r.savepoint is not None]


def unfinished_import(store: CheckpointStore) -> GenerationBase | None:
    """Return the base of the newest started generation if its savepoint was never published."""
    started = store.generations.bases()
    if not started or started[-1].floor is None:
        return None
    base = store.generations.read_base(started[-1].generation)
    assert base is not None, "it was read a moment ago"
    assert base.base_checkpoint_id is not None, "the model refuses that"
    found = store.objects.size(store.paths.manifest(base.base_checkpoint_id))
    return base if found is None else None


def reopen(base: GenerationBase, job: str) -> FoundSavepoint:
    """Find the savepoint of an import that was broken off.

    Raises:
        IncompatibleStateError: it is gone, or another one is in its place.
    """
    assert base.savepoint is not None, "only asked of imports"
    use = base.savepoint
    problem = f"{use.uri} holds another savepoint now"
    try:
        found = read_savepoint(open_object_store(use.uri))
        if found.sha256 == use.sha256:
            return found
    except (ConfigurationError, CorruptCheckpointError) as error:
        problem = str(error)
    raise _refused(
        f"job {job} was about to continue from the savepoint {use.uri}, and that was broken off; "
        f"now {problem}: give its present place with --from-savepoint, or --restore with an id"
    )


@dataclass(frozen=True, slots=True)
class ClaimedSavepoint:
    """One that is the job's, and is still there."""

    store: CheckpointStore
    generation: Generation
    use: SavepointUse

    def delete(self) -> None:
        """Delete it, and write down that it is done; repeating it after a crash is harmless.

        Only once a checkpoint builds on the copy.

        Raises:
            StorageUnavailable: one of the stores does not answer.
            ConfigurationError: its store cannot be opened.
        """
        deletion = SavepointDeletion(
            job=self.store.job, generation=self.generation, savepoint_sha256=self.use.sha256
        )
        delete_savepoint(open_object_store(self.use.uri), deletion)
        key = self.store.paths.released(self.generation)
        create_or_confirm(self.store.objects, key, deletion.to_bytes())


def _require_room(uri: str, origin: SavepointOrigin) -> None:
    """Refuse numbers behind which the job could not count on for long."""
    highest = max(origin.checkpoint_id, origin.generation)
    if highest > NUMBER_IMPORTED_MAX:
        raise _refused(
            f"{uri} has the number {highest}, which no job reaches (the highest that is taken over "
            f"is {NUMBER_IMPORTED_MAX}): its record was made by something else than Laminar"
        )


def claimed_savepoints(store: CheckpointStore) -> list[ClaimedSavepoint]:
    """Return the savepoints to delete once a checkpoint builds on their copies."""
    found: list[ClaimedSavepoint] = []
    for base in store.generations.bases():
        record = None if base.floor is None else store.generations.read_base(base.generation)
        if record is None or record.savepoint is None or not record.savepoint.claimed:
            continue
        if store.objects.size(store.paths.released(base.generation)) is None:
            found.append(ClaimedSavepoint(store, base.generation, record.savepoint))
    return found


def _reserve(
    store: CheckpointStore, origin: SavepointOrigin, generation: Generation, now_ms: int
) -> CheckpointId:
    """An id that is new to this job, and to sinks that show output of the savepoint's."""
    number = max(store.attempts.highest_id() or NO_CHECKPOINT, origin.checkpoint_id)
    while True:
        number = CheckpointId(number + 1)
        record = TriggerRecord(
            checkpoint_id=number,
            generation=generation,
            kind=CheckpointKind.SAVEPOINT,
            triggered_at_ms=now_ms,
        )
        if store.attempts.record_trigger(record):
            return number
        store.claims.check_owner(generation)


def for_another_job(cut: CheckpointManifest, forget: AbstractSet[str]) -> CheckpointManifest:
    """Leave out what stays with the job of the savepoint.

    Output that waits for its commit is committed there, or has been: here it would be seen twice.
    """

    def adapted(entry: SubtaskEntry) -> SubtaskEntry:
        gone: dict[str, object] = {"committables": ()}
        if entry.operator_id in forget:
            gone |= {"segments": (), "properties": {}}
        return entry.model_copy(update=gone)

    return cut.model_copy(update={"subtasks": tuple(map(adapted, cut.subtasks))})


def _manifest(
    cut: CheckpointManifest, about: Mapping[str, object], now_ms: int
) -> CheckpointManifest:
    """Return the savepoint's manifest as a checkpoint that was just completed."""
    folder = f"checkpoints/{about['checkpoint_id']:010}/"
    now = {
        "kind": CheckpointKind.SAVEPOINT,
        "triggered_at_ms": now_ms,
        "completed_at_ms": now_ms,
        "duration_ms": 0.0,
        "code_version": f"laminar {__version__}",
        "audited": None,  # Whatever it says is of another log.
    }
    moved = relocated(cut, folder).model_copy(update={**about, **now})
    return CheckpointManifest.model_validate_json(moved.model_dump_json())


def _refused(problem: str) -> IncompatibleStateError:
    return IncompatibleStateError(ErrorCode.NO_RESTORABLE_CHECKPOINT, problem)
