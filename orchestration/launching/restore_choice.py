"""Choose the checkpoint for a restore: verified whole, or refused with the reason."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import islice

import dagster as dg

from laminar_core.codec.digest import sha256_hex
from laminar_core.errors import (
    ConfigurationError,
    CorruptCheckpointError,
    ErrorCode,
    LaminarError,
)
from laminar_core.protocol.recovery import Refuse, Rejected, RestoreFrom, on_timeline
from laminar_core.protocol.recovery_facts import RestoreRequest
from laminar_core.protocol.types import CheckpointId, Generation
from laminar_core.records.manifest import CheckpointManifest
from laminar_core.resources.names import GROUP, job_name, partition_of
from laminar_core.store.checkpoint_store import CheckpointStore
from laminar_core.store.records import bytes_in
from laminar_core.store.verification import VerifyReport

_READ_MAX = 3
"""Number of checkpoints that are read whole only to explain why they were not restored."""


@dataclass(frozen=True, slots=True)
class Chosen:
    """A checkpoint to restore."""

    manifest: CheckpointManifest
    sha256: str
    """Digest of the stored manifest: the data version of the checkpoint's partition."""
    rejected: tuple[Rejected, ...] = ()
    """Newer checkpoints that were found damaged during the search."""

    @property
    def checkpoint_id(self) -> CheckpointId:
        """Its number."""
        return self.manifest.checkpoint_id

    @property
    def partition(self) -> str:
        """Its partition key."""
        return partition_of(self.manifest.checkpoint_id)


@dataclass(frozen=True, slots=True)
class LeftBehind:
    """A newer checkpoint that is not restored; ``reason`` is None until it is examined."""

    checkpoint_id: CheckpointId
    reason: str | None = None


class WholeReads:
    """Examines checkpoints by reading every byte, each one once per Dagster run.

    The driver verifies the restored checkpoint again.
    """

    def __init__(self, store: CheckpointStore) -> None:
        self._store = store
        self._trusted: str | None = None
        self._reports: dict[str, VerifyReport] = {}
        self._new: list[tuple[CheckpointId, str, VerifyReport]] = []

    def trust(self, sha256: str | None) -> None:
        """Trust the checkpoint whose manifest has this digest: this run has just read it whole."""
        self._trusted = sha256

    def problem_of(self, manifest: CheckpointManifest) -> str | None:
        """Return the problem of its files, or None."""
        store = self._store
        sha256 = _stored_sha256(store, manifest.checkpoint_id)
        if sha256 == self._trusted:
            return None
        if sha256 not in self._reports:
            try:
                report = store.verify_files(manifest)
            except ConfigurationError as error:
                if error.code is not ErrorCode.BEING_DELETED:
                    raise
                return str(error)
            self._reports[sha256] = report
            self._new.append((manifest.checkpoint_id, sha256, report))
        return self._reports[sha256].problem

    def take_reports(self) -> list[tuple[CheckpointId, str, VerifyReport]]:
        """Return the checkpoints read since the last call: number, digest, and the report."""
        found, self._new = self._new, []
        return found


def choose(
    store: CheckpointStore, request: RestoreRequest, reads: WholeReads, group: str = GROUP
) -> Chosen:
    """Find and verify the checkpoint that ``request`` describes; changes nothing.

    ``group`` is the prefix of jobs.

    Raises:
        dagster.Failure: there is none, or it is damaged, orphaned or being deleted.
        LaminarError: the store did not answer, or the timeline cannot be known.
    """
    choice = store.choose_checkpoint(request, reads.problem_of)
    if not isinstance(choice.decision, RestoreFrom):
        reason = f"it has no completed checkpoint; {job_name('start', group)} begins it"
        if isinstance(choice.decision, Refuse):
            reason = choice.decision.reason
        raise refused(f"job {store.job} is not restored: {reason}")
    manifest = choice.manifest
    assert manifest is not None, "a restore has one"
    rejected = tuple(each for each in choice.decision.rejected if not each.orphan)
    return replace(read_chosen(store, manifest.checkpoint_id), rejected=rejected)


def read_chosen(store: CheckpointStore, checkpoint_id: CheckpointId) -> Chosen:
    """Read a checkpoint's manifest, and nothing more.

    Raises:
        LaminarError: there is none, it cannot be read, or the store did not answer.
    """
    manifest = store.manifests.read(checkpoint_id)
    return Chosen(manifest, _stored_sha256(store, checkpoint_id))


def _stored_sha256(store: CheckpointStore, checkpoint_id: CheckpointId) -> str:
    return sha256_hex(bytes_in(store.objects, store.paths.manifest(checkpoint_id)) or b"")


def left_behind(store: CheckpointStore, chosen: Chosen) -> tuple[LeftBehind, ...]:
    """Return newer checkpoints that a restore of ``chosen`` orphans; call it before the restore.

    Raises:
        LaminarError: as ``timeline``.
    """
    known: dict[CheckpointId, str | None] = {c.checkpoint_id: c.reason for c in chosen.rejected}
    bases = store.generations.bases()
    for checkpoint_id in store.manifests.ids():
        if checkpoint_id > chosen.checkpoint_id and checkpoint_id not in known:
            try:
                manifest = store.manifests.find(checkpoint_id)
            except CorruptCheckpointError as error:
                known[checkpoint_id] = str(error)
                continue
            if manifest and on_timeline(checkpoint_id, Generation(manifest.generation), bases):
                known[checkpoint_id] = None
    return tuple(LeftBehind(number, known[number]) for number in sorted(known))


def explained(store: CheckpointStore, left: Sequence[LeftBehind]) -> tuple[LeftBehind, ...]:
    """Read the newest few of them whole, to report whether they were damaged."""
    looked_at = left[-_READ_MAX:]
    return tuple(
        each
        if each.reason
        else LeftBehind(each.checkpoint_id, _why_left(store, each, look=each in looked_at))
        for each in left
    )


def _why_left(store: CheckpointStore, left: LeftBehind, *, look: bool) -> str:
    problem = None
    if look:
        try:
            problem = store.verify(left.checkpoint_id).problem
        except LaminarError as error:
            problem = str(error)
    return problem or "it is newer than the requested one"


def timeline(store: CheckpointStore) -> Iterator[CheckpointManifest]:
    """Yield completed checkpoints on the timeline, newest first; no state is read.

    Raises:
        CorruptCheckpointError: a base cannot be read, so no timeline can be known.
        StorageUnavailable: the store did not answer.
    """
    bases = store.generations.bases()
    for checkpoint_id in reversed(store.manifests.ids()):
        try:
            manifest = store.manifests.find(checkpoint_id)
        except CorruptCheckpointError:
            continue
        if manifest and on_timeline(checkpoint_id, Generation(manifest.generation), bases):
            yield manifest


def back_by(store: CheckpointStore, steps: int) -> CheckpointId:
    """Return the checkpoint ``steps`` completed ones before the newest.

    Raises:
        dagster.Failure: there are not that many.
        LaminarError: as ``timeline``.
    """
    found = [manifest.checkpoint_id for manifest in islice(timeline(store), steps + 1)]
    if len(found) <= steps:
        before = max(len(found) - 1, 0)
        newest = f"newest, {found[0]}" if found else "newest"
        raise refused(
            f"job {store.job} cannot go back by {steps}: before its {newest}, there "
            f"{'is' if before == 1 else 'are'} {before} completed on the timeline"
        )
    return found[-1]


def refused(why: str) -> dg.Failure:
    """Return the failure of a run for which retries are useless."""
    return dg.Failure(why, allow_retries=False)
