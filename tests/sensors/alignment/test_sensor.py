"""The alignment sensor against a store: what it reads, what it requests, and how often."""

from collections.abc import Callable, Iterator
from pathlib import Path

import dagster as dg
import pytest

from laminar_core.protocol.edges import PartitioningKind
from laminar_core.protocol.types import CheckpointKind
from laminar_core.sensors.alerting.alerts import Alert
from laminar_core.sensors.alignment.sensor import build_alignment_sensor
from laminar_core.sensors.policy import AlertPolicy
from laminar_core.testing.faulty_store import Effect, Fault, FaultyStore
from tests.records.manifests import edge_entry
from tests.sensors.streams import OBJECTS, STREAM, Job, Ticks, config_of, stored_job

SENSOR = "sensor laminar_alignment"
POLICY = AlertPolicy(calm_checkpoints=3, cooldown="10 seconds")


@pytest.fixture
def job(tmp_path: Path) -> Job:
    job = stored_job(tmp_path)
    job.claim()
    job.beat()
    return job


@pytest.fixture
def ticks(job: Job) -> Iterator[Ticks]:
    with dg.DagsterInstance.ephemeral() as instance:
        sensor = build_alignment_sensor({STREAM: POLICY}, job.clock)
        yield Ticks(instance, sensor, job.store.objects.uri)


def slow(job: Job, checkpoints: int = 3) -> None:
    for _ in range(checkpoints):
        job.beat(100)
        job.complete(alignment_ms=4_000)


def flipped(job: Job, ticks: Ticks, mode: str, actor: str = SENSOR) -> None:
    """The requested run is done: the driver has answered."""
    job.set_mode(mode, actor)
    ticks.end(ticks.runs[-1], dg.DagsterRunStatus.SUCCESS)
    job.beat(100)


def test_a_job_that_is_not_slow_is_left_alone(job: Job, ticks: Ticks) -> None:
    assert ticks.tick() == "0 of 3 checkpoints since the mode was set"
    for _ in range(3):
        job.beat()
        job.complete()
    assert ticks.tick() == "p99 of the last 3 alignment times is 5 ms"
    assert ticks.runs == []


def test_a_slow_one_is_flipped_once_with_the_numbers_as_the_reason(job: Job, ticks: Ticks) -> None:
    slow(job)
    assert ticks.tick().endswith(":0:3:unaligned")
    slow(job)
    assert f"run {ticks.runs[0].run_id} is changing it" in ticks.tick()
    (run,) = ticks.runs
    assert config_of(run) == {
        "stream": STREAM,
        "mode": {"unaligned": {}},
        "reason": "p99 of the last 3 alignment times is 4000 ms, more than 1 second",
    }


def test_it_flips_back_when_what_was_overtaken_is_worked_off_fast(job: Job, ticks: Ticks) -> None:
    """Goal: in-flight rows and the present rate, not alignment, tell that the pressure is gone."""
    slow(job)
    ticks.tick()
    flipped(job, ticks, "unaligned")
    for rows in (400, 400, 400, 400):
        job.complete(inflight_rows=rows)
        job.beat(100)
        assert "0 of 3 checkpoints in a row are calm" in ticks.tick()
    for _ in range(3):
        job.complete(inflight_rows=10)
        job.clock.wait_ms(4_000)
        job.beat(500)
        line = ticks.tick()
    assert line.endswith(":1:10:default")
    assert config_of(ticks.runs[-1])["mode"] == {"default": {}}


def test_one_fast_second_is_no_calm(job: Job, ticks: Ticks) -> None:
    """Goal: the rate is that between two ticks, not what the driver says of its last second."""
    slow(job)
    ticks.tick()
    flipped(job, ticks, "unaligned")
    ticks.tick()
    for _ in range(4):
        job.complete(inflight_rows=400)
    job.clock.wait_ms(20_000)
    job.beat(100_000, rows=2_100)
    assert "0 of 3 checkpoints in a row are calm" in ticks.tick()


def test_what_aligned_before_the_flip_says_nothing_after_it(job: Job, ticks: Ticks) -> None:
    slow(job)
    ticks.tick()
    flipped(job, ticks, "unaligned")
    for _ in range(3):
        job.complete()
        job.beat(100)
    job.clock.wait_ms(10_000)
    job.beat(100)
    ticks.tick()
    flipped(job, ticks, "default")
    assert ticks.tick() == "0 of 3 checkpoints since the mode was set"


