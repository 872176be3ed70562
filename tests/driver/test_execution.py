"""From the first sign that a generation is over to its end."""

import pytest

from laminar_core.driver.events import (
    CheckpointCompleted,
    GenerationFailed,
    GenerationStarted,
    WorkersRunning,
)
from laminar_core.driver.restart import NoRestart
from laminar_core.errors import ErrorCode, JobFailedError
from laminar_core.link.messages import Finish
from laminar_core.objectstore.opening import open_object_store
from laminar_core.testing.jobs import normal
from laminar_core.testing.scenarios import windows_job
from laminar_core.testing.simulation import Simulation
from laminar_core.testing.world import ProcessKilledError
from laminar_core.worker.inflight import SnapshotLimits
from laminar_core.worker.worker import Phase
from tests.simulated.simulated_jobs import collect_job


def simulate(build, seed: int = 0):
    job = build(2)
    return job, Simulation(job.plan, seed=seed)


def generations(simulation: Simulation) -> int:
    return sum(isinstance(event, GenerationStarted) for event in simulation.events)


def when_told_to_finish(simulation: Simulation, index: int, action) -> None:
    """Act when this worker of the first stage hears that the job is over, before it leaves."""

    def watch() -> None:
        worker = simulation.drivers[0].stages[0].workers[index]
        heard = worker.worker._on_message

        def on_message(message) -> None:
            if isinstance(message, Finish):
                action(worker)
            if worker.held or worker.ended.done():
                raise ProcessKilledError  # It gets no further.
            heard(message)

        worker.worker._on_message = on_message

    simulation.when(WorkersRunning, watch)


class TestCollectedRows:
    def test_they_come_back_when_the_job_has_ended(self):
        job, simulation = simulate(collect_job)
        result = simulation.run()
        assert normal(result.collected["rows"].to_pylist()) == normal(job.expected["rows"])

    @pytest.mark.parametrize("seed", range(5))
    def test_a_worker_killed_while_it_hands_them_over_costs_a_restart_and_no_row(self, seed):
        job, simulation = simulate(collect_job, seed)
        when_told_to_finish(simulation, 1, lambda worker: worker.kill())
        result = simulation.run()
        assert result.generations == 2
        failed = [e for e in simulation.events if isinstance(e, GenerationFailed)]
        assert failed[0].code == "worker-lost"
        assert "collected rows were not handed over" in failed[0].reason
        assert normal(result.collected["rows"].to_pylist()) == normal(job.expected["rows"])

    def test_a_worker_that_never_hands_them_over_is_killed(self):
        job, simulation = simulate(collect_job)
        when_told_to_finish(simulation, 0, lambda worker: worker.hold())
        result = simulation.run()
        assert result.generations == 2
        assert normal(result.collected["rows"].to_pylist()) == normal(job.expected["rows"])

    def test_handing_over_may_take_a_while(self):
        job, simulation = simulate(collect_job)

        def nap(worker) -> None:
            if not worker.held:
                worker.hold()
                simulation.world.later(20_000, lambda: wake_up(worker))

        def wake_up(worker) -> None:
            worker.hold(held=False)
            worker.worker.phase = Phase.FINISHED  # The word was lost with its turn.
            worker.wake()

        when_told_to_finish(simulation, 0, nap)
        result = simulation.run()
        assert result.generations == 1
        assert normal(result.collected["rows"].to_pylist()) == normal(job.expected["rows"])


class TestFinished:
    def test_a_worker_killed_after_everything_is_committed_changes_nothing(self):
        job, simulation = simulate(windows_job)
        when_told_to_finish(simulation, 1, lambda worker: worker.kill())
        assert simulation.run().generations == 1
        job.check()

    def test_a_worker_that_does_not_leave_is_killed(self):
        job, simulation = simulate(windows_job)
        when_told_to_finish(simulation, 1, lambda worker: worker.hold())
        simulation.run()
        workers = simulation.drivers[0].stages[0].workers
        assert workers[0].worker.phase is Phase.FINISHED
        assert workers[1].ended.done()
        job.check()


