"""Whoever asks a driver for something hears what became of it, or that nobody is there."""

import pytest

from laminar_core.driver.commands.client import POLL_MS, Asked, ControlClient
from laminar_core.errors import ConfigurationError, ErrorCode, LaminarError
from laminar_core.host.clock import ManualClock
from laminar_core.records.actor import Actor
from laminar_core.records.commands import ControlBegun, ControlResult, TakeCheckpoint
from laminar_core.records.manifest import Heartbeat
from laminar_core.store.command_log import ControlLog
from tests.store.stores import claim, claimant, elsewhere, never, open_job

SECOND_MS = 1_000


class Clock(ManualClock):
    """Calls what is to happen when it has got there."""

    def __init__(self) -> None:
        super().__init__()
        self.started_ms = self.monotonic_ms()
        self.planned = {}

    def wait_ms(self, duration_ms: float) -> None:
        super().wait_ms(duration_ms)
        for time_ms in [t for t in self.planned if self.monotonic_ms() - self.started_ms >= t]:
            self.planned.pop(time_ms)()


class Case:
    """A job that this process runs, as far as can be seen."""

    def __init__(self) -> None:
        self.store, self.clock = open_job(), Clock()
        self.dead = False
        self.client = ControlClient(self.store, self.clock)
        self.log = ControlLog(self.store.objects, self.store.paths)

    def ask(self, timeout_ms: int = 60 * SECOND_MS) -> Asked:
        return self.client.ask(
            TakeCheckpoint(), actor=Actor("ann", reason="a test"), timeout_ms=timeout_ms
        )

    def answer(self) -> None:
        self.log.answer(1, ControlResult(outcome="completed", generation=1, answered_at_ms=1))

    def beat(self) -> None:
        """A sign of life a second, seen from another machine."""
        if self.dead:
            return
        now_s = int(self.clock.monotonic_ms() - self.clock.started_ms) // SECOND_MS
        self.store.generations.beat(self.generation, Heartbeat(sequence=now_s, at_ms=0))
        self.clock.planned[(now_s + 1) * SECOND_MS] = self.beat

    def die(self) -> None:
        self.dead = True

    def run_elsewhere(self) -> None:
        self.generation = self.store.claims.claim(claimant(elsewhere()), wait_ms=never)
        self.beat()


def refusal(case: Case) -> str:
    with pytest.raises(ConfigurationError) as caught:
        case.ask()
    assert caught.value.code is ErrorCode.NO_LIVE_DRIVER
    assert case.log.numbers() == []
    return str(caught.value)


def test_the_answer_is_waited_for_and_what_happens_is_reported():
    case, told = Case(), []
    claim(case.store)
    asked = case.ask()
    case.clock.planned = {
        SECOND_MS: lambda: case.log.begin(1, ControlBegun(generation=1, begun_at_ms=1)),
        2 * SECOND_MS: case.answer,
    }
    assert case.client.wait(asked, 60 * SECOND_MS, told.append).outcome == "completed"
    assert told[0] == "generation 1 has not begun it yet"
    assert told[-1] == "it is being done"
    assert case.clock.monotonic_ms() - case.clock.started_ms < 2 * SECOND_MS + 2 * POLL_MS


def test_a_job_that_never_ran_is_not_asked():
    assert "it has never run" in refusal(Case())


def test_a_job_that_has_ended_is_not_asked():
    case = Case()
    case.store.generations.end(claim(case.store), "finished", "")
    assert "generation 1, the last one, finished" in refusal(case)


def test_a_driver_elsewhere_that_is_silent_is_not_asked():
    case = Case()
    case.store.claims.claim(claimant(elsewhere()), wait_ms=never)
    assert "gives no sign of life" in refusal(case)


def test_a_driver_elsewhere_that_beats_is_asked_and_waited_for_as_long_as_it_beats():
    case = Case()
    case.run_elsewhere()
    asked = case.ask()
    case.clock.planned[30 * SECOND_MS + 1] = case.die
    with pytest.raises(LaminarError, match="ended without an answer") as caught:
        case.client.wait(asked, 600 * SECOND_MS)
    assert caught.value.code is ErrorCode.COMMAND_NOT_DONE
    assert 30 * SECOND_MS < case.clock.monotonic_ms() - case.clock.started_ms < 60 * SECOND_MS


def test_a_driver_that_ends_without_an_answer_is_not_waited_for():
    case = Case()
    generation = claim(case.store)
    asked = case.ask()
    case.clock.planned[SECOND_MS] = lambda: case.store.generations.end(generation, "failed", "")
    with pytest.raises(LaminarError, match="generation 1 of job payments ended without"):
        case.client.wait(asked, 600 * SECOND_MS)


def test_a_later_generation_is_waited_for_because_it_says_what_became_of_it():
    case = Case()
    claim(case.store)
    asked = case.ask()
    case.clock.planned[SECOND_MS] = lambda: claim(case.store)
    case.clock.planned[20 * SECOND_MS] = case.answer
    assert case.client.wait(asked, 60 * SECOND_MS).outcome == "completed"


@pytest.mark.parametrize(("begun", "says"), [(True, "may still succeed"), (False, "no driver has")])
def test_the_time_is_over_sometime(begun, says):
    case = Case()
    claim(case.store)
    asked = case.ask()
    if begun:
        case.log.begin(1, ControlBegun(generation=1, begun_at_ms=1))
    with pytest.raises(LaminarError, match=says) as caught:
        case.client.wait(asked, 10 * SECOND_MS)
    assert caught.value.code is ErrorCode.COMMAND_TIMEOUT


def test_the_end_is_waited_for():
    case = Case()
    generation = claim(case.store)
    case.clock.planned[SECOND_MS] = lambda: case.store.generations.end(generation, "stopped", "")
    end = case.client.wait_for_end(generation, 60 * SECOND_MS)
    assert end is not None
    assert end.outcome == "stopped"


def test_a_driver_that_was_killed_has_no_end():
    case = Case()
    case.run_elsewhere()
    case.die()
    assert case.client.wait_for_end(case.generation, 600 * SECOND_MS) is None
    assert case.clock.monotonic_ms() - case.clock.started_ms < 60 * SECOND_MS


def test_a_command_can_be_for_one_generation_and_no_other():
    """Whoever ends its own driver must not end that of somebody who took the job over."""
    case = Case()
    mine = claim(case.store)
    claim(case.store)
    asked = case.client.ask(
        TakeCheckpoint(), actor=Actor("ann", reason="a test"), timeout_ms=SECOND_MS, generation=mine
    )
    assert asked.generation == mine
    assert case.log.entry(asked.number).command.generation == mine