def test_one_that_is_under_way_for_too_long_is_enough(job: Job, ticks: Ticks) -> None:
    job.trigger()
    job.clock.wait_ms(31_000)
    job.beat()
    ticks.tick()
    assert "checkpoint 1 has been under way for 32.0 s" in config_of(ticks.runs[0])["reason"]


def test_a_savepoint_is_aligned_whatever_the_mode_is(job: Job, ticks: Ticks) -> None:
    job.trigger(CheckpointKind.SAVEPOINT)
    job.clock.wait_ms(60_000)
    job.beat()
    ticks.tick()
    assert ticks.runs == []


def test_checkpoints_that_expire_before_they_align_count(job: Job, ticks: Ticks) -> None:
    """Goal: a timeout shorter than ``alignment_hard`` does not hide that barriers are stuck."""
    for _ in range(3):
        job.end(job.trigger(), "expired", duration_ms=10_000)
        job.beat()
    assert ticks.tick().endswith(":unaligned")


def test_a_choice_of_a_person_wins_until_it_is_default(job: Job, ticks: Ticks) -> None:
    job.set_mode("aligned", "ada")
    slow(job)
    assert ticks.tick().startswith("ada set the mode to aligned, which stays")
    job.set_mode("default", "ada")
    job.clock.wait_ms(10_000)
    slow(job)
    assert ticks.tick().endswith(":unaligned")


def test_a_choice_of_a_person_over_the_sensors_is_not_undone(job: Job, ticks: Ticks) -> None:
    slow(job)
    ticks.tick()
    flipped(job, ticks, "unaligned")
    job.set_mode("unaligned", "ada")
    for _ in range(5):
        job.complete()
        job.beat(100)
    assert ticks.tick().startswith("ada set the mode to unaligned")


def test_the_mode_outlives_a_restart_by_the_same_driver(job: Job, ticks: Ticks) -> None:
    job.set_mode("aligned", "ada")
    job.claim()
    slow(job)
    assert ticks.tick().startswith("ada set the mode to aligned")


def test_a_new_driver_begins_with_the_default(job: Job, ticks: Ticks) -> None:
    job.claim_by_the_dead()
    job.set_mode("aligned", "ada")
    job.claim()
    slow(job)
    assert ticks.tick().endswith(":unaligned")


def test_a_refusal_of_the_driver_is_not_asked_for_again(job: Job, ticks: Ticks) -> None:
    slow(job)
    ticks.tick()
    job.set_mode("unaligned", SENSOR, "refused", "it takes 2 checkpoints at once")
    ticks.end(ticks.runs[0], dg.DagsterRunStatus.FAILURE)
    job.clock.wait_ms(60_000)
    slow(job)
    assert "the driver refused: it takes 2 checkpoints at once" in ticks.tick()
    assert len(ticks.runs) == 1


def test_a_command_that_came_too_late_for_a_generation_is_no_refusal_of_the_driver(
    job: Job, ticks: Ticks
) -> None:
    job.set_mode("unaligned", SENSOR, "refused", "it is for generation 1", answered_by=2)
    job.claim()
    slow(job)
    assert ticks.tick().endswith(":unaligned")


def test_a_run_that_failed_is_not_repeated_before_the_cooldown(job: Job, ticks: Ticks) -> None:
    slow(job)
    ticks.tick()
    ticks.end(ticks.runs[0], dg.DagsterRunStatus.FAILURE)
    slow(job)
    assert "the cooldown is 10 seconds" in ticks.tick()
    job.clock.wait_ms(10_000)
    slow(job)
    assert ticks.tick().endswith(":unaligned")
    assert len(ticks.runs) == 2


def test_a_run_that_lost_its_process_blocks_no_other_for_ever(job: Job, ticks: Ticks) -> None:
    slow(job)
    ticks.tick(dg.DagsterRunStatus.STARTED)
    job.clock.wait_ms(16 * 60_000)
    slow(job)
    assert ticks.tick().endswith(":unaligned")
    assert len(ticks.runs) == 2


def test_a_tick_that_dies_after_its_request_is_not_repeated(job: Job, ticks: Ticks) -> None:
    """Goal: the run is there, the cursor is not: the next tick sees the run."""
    slow(job)
    ticks.create(ticks.evaluate().run_requests[0])
    assert ticks.cursor is None
    assert "is changing it" in ticks.tick()


