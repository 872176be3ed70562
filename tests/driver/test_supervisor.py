"""The supervisor's loop: start, restart, give up, refuse, stop and cancel; no Spark needed."""

from dataclasses import replace

import pytest

from laminar_core.driver.deadlines import Deadlines
from laminar_core.driver.events import (
    ApplicationEnded,
    ApplicationLeft,
    CheckpointCompleted,
    DataFlowing,
    Finished,
    GenerationFailed,
    GenerationStarted,
    WorkersRunning,
)
from laminar_core.driver.restart import ExponentialDelay, FailureRate, FixedDelay, NoRestart
from laminar_core.errors import (
    ConfigurationError,
    DataError,
    ErrorCode,
    FencedError,
    IncompatibleStateError,
    JobFailedError,
    ProtocolError,
    StorageUnavailable,
    WorkerTraceback,
)
from laminar_core.objectstore.memory import MemoryObjectStore
from laminar_core.protocol.coordinator_config import CoordinatorConfig
from laminar_core.protocol.types import Generation
from laminar_core.records.spark_application import SparkApplication
from laminar_core.testing.driver_process import SimulatedDriver
from laminar_core.testing.faulty_store import Effect, Fault, FaultyStore
from laminar_core.testing.jobs import Job
from laminar_core.testing.observed_store import StoreCall
from laminar_core.testing.scenarios import windows_job
from laminar_core.testing.simulation import Simulation
from laminar_core.testing.world import ProcessKilledError
from tests.simulated.loop_jobs import retry_job
from tests.simulated.simulated_jobs import failing_job, never_ending_job


def simulate(job: Job | None = None, **options) -> tuple[Job, Simulation]:
    job = job or windows_job(2)
    return job, Simulation(job.plan, **options)


def of(simulation: Simulation, kind: type) -> list:
    return [event for event in simulation.events if isinstance(event, kind)]


def the_end(simulation: Simulation, generation: int) -> str | None:
    end = simulation.store.generations.summaries()[generation - 1].end
    return None if end is None else end.outcome


