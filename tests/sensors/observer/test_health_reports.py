"""The observer tells in what state a stream is: at each change, and not at each tick."""

import dagster as dg
import pytest

from laminar_core.protocol.types import CheckpointId
from laminar_core.resources.names import StreamCheck, asset_key, check_key
from laminar_core.sensors.observer.health_reports import LOOK_MS, has_failed
from tests.sensors.observed import NOTHING_NEW, Daemon
from tests.sensors.streams import STREAM, Job
from tests.store.stores import damage

DEAD_MS = 30_001


@pytest.fixture
def job(job: Job) -> Job:
    job.beat()
    return job


def evaluated(daemon: Daemon, check: StreamCheck) -> list[tuple[bool, str]]:
    """Verdict and severity of each evaluation, oldest first."""
    history = daemon.instance.event_log_storage.get_asset_check_execution_history(
        check_key(STREAM, check), limit=500
    )
    found = [record.evaluation for record in reversed(history)]
    return [(each.passed, each.severity.value) for each in found if each is not None]


def look(job: Job, daemon: Daemon, *, beats: bool = False, waits_ms: int = LOOK_MS) -> str:
    job.clock.wait_ms(waits_ms)
    if beats:
        job.beat()
    return daemon.tick()


GREEN, WARNING, RED = (True, "WARN"), (False, "WARN"), (False, "ERROR")


class TestRunning:
    def test_it_is_green_as_long_as_the_heart_beats_and_told_once(self, job, daemon) -> None:
        daemon.ticks()
        for _ in range(10):
            assert look(job, daemon, beats=True) == NOTHING_NEW
        assert evaluated(daemon, "running") == [GREEN]
        assert daemon.states() == [
            "running: generation 1, started by ada (why). laminar_stop ends it with a checkpoint"
        ]

    def test_it_goes_out_of_green_by_itself_when_a_driver_dies(self, job, daemon) -> None:
        daemon.ticks()
        said = look(job, daemon, waits_ms=DEAD_MS)
        assert said.startswith("running: dead: generation 1, started by ada")
        assert look(job, daemon, waits_ms=DEAD_MS) == NOTHING_NEW
        assert evaluated(daemon, "running") == [GREEN, RED]
        assert "laminar_recover" in daemon.states()[-1]

    def test_a_clock_that_steps_back_hides_no_death(self, job, daemon) -> None:
        daemon.ticks()
        job.clock._now_ms -= 3_600_000
        look(job, daemon)
        assert look(job, daemon, waits_ms=DEAD_MS).startswith("running: dead: generation 1")

    def test_a_recovery_turns_it_green_again(self, job, daemon) -> None:
        job.complete()
        daemon.ticks()
        look(job, daemon, waits_ms=660_000)
        assert evaluated(daemon, "freshness")[-1] == RED
        job.claim(base=1)
        job.beat()
        daemon.tick()
        assert evaluated(daemon, "running")[-1] == GREEN
        job.complete()
        daemon.tick()
        assert evaluated(daemon, "freshness")[-1] == (True, "ERROR")
        assert not has_failed(daemon.instance, STREAM, "freshness")

    def test_a_stop_is_not_green(self, job, daemon) -> None:
        job.complete()
        daemon.ticks()
        job.store.generations.end(job.generation, "stopped", "maintenance")
        look(job, daemon)
        assert evaluated(daemon, "running") == [GREEN, WARNING]
        assert daemon.states()[-1].startswith("stopped at checkpoint 1")
        assert "start it with laminar_start" in daemon.states()[-1]

    def test_a_start_is_seen_in_the_next_tick(self, job, daemon) -> None:
        daemon.ticks()
        job.claim()
        daemon.tick()
        assert evaluated(daemon, "running") == [GREEN, WARNING]
        assert daemon.states()[-1].startswith("starting: generation 2")
        look(job, daemon, beats=True)
        assert evaluated(daemon, "running")[-1] == GREEN

    def test_a_driver_that_never_begins_is_dead_at_last(self, job, daemon) -> None:
        job.claim()
        daemon.ticks()
        look(job, daemon, waits_ms=600_000)
        assert evaluated(daemon, "running") == [WARNING]
        look(job, daemon)
        assert evaluated(daemon, "running") == [WARNING, RED]

    def test_the_clock_of_another_machine_does_not_matter(self, job, daemon) -> None:
        """Goal: only the first look compares two clocks, because it has nothing else."""
        job.clock.wait_ms(DEAD_MS)
        daemon.ticks()
        assert evaluated(daemon, "running") == [RED]
        ahead = job.clock.now_ms()
        job.beat()
        job.clock._now_ms = ahead + LOOK_MS + 3_600_000
        daemon.tick()
        assert evaluated(daemon, "running") == [RED, GREEN]

    def test_it_is_told_again_when_dagster_hides_it(self, job, daemon) -> None:
        """Goal: Dagster shows a check as not evaluated once its asset is materialised again."""
        daemon.ticks()
        made = dg.AssetMaterialization(asset_key(STREAM, "deployment"))
        daemon.instance.report_runless_asset_event(made)
        look(job, daemon, beats=True)
        daemon.tick()
        assert evaluated(daemon, "running") == [GREEN, GREEN]
        assert len(evaluated(daemon, "attempts")) == 2
        assert len(daemon.states()) == 2

    def test_a_tick_that_is_repeated_tells_nothing_twice(self, job, daemon) -> None:
        job.complete()
        for _ in range(3):
            daemon.ticks()
            daemon.cursor = None
        assert evaluated(daemon, "running") == [GREEN]
        assert len(daemon.states()) == 1

    def test_a_heartbeat_that_cannot_be_read_is_no_sign_of_life(self, job, daemon) -> None:
        daemon.ticks()
        damage(job.store, job.store.paths.heartbeat(job.generation), "torn")
        look(job, daemon, waits_ms=DEAD_MS)
        assert evaluated(daemon, "running") == [GREEN, RED]
        job.store.objects.delete(job.store.paths.heartbeat(job.generation))
        look(job, daemon, beats=True)
        assert evaluated(daemon, "running")[-1] == GREEN

    def test_a_timeline_that_cannot_be_known_is_tried_again(self, job, daemon) -> None:
        job.complete()
        keys = (job.store.paths.base(job.generation), job.store.paths.base_copy(job.generation))
        whole = {key: job.store.objects.get(key) for key in keys}
        for key in keys:
            damage(job.store, key, "torn")
        daemon.tick()
        assert evaluated(daemon, "running") == []
        for key, data in whole.items():
            job.store.objects.put(key, data)
        look(job, daemon, beats=True)
        assert evaluated(daemon, "running") == [GREEN]