@pytest.mark.parametrize("cursor", ["", "{}", "rubbish", '{"seen": 7}'])
def test_a_cursor_that_is_lost_costs_nothing(job: Job, ticks: Ticks, cursor: str) -> None:
    slow(job)
    ticks.tick()
    ticks.cursor = cursor
    slow(job)
    assert "is changing it" in ticks.tick()


@pytest.mark.parametrize(
    ("happened", "why"),
    [
        (lambda job: job.store.generations.end(job.generation, "stopped", ""), "1 stopped"),
        (lambda job: job.claim_by_the_dead(), "2 is starting"),
        (lambda job: (job.claim_by_the_dead(), job.beat()), "the driver of generation 2 is gone"),
    ],
)
def test_nobody_is_asked_if_nobody_runs_the_job(
    job: Job, ticks: Ticks, happened: Callable[[Job], object], why: str
) -> None:
    slow(job)
    happened(job)
    line = ticks.tick()
    assert line.startswith("the job is not running")
    assert why in line


def test_a_driver_that_has_not_beaten_since_the_last_look_is_not_asked(
    job: Job, ticks: Ticks
) -> None:
    ticks.tick()
    for _ in range(3):
        job.complete(alignment_ms=4_000)
    assert "no sign of life since the last look" in ticks.tick()
    job.beat()
    assert ticks.tick().endswith(":unaligned")


def test_a_job_that_never_ran_is_left_alone(tmp_path: Path) -> None:
    with dg.DagsterInstance.ephemeral() as instance:
        ticks = Ticks(instance, build_alignment_sensor({STREAM: POLICY}), str(tmp_path / "nothing"))
        assert ticks.tick() == "the job is not running: it has never run"


def test_a_pipeline_whose_edges_all_align_is_not_flipped(job: Job, ticks: Ticks) -> None:
    job.edges = (
        edge_entry(partitioning=PartitioningKind.FORWARD),
        edge_entry(partitioning=PartitioningKind.BROADCAST),
    )
    slow(job)
    assert "every edge of this pipeline must stay aligned" in ticks.tick()
    assert ticks.runs == []


def test_what_a_description_says_and_how_operators_are_called_decides_nothing(
    job: Job, ticks: Ticks
) -> None:
    job.descriptions["window"] = {"inputs": ["rebalanced, forward"], "note": "keyed by hand"}
    job.edges = (edge_entry(upstream="rebalanced", partitioning=PartitioningKind.FORWARD),)
    slow(job)
    assert "every edge of this pipeline must stay aligned" in ticks.tick()


def test_edges_inside_a_loop_always_align(job: Job, ticks: Ticks) -> None:
    job.edges = (
        edge_entry(partitioning=PartitioningKind.FORWARD),
        edge_entry(partitioning=PartitioningKind.KEYED, loop="retry"),
    )
    slow(job)
    assert "every edge of this pipeline must stay aligned" in ticks.tick()


def test_a_store_that_is_down_skips_the_tick(
    job: Job, ticks: Ticks, monkeypatch: pytest.MonkeyPatch
) -> None:
    slow(job)
    down = FaultyStore(job.store.objects, Fault("children", Effect.FAIL, last=1))
    monkeypatch.setitem(OBJECTS, ticks.uri, down)
    ticks.cursor = before = '{"told": []}'
    assert ticks.tick().startswith("no facts: ")
    assert ticks.cursor == before
    assert ticks.tick().endswith(":unaligned")


def test_with_flip_off_it_says_what_it_would_do(job: Job, ticks: Ticks) -> None:
    ticks.sensor = build_alignment_sensor({STREAM: AlertPolicy(flip=False)}, job.clock)
    slow(job)
    assert ticks.tick().endswith("the mode stays default: flip is off for this stream")


HEARD: list[Alert] = []


def hear(alert: Alert) -> None:
    HEARD.append(alert)


def test_an_emergency_raises_one_alert(job: Job, ticks: Ticks) -> None:
    HEARD.clear()
    policy = AlertPolicy(hook=f"{__name__}:hear")
    ticks.sensor = build_alignment_sensor({STREAM: policy}, job.clock)
    for _ in range(3):
        job.beat()
        job.complete(alignment_ms=31_000)
        ticks.tick()
    (alert,) = HEARD
    assert alert.text.startswith("checkpoint 1 aligned for 31000 ms, more than 30 seconds")
    assert alert.runbook == "docs/operations.md#alignment"