class TestEndings:
    def test_a_bounded_job_finishes_and_says_what_it_did(self):
        job, simulation = simulate()
        result = simulation.run()
        job.check()
        assert (result.outcome, result.rows_in, result.rows_late) == ("finished", 120, 0)
        assert result.rows_out == len(job.ledgers["out"].rows())
        assert result.checkpoints == len(of(simulation, CheckpointCompleted))
        assert of(simulation, Finished)[0].rows_in == 120
        assert the_end(simulation, 1) == "finished"

    def test_the_last_checkpoint_is_final_and_committed(self):
        _, simulation = simulate(checkpoint=CoordinatorConfig(interval_ms=None))
        simulation.run()
        completed = of(simulation, CheckpointCompleted)
        assert [event.kind for event in completed] == ["final"]
        assert simulation.store.attempts.committed_ids() == [completed[0].checkpoint_id]

    @pytest.mark.parametrize("seed", range(6))
    def test_a_job_that_was_stopped_goes_on_where_it_was(self, seed):
        job, simulation = simulate(windows_job(2, pace=100), seed=seed)
        simulation.when(DataFlowing, simulation.stop)
        stopped = simulation.run()
        assert stopped.outcome == "stopped"
        assert 0 < stopped.rows_in < 120
        finished = simulation.run()
        assert (finished.outcome, finished.rows_in) == ("finished", 120)
        job.check()

    def test_stopping_takes_one_checkpoint_commits_it_and_reads_nothing_more(self):
        job, simulation = simulate(never_ending_job())
        simulation.when(CheckpointCompleted, simulation.stop, number=2)
        result = simulation.run()
        assert result.outcome == "stopped"
        assert of(simulation, CheckpointCompleted)[-1].kind == "stop"
        job.check()
        assert the_end(simulation, 1) == "stopped"

    @pytest.mark.parametrize("event", [GenerationStarted, WorkersRunning])
    def test_a_stop_that_comes_before_the_workers_waits_for_them(self, event):
        job, simulation = simulate()
        simulation.when(event, simulation.stop)
        assert simulation.run().outcome == "stopped"
        assert simulation.world.now_ms < of(simulation, GenerationStarted)[0].time_ms + 5_000
        simulation.run()
        job.check()

    def test_a_stop_outlives_a_failure(self):
        job, simulation = simulate()
        simulation.when(GenerationStarted, simulation.stop)
        simulation.when(WorkersRunning, lambda: simulation.kill_worker(1))
        result = simulation.run()
        assert (result.outcome, result.generations) == ("stopped", 2)
        simulation.run()
        job.check()

    @pytest.mark.parametrize("seed", range(4))
    def test_a_cancelled_job_ends_at_once_and_can_be_continued(self, seed):
        job, simulation = simulate(seed=seed)
        simulation.when(CheckpointCompleted, simulation.cancel)
        with pytest.raises(JobFailedError, match="cancelled") as caught:
            simulation.run()
        assert caught.value.code is ErrorCode.CANCELLED
        assert of(simulation, GenerationFailed)[-1].restart_in_ms is None
        assert the_end(simulation, 1) == "cancelled"
        assert simulation.run().outcome == "finished"
        job.check()

    @pytest.mark.parametrize("renewed", [True, False])
    def test_lost_spark_is_a_restart_only_where_it_can_be_started_again(self, renewed):
        job, simulation = simulate()

        def lose() -> None:
            driver = simulation.drivers[-1]
            driver.can_be_renewed = renewed
            driver.stages[-1].ended.set_exception(
                JobFailedError(ErrorCode.SPARK_LOST, "Spark's JVM is gone")
            )

        simulation.when(DataFlowing, lose)
        if renewed:
            assert simulation.run().generations == 2
        else:
            with pytest.raises(JobFailedError, match="JVM is gone") as caught:
                simulation.run()
            assert caught.value.code is ErrorCode.SPARK_LOST
            assert simulation.run().outcome == "finished"
        (failed,) = of(simulation, GenerationFailed)
        assert (failed.code, failed.restart_in_ms is not None) == ("spark-lost", renewed)
        assert the_end(simulation, 1) == "failed"
        job.check()

    def test_cancelling_during_the_pause_before_a_restart_ends_the_job(self):
        _, simulation = simulate()
        simulation.when(WorkersRunning, lambda: simulation.kill_worker(0))
        simulation.when(GenerationFailed, simulation.cancel)
        with pytest.raises(JobFailedError, match="cancelled"):
            simulation.run(restart=FixedDelay(3, pause_ms=1_000))

    def test_a_job_that_is_cancelled_while_it_fails_was_cancelled(self):
        _, simulation = simulate()

        def fail(call: StoreCall) -> None:
            if "manifest" in call.key:
                simulation.cancel()
                simulation.kill_worker(0)

        simulation.when(DataFlowing, lambda: simulation.observers.append(fail))
        with pytest.raises(JobFailedError) as caught:
            simulation.run()
        assert caught.value.code is ErrorCode.CANCELLED
        assert the_end(simulation, 1) == "cancelled"

    def test_a_store_that_fails_while_the_job_is_cancelled_is_not_the_reason_of_its_end(self):
        _, simulation = simulate()

        def fail(call: StoreCall) -> None:
            if call.key.endswith(".base.json"):
                simulation.cancel()
                raise StorageUnavailable(ErrorCode.STORE_IO, "it did not answer")

        simulation.observers.append(fail)
        with pytest.raises(JobFailedError, match="cancelled while it failed") as caught:
            simulation.run()
        assert caught.value.code is ErrorCode.CANCELLED


