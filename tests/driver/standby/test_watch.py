"""The facts of a standby are those of the newest driver, and its death is noticed at once."""

import subprocess
import sys

import pytest

from laminar_core.driver.standby.decision import End, StandbyBounds, TakeOver, Wait
from laminar_core.driver.standby.watch import LOOK_AT_LIVING_MS, LOOK_MS, POLL_MS, DriverWatch
from laminar_core.host.clock import ManualClock
from laminar_core.objectstore.memory import MemoryObjectStore
from laminar_core.protocol.types import Generation
from laminar_core.records.manifest import Heartbeat
from laminar_core.store.owner import this_process
from laminar_core.testing.faulty_store import Effect, Fault, FaultyStore
from tests.store.stores import claimant, elsewhere, gone, never, open_job, owner_of

BOUNDS = StandbyBounds(silence_ms=10_000, start_ms=120_000, restart_ms=30_000)


class Clock(ManualClock):
    """Calls ``then`` once so much time has passed, and gives up before a test hangs."""

    def __init__(self) -> None:
        super().__init__()
        self.start_ms = self.monotonic_ms()
        self.plans = {}

    @property
    def passed_ms(self) -> float:
        return self.monotonic_ms() - self.start_ms

    def wait_ms(self, duration_ms: float) -> None:
        super().wait_ms(duration_ms)
        assert self.passed_ms < 1_000_000, "it waits for ever"
        for due_ms in [due_ms for due_ms in self.plans if due_ms <= self.passed_ms]:
            self.plans.pop(due_ms)()


class Case:
    def __init__(self, *faults: Fault) -> None:
        self.clock, self.objects = Clock(), FaultyStore(MemoryObjectStore(), *faults)
        self.store = open_job(self.objects)
        self.watch = DriverWatch(self.store, self.clock, BOUNDS)
        self.reasons = []
        self.is_over = False

    def claim(self, owner) -> Generation:
        self.objects.create()
        return self.store.claims.claim(claimant(owner), wait_ms=never, take_over=True)

    def wait(self) -> TakeOver | End | None:
        return self.watch.wait(lambda: self.is_over, self._on_wait)

    def _on_wait(self, generation: Generation | None, wait: Wait) -> None:
        self.reasons.append((generation, wait.reason))

    def end(self) -> None:
        self.is_over = True


def test_a_process_that_is_gone_is_taken_over_without_a_wait():
    case = Case()
    case.claim(gone(this_process()))
    decision = case.wait()
    assert isinstance(decision, TakeOver)
    assert (decision.expected, decision.owner_may_live) == (1, False)
    assert case.clock.passed_ms == 0
    assert case.reasons == []


def test_the_death_of_a_process_is_noticed_between_two_looks_at_the_store():
    case = Case()
    with subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE) as driver:
        case.claim(owner_of(driver.pid))

        def kill() -> None:
            driver.kill()
            driver.wait()

        case.clock.plans[10 * POLL_MS] = kill
        decision = case.wait()
    assert isinstance(decision, TakeOver)
    assert case.clock.passed_ms == 10 * POLL_MS < LOOK_AT_LIVING_MS
    assert case.reasons == [(1, "the driver of generation 1 lives")]


def test_what_a_dead_process_recorded_before_counts():
    case = Case()
    generation = case.claim(gone(this_process()))
    case.store.generations.end(generation, "stopped", "by its own process", gave_up=True)
    assert case.wait() == End("generation 1 was stopped: by its own process")


def test_a_driver_elsewhere_is_lost_once_its_heartbeat_stays_the_same():
    case = Case()
    generation = case.claim(elsewhere())
    for second in range(1, 21):
        beat = Heartbeat(sequence=second, at_ms=0)
        case.clock.plans[1_000 * second] = lambda b=beat: case.store.generations.beat(generation, b)
    decision = case.wait()
    assert isinstance(decision, TakeOver)
    assert decision.owner_may_live
    assert 20_000 + BOUNDS.silence_ms < case.clock.passed_ms <= 23_000 + BOUNDS.silence_ms


def test_a_store_that_does_not_answer_is_no_silence_of_the_driver():
    from_7_to_16_s = Fault("get", Effect.FAIL, "heartbeat", first=8, last=17)
    case = Case(from_7_to_16_s)
    generation = case.claim(elsewhere())
    case.store.generations.beat(generation, Heartbeat(sequence=1, at_ms=0))
    decision = case.wait()
    assert isinstance(decision, TakeOver)
    assert case.clock.passed_ms > 17_000 + BOUNDS.silence_ms


def test_a_newer_generation_is_watched_in_place_of_the_older_one():
    case = Case()
    case.claim(elsewhere())
    case.clock.plans[LOOK_MS] = lambda: case.claim(this_process())
    case.clock.plans[3 * LOOK_AT_LIVING_MS] = case.end
    assert case.wait() is None
    assert [generation for generation, _ in case.reasons] == [1, 2]


@pytest.mark.parametrize("begun", [False, True])
def test_a_job_that_never_ran_is_waited_for(begun):
    case = Case()
    if begun:
        case.objects.create()
    case.clock.plans[3 * LOOK_MS] = case.end
    assert case.wait() is None
    assert case.reasons == [(None, "the job has never run")]


def test_a_claim_that_cannot_be_read_belongs_to_nobody_known():
    case = Case()
    generation = case.claim(this_process())
    case.objects.put(case.store.paths.claim(generation), b"torn")
    facts = case.watch.look()
    assert (facts.generation, facts.owner) == (1, "unknown")
