"""Retention that is killed at any operation: what was to stay stays, and the next run finishes."""

from contextlib import suppress
from random import Random

import pytest

from laminar_core.errors import ErrorCode, StorageUnavailable
from laminar_core.objectstore.memory import MemoryObjectStore
from laminar_core.objectstore.opening import ObjectStore
from laminar_core.protocol.recovery import RestoreFrom
from laminar_core.retention.facts import RetentionPolicy
from laminar_core.store.checkpoint_store import CheckpointStore
from laminar_core.testing.observed_store import ObservedStore, StoreCall
from tests.retention.retention_jobs import JOB, StoredJob, random_job, random_policy, run


class Killed(BaseException):
    """The process is gone; nothing catches this."""


def copy(objects: ObjectStore) -> MemoryObjectStore:
    twin = MemoryObjectStore()
    twin._objects = dict(objects._objects)
    return twin


def counted(objects: ObjectStore, stop_at: int | None, error: type[BaseException] = Killed):
    """A view of the store that ends the process at moment ``stop_at``; and its count so far."""
    moments: list[StoreCall] = []

    def observe(call: StoreCall) -> None:
        if call.verb in {"get", "size", "list", "sizes", "children"}:
            return  # A crash around a read leaves what the crash before it left.
        moments.append(call)
        if len(moments) == stop_at:
            raise error() if error is Killed else StorageUnavailable(ErrorCode.STORE_IO, "lost")

    return ObservedStore(objects, "retention", observe), moments


def contents(objects: MemoryObjectStore) -> dict[str, bytes]:
    return dict(objects._objects)


def apply_until_quiet(job: StoredJob, policy: RetentionPolicy, objects: ObjectStore) -> None:
    for _ in range(6):
        if run(job, policy, objects) is None:
            return
    raise AssertionError("it does not come to rest")


def check_what_stays(before: MemoryObjectStore, after: MemoryObjectStore, stay: set[int]) -> None:
    """Everything that was to stay is as it was, and recovery does the same."""
    then, now = CheckpointStore(before, JOB), CheckpointStore(after, JOB)
    for checkpoint_id in stay:
        assert now.objects.get(now.paths.manifest(checkpoint_id)) == then.objects.get(
            then.paths.manifest(checkpoint_id)
        )
        assert [p.problem for p in now.verify(checkpoint_id).parts] == [
            p.problem for p in then.verify(checkpoint_id).parts
        ]
        assert not now.manifests.is_being_deleted(checkpoint_id)
    choice, chosen = then.choose_checkpoint(), now.choose_checkpoint()
    assert isinstance(chosen.decision, RestoreFrom)
    assert chosen.manifest == choice.manifest
    assert chosen.redrive == choice.redrive
    assert now.attempts.highest_id() == then.attempts.highest_id()


@pytest.mark.sampled(3)
@pytest.mark.parametrize("seed", range(8))
@pytest.mark.parametrize("error", [Killed, StorageUnavailable])
def test_killed_at_every_operation(seed: int, error: type[BaseException]) -> None:
    random = Random(seed)
    job, policy = random_job(seed), random_policy(random)
    job.store.objects.put("payments/checkpoints/0000000001/notes.txt", b"mine")
    before = job.store.objects
    retention = job.retention(policy)
    plan = retention.plan().plan
    stay = {v.checkpoint_id for v in plan.checkpoints} - set(plan.deleted_ids)
    stay = {c for c in stay if CheckpointStore(before, JOB).manifests.is_complete(c)}
    undisturbed = copy(before)
    view, moments = counted(undisturbed, None)
    run(job, policy, view)
    apply_until_quiet(job, policy, undisturbed)
    # Later runs delete what waited in quarantine.
    stay_for_good = {c for c in stay if CheckpointStore(undisturbed, JOB).manifests.is_complete(c)}
    for moment in range(1, len(moments) + 1):
        disturbed = copy(before)
        view, _ = counted(disturbed, moment, error)
        with suppress(Killed, StorageUnavailable):  # One lost answer is made up for.
            run(job, policy, view)
        check_what_stays(before, disturbed, stay)
        apply_until_quiet(job, policy, disturbed)
        check_what_stays(before, disturbed, stay_for_good)
        assert without_records(disturbed) == without_records(undisturbed)
        assert disturbed.get("payments/checkpoints/0000000001/notes.txt") == b"mine"


def without_records(objects: MemoryObjectStore) -> set[str]:
    """Return all names but retention's own: its records, numbered by runs, and its reserve.

    The reserve is filled again by the next run that deletes something, so one that was killed may
    leave it short.
    """
    own = ("payments/retention/0", "payments/retention/reserve/")
    return {key for key in contents(objects) if not key.startswith(own)}


def test_something_is_deleted_in_these_stores() -> None:
    deleted = [
        job.retention(random_policy(Random(seed))).plan().plan
        for seed, job in ((seed, random_job(seed)) for seed in range(8))
    ]
    assert sum(len(plan.deleted_ids) for plan in deleted) > 20
    assert sum(len(plan.quarantined_files) for plan in deleted) > 5
