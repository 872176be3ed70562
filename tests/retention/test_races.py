"""Retention against whoever counts on a checkpoint, in all interleavings of their operations."""

from collections import Counter

import pytest

from laminar_core.errors import ConfigurationError, CorruptCheckpointError
from laminar_core.objectstore.opening import ObjectStore
from laminar_core.protocol.recovery import Refuse, RestoreFrom
from laminar_core.protocol.recovery_facts import RestoreRequest
from laminar_core.protocol.types import CheckpointId
from laminar_core.retention.facts import RetentionPolicy
from laminar_core.store.checkpoint_store import CheckpointStore
from laminar_core.store.pins import Pins
from laminar_core.store.records import create_or_confirm
from tests.objectstore.interleavings import commute, outcomes, sampled
from tests.records.manifests import manifest
from tests.retention.retention_jobs import JOB, StoredJob, pin_of, run
from tests.store.stores import claimant, elsewhere, never, trigger

LAST = RetentionPolicy(keep_last=1)


@pytest.fixture
def job() -> StoredJob:
    """Checkpoint 2 is what retention keeps, 1 is what it deletes."""
    job = StoredJob()
    job.start()
    job.complete()
    job.complete(forget=1)
    return job


def restorer(request: RestoreRequest):
    """A driver that takes the job over and starts from what it chooses."""

    def restore(objects: ObjectStore) -> int | str | None:
        store = CheckpointStore(objects, JOB)
        generation = store.claims.claim(claimant(elsewhere()), wait_ms=never, take_over=True)
        choice = store.choose_checkpoint(request)
        if isinstance(choice.decision, Refuse):
            return choice.decision.cause
        assert isinstance(choice.decision, RestoreFrom)
        store.generations.record_base(generation, choice.decision.checkpoint_id)
        return choice.decision.checkpoint_id

    return restore


@pytest.mark.large
@pytest.mark.sampled(2)
@pytest.mark.parametrize("wanted", [1, 2, None])
def test_no_generation_starts_from_what_is_deleted(job: StoredJob, wanted: int | None) -> None:
    request = RestoreRequest(None if wanted is None else CheckpointId(wanted))
    seen = Counter()
    processes = [restorer(request), lambda objects: run(job, LAST, objects)]
    for left, (restored, applied) in outcomes(job.store.objects, processes):
        store = CheckpointStore(left, JOB)
        seen[restored, type(applied).__name__] += 1
        if isinstance(restored, int):
            assert not store.manifests.is_being_deleted(CheckpointId(restored))
            assert store.verify(CheckpointId(restored)).problem is None
            assert CheckpointStore(left, JOB).choose_checkpoint().manifest.checkpoint_id == restored
        else:
            assert (wanted, restored) in {(1, "being-deleted"), (1, "never-completed")}
            assert store.choose_checkpoint().manifest.checkpoint_id == 2
        assert store.verify(CheckpointId(2)).problem is None
    told = {restored for restored, _ in seen}
    assert told == ({1, "being-deleted"} if wanted == 1 else {2}), seen
    assert {applied for _, applied in seen} >= {"RetentionResult", "ConfigurationError"}, seen


@pytest.mark.large
def test_what_is_pinned_stays_and_what_goes_is_not_pinned(job: StoredJob) -> None:
    seen = Counter()

    def pin(objects: ObjectStore) -> str:
        Pins(CheckpointStore(objects, JOB)).pin(pin_of(1))
        return "pinned"

    for left, (pinned, applied) in outcomes(
        job.store.objects, [pin, lambda objects: run(job, LAST, objects)]
    ):
        store = CheckpointStore(left, JOB)
        seen[str(pinned)[:6], type(applied).__name__] += 1
        if pinned == "pinned":
            assert store.verify(CheckpointId(1)).problem is None
            assert not store.manifests.is_being_deleted(CheckpointId(1))
            assert len(Pins(store).list()) == 1
        else:
            assert isinstance(pinned, ConfigurationError)
            assert Pins(store).list() == []
    assert len(seen) > 2, seen


