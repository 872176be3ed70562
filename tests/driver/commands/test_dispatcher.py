"""The dispatcher reads, executes and answers commands; whole jobs: ``test_savepoints``."""

from concurrent.futures import Future

import pytest

from laminar_core.driver.checkpointing import Background as Threads
from laminar_core.driver.checkpointing import CheckpointAnswer
from laminar_core.driver.commands import dispatcher
from laminar_core.driver.commands.dispatcher import CommandDispatcher
from laminar_core.errors import ErrorCode, StorageUnavailable
from laminar_core.objectstore.local import LocalObjectStore
from laminar_core.objectstore.memory import MemoryObjectStore
from laminar_core.protocol.commands import ModeRefused
from laminar_core.protocol.types import CheckpointId, CheckpointKind, Generation
from laminar_core.records.actor import ActorKind
from laminar_core.records.commands import (
    CancelJob,
    ControlBegun,
    ControlCommand,
    SetMode,
    StopJob,
    TakeCheckpoint,
    TakeSavepoint,
)
from laminar_core.store.audit_log import AuditLog
from laminar_core.store.command_log import ControlLog
from laminar_core.testing.faulty_store import Effect, Fault, FaultyStore
from tests.driver.hosts import Background
from tests.store.stores import JOB, claim, open_job


class Host:
    """Implements ``CommandHost``: the test is the coordinator."""

    def __init__(self) -> None:
        self.posted, self.taken, self.cancelled, self.ends = [], [], [], []
        self.revoked = 0
        self.time_ms = 50.0
        self.told = []

    def notify(self, event) -> None:
        self.told.append((event.number, event.command, event.outcome))

    def now_ms(self) -> int:
        return 1_000

    def monotonic_ms(self) -> float:
        return self.time_ms

    def post(self, action) -> None:
        self.posted.append(action)

    def take(self, kind, *, once) -> Future:
        answer = Future()
        self.taken.append((kind, once, answer))
        return answer

    def set_mode(self, mode):
        return ModeRefused("not now") if mode.mode == 7 else {"alignment_timeout_ms": 0}

    def cancel(self, reason: str) -> None:
        self.cancelled.append(reason)

    def go_on(self, end) -> None:
        del end
        self.revoked += 1


class Case:
    """A dispatcher and the log that it reads."""

    def __init__(self, *faults: Fault, uri: str = "") -> None:
        inner = LocalObjectStore(uri) if uri else MemoryObjectStore()
        objects = FaultyStore(inner, *faults)
        self.store = open_job(objects)
        self.generation = claim(self.store)
        self.log = ControlLog(self.store.objects, self.store.paths)
        self.host, self.io, self.copies = Host(), Background(), Background()
        self.failure: Exception | None = None
        self.dispatcher = self.opened()

    def opened(self) -> CommandDispatcher:
        threads = Threads(self.io, self.io, self.io, self.io, self.copies, self.io, self.io)
        return CommandDispatcher(self.store, self.generation, self.host, threads, self.copy)

    def copy(self, command: ControlCommand, checkpoint_id: CheckpointId, is_cancelled) -> str:
        del command
        if is_cancelled():
            raise StorageUnavailable(ErrorCode.CANCELLED, "too late")
        if self.failure is not None:
            raise self.failure
        return f"copy of {checkpoint_id}"

    def ask(self, action, **changes) -> int:
        fields = {
            "command_id": f"command-{len(self.log.numbers())}",
            "job": JOB,
            "generation": self.generation,
            "action": action,
            "actor": "ann",
            "actor_kind": ActorKind.PERSON,
            "reason": "a test",
            "requested_at_ms": 0,
            "expires_at_ms": 2_000,
        }
        return self.log.append(ControlCommand(**fields | changes))

    def turn(self) -> None:
        self.dispatcher.tick()
        while self.io.queue or self.host.posted:
            self.io.run()
            while self.host.posted:
                self.host.posted.pop(0)()

    def complete(self, index: int = 0, outcome: str = "completed") -> None:
        _, _, answer = self.host.taken[index]
        answer.set_result(CheckpointAnswer(CheckpointId(5 + index), outcome, "because"))
        self.io.run()

    def outcome(self, number: int = 1) -> tuple | None:
        result = self.log.result(number)
        return result and (result.outcome, result.reason, result.checkpoint_id, result.savepoint)


def test_a_checkpoint_is_taken_and_answered_once():
    case = Case()
    case.ask(TakeCheckpoint())
    for _ in range(3):
        case.turn()
    assert [taken[:2] for taken in case.host.taken] == [(CheckpointKind.MANUAL, False)]
    assert case.outcome() is None
    case.complete()
    assert case.outcome() == ("completed", "", 5, None)
    assert case.host.told == [(1, "checkpoint", "completed")]


def test_a_checkpoint_that_fails_is_answered_so():
    case = Case()
    case.ask(TakeCheckpoint())
    case.turn()
    case.complete(outcome="declined")
    assert case.outcome() == ("failed", "declined: because", 5, None)


