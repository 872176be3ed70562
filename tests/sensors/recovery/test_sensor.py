"""The recovery sensor against a store and Dagster's records: once per death, and not for ever."""

from collections.abc import Iterator
from pathlib import Path

import dagster as dg
import pytest

from laminar_core.host.clock import ManualClock
from laminar_core.protocol.types import CheckpointId
from laminar_core.resources import CheckpointStoreResource
from laminar_core.resources.names import (
    ACTS_ON_TAG,
    RECOVERS_TAG,
    STREAM_TAG,
    job_name,
)
from laminar_core.sensors.policy import AlertPolicy
from laminar_core.testing.faulty_store import Effect, Fault, FaultyStore, Verb
from tests.sensors.recoveries import dead_job, read_whole, watched
from tests.sensors.streams import OBJECTS, STREAM, Job, Ticks, config_of, stored_job
from tests.store.stores import damage, elsewhere

POLICY = AlertPolicy(recoveries_max=3)
FAILURE, SUCCESS = dg.DagsterRunStatus.FAILURE, dg.DagsterRunStatus.SUCCESS


@pytest.fixture
def job(tmp_path: Path) -> Job:
    return dead_job(tmp_path)


@pytest.fixture
def ticks(job: Job) -> Iterator[Ticks]:
    with dg.DagsterInstance.ephemeral() as instance:
        yield watched(instance, job, POLICY)


def test_a_death_is_one_run_from_the_newest_checkpoint(ticks: Ticks) -> None:
    assert ticks.tick().startswith(f"{STREAM}:recover:1:1:")
    (run,) = ticks.runs
    assert run.job_name == job_name("recover")
    assert (run.tags[RECOVERS_TAG], run.tags[ACTS_ON_TAG]) == ("1", STREAM)
    assert config_of(run) == {
        "stream": STREAM,
        "restore": {"checkpoint": {"number": 2}},
        "expected_generation": 1,
        "running_driver": "refuse",
        "reason": "the driver of generation 1 is gone",
    }


def test_the_daemon_takes_the_request(job: Job) -> None:
    """Method: evaluated with a reference to the instance, as the code server does."""
    with dg.instance_for_test() as instance:
        ticks = watched(instance, job, POLICY)
        sensors = dg.Definitions(sensors=[ticks.sensor])
        with dg.SensorEvaluationContext(
            instance_ref=instance.get_ref(),
            last_tick_completion_time=None,
            last_run_key=None,
            cursor=None,
            repository_name=None,
            definitions=dg.Definitions.merge(ticks.definitions, sensors),
            sensor_name=ticks.sensor.name,
            resources={"laminar_checkpoints": CheckpointStoreResource(uri=ticks.uri)},
        ) as context:
            (request,) = ticks.sensor.evaluate_tick(context).run_requests or ()
    assert request.tags["dagster/sensor_name"] == "laminar_recovery"


def test_repeated_ticks_request_nothing_again(ticks: Ticks) -> None:
    ticks.tick()
    for cursor in (ticks.cursor, None, "rubbish", ""):
        ticks.cursor = cursor
        assert f"run {ticks.runs[0].run_id}" in ticks.tick()
    assert len(ticks.runs) == 1


def test_a_recovered_job_is_left_alone(job: Job, ticks: Ticks) -> None:
    ticks.tick()
    job.claim(base=2)
    ticks.end(ticks.runs[0], SUCCESS)
    assert ticks.tick() == "generation 2 is starting"
    job.beats = 0
    job.beat()
    assert ticks.tick().startswith("generation 2 is alive: it began")
    assert len(ticks.runs) == 1


def test_a_tick_that_died_before_its_run_was_submitted_is_made_good(ticks: Ticks) -> None:
    """Goal: a run that was created and never submitted is requested with the same key."""
    (request,) = ticks.evaluate().run_requests or ()
    created = ticks.create(request, dg.DagsterRunStatus.NOT_STARTED)
    assert ticks.tick() == request.run_key
    assert created is not None
    assert len(ticks.instance.get_runs(dg.RunsFilter(tags={RECOVERS_TAG: "1"}))) == 1
    assert "is under way" in ticks.tick()


