"""When the driver has files deleted, and of which checkpoints; how is in ``test_cleanup.py``."""

import pytest

from laminar_core.driver.events import CheckpointFailed, GenerationStarted
from laminar_core.objectstore.memory import MemoryObjectStore
from laminar_core.protocol.coordinator_config import CoordinatorConfig
from laminar_core.protocol.coordinator_events import Declined
from laminar_core.protocol.types import CheckpointId, DeclineCause
from laminar_core.records.actor import LAMINAR
from laminar_core.testing.faulty_store import Effect, Fault, FaultyStore
from laminar_core.testing.scenarios import windows_job
from laminar_core.testing.simulation import Simulation
from tests.driver.drivers import Driver


class TestLeftOvers:
    """Parts of checkpoints that never completed."""

    @staticmethod
    def discarded(driver: Driver, monkeypatch) -> list[int]:
        ids: list[int] = []
        monkeypatch.setattr(driver.store.parts, "discard", ids.append)
        return ids

    @staticmethod
    def clean(driver: Driver) -> None:
        driver.host.confirm()
        driver.deletions.run()
        driver.settle()

    def test_of_one_that_was_declined_go_when_all_have_heard_of_the_abort(self, monkeypatch):
        driver = Driver()
        discarded = self.discarded(driver, monkeypatch)
        driver.request()
        driver.settle()
        driver.driver.dispatch(Declined(CheckpointId(1), DeclineCause.FAILED, "disk"))
        driver.deletions.run()
        assert discarded == []
        self.clean(driver)
        assert discarded == [1]
        driver.acknowledge(1, 0)
        self.clean(driver)
        assert discarded == [1, 1], "a late answer"

    def test_of_one_that_expired_go_too(self, monkeypatch):
        driver = Driver(timeout_ms=100)
        discarded = self.discarded(driver, monkeypatch)
        driver.request()
        driver.settle()
        driver.host.time_ms += 100
        driver.driver.tick()
        self.clean(driver)
        assert discarded == [1]

    def test_nothing_is_deleted_of_one_that_completed(self, monkeypatch):
        driver = Driver()
        discarded = self.discarded(driver, monkeypatch)
        driver.complete()
        driver.complete()
        self.clean(driver)
        assert discarded == []

    def test_nor_of_one_whose_publication_has_no_answer(self, monkeypatch):
        driver = Driver(Fault("put_if_absent", Effect.FAIL, key="manifest", last=2))
        discarded = self.discarded(driver, monkeypatch)
        driver.complete()
        assert [e.outcome for e in driver.host.told] == ["declined"]
        driver.acknowledge(1, 0)
        self.clean(driver)
        assert discarded == []

    def test_nor_of_one_whose_id_was_not_reserved(self, monkeypatch):
        driver = Driver(Fault("put_if_absent", Effect.FAIL, key="trigger", last=2))
        discarded = self.discarded(driver, monkeypatch)
        driver.request()
        driver.settle()
        self.clean(driver)
        assert discarded == []

    def test_earlier_generations_are_cleaned_up_after(self):
        driver = Driver(highest_id=41)
        assert len(driver.deletions.queue) == 1

    def test_while_too_many_deletions_wait_no_checkpoint_starts(self, monkeypatch):
        driver = Driver()
        self.discarded(driver, monkeypatch)
        for n in (1, 2):
            driver.request()
            driver.settle()
            driver.driver.dispatch(Declined(CheckpointId(n), DeclineCause.FAILED, "disk"))
        driver.host.confirm()
        driver.settle()
        driver.request()
        driver.settle()
        assert driver.triggered() == [1, 2]
        self.clean(driver)
        assert driver.triggered() == [1, 2, 3]


def left_over(simulation: Simulation) -> set[int]:
    """Checkpoints of which files are there and no manifest."""
    store = simulation.store
    incomplete = set(store.attempts.ids()) - set(store.manifests.ids())
    return {n for n in incomplete if simulation.objects.list(store.paths.parts(n))}


@pytest.mark.sampled(3)
@pytest.mark.parametrize("seed", range(12))
def test_a_job_that_had_failures_leaves_nothing_that_it_could_have_deleted(seed: int) -> None:
    """Goal: declined, expired and cut-off checkpoints leave no files, and good ones all of theirs.

    Method: writes fail now and then, and a worker dies. What its generation could not delete, and
    what a finished one had no time for, is there for later ones to find.
    """
    job = windows_job(2)
    faults = [
        Fault("put_if_absent", Effect.FAIL, key="state_1", first=n, last=n + 3) for n in (2, 10)
    ]
    config = CoordinatorConfig(interval_ms=15, tolerable_failures=None, timeout_ms=400)
    simulation = Simulation(
        job.plan,
        seed=seed,
        checkpoint=config,
        objects=FaultyStore(MemoryObjectStore(), *faults),
    )
    simulation.network.control_loss = 0.1 * (seed % 2)
    simulation.world.at_turn(100 + 20 * seed, lambda: simulation.kill_worker(seed % 2))
    simulation.run_to_end()
    job.check()
    assert len([e for e in simulation.events if isinstance(e, GenerationStarted)]) == 2
    failed = {e.checkpoint_id for e in simulation.events if isinstance(e, CheckpointFailed)}
    assert failed
    assert failed - left_over(simulation), "some are gone at once"
    simulation.network.control_loss = 0
    for _ in range(3):
        simulation.run(actor=LAMINAR.because("again"))
    assert left_over(simulation) == set()
    for complete in simulation.store.manifests.ids():
        assert simulation.store.verify(complete).problem is None
