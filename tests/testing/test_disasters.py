"""Each kind of disaster does what it says, and is counted only if it comes to pass."""

import re
from random import Random

import pytest

from laminar_core.protocol.coordinator_config import CoordinatorConfig
from laminar_core.testing.disaster_kinds import (
    KINDS,
    delay_spike,
    slow_function,
    slow_link,
    torn_write,
)
from laminar_core.testing.disasters import Disasters
from laminar_core.testing.disk import SimulatedDisk
from laminar_core.testing.scenarios import windows_job
from laminar_core.testing.simulation import Simulation
from laminar_core.testing.store_disasters import STORE_KINDS

EVERY_KIND = {**KINDS, **STORE_KINDS}


def disasters(seed: int = 0) -> Disasters:
    job = windows_job(2)
    simulation = Simulation(
        job.plan, seed=seed, checkpoint=CoordinatorConfig(interval_ms=20), objects=SimulatedDisk()
    )
    return Disasters(simulation, job, Random(seed))


def notes(planned: Disasters) -> str:
    return "\n".join(planned.simulation.world.trace.lines())


@pytest.mark.sampled(3)
@pytest.mark.parametrize("kind", EVERY_KIND)
def test_each_kind_comes_to_pass_for_some_seed_and_is_counted(kind):
    for seed in range(20):
        planned = disasters(seed)
        EVERY_KIND[kind](planned)
        planned.run()
        planned.let_zombies_speak()
        planned.job.check()
        if planned.hits:
            break
    assert planned.hits.keys() == {kind}
    assert f"{kind}: " in notes(planned)


def test_what_is_planned_for_later_than_the_end_is_not_counted():
    planned = disasters()
    planned.simulation.world.at_turn(10_000, lambda: planned.hit("late", "much too late"))
    planned.run()
    assert planned.result is not None
    assert planned.hit("late", "even later") is False
    assert not planned.hits


@pytest.mark.large
def test_a_torn_write_leaves_a_piece_under_a_temporary_name_only():
    listed = []
    for seed in range(20):
        planned = disasters(seed)
        torn_write(planned)
        planned.run()
        if planned.hits:
            (torn,) = planned.simulation.objects.temporaries
            assert "is killed" in notes(planned)
            listed.append(torn in planned.simulation.objects.list(""))
    assert False in listed  # Others were written after all, by whoever came next.


def test_a_slow_function_is_over_when_it_has_computed():
    for seed in range(20):
        planned = disasters(seed)
        slow_function(planned)
        planned.run()
        if planned.hits:
            break
    said = notes(planned)
    lasts_ms = float(re.search(r"of worker \d for (\d+) ms", said)[1])
    planned_ms = float(re.search(r"([\d.]+) ms .* slow-function", said)[1])
    start_ms = planned.simulation.world.trace.start_ms
    assert planned.last_hit_ms - start_ms > planned_ms + lasts_ms


def test_a_slow_link_delays_its_own_worker():
    planned = disasters()
    slow_link(planned)
    index = next(n for n in range(2) if planned._extra_ms(f"sim://d/worker-{n}", "sim://d"))
    assert planned._extra_ms("sim://d", f"sim://d/worker-{index}/control") > 0
    assert planned._extra_ms("sim://d", f"sim://d/worker-{1 - index}/control") == 0


def test_a_spike_is_over_after_a_while():
    for seed in range(20):
        planned = disasters(seed)
        delay_spike(planned)
        planned.run()
        if planned.hits:
            break
    assert planned._extra_ms("sim://d/worker-0", "sim://d") == 0
    assert planned.last_hit_ms > planned.simulation.world.trace.start_ms


def test_a_stalled_driver_does_not_go_on_until_it_wakes_up():
    planned = disasters()
    simulation = planned.simulation

    def stall():
        driver = simulation.drivers[-1]
        driver.hold_itself()
        simulation.world.later(9_000, lambda: driver.hold_itself(held=False))

    simulation.world.at_turn(100, stall)
    started_ms = simulation.world.now_ms
    planned.run()
    assert simulation.world.now_ms - started_ms > 9_000
    planned.job.check()


def test_a_job_that_never_gets_a_driver_is_given_up(monkeypatch):
    planned = disasters()
    monkeypatch.setattr(planned, "run_one", lambda: None)
    with pytest.raises(AssertionError, match="drivers did not"):
        planned.run()