def test_a_failed_recovery_is_tried_again_later_and_not_for_ever(job: Job, ticks: Ticks) -> None:
    keys = [ticks.tick()]
    ticks.end(ticks.runs[0], FAILURE)
    assert "the next one starts in" in ticks.tick()
    for _ in range(2):
        job.clock.wait_ms(60_000)
        keys.append(ticks.tick())
        ticks.end(ticks.runs[-1], FAILURE)
    attempts = [key.removeprefix(f"{STREAM}:recover:1:").partition(":")[0] for key in keys]
    assert attempts == ["1", "2", "3"]
    for _ in range(3):
        assert ticks.tick().startswith("it dies again and again: the driver of generation 1 is")
        job.clock.wait_ms(60_000)
    assert len(ticks.runs) == 3


def test_a_crash_loop_ends_though_each_recovery_succeeds(job: Job, ticks: Ticks) -> None:
    for generation in (1, 2, 3):
        assert ticks.tick().startswith(f"{STREAM}:recover:{generation}:1:")
        ticks.end(ticks.runs[-1], SUCCESS)
        job.claim_by_the_dead(base=2)
        job.clock.wait_ms(60_000)
    assert "3 within one hour are enough (3): look for the cause" in ticks.tick()
    job.clock.wait_ms(3_700_000)
    assert ticks.tick().startswith(f"{STREAM}:recover:4:1:")


def test_a_recovery_that_somebody_cancelled_is_not_repeated(job: Job, ticks: Ticks) -> None:
    ticks.tick()
    ticks.end(ticks.runs[0], dg.DagsterRunStatus.CANCELED)
    job.clock.wait_ms(60_000)
    assert f"a person cancelled run {ticks.runs[0].run_id}" in ticks.tick()
    assert len(ticks.runs) == 1


def test_a_damaged_checkpoint_is_skipped_and_named(job: Job, ticks: Ticks) -> None:
    path = job.store.manifests.read(CheckpointId(2)).subtasks[0].segments[0].path
    damage(job.store, job.store.paths.absolute(path), "torn")
    ticks.tick()
    assert config_of(ticks.runs[0])["restore"] == {"checkpoint": {"number": 1}}
    assert f"; damaged: checkpoint 2 ({path} has " in config_of(ticks.runs[0])["reason"]


def test_what_its_first_attempt_finds_damaged_its_second_one_skips(job: Job, ticks: Ticks) -> None:
    """Goal: lengths do not tell of a flipped bit; the check that is ahead of the driver does."""
    path = job.store.manifests.read(CheckpointId(2)).subtasks[0].segments[0].path
    damage(job.store, job.store.paths.absolute(path), "rotten")
    ticks.tick()
    read_whole(ticks.instance, job.store, 2, ticks.runs[0].run_id)
    ticks.end(ticks.runs[0], FAILURE)
    job.clock.wait_ms(60_000)
    ticks.tick()
    chosen = [config_of(run)["restore"] for run in ticks.runs]
    assert chosen == [{"checkpoint": {"number": number}} for number in (2, 1)]
    said = config_of(ticks.runs[1])["reason"]
    assert "; damaged: checkpoint 2 (" in said
    assert f"(found by run {ticks.runs[0].run_id[:8]}; once it is repaired" in said


def test_it_reads_no_state(job: Job, ticks: Ticks, monkeypatch: pytest.MonkeyPatch) -> None:
    """Goal: a checkpoint of 100 GB is read by those who restore it, not by who looks for one."""
    monkeypatch.setitem(OBJECTS, ticks.uri, seen := FaultyStore(job.store.objects))
    assert ticks.tick().startswith(f"{STREAM}:recover:1:1:")
    assert [key for verb, key in seen.calls if verb == "get" and key.endswith(".seg")] == []
    assert [key for verb, key in seen.calls if verb == "size" and key.endswith(".seg")]


