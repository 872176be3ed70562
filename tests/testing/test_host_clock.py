"""A machine's clocks are right until somebody sets them wrong."""

from laminar_core.host.clock import ManualClock
from laminar_core.testing.host_clock import HostClock


def clocks() -> tuple[ManualClock, HostClock]:
    world = ManualClock(1_000)
    return world, HostClock(world.monotonic_ms)


def test_both_clocks_follow_the_world():
    world, clock = clocks()
    world.wait_ms(5)
    assert (clock.now_ms(), clock.monotonic_ms()) == (1_005, 1_005)


def test_a_step_moves_the_wall_clock_only():
    world, clock = clocks()
    clock.step_wall(-300)
    world.wait_ms(5)
    assert (clock.now_ms(), clock.monotonic_ms()) == (705, 1_005)


def test_another_rate_counts_from_now_on_and_never_goes_back():
    world, clock = clocks()
    world.wait_ms(100)
    clock.run_at(2.0)
    assert clock.monotonic_ms() == 1_100
    world.wait_ms(100)
    assert clock.monotonic_ms() == 1_300
    clock.run_at(0.5)
    world.wait_ms(100)
    assert clock.monotonic_ms() == 1_350
    assert clock.now_ms() == 1_300


def test_waits_take_the_world_longer_if_the_clock_is_slow():
    _, clock = clocks()
    clock.run_at(0.5)
    assert clock.to_world_ms(100) == 200
