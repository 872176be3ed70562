"""A user's function may take its time; one that never returns ends the job, within bounds."""

from dataclasses import dataclass

import pyarrow as pa
import pytest

from laminar_core.driver.deadlines import Deadlines
from laminar_core.driver.events import GenerationFailed, OperatorAtWork, WorkersRunning
from laminar_core.driver.restart import ExponentialDelay
from laminar_core.errors import ErrorCode, JobFailedError
from laminar_core.pipeline import Pipeline
from laminar_core.testing.jobs import normal, payments, rows_of, with_ledgers
from laminar_core.testing.memory_source import MemorySource
from laminar_core.testing.simulation import Simulation

MINUTE_MS = 60_000.0
PLENTY = Deadlines(progress_ms=10 * MINUTE_MS)


@dataclass
class Slow:
    """A function that takes ``minutes`` for each of the first ``batches`` batches, then none."""

    minutes: float
    batches: int = 1
    simulation: Simulation | None = None

    def __call__(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        if self.batches and batch.num_rows:
            self.batches -= 1
            assert self.simulation is not None
            self.simulation.world.spend(self.minutes * MINUTE_MS)
        return batch


def job_with(function: Slow):
    tables = payments()
    p = Pipeline("slow")
    rows = p.source("in", MemorySource(tables)).map(function, name="score")
    return with_ledgers(p, {"out": (rows, rows_of(tables))})


def simulated(function: Slow, **options):
    job = job_with(function)
    function.simulation = Simulation(job.plan, seed=3, **options)
    return job, function.simulation


def test_a_batch_that_takes_minutes_restarts_nothing_and_is_reported() -> None:
    job, simulation = simulated(Slow(minutes=5))
    result = simulation.run(deadlines=PLENTY)
    assert (result.outcome, result.generations) == ("finished", 1)
    assert normal(job.ledgers["out"].rows()) == normal(job.expected["out"])
    reports = [e for e in simulation.events if isinstance(e, OperatorAtWork)]
    assert {report.operator_id for report in reports} == {"score"}
    assert [report.busy_ms // 10_000 for report in reports] == [1, 2, 4, 8, 16]
    began = {report.since_ms for report in reports}
    assert max(began) - min(began) < 1_000, "all of them say since when"


@pytest.mark.large
def test_a_function_that_hangs_ends_the_generation_and_is_named() -> None:
    _, simulation = simulated(Slow(minutes=600))
    result = simulation.run(deadlines=PLENTY)
    assert (result.outcome, result.generations) == ("finished", 2)
    (failed,) = (e for e in simulation.events if isinstance(e, GenerationFailed))
    assert failed.code == ErrorCode.NO_PROGRESS
    assert "operator 'score' has been at work for 60" in failed.reason


@pytest.mark.large
def test_one_that_always_hangs_is_started_again_within_bounds() -> None:
    """The minutes in which it hangs are no time that the job ran well."""
    _, simulation = simulated(Slow(minutes=600, batches=100))
    with pytest.raises(JobFailedError, match="operator 'score'") as caught:
        simulation.run(deadlines=PLENTY, restart=ExponentialDelay(attempts=2))
    assert caught.value.code is ErrorCode.RESTARTS_EXHAUSTED
    failed = [e for e in simulation.events if isinstance(e, GenerationFailed)]
    assert len(failed) == 3


def test_a_process_that_is_stopped_is_still_found_by_its_silence() -> None:
    _, simulation = simulated(Slow(minutes=0))

    def stop() -> None:
        simulation.drivers[0].stages[0].workers[1].hold()

    simulation.when(WorkersRunning, stop)
    result = simulation.run()
    assert (result.outcome, result.generations) == ("finished", 2)
    (failed,) = (e for e in simulation.events if isinstance(e, GenerationFailed))
    assert failed.code == ErrorCode.WORKER_LOST
    assert failed.reason.startswith("worker 1: no sign of life for 3")
