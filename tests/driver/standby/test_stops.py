"""A standby does not run a job that somebody asked the lost driver to end."""

import pytest

from laminar_core.driver.events import GenerationStarted
from laminar_core.driver.standby.stops import LeftStops, TakeOverGivenUp
from laminar_core.errors import ConfigurationError, ErrorCode
from laminar_core.protocol.types import Generation
from laminar_core.records.actor import ActorKind
from laminar_core.records.commands import (
    Action,
    CancelJob,
    ControlBegun,
    ControlCommand,
    ControlResult,
    StopJob,
    TakeCheckpoint,
)
from laminar_core.store.command_log import ControlLog
from laminar_core.testing.observed_store import StoreCall
from laminar_core.testing.scenarios import windows_job
from laminar_core.testing.simulation import Simulation
from laminar_core.testing.world import ProcessKilledError
from tests.store.stores import claim, open_job


class Case:
    """Generation 1 was lost, and a standby has claimed generation 2."""

    def __init__(self, store=None, *, job: str = "payments") -> None:
        self.store = store or open_job()
        self.job = job
        self.log = ControlLog(self.store.objects, self.store.paths)

    def ask(self, action: Action, generation: int = 1) -> int:
        command = ControlCommand(
            command_id=f"command-{len(self.log.numbers())}",
            job=self.job,
            generation=generation,
            action=action,
            actor="ann",
            actor_kind=ActorKind.PERSON,
            reason="maintenance",
            requested_at_ms=1,
            expires_at_ms=60_001,
        )
        return self.log.append(command)

    def stops(self, expected: int = 1) -> LeftStops:
        return LeftStops(self.store, Generation(expected + 1), Generation(expected))


@pytest.fixture
def case() -> Case:
    case = Case()
    claim(case.store)
    return case


@pytest.mark.parametrize("action", [StopJob(), StopJob(target="/savepoints"), CancelJob()])
def test_a_command_that_ends_the_job_ends_the_take_over(case, action):
    number = case.ask(action)
    stops = case.stops()
    outcome, reason = stops.ending()
    assert outcome == "cancelled"
    assert reason == (f"ann asked for a {action.kind}, and the driver was lost: maintenance")
    stops.answer(5)
    result = case.log.result(number)
    assert (result.outcome, result.generation) == ("refused", 2)
    assert case.log.begun(number).generation == 2, "nobody begins it any more"


def test_one_that_the_lost_driver_had_begun_was_interrupted(case):
    number = case.ask(StopJob())
    case.log.begin(number, ControlBegun(generation=1, begun_at_ms=2))
    stops = case.stops()
    assert stops.ending() is not None
    stops.answer(5)
    assert case.log.result(number).outcome == "interrupted"


def test_other_commands_and_answered_ones_end_nothing(case):
    case.ask(TakeCheckpoint())
    answered = case.ask(StopJob())
    result = ControlResult(outcome="refused", generation=1, answered_at_ms=3)
    case.log.answer(answered, result)
    case.store.objects.put(case.store.paths.control_command(3), b"torn")
    assert case.stops().ending() is None


def test_a_stop_of_a_generation_that_an_answer_is_owed_to_no_more_ends_nothing(case):
    case.ask(StopJob(), generation=1)
    claim(case.store)  # Somebody started the job again, and generation 2 has run.
    assert case.stops(expected=2).ending() is None


def test_a_stop_is_found_behind_a_standby_that_died_after_its_claim(case):
    case.ask(StopJob(), generation=1)
    claim(case.store)
    case.store.objects.delete(case.store.paths.base(Generation(2)))
    case.store.objects.delete(case.store.paths.base_copy(Generation(2)))
    assert case.stops(expected=2).ending() is not None


@pytest.mark.parametrize("outcome", ["finished", "stopped", "cancelled"])
def test_an_end_that_a_slow_driver_recorded_before_it_was_fenced_stands(case, outcome):
    case.store.generations.end(Generation(1), outcome, "")
    assert case.stops().ending() == (outcome, f"generation 1 ended by itself: {outcome}")


def test_a_failure_of_the_lost_driver_ends_nothing(case):
    case.store.generations.end(Generation(1), "failed", "")
    assert case.stops().ending() is None


# --- the supervisor -----------------------------------------------------------------------------


def lost(simulation: Simulation) -> Case:
    """Run the first driver until it is killed."""
    simulation.when(GenerationStarted, simulation.kill_driver)
    with pytest.raises(ProcessKilledError):
        simulation.run()
    return Case(simulation.store, job=simulation.store.job)


def test_a_standby_goes_on_where_the_lost_driver_was():
    job = windows_job(2)
    simulation = Simulation(job.plan)
    lost(simulation)
    result = simulation.run(standby=True, expected_generation=1)
    assert result.outcome == "finished"
    job.check()


@pytest.mark.parametrize("when", ["before the claim", "between read and claim"])
def test_a_stop_wins_whenever_it_comes_before_the_claim(when):
    simulation = Simulation(windows_job(2).plan)
    case = lost(simulation)
    claim_key = case.store.paths.claim(Generation(2))

    def ask_at_the_claim(call: StoreCall) -> None:
        if call.key == claim_key and call.verb == "put_if_absent" and not case.log.numbers():
            case.ask(StopJob())

    if when == "before the claim":
        case.ask(StopJob())
    simulation.observers.append(ask_at_the_claim)
    with pytest.raises(TakeOverGivenUp, match="ann asked for a stop") as caught:
        simulation.run(standby=True, expected_generation=1)
    assert caught.value.code is ErrorCode.CANCELLED
    end = case.store.generations.read_end(Generation(2))
    assert (end.outcome, end.gave_up) == ("cancelled", True)
    assert case.log.result(1).outcome == "refused"
    assert case.store.generations.read_base(Generation(2)) is None, "it has not begun"


def test_of_two_standbys_one_gets_the_job():
    simulation = Simulation(windows_job(2).plan)
    lost(simulation)
    simulation.run(standby=True, expected_generation=1)
    with pytest.raises(ConfigurationError) as caught:
        simulation.run(standby=True, expected_generation=1)
    assert caught.value.code is ErrorCode.UNEXPECTED_GENERATION
    assert simulation.store.claims.newest() == 2
