"""The demonstration reads the store, and damages it on purpose."""

import os
import subprocess
from dataclasses import replace
from pathlib import Path

import pytest

from examples.operations.job import JobWatch, alignment_s, duration_s, in_words
from laminar_core.records.actor import ActorKind
from laminar_core.records.commands import ControlBegun, ControlCommand, ControlResult, SetMode
from laminar_core.store.command_log import ControlLog
from tests.store.stores import JOB, claim, claimant, complete, never, owner_of


@pytest.fixture
def job(tmp_path: Path) -> JobWatch:
    return JobWatch.of(tmp_path / "store", JOB)


def test_a_job_that_never_ran(job: JobWatch) -> None:
    assert job.generation() is None
    assert job.driver_pid() is None
    assert job.newest(3) == []
    assert in_words(job.newest(3)) == "no checkpoint yet"


def test_the_driver_is_the_living_owner_of_the_newest_generation(job: JobWatch) -> None:
    claim(job.store)
    assert job.driver_pid() == os.getpid()
    claim(job.store)
    newest = job.generation()
    assert newest is not None
    assert newest.generation == 2


def test_checkpoints_are_those_of_one_generation(job: JobWatch) -> None:
    complete(job.store, 1, claim(job.store))
    complete(job.store, 2, claim(job.store, 1))
    assert [m.checkpoint_id for m in job.newest(9)] == [2, 1]
    (second,) = job.since(2, 0)
    assert second.checkpoint_id == 2
    assert job.since(2, second.triggered_at_ms + 1) == []
    assert "2 aligned" in in_words([second])
    assert duration_s(second) >= 0
    assert alignment_s(second) >= 0


def test_mode_changes_are_those_that_were_carried_out(job: JobWatch) -> None:
    generation = claim(job.store)
    log = ControlLog(job.store.objects, job.store.paths)
    command = ControlCommand(
        command_id="12345678", job=JOB, generation=generation, action=SetMode(mode="unaligned"),
        actor="sensor", actor_kind=ActorKind.SENSOR, reason="slow",
        requested_at_ms=1, expires_at_ms=2,
    )  # fmt: skip
    number = log.append(command)
    assert job.mode_changes() == []
    log.begin(number, ControlBegun(generation=generation, begun_at_ms=1))
    log.answer(number, ControlResult(outcome="completed", generation=generation, answered_at_ms=1))
    assert [c.reason for c in job.mode_changes()] == ["slow"]


def test_damage_is_found_and_only_in_the_newest(job: JobWatch) -> None:
    generation = claim(job.store)
    complete(job.store, 1, generation)
    complete(job.store, 2, generation)
    assert job.damage(2).exists()
    assert job.store.verify(2).problem is not None
    assert job.store.verify(1).problem is None


def test_the_driver_is_killed_and_nobody_else(job: JobWatch) -> None:
    with subprocess.Popen(["sleep", "60"]) as driver:
        job.store.objects.create()
        job.store.claims.claim(replace(claimant(), owner=owner_of(driver.pid)), wait_ms=never)
        assert job.kill_driver() == driver.pid
        assert driver.wait(10) == -9
    assert job.driver_pid() is None
