"""The recovery sensor calls a job dead only after enough signs, over enough ticks."""

import threading
from pathlib import Path

import dagster as dg
import pytest

from laminar_core.objectstore.opening import ObjectStore
from laminar_core.protocol.types import CheckpointId
from laminar_core.sensors.alerting.alerts import Alert
from laminar_core.sensors.background import BackgroundReads
from laminar_core.sensors.policy import AlertPolicy
from laminar_core.sensors.recovery.sensor import RecoveryCursor
from laminar_core.testing.faulty_store import Effect, Fault, FaultyStore
from tests.sensors.recoveries import dead_job, watched
from tests.sensors.streams import OBJECTS, STREAM, Job, config_of, stored_job
from tests.store.stores import damage, elsewhere

POLICY = AlertPolicy(recoveries_max=3)
HEARD: list[Alert] = []
HOOK = f"{__name__}:hear"


def hear(alert: Alert) -> None:
    HEARD.append(alert)


@pytest.fixture
def job(tmp_path: Path) -> Job:
    return dead_job(tmp_path)


def test_a_driver_elsewhere_is_dead_when_its_heartbeat_stands_still(tmp_path: Path) -> None:
    """Goal: what counts is what the sensor has seen, not what the driver's clock says."""
    job = stored_job(tmp_path)
    job.claim(elsewhere())
    job.beat()
    job.complete()
    with dg.DagsterInstance.ephemeral() as instance:
        ticks = watched(instance, job, POLICY)
        for _ in range(4):  # Its clock is hours behind, but it changes.
            job.clock.wait_ms(20_000)
            job.beat()
            assert "is alive" in ticks.tick()
        for _ in range(3):
            job.clock.wait_ms(10_000)
            assert "is alive" in ticks.tick()
        job.clock.wait_ms(10_000)
        assert ticks.tick().startswith(f"{STREAM}:recover:1:1:")
        assert config_of(ticks.runs[0])["running_driver"] == "take_over"


def test_a_daemon_that_was_down_for_hours_does_not_take_its_own_silence_for_the_drivers(
    tmp_path: Path,
) -> None:
    job = stored_job(tmp_path)
    job.claim(elsewhere())
    job.beat()
    job.complete()
    with dg.DagsterInstance.ephemeral() as instance:
        ticks = watched(instance, job, POLICY)
        ticks.tick()
        job.clock.wait_ms(7_200_000)
        assert "is alive" in ticks.tick()


def test_a_driver_that_completes_nothing_is_taken_over(tmp_path: Path) -> None:
    job = stored_job(tmp_path)
    job.claim()
    job.complete()
    with dg.DagsterInstance.ephemeral() as instance:
        ticks = watched(instance, job, POLICY)
        for _ in range(21):
            job.beat()
            assert "is alive" in ticks.tick()
            job.end(job.trigger(), "declined")
            job.clock.wait_ms(29_000)
        job.beat()
        assert ticks.tick().startswith(f"{STREAM}:recover:1:1:")
        config = config_of(ticks.runs[0])
        assert config["running_driver"] == "take_over"
        assert "no checkpoint completed for 10.5 min" in config["reason"]


