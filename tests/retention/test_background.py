"""Retention by the running job: in the background, once at a time, and no reason to fail."""

from collections import deque
from collections.abc import Callable
from concurrent.futures import Executor

import pytest

from laminar_core.driver.events import CheckpointCompleted, CleanUpFailed, Finished
from laminar_core.host.clock import ManualClock
from laminar_core.protocol.types import CheckpointKind
from laminar_core.records.actor import Actor
from laminar_core.retention.background import BATCH_MS, BackgroundRetention, applied
from laminar_core.retention.config import RetentionConfig
from laminar_core.retention.facts import RetentionPolicy
from laminar_core.store.audit_log import AuditLog
from laminar_core.testing.faulty_store import Effect, Fault, FaultyStore
from tests.retention.retention_jobs import ME, StoredJob, run

LAST = RetentionPolicy(keep_last=1)


class Later(Executor):
    """Runs the submitted functions when a test says so."""

    def __init__(self) -> None:
        self.waiting: deque[Callable[[], None]] = deque()
        self.is_over = False

    def submit(self, function, /, *args):
        self.waiting.append(lambda: function(*args))

    def shutdown(self, wait=True, *, cancel_futures=False):  # noqa: FBT002 - as in ``Executor``
        assert wait, "threads of a process that ends can start no others"
        assert not cancel_futures
        self.run()
        self.is_over = True

    def run(self) -> None:
        while self.waiting:
            self.waiting.popleft()()


def completed(checkpoint_id: int) -> CheckpointCompleted:
    return CheckpointCompleted.model_construct(
        time_ms=1, checkpoint_id=checkpoint_id, kind=CheckpointKind.PERIODIC
    )


@pytest.fixture
def job() -> StoredJob:
    job = StoredJob()
    job.start()
    for _ in range(3):
        job.complete()
    return job


class Watched:
    def __init__(self, job: StoredJob, *faults: Fault) -> None:
        self.told, self.later = [], Later()
        retention = job.retention(LAST, FaultyStore(job.store.objects, *faults))
        self.now_ms = 7
        self.listen = BackgroundRetention(
            self.told.append, retention, ME, {}, lambda: self.now_ms, self.later, batch=4
        )


def test_a_new_checkpoint_makes_old_ones_go(job) -> None:
    watched = Watched(job)
    watched.listen(completed(3))
    assert job.store.manifests.ids() == [1, 2, 3]  # Nobody waits for it.
    watched.later.run()
    assert job.store.manifests.ids() == [3]
    assert watched.told == [completed(3)]


def test_while_one_run_waits_no_second_one_is_asked_for(job) -> None:
    watched = Watched(job)
    for checkpoint_id in (1, 2, 3):
        watched.listen(completed(checkpoint_id))
    assert len(watched.later.waiting) == 1
    watched.later.run()
    assert job.store.manifests.ids() == [3]


def test_checkpoints_are_deleted_in_batches(job) -> None:
    watched = Watched(job)
    asked = []
    for checkpoint_id in range(1, 14):
        watched.listen(completed(checkpoint_id))
        if watched.later.waiting:
            asked.append(checkpoint_id)
        watched.later.run()
    assert asked == [1, 5, 9, 13]  # The first, and every fourth.


@pytest.mark.parametrize("step_ms", [BATCH_MS, -1])
def test_a_slow_job_waits_for_no_batch(job, step_ms) -> None:
    watched = Watched(job)
    watched.listen(completed(1))
    watched.later.run()
    watched.listen(completed(2))
    assert not watched.later.waiting
    watched.now_ms += step_ms
    watched.listen(completed(3))
    assert len(watched.later.waiting) == 1


def test_the_end_waits_for_no_batch(job) -> None:
    watched = Watched(job)
    watched.listen(completed(3))
    watched.later.run()
    job.complete()
    watched.listen(completed(4))
    watched.listen(Finished.model_construct(time_ms=1, outcome="finished"))
    assert job.store.manifests.ids() == [4]


def test_a_failure_is_reported_and_tried_again(job) -> None:
    watched = Watched(job, Fault("delete", Effect.FAIL))
    watched.listen(completed(3))
    watched.later.run()
    (_, failed) = watched.told
    assert isinstance(failed, CleanUpFailed)
    assert (failed.checkpoint_id, failed.time_ms) == (3, 7)
    watched.listen(completed(4))
    watched.later.run()
    assert job.store.manifests.ids() == [3]


def test_a_bug_does_not_end_the_job(job) -> None:
    watched = Watched(job)
    watched.listen._retention.plan = lambda: 1 / 0
    watched.listen(completed(3))
    watched.later.run()
    assert "ZeroDivisionError" in watched.told[1].reason


def test_a_plan_that_was_overtaken_is_nothing_to_tell(job) -> None:
    watched = Watched(job)
    plan = watched.listen._retention.plan

    def overtaken():
        planned = plan()
        run(job, LAST)
        return planned

    watched.listen._retention.plan = overtaken
    watched.listen(completed(3))
    watched.later.run()
    assert len(watched.told) == 1


def test_the_end_lets_it_finish(job) -> None:
    watched = Watched(job)
    watched.listen(completed(3))
    watched.listen(Finished.model_construct(time_ms=1, outcome="finished"))
    assert watched.later.is_over
    assert job.store.manifests.ids() == [3]


def test_a_running_job_applies_it_and_that_is_audited() -> None:
    job, told = StoredJob(), []
    job.start()
    for _ in range(5):
        job.complete()
    listener = applied(
        RetentionConfig(keep_last=2),
        job.store,
        ManualClock(job.clock_ms),
        told.append,
        Actor("me", run_id="run-7"),
    )
    assert isinstance(listener, BackgroundRetention)
    listener(CheckpointCompleted.model_construct(time_ms=1, checkpoint_id=5))
    listener._executor.shutdown(wait=True)
    assert job.store.manifests.ids() == [4, 5]
    assert len(told) == 1
    records = AuditLog(job.store.objects, job.store.paths, lambda: 0).records()
    assert [(r.action, r.actor, r.run_id, r.outcome) for r in records] == [
        ("retention-apply", "me", "run-7", "done"),
    ]