class TestRestarts:
    def test_without_restarts_the_first_failure_is_the_last(self):
        _, simulation = simulate()
        simulation.when(WorkersRunning, lambda: simulation.kill_worker(0))
        with pytest.raises(JobFailedError, match=r"failed once.*g1-worker-0 was killed") as e:
            simulation.run(restart=NoRestart())
        assert e.value.code is ErrorCode.RESTARTS_EXHAUSTED
        assert the_end(simulation, 1) == "failed"

    def test_a_fixed_number_of_restarts(self):
        _, simulation = simulate()
        for number in (1, 2, 3):
            simulation.when(WorkersRunning, lambda: simulation.kill_worker(1), number)
        with pytest.raises(JobFailedError, match="failed 3 times"):
            simulation.run(restart=FixedDelay(attempts=2, pause_ms=70))
        failed = of(simulation, GenerationFailed)
        assert [event.restart_in_ms for event in failed] == [70, 70, None]
        assert [event.code for event in failed] == ["worker-lost"] * 3

    def test_failures_that_are_seldom_enough_never_end_the_job(self):
        job, simulation = simulate()
        for number in range(1, 6):
            simulation.when(WorkersRunning, lambda: simulation.kill_worker(0), number)
        assert simulation.run(restart=FailureRate(1, interval_ms=1, pause_ms=5)).generations == 6
        job.check()

    def test_the_workers_own_words_are_the_reason_and_its_traceback_the_cause(self):
        _, simulation = simulate(failing_job(ValueError("seven is odd")))
        seven = "ValueError: seven is odd"
        said = r"worker \d: operator [\w-]+: ValueError: seven is odd \(/.*, line \d+, in \w+\)$"
        with pytest.raises(JobFailedError, match=said) as caught:
            simulation.run(restart=FixedDelay(1))
        assert len(of(simulation, GenerationStarted)) == 2
        failed = of(simulation, GenerationFailed)
        assert [event.traceback.splitlines()[-1] for event in failed] == [seven, seven]
        assert isinstance(caught.value.__cause__, WorkerTraceback)
        assert str(caught.value.__cause__) == f"\n{failed[-1].traceback}"

    @pytest.mark.parametrize(
        ("error", "raised"),
        [
            (DataError(ErrorCode.NULL_KEY, "row 7 has no key"), DataError),
            (ConfigurationError(ErrorCode.WRONG_SCHEMA, "a column is gone"), JobFailedError),
            (ProtocolError(ErrorCode.OUT_OF_ORDER, "frame 3 after 1"), JobFailedError),
        ],
    )
    def test_what_would_happen_again_is_not_tried_again(self, error, raised):
        _, simulation = simulate(failing_job(error))
        with pytest.raises(raised, match=str(error)) as caught:
            simulation.run()
        assert caught.value.code is error.code
        assert len(of(simulation, GenerationStarted)) == 1

    @pytest.mark.parametrize("start_ms", [1_000, 70_000])
    def test_starts_that_never_ran_use_the_restarts_up(self, start_ms):
        """However long each start has waited: only a job that ran starts the series anew."""
        _, simulation = simulate()
        simulation.slots = 1
        with pytest.raises(JobFailedError, match="failed 4 times") as caught:
            simulation.run(
                restart=ExponentialDelay(attempts=3), deadlines=Deadlines(register_ms=start_ms)
            )
        assert caught.value.code is ErrorCode.RESTARTS_EXHAUSTED
        delays = [failure.restart_in_ms for failure in of(simulation, GenerationFailed)]
        assert delays == [50, 100, 200, None]

    def test_a_store_that_does_not_answer_for_long_uses_the_restarts_up(self):
        """Each try lasts longer than a run that starts the series of restarts anew."""
        _, simulation = simulate()
        simulation.when(WorkersRunning, lambda: simulation.kill_worker(0))
        slow: list[StoreCall] = []

        def fail(call: StoreCall) -> None:
            if of(simulation, GenerationFailed) and "audit" in call.key and call.verb != "get":
                slow.append(call)
                simulation.world.spend(61_000)
                raise StorageUnavailable(ErrorCode.STORE_IO, "no answer")

        simulation.observers.append(fail)
        with pytest.raises(JobFailedError, match="failed 4 times"):
            simulation.run(restart=ExponentialDelay(attempts=3))
        assert slow

    def test_too_few_slots_are_named(self):
        _, simulation = simulate()
        simulation.slots = 1
        with pytest.raises(JobFailedError, match="only 1 of 2 workers started within 120 s"):
            simulation.run(restart=NoRestart())

    def test_a_store_that_fails_between_two_generations_is_asked_again(self):
        claims = Fault("put_if_absent", Effect.FAIL, key="generations/0000000002.json", last=4)
        job, simulation = simulate(objects=FaultyStore(MemoryObjectStore(), claims))
        simulation.when(WorkersRunning, lambda: simulation.kill_worker(0))
        assert simulation.run().generations == 2
        job.check()
        codes = [event.code for event in of(simulation, GenerationFailed)]
        assert codes == ["worker-lost", "store-io", "store-io"]

    def test_too_many_checkpoints_in_a_row_that_fail_end_the_generation(self):
        states = Fault("put_if_absent", Effect.FAIL, key="/state_", last=8)
        job, simulation = simulate(objects=FaultyStore(MemoryObjectStore(), states))
        simulation.options = replace(
            simulation.options,
            checkpoint=CoordinatorConfig(interval_ms=5, tolerable_failures=1),
        )
        assert simulation.run().generations > 1
        failed = of(simulation, GenerationFailed)
        assert failed[0].code == "snapshot-failed"
        assert "2 checkpoints failed in a row" in failed[0].reason
        job.check()