def test_nothing_whole_is_for_a_person(job: Job, ticks: Ticks) -> None:
    for checkpoint_id in (1, 2):
        damage(job.store, job.store.paths.manifest(CheckpointId(checkpoint_id)), "torn")
    assert ticks.tick().startswith("it cannot be recovered: Generation 1 is dead, and nothing")
    assert ticks.runs == []


def test_a_job_that_died_before_its_first_checkpoint_is_started(tmp_path: Path) -> None:
    job = stored_job(tmp_path)
    job.claim_by_the_dead()
    with dg.DagsterInstance.ephemeral() as instance:
        ticks = watched(instance, job, POLICY)
        assert ticks.tick().startswith(f"{STREAM}:recover:1:1:")
        (run,) = ticks.runs
        assert run.job_name == job_name("start")
        assert config_of(run) == {
            "stream": STREAM,
            "start_from": "fresh",
            "expected_generation": 1,
            "reason": "the driver of generation 1 is gone; nothing has ever completed",
        }
        assert "is under way" in ticks.tick()


@pytest.mark.parametrize(
    ("outcome", "reason"),
    [("stopped", ""), ("finished", ""), ("cancelled", "by ada")],
)
def test_a_job_that_ended_on_purpose_is_left_alone(
    job: Job, ticks: Ticks, outcome: str, reason: str
) -> None:
    job.store.generations.end(job.generation, outcome, reason)
    assert ticks.tick() == f"generation 1 {outcome}: it is not meant to run"


def test_a_job_that_failed_and_whose_driver_gave_up_is_recovered(job: Job, ticks: Ticks) -> None:
    job.store.generations.end(job.generation, "failed", "worker 1: lost")
    ticks.tick()
    assert config_of(ticks.runs[0])["reason"] == "generation 1 failed: worker 1: lost"


@pytest.mark.parametrize("status", [dg.DagsterRunStatus.CANCELED, FAILURE])
def test_a_store_that_is_begun_anew_has_other_generations(
    job: Job, ticks: Ticks, status: dg.DagsterRunStatus, tmp_path: Path
) -> None:
    """Goal: what happened to generation 1 of another store is no reason to leave this one's."""
    ticks.tick()
    ticks.end(ticks.runs[0], status)
    anew = stored_job(tmp_path / "anew")
    anew.clock = ManualClock(job.clock.now_ms() + 1_000)
    anew.claim_by_the_dead()
    anew.complete()
    ticks.uri = anew.store.objects.uri
    assert ticks.tick().startswith(f"{STREAM}:recover:1:1:")
    assert len(ticks.runs) == 2


def test_a_driver_whose_run_was_terminated_is_for_a_person(tmp_path: Path) -> None:
    """Goal: a run that owned its driver was ended by somebody, and the driver had to be killed."""
    job = stored_job(tmp_path)
    with dg.DagsterInstance.ephemeral() as instance:
        ticks = watched(instance, job, POLICY)
        run = ticks.instance.create_run_for_job(
            ticks.definitions.resolve_job_def("laminar_drill"),
            tags={ACTS_ON_TAG: STREAM, STREAM_TAG: STREAM},
            status=dg.DagsterRunStatus.STARTED,
        )
        job.claim_by_the_dead(run_id=run.run_id)
        job.complete()
        ticks.end(run, dg.DagsterRunStatus.CANCELED)
        assert f"a person terminated run {run.run_id}" in ticks.tick()
        job.claim_by_the_dead(base=1)
        assert ticks.tick().startswith(f"{STREAM}:recover:2:1:")


def test_what_a_person_starts_again_is_no_attempt_of_the_sensor(job: Job, ticks: Ticks) -> None:
    ticks.tick()
    first = ticks.runs[0]
    ticks.end(first, FAILURE)
    again = ticks.instance.create_run_for_job(
        ticks.definitions.resolve_job_def("laminar_recover"),
        tags={**first.tags, "dagster/parent_run_id": first.run_id},
        status=dg.DagsterRunStatus.STARTED,
    )
    job.clock.wait_ms(60_000)
    assert f"run {again.run_id} (laminar_recover) is under way" in ticks.tick()
    ticks.end(again, dg.DagsterRunStatus.CANCELED)
    assert ticks.tick().startswith(f"{STREAM}:recover:1:2:")


