"""Anybody may leave commands at once; every one gets a number of its own and one answer."""

from concurrent.futures import ThreadPoolExecutor

import pytest

from laminar_core.errors import StorageUnavailable
from laminar_core.objectstore.local import LocalObjectStore
from laminar_core.objectstore.memory import MemoryObjectStore
from laminar_core.records.actor import ActorKind
from laminar_core.records.commands import (
    ControlBegun,
    ControlCommand,
    ControlOutcome,
    ControlResult,
    TakeCheckpoint,
)
from laminar_core.records.paths import JobPaths
from laminar_core.store.command_log import ControlLog
from laminar_core.testing.faulty_store import Effect, Fault, FaultyStore

PATHS = JobPaths("payments")


def command(number: int, job: str = "payments") -> ControlCommand:
    return ControlCommand(
        command_id=f"command-{number}",
        job=job,
        generation=1,
        action=TakeCheckpoint(),
        actor="ann",
        actor_kind=ActorKind.PERSON,
        reason="a test",
        requested_at_ms=1,
        expires_at_ms=2,
    )


def result(outcome: ControlOutcome = "completed") -> ControlResult:
    return ControlResult(outcome=outcome, generation=1, answered_at_ms=1)


def test_numbers_count_from_one_and_the_commands_come_in_their_order():
    log = ControlLog(MemoryObjectStore(), PATHS)
    assert [log.append(command(n)) for n in range(3)] == [1, 2, 3]
    assert [e.command for e in log.read_after(1)] == [command(1), command(2)]
    assert list(log.read_after(3)) == []


def test_writers_at_the_same_time_lose_nothing(tmp_path):
    """Each in its own log, as processes are."""
    with ThreadPoolExecutor(8) as pool:
        numbers = list(
            pool.map(
                lambda n: ControlLog(LocalObjectStore(tmp_path), PATHS).append(command(n)),
                range(24),
            )
        )
    assert sorted(numbers) == list(range(1, 25))
    entries = ControlLog(LocalObjectStore(tmp_path), PATHS).entries()
    said = {e.number: e.command.command_id for e in entries if e.command is not None}
    assert said == {number: f"command-{n}" for n, number in enumerate(numbers)}


@pytest.mark.parametrize("calls", [(1, 1), (1, 2)])
def test_an_append_that_is_repeated_after_a_lost_answer_leaves_one_command(calls):
    objects = FaultyStore(
        MemoryObjectStore(), Fault("put_if_absent", Effect.LOSE_ANSWER, "control/", *calls)
    )
    log, other = ControlLog(objects, PATHS), ControlLog(objects, PATHS)
    try:
        number = log.append(command(1))
    except StorageUnavailable:
        assert other.append(command(2)) == 2
        number = log.append(command(1))
    assert number == 1
    ids = [e.command.command_id for e in log.entries() if e.command is not None]
    assert ids.count("command-1") == 1


def test_one_generation_takes_a_command_up_and_the_first_answer_stands():
    log = ControlLog(MemoryObjectStore(), PATHS)
    log.append(command(1))
    assert log.begin(1, ControlBegun(generation=1, begun_at_ms=5))
    assert log.begin(1, ControlBegun(generation=1, begun_at_ms=5)), "the same again"
    assert not log.begin(1, ControlBegun(generation=2, begun_at_ms=5))
    assert log.answer(1, result("interrupted"))
    assert not log.answer(1, result())
    answered = log.result(1)
    assert answered is not None
    assert answered.outcome == "interrupted"


def test_what_has_no_result_is_found_with_what_is_known_of_it():
    log = ControlLog(MemoryObjectStore(), PATHS)
    for n in (1, 2, 3):
        log.append(command(n))
    log.answer(1, result())
    log.begin(3, ControlBegun(generation=4, begun_at_ms=5))
    found = log.unanswered()
    assert [e.number for e in found] == [2, 3]
    assert [e.begun and e.begun.generation for e in found] == [None, 4]


def test_a_damaged_command_and_one_for_another_job_are_listed_with_the_problem():
    log = ControlLog(MemoryObjectStore(), PATHS)
    log.append(command(1, job="refunds"))
    log.objects.put(PATHS.control_command(2), b"{")
    problems = [entry.problem or "" for entry in log.entries()]
    assert problems[0] == "it is for job refunds"
    assert problems[1].startswith("it cannot be read: memory://")


@pytest.mark.parametrize("lost", [PATHS.control_begun(1), PATHS.control_result(1)])
def test_one_damaged_record_of_a_command_does_not_hide_the_other(lost: str):
    log = ControlLog(MemoryObjectStore(), PATHS)
    log.append(command(1))
    log.begin(1, ControlBegun(generation=1, begun_at_ms=1))
    log.answer(1, result())
    log.objects.put(lost, b"{")
    (entry,) = log.entries()
    assert (entry.begun is None) is (lost == PATHS.control_begun(1))
    assert (entry.result is None) is (lost == PATHS.control_result(1))
    assert lost in (entry.problem or "")