class TestOwnership:
    def test_a_live_driver_is_left_alone(self):
        job, simulation = simulate()
        refused = []

        def second() -> None:
            with pytest.raises(ConfigurationError, match="which is alive") as caught:
                simulation.run()
            refused.append(caught.value.code)
            simulation.supervisors.pop()

        simulation.when(WorkersRunning, second)
        assert simulation.run().generations == 1
        assert refused == [ErrorCode.JOB_OWNED]
        job.check()

    def test_a_driver_that_is_taken_over_from_is_fenced(self):
        job, simulation = simulate()
        simulation.when(CheckpointCompleted, lambda: simulation.run(take_over=True))
        with pytest.raises(FencedError, match="was replaced by generation 2"):
            simulation.run()
        job.check()

    def test_a_dead_drivers_job_is_continued(self):
        job, simulation = simulate()
        simulation.when(CheckpointCompleted, simulation.kill_driver)
        simulation.run_to_end()
        restored = [event.restored_checkpoint_id for event in of(simulation, GenerationStarted)]
        assert restored == [None, 1]
        job.check()


class TestRefusals:
    """Nothing is started, and nothing in the store changes but that the job was claimed."""

    def refuse(self, plan, error, match, **options) -> Simulation:
        job, simulation = simulate()
        simulation.when(CheckpointCompleted, simulation.stop, number=2)
        simulation.run()
        before, rows = contents(simulation), job.ledgers["out"].rows()
        simulation.plan = plan(job.plan)
        with pytest.raises(error, match=match):
            simulation.run(**options)
        added = {"generations/0000000002.json", "generations/0000000002.end.json"}
        after = contents(simulation)
        assert {k: v for k, v in after.items() if k not in added} == before
        assert after.keys() - before.keys() == added
        assert job.ledgers["out"].rows() == rows
        assert the_end(simulation, 2) == "refused"
        simulation.plan = job.plan
        simulation.run()
        job.check()
        return simulation

    def test_another_window(self):
        wider = windows_job(2, window="20 seconds")
        self.refuse(
            lambda _: wider.plan,
            IncompatibleStateError,
            r"totals is not what it was in checkpoint 3: window was .*10000000.* is .*20000000",
        )

    def test_an_operator_that_is_gone(self):
        renamed = windows_job(2, name="other")
        self.refuse(lambda _: renamed.plan, IncompatibleStateError, "state of totals")

    def test_other_key_groups(self):
        self.refuse(
            lambda plan: replace(plan, max_parallelism=64),
            IncompatibleStateError,
            "has 128 key groups, the pipeline 64",
        )

    def test_a_source_that_lost_rows(self):
        def truncated(plan):
            first = plan.vertices[0]
            source = first.source.source
            cut = replace(source, splits=[split.slice(0, 1) for split in source.splits])
            node = replace(first.source, source=SameDescription(cut, source))
            return replace(plan, vertices=(replace(first, source=node), *plan.vertices[1:]))

        self.refuse(truncated, IncompatibleStateError, "rows are lost")

    def test_a_checkpoint_that_never_was(self):
        self.refuse(
            lambda plan: plan,
            ConfigurationError,
            "checkpoint 77 cannot be restored: it never completed",
            restore_id=77,
        )

    def test_checkpoints_that_overlap_in_a_loop_are_refused_before_the_claim(self):
        simulation = Simulation(
            retry_job().plan, checkpoint=CoordinatorConfig(interval_ms=30, max_concurrent=2)
        )
        with pytest.raises(ConfigurationError, match="max_concurrent"):
            simulation.run()
        assert simulation.store.generations.summaries() == []

    def test_a_parallelism_that_cannot_be_is_refused_before_the_claim(self):
        _, simulation = simulate()
        with pytest.raises(ConfigurationError, match=r"parallelism must be in 1\.\.128"):
            simulation.run(parallelism=1000)
        assert simulation.store.claims.newest() is None

    def test_a_read_only_store_is_refused_before_the_claim(self):
        read_only = Fault("put_if_absent", Effect.FAIL, last=10_000, code=ErrorCode.STORE_READ_ONLY)
        _, simulation = simulate(objects=FaultyStore(MemoryObjectStore(), read_only))
        with pytest.raises(ConfigurationError, match="cannot put_if_absent") as caught:
            simulation.run()
        assert caught.value.code is ErrorCode.STORE_NOT_WRITABLE
        assert simulation.events == []

    def test_output_of_another_run_is_refused_before_anything_is_written_down(self):
        job, simulation = simulate()
        simulation.run()
        another = Simulation(job.plan)
        with pytest.raises(ConfigurationError, match="sink out already shows output of another"):
            another.run()
        assert another.store.generations.read_base(Generation(1)) is None
        job.check()

    def test_a_refusal_that_cannot_be_written_down_is_raised_all_the_same(self):
        ends = Fault("put_if_absent", Effect.FAIL, key=".end.json", last=2)
        _, simulation = simulate(objects=FaultyStore(MemoryObjectStore(), ends))
        with pytest.raises(ConfigurationError, match="never completed"):
            simulation.run(restore_id=9)