@pytest.mark.parametrize(
    ("outage_ms", "seen"),
    [(660_000, False), (660_000, True), (290_000, True)],
    ids=["of the daemon", "of the store, and seen", "several, and seen"],
)
def test_a_job_that_is_back_from_an_outage_is_not_stuck(
    tmp_path: Path,
    outage_ms: int,
    seen: bool,  # noqa: FBT001
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Goal: nobody could see it make progress, so nobody says that it made none."""
    job = stored_job(tmp_path)
    job.claim()
    job.beat()
    job.complete()
    down = FaultyStore(job.store.objects, Fault("children", Effect.FAIL, last=10))
    with dg.DagsterInstance.ephemeral() as instance:
        ticks = watched(instance, job, POLICY)
        ticks.tick()
        for _ in range(3):
            job.clock.wait_ms(outage_ms)
            if seen:
                with monkeypatch.context() as patch:
                    patch.setitem(OBJECTS, ticks.uri, down)
                    assert ticks.tick().startswith("no facts: ")
            job.beats += outage_ms // 1_000  # It counts those that it cannot write, too.
            job.beat()
            assert "generation 1 is alive: checkpoint 1 completed" in ticks.tick()
        job.complete()
        assert "is alive: checkpoint 2 completed 0 s ago" in ticks.tick()


def test_a_sensor_that_looks_seldom_still_sees_that_nothing_completes(tmp_path: Path) -> None:
    job = stored_job(tmp_path)
    job.claim()
    job.complete()
    with dg.DagsterInstance.ephemeral() as instance:
        ticks = watched(instance, job, POLICY)
        for _ in range(6):
            job.beat()
            assert "is alive" in ticks.tick()
            job.clock.wait_ms(119_000)
        job.beat()
        assert ticks.tick().startswith(f"{STREAM}:recover:1:1:")


@pytest.mark.parametrize("back_ms", [0, 3_600_000])
def test_a_job_that_its_driver_restarts_in_vain_is_reported_once(
    tmp_path: Path, back_ms: int
) -> None:
    """Goal: each generation looks young and alive, and for hours nothing completes.

    Even if the clock is set back after the first look.
    """
    HEARD.clear()
    job = stored_job(tmp_path)
    job.claim()
    job.complete()
    with dg.DagsterInstance.ephemeral() as instance:
        ticks = watched(instance, job, AlertPolicy(recoveries_max=3, hook=HOOK))
        ticks.tick()
        job.claim(base=1)
        ticks.tick()
        job.clock._now_ms -= back_ms
        for _ in range(11):
            job.claim(base=1)
            job.beat()
            ticks.tick()
            job.clock.wait_ms(80_000)
            job.store.generations.end(job.generation, "failed", "worker 1: lost")
            line = ticks.tick()
        assert line.startswith("it restarts again and again: 11 generations in 15 min")
        (alert,) = HEARD
        assert alert.runbook == "docs/operations.md#too-many-recoveries"
        job.claim(base=1)
        job.complete()
        job.beat()
        assert ticks.tick().startswith("generation 14 is alive: checkpoint 2 completed 1 s ago")
        assert ticks.runs == []


def test_a_job_that_somebody_stopped_does_not_restart_in_vain(tmp_path: Path) -> None:
    job = stored_job(tmp_path)
    with dg.DagsterInstance.ephemeral() as instance:
        ticks = watched(instance, job, AlertPolicy(recoveries_max=1))
        for _ in range(12):
            job.claim()
            job.beat()
            line = ticks.tick()
            job.clock.wait_ms(80_000)
        assert line.startswith("it restarts again and again")
        job.store.generations.end(job.generation, "stopped", "")
        assert ticks.tick() == "generation 12 stopped: it is not meant to run"


@pytest.mark.parametrize("seen", [False, True], ids=["by its next base", "by its history"])
def test_restarts_that_complete_something_in_between_are_not_in_vain(
    tmp_path: Path,
    seen: bool,  # noqa: FBT001
) -> None:
    """Goal: a checkpoint counts whether the sensor comes to see it or the next generation does."""
    job = stored_job(tmp_path)
    with dg.DagsterInstance.ephemeral() as instance:
        ticks = watched(instance, job, AlertPolicy(recoveries_max=1))
        base = None
        for number in range(1, 13):
            job.claim(base=base)
            job.beat()
            assert ticks.tick().startswith(f"generation {number} is alive")
            completed = job.complete()
            if seen:
                ticks.tick()
            else:
                base = completed
            job.store.generations.end(job.generation, "failed", "worker 1: lost")
            job.clock.wait_ms(120_000)


def test_numbers_that_retention_forgot_make_no_job_stuck(tmp_path: Path) -> None:
    """Goal: the daemon was down for hours; of what happened meanwhile only the end is left."""
    job = stored_job(tmp_path)
    job.claim()
    job.beat()
    job.complete()
    with dg.DagsterInstance.ephemeral() as instance:
        ticks = watched(instance, job, POLICY)
        ticks.tick()
        job.complete()
        forgotten = [CheckpointId(job.trigger()) for _ in range(5)]
        job.clock.wait_ms(7_200_000)
        newest = job.complete()
        job.beat()
        for checkpoint_id in forgotten:
            job.store.objects.delete(job.store.paths.trigger(checkpoint_id))
        assert f"checkpoint {newest} completed 1 s ago" in ticks.tick()


@pytest.mark.parametrize("what", ["end", "base"])
def test_records_that_cannot_be_read_are_for_a_person(job: Job, what: str) -> None:
    HEARD.clear()
    job.store.generations.end(job.generation, "failed", "worker 1: lost")
    paths = job.store.paths
    for key in {
        "end": [paths.end(job.generation)],
        "base": [paths.base(job.generation), paths.base_copy(job.generation)],
    }[what]:
        damage(job.store, key, "torn")
    with dg.DagsterInstance.ephemeral() as instance:
        ticks = watched(instance, job, AlertPolicy(hook=HOOK))
        for _ in range(2):
            assert ticks.tick().startswith("its records are damaged: It is unknown whether")
    assert [alert.runbook for alert in HEARD] == ["docs/operations.md#nothing-restorable"]


@pytest.mark.parametrize("back_ms", [0, 3_600_000])
def test_a_store_that_is_down_for_long_is_reported_once(
    job: Job, monkeypatch: pytest.MonkeyPatch, back_ms: int
) -> None:
    HEARD.clear()
    down = FaultyStore(job.store.objects, Fault("children", Effect.FAIL, last=5))
    monkeypatch.setitem(OBJECTS, job.store.objects.uri, down)
    with dg.DagsterInstance.ephemeral() as instance:
        ticks = watched(instance, job, AlertPolicy(hook=HOOK))
        assert ticks.tick().startswith("no facts: ")
        job.clock._now_ms -= back_ms
        for _ in range(4):
            assert ticks.tick().startswith("no facts: ")
            job.clock.wait_ms(120_000)
        assert ticks.tick().startswith(f"{STREAM}:recover:1:1:")
    (alert,) = HEARD
    assert alert.text.startswith("No facts about the job for 6 min: ")
    assert alert.runbook == "docs/operations.md#store-down"


def test_a_store_that_is_not_mounted_any_more_is_reported_once(tmp_path: Path) -> None:
    """Goal: the empty place of a disk does not look like a job that has never run."""
    HEARD.clear()
    job = stored_job(tmp_path)
    job.claim()
    job.beat()
    place = Path(job.store.objects.uri)
    with dg.DagsterInstance.ephemeral() as instance:
        ticks = watched(instance, job, AlertPolicy(hook=HOOK))
        assert "is alive" in ticks.tick()
        place.rename(tmp_path / "elsewhere")
        for _ in range(5):
            assert ticks.tick().startswith(f"no facts: {place} has nothing of job {STREAM}")
            job.clock.wait_ms(120_000)
        (tmp_path / "elsewhere").rename(place)
        job.beat()
        assert "is alive" in ticks.tick()
    (alert,) = HEARD
    assert alert.runbook == "docs/operations.md#store-down"


def test_a_stream_whose_store_is_another_one_has_not_run_there(tmp_path: Path) -> None:
    """Goal: a stream that was moved raises no alert about what ran in the store before."""
    job = stored_job(tmp_path)
    job.claim()
    job.beat()
    moved = stored_job(tmp_path / "moved")
    moved.clock = job.clock
    with dg.DagsterInstance.ephemeral() as instance:
        ticks = watched(instance, job, POLICY)
        assert "is alive" in ticks.tick()
        ticks.uri = moved.store.objects.uri
        assert "has never run" in ticks.tick()
        moved.claim()
        moved.beat()
        assert "is alive" in ticks.tick()


def test_the_cursor_of_a_version_that_did_not_record_the_store_is_of_this_one() -> None:
    known = RecoveryCursor.read('{"watched": {"generation": 3}, "told": ["a"]}')
    here = known.of_store("/stores/here")
    assert (here.watched.generation, here.told, here.store) == (3, ("a",), "/stores/here")
    assert here.of_store("/stores/here") == here
    assert here.of_store("/stores/there") == RecoveryCursor(store="/stores/there")


class Slow(FaultyStore):
    """How long files are is not answered before somebody says so."""

    def __init__(self, inner: ObjectStore) -> None:
        super().__init__(inner)
        self.may_answer = threading.Event()
        self.asked = 0

    def size(self, key: str) -> int | None:
        """See ``ObjectStore.size``."""
        if "/operators/" in key:
            self.asked += 1
            assert self.may_answer.wait(10)
        return super().size(key)


def test_a_choice_that_takes_long_is_taken_by_a_later_tick(
    job: Job, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Goal: no tick waits for longer than it may, and the reading is not begun anew."""
    monkeypatch.setitem(OBJECTS, job.store.objects.uri, slow := Slow(job.store.objects))
    with dg.DagsterInstance.ephemeral() as instance:
        ticks = watched(instance, job, POLICY, reads := BackgroundReads(wait_ms=50))
        while (
            "still being chosen" not in ticks.tick()
        ):  # On a busy machine the facts are late, too.
            assert ticks.runs == []
        reading = dict(reads._running)
        slow.may_answer.set()
        for future in reading.values():
            future.result(10)
        once = slow.asked
        while not (line := ticks.tick()).startswith(f"{STREAM}:recover:1:1:"):
            assert line.startswith("no facts: "), line
            assert ticks.runs == []
        assert slow.asked == once


def test_a_lasting_problem_raises_one_alert(job: Job) -> None:
    HEARD.clear()
    with dg.DagsterInstance.ephemeral() as instance:
        ticks = watched(instance, job, AlertPolicy(recover=False, hook=HOOK))
        for _ in range(3):
            assert ticks.tick().startswith("it is dead: the driver of generation 1 is gone")
        job.claim_by_the_dead(base=2)
        ticks.tick()
    assert [alert.facts["generation"] for alert in HEARD] == [1, 2]
    assert {alert.runbook for alert in HEARD} == {"docs/operations.md#job-dead"}
    assert ticks.runs == []