@pytest.mark.parametrize(
    ("tags", "name", "said"),
    [
        ({STREAM_TAG: STREAM}, "drill", "owns the driver and starts it again by itself"),
        ({}, "rescale", f"({job_name('rescale')}) is under way"),
    ],
)
def test_a_run_that_restarts_the_driver_is_waited_for(
    ticks: Ticks, tags: dict[str, str], name: str, said: str
) -> None:
    definition = ticks.definitions.resolve_job_def(f"laminar_{name}")
    started = dg.DagsterRunStatus.STARTED
    run = ticks.instance.create_run_for_job(
        definition, tags={**definition.tags, ACTS_ON_TAG: STREAM, **tags}, status=started
    )
    assert said in ticks.tick()
    ticks.end(run, FAILURE)
    assert ticks.tick().startswith(f"{STREAM}:recover:1:1:")


def test_a_supervising_run_that_lost_its_process_is_not_believed(job: Job, ticks: Ticks) -> None:
    """Goal: a host that went down leaves a run that Dagster shows as started for ever."""
    ticks.instance.create_run_for_job(
        ticks.definitions.resolve_job_def("laminar_drill"),
        tags={ACTS_ON_TAG: STREAM, STREAM_TAG: STREAM},
        status=dg.DagsterRunStatus.STARTED,
    )
    for _ in range(3):
        assert ticks.tick().endswith("owns the driver and starts it again by itself")
        job.clock.wait_ms(25_000)
    assert ticks.tick().startswith(f"{STREAM}:recover:1:1:")
    assert config_of(ticks.runs[0])["reason"].endswith("has not started it again")


def test_a_recovery_that_hangs_is_for_a_person(job: Job, ticks: Ticks) -> None:
    ticks.tick(dg.DagsterRunStatus.STARTED)
    job.clock.wait_ms(16 * 60_000)
    assert ticks.tick().startswith("it is dead, and a run hangs: ")
    ticks.end(ticks.runs[0], dg.DagsterRunStatus.FAILURE)
    job.clock.wait_ms(60_000)
    assert ticks.tick().startswith(f"{STREAM}:recover:1:2:")


def test_a_run_may_read_and_restore_for_as_long_as_the_stream_says(job: Job) -> None:
    """Goal: nobody is told to kill a recovery that is reading 100 GB."""
    hour_ms = 3_600_000
    with dg.DagsterInstance.ephemeral() as instance:
        ticks = watched(instance, job, POLICY, start_timeout_ms=hour_ms)
        ticks.tick(dg.DagsterRunStatus.STARTED)
        job.clock.wait_ms(2 * hour_ms - 60_000)
        assert ticks.tick().endswith("is under way")
        job.claim(elsewhere(), base=2)
        ticks.end(ticks.runs[0], SUCCESS)
        for _ in range(5):
            assert ticks.tick() == "generation 2 is starting"
            job.clock.wait_ms(hour_ms // 5)
        job.clock.wait_ms(60_000)
        ticks.tick()
        said = config_of(ticks.runs[1])["reason"]
        assert said == "generation 2 has not begun within 60 min"


def test_other_acts_on_the_stream_do_not_delay_it(ticks: Ticks) -> None:
    ticks.instance.create_run_for_job(
        ticks.definitions.resolve_job_def("laminar_drill"),
        tags={ACTS_ON_TAG: STREAM},
        status=dg.DagsterRunStatus.STARTED,
    )
    assert ticks.tick().startswith(f"{STREAM}:recover:1:1:")


@pytest.mark.parametrize("fault", ["children", "get", "size"])
def test_a_store_that_is_down_skips_the_tick(
    job: Job, ticks: Ticks, monkeypatch: pytest.MonkeyPatch, fault: Verb
) -> None:
    down = FaultyStore(job.store.objects, Fault(fault, Effect.FAIL, last=1))
    monkeypatch.setitem(OBJECTS, ticks.uri, down)
    assert ticks.tick().startswith("no facts: ")
    assert ticks.tick().startswith(f"{STREAM}:recover:1:1:")