class SameDescription:
    """A source that describes itself as another one does."""

    def __init__(self, source, described) -> None:
        self._source = source
        self._described = described

    def describe(self):
        return self._described.describe()

    def __getattr__(self, name):
        return getattr(self._source, name)


def contents(simulation: Simulation) -> dict[str, bytes]:
    """Everything in the job's part of the store, without heartbeats and the audit log."""
    keys = simulation.objects.list("simulated/")
    return {
        key.removeprefix("simulated/"): simulation.objects.get(key)
        for key in keys
        if "heartbeat" not in key and "/audit/" not in key
    }


class TestApplications:
    """A driver that died leaves its application to the cluster manager."""

    def killed(self, **options) -> Simulation:
        """A job whose first driver was killed while it ran."""
        _, simulation = simulate(never_ending_job(), **options)
        simulation.applications = set()
        simulation.when(CheckpointCompleted, simulation.kill_driver)
        with pytest.raises(ProcessKilledError):
            simulation.run()
        return simulation

    def test_the_next_driver_ends_the_application_of_the_dead_one(self):
        simulation = self.killed()
        assert simulation.applications == {"driver-1"}
        simulation.when(CheckpointCompleted, simulation.stop, number=2)
        simulation.run()
        (ended,) = of(simulation, ApplicationEnded)
        assert (ended.generation, ended.application_id) == (1, "driver-1")
        assert simulation.applications == {"driver-2"}

    def test_the_application_that_the_driver_itself_uses_is_not_ended(self, monkeypatch):
        simulation = self.killed()
        own = SparkApplication(application_id="driver-1", master="simulated")
        monkeypatch.setattr(SimulatedDriver, "application", lambda _: own)
        simulation.when(CheckpointCompleted, simulation.stop, number=2)
        simulation.run()
        assert of(simulation, ApplicationEnded) == []
        assert simulation.applications == {"driver-1"}

    def test_the_application_of_a_driver_that_ended_is_its_own_affair(self):
        _, simulation = simulate(never_ending_job())
        simulation.applications = set()
        for number in (1, 2):
            simulation.when(WorkersRunning, simulation.stop, number=number)
            simulation.run()
        assert simulation.applications == {"driver-1", "driver-2"}

    def test_a_driver_that_may_be_alive_keeps_its_application(self):
        simulation = self.killed()
        simulation.when(CheckpointCompleted, simulation.stop, number=2)
        simulation.run(take_over=True)
        (left,) = of(simulation, ApplicationLeft)
        assert "its driver may be alive" in left.reason
        assert simulation.applications == {"driver-1", "driver-2"}

    def test_one_that_cannot_be_ended_is_no_failed_start(self):
        simulation = self.killed()
        first = simulation.store.claims.last()
        simulation.objects.delete(simulation.store.paths.claim(first))
        simulation.when(CheckpointCompleted, simulation.stop, number=2)
        assert simulation.run().outcome == "stopped"
        assert of(simulation, ApplicationEnded) == []
