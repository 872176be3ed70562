"""One look at the store says how a job is; damage is named, and nothing is changed."""

from dataclasses import replace

import pytest

from laminar_core.protocol.types import CheckpointId, CheckpointKind, Generation
from laminar_core.records.actor import ActorKind
from laminar_core.records.commands import (
    Action,
    CancelJob,
    ControlCommand,
    ControlOutcome,
    ControlResult,
    SetMode,
)
from laminar_core.records.manifest import Heartbeat
from laminar_core.store.checkpoint_store import CheckpointStore
from laminar_core.store.command_log import ControlLog
from laminar_core.store.drills import write_drill
from laminar_core.store.job_status import DriverState, JobStatus, ModeStatus, read_status
from laminar_core.store.owner import this_process
from laminar_core.store.pins import Pins
from tests.cli.test_drill import record as drill_record
from tests.records.manifests import subtask
from tests.retention.retention_jobs import StoredJob, pin_of
from tests.store.stores import (
    JOB,
    claimant,
    commit,
    damage,
    elsewhere,
    gone,
    never,
    open_job,
    write,
)

NOW_MS = 1_800_000_000_000


@pytest.fixture
def job() -> StoredJob:
    job = StoredJob()
    job.start()
    return job


def status_of(job: StoredJob, now_ms: int = NOW_MS) -> JobStatus:
    return read_status(job.store, now_ms)


def ask(
    store: CheckpointStore,
    action: Action,
    outcome: ControlOutcome | None = "completed",
    generation: int = 1,
) -> None:
    """A command, and how it ended."""
    log = ControlLog(store.objects, store.paths)
    number = log.append(
        ControlCommand(
            command_id=f"command-{len(log.numbers())}",
            job=JOB,
            generation=generation,
            action=action,
            actor="ann",
            actor_kind=ActorKind.PERSON,
            reason="slow",
            requested_at_ms=1,
            expires_at_ms=2,
        )
    )
    if outcome is not None:
        said = ControlResult(outcome=outcome, generation=generation, answered_at_ms=7)
        log.answer(number, said)


class TestDriver:
    def test_a_job_that_never_ran(self):
        assert read_status(open_job(), NOW_MS) == JobStatus(JOB, NOW_MS)

    @pytest.mark.parametrize(
        ("owner", "state"),
        [(this_process(), "running"), (gone(this_process()), "gone"), (elsewhere(), "unseen")],
    )
    def test_who_runs_it_and_whether_that_can_be_seen(self, owner, state: DriverState):
        store = open_job()
        generation = store.claims.claim(claimant(owner), wait_ms=never)
        driver = read_status(store, NOW_MS).driver
        assert driver is not None
        assert (driver.generation, driver.state, driver.owner) == (1, state, owner)
        assert (driver.actor, driver.reason, driver.code_version) == ("test", "to test", "0.1.0")
        assert (driver.has_started, driver.heartbeat_age_ms, driver.progress) == (False, None, {})
        store.generations.record_base(generation, None)
        store.generations.beat(
            generation, Heartbeat(sequence=1, at_ms=NOW_MS - 9, progress={"rows_in": 5})
        )
        driver = read_status(store, NOW_MS).driver
        assert driver is not None
        assert (driver.has_started, driver.restored_checkpoint_id) == (True, None)
        assert (driver.heartbeat_age_ms, driver.progress) == (9, {"rows_in": 5})
        driver = read_status(store, NOW_MS - 100).driver
        assert driver is not None
        assert driver.heartbeat_age_ms == 0, "clocks differ"

    def test_how_it_ended_and_from_what_it_had_started(self, job):
        job.complete()
        job.start(1)
        job.store.generations.end(Generation(2), "failed", "a worker died")
        driver = status_of(job).driver
        assert driver is not None
        assert (driver.generation, driver.restored_checkpoint_id) == (2, 1)
        assert (driver.state, driver.outcome) == ("ended", "failed")
        assert driver.outcome_reason == "a worker died"

    def test_a_claim_that_is_damaged(self, job):
        damage(job.store, job.store.paths.claim(Generation(1)), "rotten")
        found = status_of(job)
        assert found.driver is not None
        assert (found.driver.state, found.driver.owner, found.driver.actor) == (
            "unseen",
            None,
            None,
        )
        assert len(found.problems) == 1
        assert "generations/0000000001.json" in found.problems[0]


