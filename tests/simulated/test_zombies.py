"""Who wakes up in a later generation: it can neither acknowledge, publish, commit nor withdraw."""

import pytest

from laminar_core.driver.events import CheckpointCompleted
from laminar_core.driver.restart import NoRestart
from laminar_core.errors import ErrorCode, FencedError, StorageUnavailable
from laminar_core.protocol.coordinator import CoordinatorConfig
from laminar_core.protocol.types import CheckpointId
from laminar_core.testing.jobs import Job
from laminar_core.testing.scenarios import windows_job
from laminar_core.testing.simulation import Simulation
from laminar_core.worker.worker import Phase

OFTEN = CoordinatorConfig(interval_ms=10)
LONG_MS = 60_000


def simulate(seed: int = 0, checkpoint: CoordinatorConfig = OFTEN) -> tuple[Job, Simulation]:
    job = windows_job(2, pace=1_000)
    return job, Simulation(job.plan, seed=seed, checkpoint=checkpoint)


def writes(simulation: Simulation, process: str) -> list[str]:
    """Keys that processes of this name write from now on."""
    written = []

    def observe(call) -> None:
        if call.process.startswith(process) and call.verb.startswith("put"):
            written.append(call.key)

    simulation.observers.append(observe)
    return written


@pytest.mark.sampled(2)
@pytest.mark.parametrize("seed", range(8))
def test_a_driver_and_its_workers_wake_up_when_their_successor_is_done(seed):
    job, simulation = simulate(seed)

    def sleep_through_a_generation() -> None:
        sleepers = simulation.drivers[0]
        sleepers.hold()
        simulation.run()
        job.check()
        history = simulation.store.manifests.ids(), simulation.store.attempts.committed_ids()
        calls = []
        job.ledgers["out"].observe = lambda *call: calls.append(call[0])
        sleepers.hold(held=False)
        simulation.world.run_until(lambda: False, 5_000)
        assert set(calls) <= {"stage"}
        # A manifest may still appear, of a publication that began before; it is an orphan.
        completed = [s for s in simulation.store.list_summaries() if s.outcome == "completed"]
        assert [s.checkpoint_id for s in completed if not s.orphan] == history[0]
        assert simulation.store.attempts.committed_ids() == history[1]

    simulation.when(CheckpointCompleted, sleep_through_a_generation, number=1 + seed % 2)
    with pytest.raises(FencedError):
        simulation.run()
    job.check()


@pytest.mark.sampled(2)
@pytest.mark.parametrize("seed", range(5))
def test_a_worker_that_sleeps_while_its_generation_is_cancelled_leaves_when_it_wakes_up(seed):
    job, simulation = simulate(seed)
    asleep = []

    def put_to_sleep() -> None:
        worker = simulation.drivers[0].stages[0].workers[1]
        worker.hold()
        asleep.append(worker)
        simulation.drivers[0].stages[0].interrupt = lambda: None  # It cannot be reached.
        simulation.kill_worker(0)

    simulation.when(CheckpointCompleted, put_to_sleep)
    simulation.when(CheckpointCompleted, lambda: asleep[0].hold(held=False), number=2)
    result = simulation.run()
    assert (result.outcome, result.generations) == ("finished", 2)
    simulation.world.run_until(asleep[0].ended.done, LONG_MS)
    assert asleep[0].worker.phase is Phase.CANCELLED
    job.check()


@pytest.mark.sampled(2)
@pytest.mark.parametrize("seed", range(5))
def test_workers_of_a_driver_that_was_killed_work_on_in_vain_until_its_silence_ends_them(seed):
    job, simulation = simulate(seed)
    simulation.when(CheckpointCompleted, simulation.kill_driver)
    assert simulation.run_to_end().generations == 1
    job.check()
    orphans = simulation.drivers[0].stages[0].workers
    simulation.world.run_until(lambda: all(o.ended.done() for o in orphans), LONG_MS)
    assert all("no message from the coordinator" in str(o.ended.exception(0)) for o in orphans)
    assert [s.generation for s in simulation.store.list_summaries() if s.committed][-1] == 2
    job.check()


@pytest.mark.parametrize("moment", ["before", "after"])
@pytest.mark.parametrize("key", ["manifest.json", "trigger.json", "commits/", "history/"])
def test_a_coordinator_may_fall_asleep_around_any_of_its_writes(key, moment):
    job, simulation = simulate()
    slept = []

    def observe(call) -> None:
        about = call.process == "driver-1" and key in call.key and call.verb == "put_if_absent"
        if about and call.moment == moment and not slept:
            slept.append(call.key)
            simulation.drivers[0].hold()
            simulation.run()
            simulation.drivers[0].hold(held=False)

    simulation.observers.append(observe)
    with pytest.raises(FencedError):
        simulation.run()
    assert slept
    job.check()


@pytest.mark.parametrize("moment", ["before", "after"])
def test_a_committer_may_fall_asleep_around_a_commit(moment):
    job, simulation = simulate()
    slept = []

    def observe(*call: str) -> None:
        if call == ("commit", moment) and not slept:
            slept.append(True)
            simulation.drivers[0].hold()
            simulation.run()
            simulation.drivers[0].hold(held=False)

    job.ledgers["out"].observe = observe
    with pytest.raises(FencedError):
        simulation.run()
    job.check()


def test_a_commit_that_is_tried_again_for_ever_ends_with_the_generation():
    """The successor makes the commit; the sleeper must not go on trying."""
    job, simulation = simulate()
    ledger, attempts = job.ledgers["out"], []

    def fail(verb: str, moment: str) -> None:
        if (verb, moment) == ("commit", "before"):
            attempts.append(simulation.world.now_ms)
            raise StorageUnavailable(ErrorCode.STORE_IO, "the sink is down")

    def take_over() -> None:
        ledger.observe = lambda *_: None
        simulation.run(take_over=True)
        ledger.observe = fail
        attempts.clear()

    ledger.observe = fail
    simulation.when(CheckpointCompleted, take_over, number=2)
    with pytest.raises(FencedError):
        simulation.run()
    simulation.world.run_until(lambda: False, LONG_MS)
    assert attempts == []
    job.check()


def test_a_zombie_writes_nothing_once_it_knows():
    job, simulation = simulate()
    simulation.when(CheckpointCompleted, lambda: simulation.run(take_over=True))
    with pytest.raises(FencedError):
        simulation.run(restart=NoRestart())
    written = writes(simulation, "driver-1")
    simulation.world.run_until(lambda: False, LONG_MS)
    assert written == []
    assert simulation.store.generations.read_base(2).base_checkpoint_id is not None
    assert simulation.store.manifests.read(CheckpointId(1)).generation == 1
    job.check()
