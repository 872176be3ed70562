"""A store or a sink that fails in one particular way: the job goes on, its output is exact."""

import pytest

from laminar_core.driver.events import (
    CheckpointCompleted,
    CheckpointFailed,
    GenerationFailed,
    GenerationStarted,
    WorkersRunning,
)
from laminar_core.driver.restart import FixedDelay
from laminar_core.errors import ErrorCode, JobFailedError, StorageUnavailable
from laminar_core.objectstore.memory import MemoryObjectStore
from laminar_core.protocol.coordinator import CoordinatorConfig
from laminar_core.protocol.types import CheckpointId
from laminar_core.records.damage import DamagedFile
from laminar_core.testing.faulty_store import Effect, Fault, FaultyStore
from laminar_core.testing.jobs import Job
from laminar_core.testing.scenarios import windows_job
from laminar_core.testing.simulation import Simulation


def simulate(*faults: Fault, seed: int = 0, **config) -> tuple[Job, Simulation]:
    job = windows_job(2, pace=300)
    checkpoint = CoordinatorConfig(**{"interval_ms": 10, "tolerable_failures": None, **config})
    objects = FaultyStore(MemoryObjectStore(), *faults)
    return job, Simulation(job.plan, seed=seed, checkpoint=checkpoint, objects=objects)


def failed(simulation: Simulation) -> list[CheckpointFailed]:
    return [event for event in simulation.events if isinstance(event, CheckpointFailed)]


@pytest.mark.sampled(3)
@pytest.mark.parametrize("effect", [Effect.FAIL, Effect.LOSE_ANSWER, Effect.DENY])
@pytest.mark.parametrize("calls", [(1, 1), (2, 7)])
@pytest.mark.parametrize(
    "key", ["trigger", "/state_", "manifest", "commits/", "history/", "base", "0001.json"]
)
def test_a_write_may_fail_or_lose_its_answer(key, calls, effect):
    first, last = calls
    job, simulation = simulate(Fault("put_if_absent", effect, key, first, last))
    while True:
        try:
            result = simulation.run()
        except StorageUnavailable:
            continue  # The job could not even be claimed; somebody tries again.
        break
    assert result.outcome == "finished"
    job.check()


@pytest.mark.parametrize("verb", ["get", "children", "size"])
@pytest.mark.parametrize("calls", [(1, 2), (9, 14), (20, 22)])
def test_a_read_may_fail_or_lose_its_answer(verb, calls):
    first, last = calls
    job, simulation = simulate(Fault(verb, Effect.FAIL, "", first, last))
    simulation.when(CheckpointCompleted, simulation.kill_driver, number=2)
    for _ in range(10):
        try:
            result = simulation.run_to_end()
        except StorageUnavailable:
            continue
        break
    assert result.outcome == "finished"
    job.check()


@pytest.mark.sampled(2)
@pytest.mark.parametrize("seed", range(6))
def test_output_of_a_checkpoint_that_is_declined_comes_with_the_next(seed):
    """Rows were pre-committed for it; they are before the cut of every later one, too."""
    job, simulation = simulate(Fault("put_if_absent", Effect.FAIL, "manifest", 2, 5), seed=seed)
    assert simulation.run().generations == 1
    assert [event.outcome for event in failed(simulation)] == ["declined", "declined"]
    job.check()


def test_state_that_was_not_written_declines_in_the_workers_words():
    job, simulation = simulate(Fault("put_if_absent", Effect.FAIL, "/state_", 1, 2))
    simulation.run()
    assert failed(simulation)[0].outcome == "declined"
    assert "cannot put_if_absent: a scripted fault" in failed(simulation)[0].reason
    job.check()


def test_the_final_checkpoint_is_tried_until_it_succeeds():
    job, simulation = simulate(
        Fault("put_if_absent", Effect.FAIL, "manifest", 1, 6), interval_ms=None
    )
    assert simulation.run().generations == 1
    assert [event.kind for event in failed(simulation)] == ["final"] * 3
    job.check()


@pytest.mark.parametrize("moment", ["before", "after"])
@pytest.mark.parametrize("times", [1, 6])
def test_a_commit_may_fail_and_lose_answers_while_checkpoints_go_on(times, moment):
    job, simulation = simulate()
    failures = [("commit", moment)] * times

    def fail(*call: str) -> None:
        if call in failures:
            failures.remove(call)
            raise StorageUnavailable(ErrorCode.STORE_IO, "the sink did not answer")

    job.ledgers["out"].observe = fail
    result = simulation.run()
    assert (result.outcome, result.generations, failures) == ("finished", 1, [])
    assert simulation.store.attempts.committed_ids() == simulation.store.manifests.ids()
    job.check()


def test_a_store_that_becomes_read_only_while_the_job_runs_ends_it_with_its_words():
    read_only = Fault("put_if_absent", Effect.FAIL, "", 25, 10_000, code=ErrorCode.STORE_READ_ONLY)
    job, simulation = simulate(read_only, tolerable_failures=3)
    with pytest.raises(JobFailedError, match="a scripted fault") as caught:
        simulation.run(restart=FixedDelay(2, pause_ms=10))
    assert caught.value.code is ErrorCode.RESTARTS_EXHAUSTED
    simulation.objects._faults = ()
    simulation.run()
    job.check()


def test_a_torn_manifest_is_passed_over():
    """A store that is not atomic leaves half of it; the one before is restored."""
    job, simulation = simulate(Fault("put_if_absent", Effect.TEAR, "manifest", 3, 4))
    simulation.when(CheckpointCompleted, simulation.kill_driver, number=3)
    simulation.run_to_end()
    torn = simulation.store.paths.manifest(CheckpointId(3))
    assert simulation.objects.get(torn) is not None
    job.check()


def test_damage_while_the_job_runs_is_found_when_it_is_restored():
    """Between the choice in the driver and the read in the worker."""
    job, simulation = simulate()
    damaged = []

    def damage() -> None:
        for worker in simulation.drivers[-1].stages[-1].workers:
            restored = worker.worker._deployment.restored
            for entry in restored.subtasks if restored is not None else ():
                if entry.segments and not damaged:
                    damaged.append(entry.segments[0].path)
                    simulation.objects.put(f"simulated/{entry.segments[0].path}", b"rot")

    simulation.when(CheckpointCompleted, lambda: simulation.kill_worker(0), number=2)
    simulation.when(GenerationStarted, damage, number=2)  # Chosen, and no worker has run yet.
    simulation.run()
    assert damaged
    ends = [e for e in simulation.events if isinstance(e, GenerationFailed)]
    assert [e.code for e in ends] == ["worker-lost", "corrupt"]
    assert ends[-1].damaged_file == DamagedFile(path=damaged[0], problem="length")
    assert len([e for e in simulation.events if isinstance(e, WorkersRunning)]) >= 2
    job.check()