class TestAttempts:
    def test_they_are_red_until_the_next_one_completes(self, job, daemon) -> None:
        job.complete()
        daemon.ticks()
        for count, outcome in ((1, "declined"), (2, "expired")):
            job.end(job.trigger(), outcome)
            assert f"attempts: {count} attempt" in daemon.tick()
        assert evaluated(daemon, "attempts") == [GREEN, RED, RED]
        job.complete()
        daemon.tick()
        assert evaluated(daemon, "attempts")[-1] == GREEN
        job.complete()
        daemon.tick()
        assert len(evaluated(daemon, "attempts")) == 4

    def test_a_failed_attempt_is_a_partition_that_says_what_became_of_it(self, job, daemon) -> None:
        job.complete()
        job.end(job.trigger(), "declined")
        daemon.ticks()
        assert daemon.completed() == [1]
        assert daemon.partitions() == [1, 2]
        (failed,) = daemon.observed("checkpoint")
        assert failed.partition == "0000000002"
        assert failed.description.startswith("checkpoint 2 declined")

    def test_one_that_newer_ones_overtook_is_no_partition(self, job, daemon) -> None:
        job.end(job.trigger(), "subsumed")
        job.complete()
        daemon.ticks()
        assert daemon.partitions() == [2]
        assert evaluated(daemon, "attempts") == [GREEN]
        assert not job.store.manifests.is_complete(CheckpointId(1))
