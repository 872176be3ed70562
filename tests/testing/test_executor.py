"""A background thread that is none: in order, when its turn comes, or never."""

import pytest

from laminar_core.testing.executor import SimulatedExecutor
from laminar_core.testing.world import ProcessKilledError, World


@pytest.fixture
def world():
    return World(3)


@pytest.fixture
def executor(world):
    return SimulatedExecutor(world, "background")


def run(world: World) -> None:
    world.run_until(lambda: False, 1_000)


def test_nothing_runs_before_its_turn_and_then_in_order(world, executor):
    ran = []
    futures = [executor.submit(ran.append, n) for n in range(5)]
    assert ran == []
    run(world)
    assert ran == [0, 1, 2, 3, 4]
    assert all(future.done() for future in futures)


def test_results_and_errors_are_in_the_future(world, executor):
    good, bad = executor.submit(lambda: 7), executor.submit(lambda: 1 // 0)
    run(world)
    assert good.result() == 7
    assert isinstance(bad.exception(), ZeroDivisionError)


def test_a_function_may_submit_another(world, executor):
    ran = []
    executor.submit(lambda: executor.submit(ran.append, "inner"))
    run(world)
    assert ran == ["inner"]


def test_shutting_down_runs_what_is_queued_or_forgets_it(world):
    for cancel, expected in ((False, [1, 2]), (True, [])):
        ran, executor = [], SimulatedExecutor(world, "background")
        for n in (1, 2):
            executor.submit(ran.append, n)
        executor.shutdown(cancel_futures=cancel)
        run(world)
        assert ran == expected


def test_killing_forgets_what_is_queued(world, executor):
    ran = []
    executor.submit(ran.append, 1)
    executor.kill()
    run(world)
    assert ran == []


def test_a_kill_is_not_an_error_that_a_future_swallows(world, executor):
    def die() -> None:
        executor.kill()
        raise ProcessKilledError

    future = executor.submit(die)
    run(world)
    assert not future.done()


def test_held_it_runs_nothing(world, executor):
    future = executor.submit(lambda: None)
    executor.held = True
    run(world)
    assert not future.done()
