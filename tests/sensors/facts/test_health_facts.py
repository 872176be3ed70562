"""A driver's signs of life, and its failing attempts, as its store shows them."""

from pathlib import Path
from typing import Any

import pytest

from laminar_core.protocol.types import CheckpointId
from laminar_core.records.actor import ActorKind
from laminar_core.records.commands import ControlBegun, ControlCommand, ControlResult, StopJob
from laminar_core.sensors.facts.health_facts import (
    ATTEMPTS_BACK,
    driver_life,
    failing_attempts,
)
from laminar_core.sensors.facts.job_facts import job_life
from laminar_core.sensors.health import DriverLife, FailingAttempts
from laminar_core.sensors.policy import AlertPolicy
from laminar_core.store.audit_log import AuditLog
from laminar_core.store.command_log import ControlLog
from tests.sensors.observed import write_down
from tests.sensors.streams import Job, stored_job
from tests.store.stores import damage

POLICY = AlertPolicy()


@pytest.fixture
def job(tmp_path: Path) -> Job:
    return stored_job(tmp_path)


def life_of(job: Job, **how: Any) -> DriverLife:
    found = driver_life(job.store, job_life(job.store), job.clock.now_ms(), POLICY, **how)
    assert found is not None
    return found


def stop(job: Job, actor: str, outcome: Any = "completed") -> None:
    log, now_ms = ControlLog(job.store.objects, job.store.paths), job.clock.now_ms()
    command = ControlCommand(
        command_id=f"stop of {actor}",
        job=job.store.job,
        generation=job.generation,
        action=StopJob(),
        actor=actor,
        actor_kind=ActorKind.PERSON,
        reason="maintenance",
        requested_at_ms=now_ms,
        expires_at_ms=now_ms + 1,
    )
    number = log.append(command)
    log.begin(number, ControlBegun(generation=job.generation, begun_at_ms=now_ms))
    answer = ControlResult(outcome=outcome, generation=job.generation, answered_at_ms=now_ms)
    log.answer(number, answer)


def test_a_store_without_a_generation_has_no_driver(job: Job) -> None:
    assert driver_life(job.store, job_life(job.store), 0, POLICY) is None


@pytest.mark.parametrize(
    ("beats", "silent_ms", "state"),
    [
        (0, 0, "starting"),
        (0, 600_000, "starting"),
        (0, 600_001, "silent"),
        (1, 30_000, "beating"),
        (1, 30_001, "silent"),
    ],
)
def test_its_state_is_that_of_its_heartbeat(job: Job, beats: int, silent_ms: int, state) -> None:
    job.claim(actor="ana")
    for _ in range(beats):
        job.beat()
    job.clock.wait_ms(silent_ms)
    assert life_of(job).state == state
    assert life_of(job, silence_ms=silent_ms).state == state
    assert (life_of(job).started_by, life_of(job).start_reason) == ("ana", "why")


def test_one_clock_that_watched_it_is_believed_more_than_two(job: Job) -> None:
    job.claim()
    job.beat()
    job.clock.wait_ms(3_600_000)
    assert life_of(job, silence_ms=0).state == "beating"


def test_a_process_that_is_gone_is_not_waited_for(job: Job) -> None:
    job.claim_by_the_dead()
    job.beat()
    assert life_of(job).state == "gone"


def test_an_end_says_when_and_by_whose_command(job: Job) -> None:
    job.claim()
    job.complete()
    stop(job, "eve", "refused")
    stop(job, "bob")
    write_down(job, "end", after={"generation": 1, "outcome": "stopped"})
    log = AuditLog(job.store.objects, job.store.paths, job.clock.now_ms)
    *_, record = log.records()
    job.store.generations.end(job.generation, "stopped", "", audited=record.reference())
    job.clock.wait_ms(60_000)
    found = life_of(job)
    assert (found.state, found.ended_by, found.completed_id) == ("ended", "bob", 1)
    assert found.seen_at_ms == record.at_ms
    damage(job.store, job.store.paths.audit_record(record.number), "torn")
    assert life_of(job).seen_at_ms is None


def test_an_end_without_a_command_is_nobodys(job: Job) -> None:
    job.claim()
    job.store.generations.end(job.generation, "finished", "")
    assert (life_of(job).ended_by, life_of(job).seen_at_ms) == (None, None)


def fail(job: Job, outcome: str) -> int:
    checkpoint_id = job.trigger()
    job.end(checkpoint_id, outcome)
    return checkpoint_id


def test_attempts_fail_until_one_completes(job: Job) -> None:
    job.claim()
    assert failing_attempts(job.store, None) is None
    first = fail(job, "declined")
    assert failing_attempts(job.store, first) == FailingAttempts(
        1, 1, "declined", "", None, is_all=True
    )
    job.complete()
    assert failing_attempts(job.store, 2) is None
    fail(job, "declined")
    fail(job, "aborted")  # Its job was ended.
    fail(job, "expired")
    newest = job.trigger()
    assert failing_attempts(job.store, newest) == FailingAttempts(
        2, 5, "expired", "", 2, is_all=True
    )


def test_what_cannot_be_read_is_passed_over_and_the_search_ends(job: Job) -> None:
    job.claim()
    for _ in range(3):
        fail(job, "expired")
    damage(job.store, job.store.paths.outcome(CheckpointId(2)), "torn")
    assert failing_attempts(job.store, 3) == FailingAttempts(2, 3, "expired", "", None, is_all=True)
    found = failing_attempts(job.store, 3 + ATTEMPTS_BACK - 1)
    assert found is not None
    assert (found.count, found.is_all) == (1, False)
