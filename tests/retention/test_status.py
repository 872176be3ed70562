import pytest

from laminar_core.errors import StorageUnavailable
from laminar_core.retention.facts import RetentionPolicy
from laminar_core.retention.status import read_status
from laminar_core.testing.faulty_store import Effect, Fault, FaultyStore
from tests.retention.retention_jobs import StoredJob, run
from tests.store.stores import damage

POLICY = RetentionPolicy(keep_last=1)


@pytest.fixture
def job() -> StoredJob:
    job = StoredJob()
    job.start()
    for _ in range(3):
        job.complete()
    return job


def test_a_job_without_retention(job) -> None:
    status = read_status(job.store)
    assert (status.plans, status.quarantine, status.pins) == ((), (), ())


def test_every_state_of_a_plan(job) -> None:
    for step in ("decision", "result"):
        numbers = (f"1.{step}", f"2.{step}")
        faults = [Fault("put_if_absent", Effect.FAIL, n, last=2) for n in numbers]
        faulty = FaultyStore(job.store.objects, *faults)
        with pytest.raises(StorageUnavailable):
            run(job, POLICY, faulty)
    assert [plan.state for plan in read_status(job.store).plans] == ["given-up", "unfinished"]
    run(job, POLICY)
    assert [plan.state for plan in read_status(job.store).plans] == ["given-up", "done"]
    damage(job.store, "payments/retention/0000000002.plan.json", "torn")
    unreadable = read_status(job.store).plans[1]
    assert unreadable.state == "unreadable"
    assert "0000000002.plan.json" in unreadable.problem


def test_an_undecided_plan(job) -> None:
    fault = Fault("put_if_absent", Effect.FAIL, "decision", last=2)
    faulty = FaultyStore(job.store.objects, fault)
    with pytest.raises(StorageUnavailable):
        run(job, POLICY, faulty)
    assert [plan.state for plan in read_status(job.store).plans] == ["undecided"]


def test_quarantine_and_pins(job) -> None:
    job.attempt(ended=False)
    job.start(3)
    job.complete()
    job.pin(3)
    run(job, RetentionPolicy())
    status = read_status(job.store)
    assert [record.path.partition("/")[0] for record in status.quarantine] == [
        "checkpoints",
        "shared",
    ]
    assert [pin.name for pin in status.pins] == ["keep"]
    damage(job.store, job.store.objects.list("payments/retention/quarantine/")[0], "torn")
    damaged = read_status(job.store).quarantine[0]
    assert damaged.path.startswith("checkpoints/0000000004")
    assert "digest" in damaged.reason
