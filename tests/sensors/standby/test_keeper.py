"""Facts of a job in the store on which its standby depends."""

import os
from pathlib import Path

import pytest

from laminar_core.records.actor import Actor, ActorKind
from laminar_core.resources.drivers.standbys import LivingStandby
from laminar_core.sensors.standby.keeper import JobFacts, not_the_driver, read_job
from laminar_core.store.audit_log import AuditLog
from tests.sensors.streams import Job, stored_job


@pytest.fixture
def job(tmp_path: Path) -> Job:
    return stored_job(tmp_path)


def test_a_job_runs_from_its_first_heartbeat_until_its_end(job: Job) -> None:
    states = [read_job(job.store).state]
    job.claim()
    states.append(read_job(job.store).state)
    job.beat()
    states.append(read_job(job.store).state)
    job.store.generations.end(job.generation, "failed", "", gave_up=False)
    states.append(read_job(job.store).state)
    assert states == ["none", "starting", "runs", "starting"]


@pytest.mark.parametrize(
    ("outcome", "gave_up"),
    [("finished", None), ("stopped", None), ("cancelled", None), ("failed", True)],
)
def test_a_job_that_ended_for_good_is_over(job: Job, outcome, gave_up) -> None:
    job.claim()
    job.beat()
    job.store.generations.end(job.generation, outcome, "", gave_up=bool(gave_up))
    assert read_job(job.store).state == "over"


def test_a_driver_of_this_machine_that_is_gone_is_lost(job: Job) -> None:
    job.claim_by_the_dead()
    job.beat()
    found = read_job(job.store)
    assert (found.state, found.owner_session) == ("lost", None)


def test_the_workers_are_read_once_for_each_generation(job: Job) -> None:
    job.claim()
    job.beat()
    log = AuditLog(job.store.objects, job.store.paths, job.clock.now_ms)
    ann = Actor("ann", ActorKind.PERSON)
    log.append(action="restore", actor=ann, after={"parallelism": 3})
    assert read_job(job.store).workers == 3
    known = JobFacts(generation=1, workers=5)
    assert read_job(job.store, known).workers == 5
    job.claim()
    assert read_job(job.store, known).workers is None  # Its start may not be recorded yet.
    job.beat()
    assert read_job(job.store, known).workers == 3


def test_the_standby_that_leads_the_session_of_the_owner_is_the_driver(job: Job) -> None:
    job.claim()
    job.beat()
    here = os.getsid(0)
    lock = Path("x.lock")
    driver, other, new = (LivingStandby(lock, lock, "", 0, pid) for pid in (here, here + 1, None))
    assert not_the_driver([driver, other, new], read_job(job.store)) == [other, new]