def test_commands_come_in_their_order_and_do_not_wait_for_each_other():
    case = Case()
    for action in (TakeSavepoint(target="memory://none"), TakeCheckpoint(), CancelJob()):
        case.ask(action, expires_at_ms=2_000)
    case.turn()
    assert case.outcome(1) is not None, "no such store: refused at once"
    assert [kind for kind, _, _ in case.host.taken] == [CheckpointKind.MANUAL]
    assert case.host.cancelled == ["cancelled by ann: a test"]


MINUTE_MS = 60_000


@pytest.mark.parametrize("ahead_ms", [-20 * MINUTE_MS, 20 * MINUTE_MS, 86_400_000 * 365])
def test_a_command_is_carried_out_whatever_the_clocks_of_others_show(ahead_ms: int):
    case = Case()
    asked_ms = 1_000 - ahead_ms  # The driver's wall clock shows 1,000.
    case.turn()
    case.ask(TakeCheckpoint(), requested_at_ms=asked_ms, expires_at_ms=asked_ms + 10 * MINUTE_MS)
    case.turn()
    assert case.host.taken, "it came in time"


def test_a_command_expires_by_the_drivers_own_clock_from_when_it_was_found():
    for minutes, outcome in ((9, None), (10, "expired")):
        case = Case(Fault("put_if_absent", Effect.FAIL, "begun", 1, 2))
        for _ in range(2):
            case.ask(TakeCheckpoint(), requested_at_ms=0, expires_at_ms=10 * MINUTE_MS)
        case.turn()
        assert not case.host.taken, "the store did not take the record of the first one"
        case.host.time_ms += minutes * MINUTE_MS
        case.turn()
        case.turn()
        second = case.outcome(2)
        assert (second and second[0]) == outcome
        assert len(case.host.taken) == (2 if outcome is None else 1)


def test_what_came_while_the_driver_was_asleep_may_be_as_old_as_its_last_look():
    case = Case()
    case.turn()
    case.ask(TakeCheckpoint(), requested_at_ms=0, expires_at_ms=10 * MINUTE_MS)
    case.host.time_ms += 11 * MINUTE_MS
    case.turn()
    assert case.outcome()[0] == "expired"
    assert not case.host.taken


def test_a_savepoint_is_answered_when_it_is_copied(tmp_path):
    case = Case()
    case.ask(TakeSavepoint(target=str(tmp_path / "s")))
    case.turn()
    case.complete()
    assert case.outcome() is None
    case.copies.run()
    case.turn()
    assert case.outcome() == ("completed", "", 5, "copy of 5")


def test_a_stop_with_a_savepoint_ends_the_job_after_the_copy(tmp_path):
    case = Case()
    case.ask(StopJob(target=str(tmp_path / "s")))
    case.turn()
    assert case.host.taken[0][:2] == (CheckpointKind.STOP, True)
    case.complete()
    case.dispatcher.before_the_end(CheckpointKind.STOP, lambda: case.host.ends.append("end"))
    assert case.host.ends == []
    case.copies.run()
    case.turn()
    assert (case.host.ends, case.host.revoked) == (["end"], 0)
    assert case.outcome() == ("completed", "", 5, "copy of 5")


def test_a_stop_whose_copy_fails_does_not_end_the_job(tmp_path):
    case = Case()
    case.failure = StorageUnavailable(ErrorCode.STORE_FULL, "no space")
    case.ask(StopJob(target=str(tmp_path / "s")))
    case.turn()
    case.complete()
    case.dispatcher.before_the_end(CheckpointKind.STOP, lambda: case.host.ends.append("end"))
    case.copies.run()
    case.turn()
    assert (case.host.ends, case.host.revoked) == ([], 1)
    assert case.outcome() == ("failed", "it could not be copied: no space", 5, None)


def test_of_two_targets_one_is_enough_to_end_the_job(tmp_path):
    case = Case()
    for name in ("a", "b"):
        case.ask(StopJob(target=str(tmp_path / name)))
    case.turn()
    case.complete(0)
    case.complete(1)
    case.dispatcher.before_the_end(CheckpointKind.STOP, lambda: case.host.ends.append("end"))
    case.copies.queue.popleft()()
    case.failure = StorageUnavailable(ErrorCode.STORE_FULL, "no space")
    case.copies.run()
    case.turn()
    assert case.host.ends == ["end"]
    assert [case.outcome(n)[0] for n in (1, 2)] == ["completed", "failed"]


def test_the_end_of_the_input_does_not_wait_for_anybody():
    case = Case()
    case.dispatcher.before_the_end(CheckpointKind.FINAL, lambda: case.host.ends.append("end"))
    assert case.host.ends == ["end"]


def test_who_still_waits_when_the_job_ends_is_answered(tmp_path):
    case = Case()
    case.ask(StopJob())
    case.ask(TakeSavepoint(target=str(tmp_path / "s")))
    case.turn()
    case.complete(0)
    case.complete(1)
    case.dispatcher.close("stopped", "stopped")
    case.copies.run()
    case.turn()
    assert case.outcome(1)[:3] == ("completed", "the job has stopped", 5)
    assert case.outcome(2)[:2] == ("failed", "the job ended before this was done: stopped")


