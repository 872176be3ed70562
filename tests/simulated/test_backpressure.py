"""Slow workers hold others back and nothing more: queues stay bounded, and everybody goes on."""

import pytest

from laminar_core.driver.events import WorkersRunning
from laminar_core.protocol.coordinator import CoordinatorConfig
from laminar_core.protocol.types import Batch
from laminar_core.testing.jobs import Job
from laminar_core.testing.scenarios import SCENARIOS
from laminar_core.testing.simulation import Simulation
from laminar_core.testing.world import Process
from laminar_core.worker.channels import CREDITS_PER_CHANNEL, OUTPUT_QUEUE_BATCHES

OVERSHOOT_BATCHES = 8
"""Batches that one step may add to a queue that had room: the windows that fire at once."""

SLOW = 60.0


class Meter(Process):
    """Reads every queue of every worker each millisecond, and keeps the longest of each kind."""

    def __init__(self, simulation: Simulation) -> None:
        super().__init__(simulation.world, "meter")
        self.input_batches = self.output_batches = self.under_way = 0
        self._simulation = simulation
        simulation.world.add(self)
        self.wake()

    def turn(self) -> float:
        for stage in self._simulation.drivers[-1].stages:
            for worker in stage.workers:
                self._read(worker.worker.wiring)
        return 1.0

    def _read(self, wiring) -> None:
        for _, channel in wiring.inputs.values():
            self.input_batches = max(self.input_batches, _batches(channel._queue))
        for channel in wiring.outputs.values():
            self.output_batches = max(self.output_batches, channel._batches)
            self.under_way = max(self.under_way, CREDITS_PER_CHANNEL - channel.credits)


def _batches(queue) -> int:
    return sum(isinstance(element, Batch) for element in queue)


def simulate(name: str, paces: list[float], seed: int = 0) -> tuple[Job, Simulation, Meter]:
    """A job whose workers are slower than others by these factors."""
    job = SCENARIOS[name](len(paces))
    simulation = Simulation(
        job.plan,
        parallelism=len(paces),
        seed=seed,
        checkpoint=CoordinatorConfig(interval_ms=5, max_concurrent=3, tolerable_failures=None),
    )

    def slow_down() -> None:
        for worker, pace in zip(simulation.drivers[-1].stages[-1].workers, paces, strict=True):
            worker.pace = pace

    simulation.when(WorkersRunning, slow_down)
    return job, simulation, Meter(simulation)


@pytest.mark.sampled(3)
@pytest.mark.parametrize("slow", range(3))
@pytest.mark.parametrize("name", ["windows", "broadcast", "mesh", "fan-out"])
def test_a_slow_worker_fills_bounded_queues_and_no_more(name, slow):
    paces = [1.0, 1.0, 1.0]
    paces[slow] = SLOW
    job, simulation, meter = simulate(name, paces)
    assert simulation.run().outcome == "finished"
    job.check()
    assert meter.input_batches <= CREDITS_PER_CHANNEL
    assert meter.under_way <= CREDITS_PER_CHANNEL
    assert meter.output_batches <= OUTPUT_QUEUE_BATCHES + OVERSHOOT_BATCHES


def test_the_queues_do_fill_up() -> None:
    """Guards the bounds above: a meter that reads nothing would keep them, too."""
    _, simulation, meter = simulate("broadcast", [1.0, 1.0, SLOW])
    simulation.run()
    assert (meter.input_batches, meter.under_way) == (CREDITS_PER_CHANNEL, CREDITS_PER_CHANNEL)
    assert meter.output_batches >= OUTPUT_QUEUE_BATCHES


@pytest.mark.sampled(3)
@pytest.mark.parametrize("seed", range(12))
def test_a_mesh_where_everybody_holds_a_channel_goes_on(seed):
    """Barriers every few milliseconds, paces far apart: channels are held all the time."""
    paces = [1.0, 7.0, 30.0]
    paces = paces[seed % 3 :] + paces[: seed % 3]
    job, simulation, _ = simulate(("mesh", "union", "rebalance", "windows")[seed % 4], paces, seed)
    assert simulation.run().outcome == "finished"
    job.check()


def test_a_worker_that_stands_still_stops_the_source_of_the_others():
    _, simulation, _ = simulate("mesh", [1.0, 1.0])
    read = []

    def freeze() -> None:
        workers = simulation.drivers[-1].stages[-1].workers
        workers[1].hold()

        def look() -> None:
            read.append(workers[0].worker.wiring.counts().rows_in)

        for delay_ms in (2_000, 4_000):
            simulation.world.later(delay_ms, look)
        simulation.world.later(5_000, lambda: workers[1].hold(held=False))

    simulation.when(WorkersRunning, freeze)
    simulation.run()
    assert read[0] == read[1] < 80