def test_what_a_snapshot_may_cost_reaches_every_worker():
    _, simulation = simulate(windows_job)
    limits = SnapshotLimits(max_inflight_buffer_bytes=1 << 20, sync_timeout_ms=900)
    simulation.run(limits=limits, inflight_compression="zstd")
    for worker in simulation.drivers[0].stages[0].workers:
        deployment = worker.worker._deployment
        assert (deployment.limits, deployment.inflight_compression) == (limits, "zstd")


def test_workers_get_the_whole_path_of_a_store_that_was_opened_by_a_relative_one(
    tmp_path, monkeypatch
):
    """They may run in another directory than the driver, and would write to another store."""
    monkeypatch.chdir(tmp_path)
    objects = open_object_store("store")
    objects.create()
    job = windows_job(2)
    simulation = Simulation(job.plan, objects=objects)
    simulation.run(store_uri="store")
    workers = simulation.drivers[0].stages[0].workers
    assert {w.worker._deployment.store_uri for w in workers} == {str(tmp_path / "store")}
    assert objects.uri == str(tmp_path / "store")
    job.check()


def test_ids_of_checkpoints_that_were_deleted_are_not_used_again():
    """The history outlives the checkpoint itself."""
    job, simulation = simulate(windows_job)
    simulation.run()
    newest = simulation.store.manifests.ids()[-1]
    for number in range(1, newest):
        for key in simulation.objects.list(f"simulated/checkpoints/{number:010d}/"):
            simulation.objects.delete(key)
    simulation.run()
    assert min(set(simulation.store.manifests.ids()) - {newest}) > newest
    job.check()


class TestFailed:
    def test_the_others_are_told_to_leave(self):
        job, simulation = simulate(windows_job)
        simulation.when(CheckpointCompleted, lambda: simulation.kill_worker(0))
        simulation.run()
        survivor = simulation.drivers[0].stages[0].workers[1]
        assert survivor.worker.phase is Phase.CANCELLED
        job.check()

    def test_one_that_does_not_leave_is_killed(self):
        _, simulation = simulate(windows_job)
        slept_ms = []

        def put_to_sleep() -> None:
            simulation.drivers[-1].stages[-1].workers[1].hold()
            slept_ms.append(simulation.world.now_ms)

        simulation.when(CheckpointCompleted, put_to_sleep)
        with pytest.raises(JobFailedError, match=r"worker 1: no sign of life for 3. s"):
            simulation.run(restart=NoRestart())
        workers = simulation.drivers[0].stages[0].workers
        assert workers[0].worker.phase is Phase.CANCELLED
        assert workers[1].ended.done()
        assert 35_000 < simulation.world.now_ms - slept_ms[0] < 37_000

    def test_the_workers_own_words_say_more_than_the_clusters(self):
        """Both tell of the death, the worker a moment later."""
        job, simulation = simulate(windows_job)
        said = []

        def break_a_worker() -> None:
            worker = simulation.drivers[-1].stages[-1].workers[0].worker

            def run_once() -> bool:
                said.append(True)
                raise RuntimeError("the disk is on fire")

            worker.run_once = run_once

        simulation.when(WorkersRunning, break_a_worker)
        with pytest.raises(JobFailedError, match="worker 0: RuntimeError: the disk is on fire"):
            simulation.run(restart=NoRestart())
        assert said
        assert generations(simulation) == 1
        simulation.run()
        job.check()

    def test_a_coordinator_that_fails_ends_the_generation_and_the_job_goes_on(self):
        job, simulation = simulate(windows_job)

        def garble() -> None:
            coordinator = simulation.drivers[-1].coordinators[-1]
            simulation.network.send("noise", coordinator.address.endpoint, b"{")

        simulation.when(CheckpointCompleted, garble)
        assert simulation.run().generations == 2
        failed = [e for e in simulation.events if isinstance(e, GenerationFailed)]
        assert failed[0].code == ErrorCode.ILLEGAL_EVENT
        assert "the coordinator failed" in failed[0].reason
        job.check()