def test_a_stop_that_a_failure_came_before_is_not_done():
    """The job starts again, and whoever stopped it has to know."""
    case = Case()
    case.ask(StopJob())
    case.turn()
    case.dispatcher.close("worker 1: lost", None)
    case.turn()
    assert case.outcome()[:2] == ("failed", "the job ended before this was done: worker 1: lost")
    assert case.dispatcher.stopped_by == ""


def test_who_stopped_the_job_is_known_when_it_ends():
    case = Case()
    assert case.dispatcher.stopped_by == ""
    case.ask(StopJob(), actor="bob", reason="a new version")
    case.turn()
    case.complete()
    assert case.dispatcher.stopped_by == "by bob: a new version"


def test_a_mode_is_set_or_refused():
    case = Case()
    case.ask(SetMode(mode="unaligned"))
    case.ask(SetMode(mode=7))
    case.turn()
    assert case.log.result(1).details == {"alignment_timeout_ms": 0}
    assert case.outcome(2)[:2] == ("refused", "not now")


def test_what_is_not_for_this_generation_is_refused_and_not_done():
    case = Case()
    case.ask(TakeCheckpoint())
    case.generation = claim(case.store, base=None)
    case.dispatcher = case.opened()
    case.turn()
    assert case.outcome()[0] == "refused"
    assert case.host.taken == []


def test_what_an_earlier_generation_had_begun_is_interrupted():
    case = Case()
    case.ask(TakeCheckpoint())
    case.log.begin(1, ControlBegun(generation=case.generation, begun_at_ms=1))
    case.generation = Generation(case.generation + 1)
    case.dispatcher = case.opened()
    case.turn()
    assert case.outcome()[0] == "interrupted"
    assert case.host.taken == []


def test_an_act_is_in_the_audit_log_before_it_happens_and_after():
    case = Case()
    case.ask(TakeCheckpoint(), run_id="run-7")
    case.turn()
    log = AuditLog(case.store.objects, case.store.paths, lambda: 0)
    assert [(r.action, r.outcome) for r in log.records()] == [("checkpoint", "intended")]
    case.complete()
    last = list(log.records())[-1]
    assert (last.outcome, last.actor, last.run_id) == ("done", "ann", "run-7")


def test_a_store_that_does_not_answer_is_asked_again_and_nothing_is_done_twice():
    for key in ("begun", "audit/", "result"):
        for effect in (Effect.FAIL, Effect.LOSE_ANSWER):
            case = Case(Fault("put_if_absent", effect, key, 1, 2))
            case.ask(TakeCheckpoint())
            for _ in range(3):
                case.turn()
            assert len(case.host.taken) == 1
            case.complete()
            case.turn()
            assert case.outcome() == ("completed", "", 5, None), (key, effect)


@pytest.mark.parametrize("target", ["foo://[x", "//[x", "a" * 300, "file:///tmp/x%00"])
def test_a_target_that_is_no_valid_uri_keeps_no_other_command_waiting(tmp_path, target):
    case = Case(uri=str(tmp_path / "store"))
    case.ask(TakeSavepoint(target=target))
    case.ask(TakeCheckpoint())
    case.ask(CancelJob())
    case.turn()
    assert case.outcome(1)[0] == "refused"
    assert "check the path or URI" in case.outcome(1)[1]
    assert len(case.host.taken) == 1
    assert case.host.cancelled == ["cancelled by ann: a test"]


def test_a_savepoint_among_the_files_of_the_job_is_refused(tmp_path):
    case = Case(uri=str(tmp_path / "store"))
    case.ask(TakeSavepoint(target=str(tmp_path / "store" / JOB / "checkpoints" / "0000000010")))
    case.turn()
    assert case.outcome()[0] == "refused"
    assert "is in the folder of job" in case.outcome()[1]
    assert case.host.taken == []


def test_an_error_that_nothing_foresaw_refuses_the_command_that_has_it(monkeypatch, tmp_path):
    case = Case()

    def fail(uri):
        raise ZeroDivisionError(uri)

    monkeypatch.setattr(dispatcher, "open_object_store", fail)
    case.ask(TakeSavepoint(target=str(tmp_path / "s")))
    case.ask(CancelJob())
    case.turn()
    assert case.outcome(1)[0] == "refused"
    assert "ZeroDivisionError" in case.outcome(1)[1]
    assert case.host.cancelled == ["cancelled by ann: a test"]


def test_an_error_while_commands_are_taken_is_logged_and_they_are_taken_later(monkeypatch, caplog):
    case = Case()
    case.ask(CancelJob())

    def fail(generation):
        raise ZeroDivisionError(generation)

    with monkeypatch.context() as patched:
        patched.setattr(case.store.claims, "check_claim", fail)
        case.turn()
    assert case.host.cancelled == []
    assert "commands cannot be taken" in caplog.text
    case.turn()
    assert case.host.cancelled == ["cancelled by ann: a test"]
