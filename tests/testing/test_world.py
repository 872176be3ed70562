"""Simulated time: who is due runs, in an order that only the seed decides."""

import math

import pytest

from laminar_core.testing.world import NotLiveError, Process, ProcessKilledError, World


class Ticker(Process):
    """Runs every so often, so many times, and writes down when."""

    def __init__(self, world: World, name: str, every_ms: float, times: int = 5) -> None:
        super().__init__(world, name)
        self.every_ms, self.left, self.ran_ms = every_ms, times, []
        world.add(self)
        self.wake()

    def turn(self) -> float:
        self.ran_ms.append(self.world.now_ms - START_MS)
        self.left -= 1
        return self.every_ms if self.left else math.inf


START_MS = World(0).now_ms


def run(world: World, milliseconds: float) -> None:
    world.run_until(lambda: False, milliseconds)


def test_time_passes_between_turns_and_stops_at_the_deadline():
    world = World(1)
    ticker = Ticker(world, "a", every_ms=100, times=100)
    run(world, 1_000)
    assert world.now_ms == START_MS + 1_000
    gaps = [b - a for a, b in zip(ticker.ran_ms, ticker.ran_ms[1:], strict=False)]
    assert 9 <= len(ticker.ran_ms) <= 10
    assert all(gap >= 100 for gap in gaps)


def test_a_condition_ends_the_run_at_once():
    world = World(1)
    ticker = Ticker(world, "a", every_ms=10)
    world.run_until(lambda: len(ticker.ran_ms) == 3)
    assert ticker.left == 2


def test_equal_seeds_are_equal_histories_and_others_differ():
    digests = []
    for seed in (1, 1, 2):
        world = World(seed)
        for name in "abc":
            Ticker(world, name, every_ms=1)
        run(world, 100)
        digests.append(world.digest)
    assert digests[0] == digests[1] != digests[2]


def test_a_process_that_is_held_sleeps_through_what_is_due():
    world = World(1)
    ticker = Ticker(world, "a", every_ms=10)
    ticker.held = True
    run(world, 100)
    assert ticker.ran_ms == []
    ticker.held = False
    run(world, 1)
    assert len(ticker.ran_ms) == 1


def test_a_slow_process_gets_fewer_turns():
    world = World(1)
    fast, slow = (Ticker(world, name, every_ms=0, times=10_000) for name in "ab")
    slow.pace = 50
    run(world, 500)
    assert len(fast.ran_ms) > 10 * len(slow.ran_ms)


def test_waking_brings_a_turn_forward_but_not_into_the_one_that_is_under_way():
    world = World(1)
    ticker = Ticker(world, "a", every_ms=1_000)
    world.run_until(lambda: len(ticker.ran_ms) == 1)
    busy_until_ms = ticker.busy_until_ms
    ticker.wake()
    world.run_until(lambda: len(ticker.ran_ms) == 2)
    assert world.now_ms == busy_until_ms


def test_actions_happen_once_before_their_turn_or_after_their_delay():
    world, happened = World(1), []
    Ticker(world, "a", every_ms=1, times=50)
    world.at_turn(3, lambda: happened.append(("turn", world.turns)))
    world.later(20, lambda: happened.append(("later", world.now_ms - START_MS >= 20)))
    run(world, 100)
    assert happened == [("turn", 3), ("later", True)]


def test_an_action_may_run_the_world_itself():
    world, happened = World(1), []
    ticker = Ticker(world, "a", every_ms=1, times=1_000)

    def nested() -> None:
        run(world, 50)
        happened.append(len(ticker.ran_ms))

    world.at_turn(2, nested)
    run(world, 100)
    assert happened[0] > 10
    assert len(ticker.ran_ms) > happened[0]


def test_a_process_that_is_killed_in_its_turn_ends_and_others_go_on():
    class Victim(Process):
        def turn(self) -> float:
            self.world.remove(self)
            raise ProcessKilledError(self.name)

    world = World(1)
    victim = Victim(world, "victim")
    world.add(victim)
    victim.wake()
    ticker = Ticker(world, "a", every_ms=1)
    run(world, 100)
    assert ticker.left == 0


def test_an_error_of_a_process_is_not_swallowed():
    class Broken(Process):
        def turn(self) -> float:
            raise ValueError(self.name)

    world = World(1)
    broken = Broken(world, "broken")
    world.add(broken)
    broken.wake()
    with pytest.raises(ValueError, match="broken"):
        run(world, 1)


def test_waiting_for_what_never_happens_is_an_error_that_says_who_is_there():
    world = World(1)
    Ticker(world, "a", every_ms=1, times=3).held = True
    with pytest.raises(NotLiveError, match=r"nothing is due any more; there are: a \(held\)"):
        world.run_until(lambda: False)


def test_an_action_may_itself_take_all_the_turns_that_are_left():
    world = World(1)
    ticker = Ticker(world, "a", every_ms=1, times=3)
    world.at_turn(2, lambda: world.run_until(lambda: ticker.left == 0))
    world.run_until(lambda: ticker.left == 0)
    assert ticker.left == 0


def test_a_process_that_waits_for_ever_is_not_due():
    world = World(1)
    ticker = Ticker(world, "a", every_ms=1, times=1)
    with pytest.raises(NotLiveError, match="nothing is due any more"):
        world.run_until(lambda: False)
    assert len(ticker.ran_ms) == 1


def test_a_run_without_an_end_is_an_error():
    world = World(1, turns_max=200)
    Ticker(world, "a", every_ms=0, times=10_000)
    with pytest.raises(NotLiveError, match="no end after 201 turns"):
        world.run_until(lambda: False)
