"""A request of a Dagster run has the same effect and record as one that a person types."""

from collections.abc import Callable

import dagster as dg
import pytest

from laminar_core.errors import ConfigurationError, ErrorCode, LaminarError, StorageUnavailable
from laminar_core.host.clock import ManualClock
from laminar_core.objectstore.memory import MemoryObjectStore
from laminar_core.records.actor import Actor
from laminar_core.records.commands import (
    CancelJob,
    ControlCommand,
    ControlOutcome,
    ControlResult,
    SetMode,
    StopJob,
    TakeCheckpoint,
    TakeSavepoint,
)
from laminar_core.resources.job_control import JobControl
from laminar_core.store.audit_log import AuditLog
from laminar_core.store.checkpoint_store import CheckpointStore
from laminar_core.store.command_log import ControlLog
from laminar_core.store.pins import Pins
from laminar_core.testing.faulty_store import Effect, Fault, FaultyStore
from tests.store.stores import claim, complete, open_job

ANN = Actor("ann", run_id="run-7")


class Clock(ManualClock):
    """Something happens at the first wait, or after ``idle`` more."""

    happens: Callable[[], None] = staticmethod(lambda: None)
    idle = 0

    def wait_ms(self, duration_ms: float) -> None:
        super().wait_ms(duration_ms)
        self.idle -= 1
        if self.idle < 0:
            happens, self.happens = self.happens, lambda: None
            happens()


class Case:
    """A job that this process seems to run."""

    def __init__(self, *faults: Fault) -> None:
        self.store: CheckpointStore = open_job(FaultyStore(MemoryObjectStore(), *faults))
        self.generation = claim(self.store)
        self.clock, self.told = Clock(), []
        self.log = ControlLog(self.store.objects, self.store.paths)
        self.control = JobControl(
            self.store, ANN, self.clock, timeout_ms=60_000, progress=self.told.append
        )

    def answers(self, outcome: ControlOutcome = "completed", **fields) -> None:
        result = ControlResult(
            outcome=outcome, generation=self.generation, answered_at_ms=1, **fields
        )
        self.clock.happens = lambda: self.log.answer(1, result)

    def asked(self) -> ControlCommand:
        (entry,) = self.log.entries()
        assert entry.command is not None
        return entry.command


@pytest.fixture
def case() -> Case:
    return Case()


def test_a_checkpoint_is_asked_for_on_behalf_of_the_run(case):
    case.answers(checkpoint_id=4)
    case.clock.idle = 3  # What goes on meanwhile is told once.
    done = case.control.checkpoint("before the release")
    assert (str(done), done.number, done.generation) == ("checkpoint 4 completed", 1, 1)
    command = case.asked()
    assert command.action == TakeCheckpoint()
    assert (command.actor, command.run_id, command.reason) == ("ann", "run-7", "before the release")
    assert command.expires_at_ms - command.requested_at_ms == 60_000
    assert case.told == [
        "command 1 (checkpoint) is left for generation 1 of job payments",
        "generation 1 has not begun it yet",
        "command 1: checkpoint 4 completed",
    ]


@pytest.mark.parametrize(
    ("ask", "action"),
    [
        (lambda c: c.savepoint("s3://b/s", "r"), TakeSavepoint(target="s3://b/s")),
        (lambda c: c.savepoint("/a/../s", "r"), TakeSavepoint(target="/s")),
        (lambda c: c.set_mode("unaligned", "r"), SetMode(mode="unaligned")),
        (lambda c: c.set_mode("2 seconds", "r"), SetMode(mode=2_000)),
    ],
)
def test_each_request_is_that_of_the_command_line(case, ask, action):
    case.answers()
    ask(case.control)
    assert case.asked().action == action


@pytest.mark.parametrize(
    ("ask", "action"),
    [
        (lambda c: c.stop("r"), StopJob()),
        (lambda c: c.stop("r", "/s"), StopJob(target="/s")),
        (lambda c: c.cancel("r"), CancelJob()),
    ],
)
def test_an_end_is_waited_for(case, ask, action):
    result = ControlResult(outcome="completed", generation=1, answered_at_ms=1)

    def answer() -> None:
        case.log.answer(1, result)
        case.clock.happens = lambda: case.store.generations.end(case.generation, "stopped", "")

    case.clock.happens = answer
    ask(case.control)
    assert case.asked().action == action
    assert "the job ends" in case.told
    assert case.store.generations.read_end(case.generation) is not None


@pytest.mark.parametrize("outcome", ["refused", "expired"])
def test_a_refusal_says_why(case, outcome):
    case.answers(outcome, reason="the disk is full")
    with pytest.raises(ConfigurationError, match=f"{outcome} command 1 .*: the disk is full"):
        case.control.checkpoint("r")


def test_nobody_is_asked_if_nobody_runs_the_job(case):
    case.store.generations.end(case.generation, "stopped", "")
    with pytest.raises(ConfigurationError, match="job payments is not running"):
        case.control.checkpoint("r")
    assert case.log.numbers() == []


def test_a_bad_mode_is_refused_before_anything_is_left(case):
    with pytest.raises(ConfigurationError, match="the mode is aligned, unaligned, default"):
        case.control.set_mode("faster", "r")
    assert case.log.numbers() == []


def test_the_time_is_over_sometime(case):
    with pytest.raises(LaminarError, match="no answer to command 1 within 60 s") as caught:
        case.control.checkpoint("r")
    assert caught.value.code is ErrorCode.COMMAND_TIMEOUT


def test_a_run_that_is_terminated_says_what_becomes_of_its_command(case):
    def terminate() -> None:
        raise dg.DagsterExecutionInterruptedError

    case.clock.happens = terminate
    with pytest.raises(dg.DagsterExecutionInterruptedError):
        case.control.checkpoint("r")
    assert case.told[-1] == (
        "the wait is over for command 1, but it stays in the log: it will be carried out if "
        "generation 1 begins it within 59 s; see `laminar control list`"
    )


def test_so_does_one_whose_store_does_not_answer_any_more():
    case = Case(Fault("get", Effect.FAIL, "result", 1, 100))
    with pytest.raises(StorageUnavailable):
        case.control.checkpoint("r")
    assert "stays in the log" in case.told[-1]


def test_pins_are_set_and_taken_away_for_the_run(case):
    complete(case.store, 1, case.generation)
    pinned = case.control.pin(1, "keep", "to compare", hold_ms=5)
    assert (pinned.actor, pinned.expires_at_ms) == ("ann", case.clock.now_ms() + 5)
    assert case.control.unpin(1, "keep", "compared").record == pinned
    assert Pins(case.store).list() == []
    audited = AuditLog(case.store.objects, case.store.paths, lambda: 0).records()
    assert {(r.actor, r.run_id) for r in audited} == {("ann", "run-7")}


def test_a_checkpoint_is_exported_for_the_run(case, tmp_path):
    complete(case.store, 1, case.generation)
    assert case.control.export(1, f"{tmp_path}/a/../s", "to move") == f"{tmp_path}/s"
    assert case.told == [f"checkpoint 1 of job payments is copied to {tmp_path}/s"]
    audited = AuditLog(case.store.objects, case.store.paths, lambda: 0).records()
    assert [(r.action, r.run_id, r.outcome, r.reason) for r in audited] == [
        ("export", "run-7", "intended", "to move"),
        ("export", "run-7", "done", "to move"),
    ]