def test_nobody_meets_a_manifest_without_its_files() -> None:
    """A driver that slept just before it published wakes up while its files are deleted."""
    job = StoredJob()
    job.start()
    job.complete()
    late = job.prepare()
    job.start(1)
    job.complete()
    policy = RetentionPolicy(keep_last=1, quarantine_min_ms=0)
    run(job, policy)
    key = job.store.paths.manifest(CheckpointId(2))
    seen = Counter()

    def publish(objects: ObjectStore) -> bool:
        return objects.put_if_absent(key, late.to_bytes())

    for left, (published, applied) in outcomes(
        job.store.objects, [publish, lambda objects: run(job, policy, objects)]
    ):
        store = CheckpointStore(left, JOB)
        seen[published, type(applied).__name__] += 1
        if store.manifests.is_complete(CheckpointId(2)):
            assert published
            assert store.verify(CheckpointId(2)).problem is None
    assert {published for published, _ in seen} == {True, False}, seen


def test_an_id_that_is_forgotten_is_of_no_use_to_a_driver_that_slept() -> None:
    """It slept in the midst of reserving the id, and writes in vain: it is fenced then."""
    job = StoredJob()
    job.start()
    job.complete()
    job.start(1)
    for _ in range(3):
        job.complete()
    run(job, LAST)
    policy = RetentionPolicy(keep_last=1, history_keep=0, quarantine_min_ms=0)
    seen = Counter()

    def sleeper(objects: ObjectStore) -> str:
        """Generation 1, whose next id was 2, and who looked before generation 2 took over."""
        store = CheckpointStore(objects, JOB)
        data = trigger(2, 1).to_bytes()
        if not create_or_confirm(objects, store.paths.trigger(CheckpointId(2)), data):
            return "taken"
        data = objects.put_if_absent(store.paths.state(CheckpointId(2), "window", 0), b"late")
        assert data, "nothing was there"
        store.manifests.publish(late)
        return "published"

    late = manifest(generation=1, checkpoint_id=2, parent_checkpoint_id=1)
    for left, (slept, applied) in outcomes(
        job.store.objects, [sleeper, lambda objects: run(job, policy, objects)]
    ):
        seen[slept if isinstance(slept, str) else type(slept).__name__] += 1
        assert not isinstance(applied, CorruptCheckpointError), applied
        for _ in range(3):
            run(job, policy, left)
        store = CheckpointStore(left, JOB)
        assert store.manifests.ids() == [1, 4]  # 1: what the owner started from.
        assert store.choose_checkpoint().manifest == job.store.manifests.read(CheckpointId(4))
        assert store.attempts.highest_id() == 4
    assert seen.keys() == {"taken", "FencedError"}, seen


def test_two_runs_at_once_do_not_disturb_each_other(job: StoredJob) -> None:
    """By chance: both make every call, and nearly all of them touch the same objects."""

    def apply(objects: ObjectStore) -> object:
        return run(job, LAST, objects)

    seen = Counter()
    for left, results in sampled(job.store.objects, [apply, apply], range(40)):
        seen.update(type(result).__name__ for result in results)
        errors = [result for result in results if isinstance(result, Exception)]
        assert all(isinstance(error, ConfigurationError) for error in errors), errors
        run(job, LAST, left)
        store = CheckpointStore(left, JOB)
        assert store.manifests.ids() == [2]
        assert store.verify(CheckpointId(2)).problem is None
    assert seen.keys() == {"RetentionResult", "NoneType", "ConfigurationError"}


def test_the_order_of_reads_and_of_other_objects_does_not_matter() -> None:
    assert commute(("get", "a/b"), ("size", "a/b"))
    assert commute(("put_if_absent", "a/b"), ("delete", "a/c"))
    assert commute(("children", "a/"), ("put", "b/a"))
    assert not commute(("put_if_absent", "a/b"), ("get", "a/b"))
    assert not commute(("delete", "a/b/c"), ("list", "a/"))
    assert not commute(("put_if_absent", "a/b"), ("put_if_absent", "a/b"))