class TestCheckpoint:
    def test_the_newest_that_completed(self, job):
        assert status_of(job).checkpoint is None
        job.complete()
        job.complete()
        manifest = job.store.manifests.read(CheckpointId(2))
        found = status_of(job, manifest.completed_at_ms + 1_500).checkpoint
        assert found is not None
        assert (found.checkpoint_id, found.generation, found.age_ms) == (2, 1, 1_500)
        assert (found.kind, found.mode) == (CheckpointKind.PERIODIC, "aligned")
        assert (found.size_bytes, found.written_bytes) == (
            manifest.size_bytes,
            manifest.written_bytes,
        )
        assert (found.duration_ms, found.inflight_rows) == (manifest.duration_ms, 0)

    def test_output_expires_until_its_commit_is_recorded(self, job):
        written = write(job.store, 1, 1)
        offered = tuple({"name": str(at_ms), "expires_at_ms": at_ms} for at_ms in (9, 7))
        entries = (*written.subtasks[:3], subtask("sink", 1, committables=offered))
        job.store.manifests.publish(written.model_copy(update={"subtasks": entries}))
        assert status_of(job).checkpoint.output_expires_at_ms == 7
        commit(job.store, 1, 1)
        assert status_of(job).checkpoint.output_expires_at_ms is None
        damage(job.store, job.store.paths.commit(CheckpointId(1)), "rotten")
        found = status_of(job)
        assert found.checkpoint.output_expires_at_ms == 7
        assert len(found.problems) == 1

    def test_what_the_job_went_back_behind_does_not_count(self, job):
        job.complete()
        job.complete()
        job.start(1)
        found = status_of(job).checkpoint
        assert found is not None
        assert found.checkpoint_id == 1

    def test_a_damaged_manifest_is_named_and_passed_over(self, job):
        job.complete()
        job.complete()
        damage(job.store, job.store.paths.manifest(CheckpointId(2)), "rotten")
        found = status_of(job)
        assert found.checkpoint is not None
        assert found.checkpoint.checkpoint_id == 1
        assert ["0000000002/manifest.json" in problem for problem in found.problems] == [True]

    def test_without_bases_nothing_is_claimed_of_checkpoints(self, job):
        job.complete()
        for key in (job.store.paths.base(Generation(1)), job.store.paths.base_copy(Generation(1))):
            damage(job.store, key, "rotten")
        found = status_of(job)
        assert found.checkpoint is None
        assert found.problems


class TestMode:
    def test_the_last_one_that_was_set(self, job):
        ask(job.store, SetMode(mode="aligned"))
        ask(job.store, SetMode(mode=50))
        ask(job.store, SetMode(mode="unaligned"), "refused")
        ask(job.store, SetMode(mode="unaligned"), None)
        ask(job.store, CancelJob())
        assert status_of(job).mode == ModeStatus(2, 50, "ann", "slow", 7)

    def test_it_outlives_a_restart_by_the_same_driver_and_no_other(self):
        store, me = open_job(), claimant(elsewhere(1))
        first = store.claims.claim(me, wait_ms=never)
        ask(store, SetMode(mode="unaligned"))
        store.claims.succeed(first, replace(me, owner=elsewhere(2)))
        found = read_status(store, NOW_MS).mode
        assert found is not None
        assert found.mode == "unaligned"
        store.claims.claim(claimant(), wait_ms=never, take_over=True)
        assert read_status(store, NOW_MS).mode is None

    def test_of_a_driver_that_has_ended_there_is_none(self, job):
        ask(job.store, SetMode(mode="unaligned"))
        job.store.generations.end(Generation(1), "stopped", "")
        assert status_of(job).mode is None


def test_pins_and_the_last_drill(job):
    job.complete()
    Pins(job.store).pin(pin_of(1))
    for checkpoint_id in (1, 2):
        write_drill(job.store, drill_record(number=1, checkpoint_id=checkpoint_id))
    found = status_of(job)
    assert [pin.checkpoint_id for pin in found.pins] == [1]
    assert found.drill is not None
    assert (found.drill.number, found.drill.checkpoint_id) == (2, 2)
    damage(job.store, job.store.paths.drill(2), "torn")
    found = status_of(job)
    assert found.drill is not None
    assert found.drill.number == 1
    assert [job.store.paths.drill(2) in problem for problem in found.problems] == [True]


def test_nothing_is_changed_by_looking(job):
    job.complete()
    before = {key: job.store.objects.get(key) for key in job.store.objects.list("")}
    status_of(job)
    assert {key: job.store.objects.get(key) for key in job.store.objects.list("")} == before
