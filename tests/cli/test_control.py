"""Asking a running driver from the command line: what is left for it, and what is said of it."""

import json
from pathlib import Path

import pytest

from laminar_core.objectstore.local import LocalObjectStore
from laminar_core.records.commands import ControlOutcome, ControlResult, StopJob, TakeSavepoint
from laminar_core.store.checkpoint_store import CheckpointStore
from laminar_core.store.command_log import ControlLog
from laminar_core.store.owner import this_process
from tests.store.stores import JOB, claim, claimant, never


class Asked:
    """A job that this process seems to run, and answers that are there before the question."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.store = CheckpointStore(LocalObjectStore(root), JOB)
        self.generation = claim(self.store)
        self.log = ControlLog(self.store.objects, self.store.paths)

    def will_answer(self, outcome: ControlOutcome = "completed", **fields) -> None:
        number = len(self.log.numbers()) + 1
        answer = ControlResult(
            outcome=outcome, generation=self.generation, answered_at_ms=1, **fields
        )
        assert self.log.answer(number, answer)


@pytest.fixture
def asked(tmp_path: Path) -> Asked:
    return Asked(tmp_path / "store")


@pytest.fixture
def laminar(cli, asked: Asked):
    return lambda *words: cli(*words, "--store", asked.root)


def test_a_checkpoint_is_asked_for_and_its_number_is_reported(laminar, asked):
    asked.will_answer(checkpoint_id=12)
    answer = laminar("checkpoint", "--reason", "before the release")
    assert (answer.code, answer.out, answer.err) == (0, "checkpoint 12 completed\n", "")
    command = asked.log.entries()[0].command
    assert command is not None
    assert (command.job, command.generation) == (JOB, asked.generation)
    assert command.reason == "before the release"
    assert (command.actor, command.run_id) == (this_process().user, None)
    assert command.expires_at_ms - command.requested_at_ms == 600_000


def test_a_command_says_on_whose_behalf(laminar, asked, monkeypatch):
    monkeypatch.setenv("LAMINAR_ACTOR", "sensor alignment")
    monkeypatch.setenv("LAMINAR_RUN_ID", "run-7")
    laminar("mode", "unaligned", "--no-wait")
    command = asked.log.entries()[0].command
    assert command is not None
    assert (command.actor, command.run_id) == ("sensor alignment", "run-7")
    monkeypatch.setenv("LAMINAR_ACTOR", "two\nlines")
    answer = laminar("mode", "aligned", "--no-wait")
    assert (answer.code, "LAMINAR_ACTOR is 'two\\nlines': set it to one line" in answer.err) == (
        2,
        True,
    )
    assert len(asked.log.entries()) == 1


def test_the_job_can_stand_behind_the_command_once(laminar, asked):
    asked.will_answer(checkpoint_id=12)
    assert laminar("checkpoint", JOB).code == 0
    assert laminar("checkpoint", JOB, "--job", JOB).code == 2
    assert laminar("checkpoint", "refunds").err.endswith("has no job refunds; its jobs: payments\n")


def test_a_job_behind_the_command_wins_over_the_environment(laminar, asked, monkeypatch):
    asked.will_answer(checkpoint_id=12)
    monkeypatch.setenv("LAMINAR_JOB", "refunds")
    assert laminar("checkpoint", JOB).code == 0
    assert laminar("checkpoint").err.endswith("has no job refunds; its jobs: payments\n")


def test_without_waiting_the_command_is_only_left(laminar):
    answer = laminar("checkpoint", "--no-wait", "--json")
    assert json.loads(answer.out) == {"number": 1}
    assert laminar("checkpoint", "--no-wait").out == "command 2 is left for generation 1\n"


def test_a_savepoint_goes_to_an_absolute_place(laminar, asked, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    asked.will_answer(checkpoint_id=12, savepoint=f"{tmp_path}/s")
    answer = laminar("savepoint", "s")
    assert answer.out == f"checkpoint 12 is the savepoint {tmp_path}/s\n"
    command = asked.log.entries()[0].command
    assert command is not None
    assert command.action == TakeSavepoint(target=f"{tmp_path}/s")


def test_a_uri_stays_as_it_is(laminar, asked):
    laminar("stop", "--savepoint", "s3://bucket/s", "--no-wait")
    command = asked.log.entries()[0].command
    assert command is not None
    assert command.action == StopJob(target="s3://bucket/s")


def test_a_stop_waits_for_the_end_of_the_job(laminar, asked):
    asked.will_answer(reason="the job has stopped")
    asked.store.generations.end(asked.generation, "stopped", "")
    answer = laminar("stop")
    assert answer.code == 2, "it had ended before"
    assert answer.err == (
        "error: job payments is not running: generation 1, the last one, stopped; start it with "
        "`laminar run`\n"
    )


def test_a_job_whose_driver_is_gone_is_not_asked(cli, tmp_path):
    store = CheckpointStore(LocalObjectStore(tmp_path), JOB)
    gone = this_process().model_copy(update={"pid_start_time": 1})
    store.claims.claim(claimant(gone), wait_ms=never)
    answer = cli("checkpoint", "--store", tmp_path)
    assert answer.code == 2
    assert "the driver of generation 1 is gone" in answer.err
    assert ControlLog(store.objects, store.paths).numbers() == []


@pytest.mark.parametrize(
    ("outcome", "code"), [("failed", 1), ("interrupted", 1), ("refused", 2), ("expired", 2)]
)
def test_what_was_not_done_is_an_error_that_says_why(laminar, asked, outcome, code):
    asked.will_answer(outcome, reason="the disk is full")
    answer = laminar("checkpoint")
    assert answer.code == code
    assert answer.err == f"error: {outcome} command 1 for job payments: the disk is full\n"


@pytest.mark.parametrize(
    ("mode", "timeout_ms", "told"),
    [
        ("aligned", None, "checkpoints align from now on\n"),
        ("unaligned", 0, "barriers overtake at once from now on; 1 of 3 edges always align\n"),
        ("5 seconds", 5000, "barriers overtake after 5000 ms from now on; 1 of 3 edges"),
    ],
)
def test_a_mode_is_set_and_what_holds_is_reported(laminar, asked, mode, timeout_ms, told):
    details = {"alignment_timeout_ms": timeout_ms, "edges": 3, "edges_always_aligned": 1}
    asked.will_answer(details=details)
    assert laminar("mode", mode).out.startswith(told)


def test_bad_requests_are_refused_before_anything_is_left(laminar, asked):
    assert "the mode is aligned, unaligned, default" in laminar("mode", "faster").err
    both = laminar("stop", "--cancel", "--savepoint", "s")
    assert "--cancel ends the job without a checkpoint" in both.err
    assert asked.log.numbers() == []


def test_commands_are_listed_with_what_became_of_them(laminar, asked):
    asked.will_answer(checkpoint_id=12)
    laminar("checkpoint", "--reason", "first")
    laminar("stop", "--cancel", "--no-wait")
    asked.store.objects.put(asked.store.paths.control_command(3), b"rot")
    lines = laminar("control", "list").out.splitlines()
    assert lines[0].split()[2:] == ["command", "actor", "generation", "outcome", "what"]
    assert lines[1].split()[3] == "checkpoint"
    assert lines[1].rstrip().endswith("completed  checkpoint 12 completed")
    assert "waiting" in lines[2]
    assert "cannot be read" in lines[3]
    listed = json.loads(laminar("control", "list", "--json").out)
    assert [entry["number"] for entry in listed] == [1, 2, 3]
    assert listed[0]["result"]["checkpoint_id"] == 12
