"""Validly sealed forgeries, special files and stray names: each command answers, in time."""

import json

import pytest

from laminar_core.cli.main import laminar
from verification.commands import forgeries
from verification.commands.forgeries import MEMORY_BYTES, commands, try_forgeries
from verification.forged_stores import HonestStore, make_honest_store

laminar.load_all()  # Tests look at every command.

SEEDS = range(6)
"""``python -m verification forgeries 1000`` tries more."""
WRITING = {"run", "bench", "simulate", "stop", "mode"}
STORELESS = {"config", "doctor"}
WRITING_BELOW = {"pin", "unpin", "apply", "take", "create", "run"}


@pytest.fixture(scope="module")
def honest(tmp_path_factory: pytest.TempPathFactory) -> HonestStore:
    return make_honest_store(tmp_path_factory.mktemp("honest"))


@pytest.mark.large
def test_every_command_answers_each_forged_store_in_time_and_memory() -> None:
    wrong = [answer for answer in try_forgeries(SEEDS) if answer.problem is not None]
    assert wrong == []


def test_every_command_that_reads_a_store_is_tried(honest: HonestStore) -> None:
    tried = {tuple(words[:2]) for words in commands(honest, honest.place)}
    names = {words[0] for words in tried}
    expected = set(laminar.commands) - WRITING - STORELESS
    assert expected <= names
    for group in expected:
        below = getattr(laminar.commands[group], "commands", {})
        assert {(group, each) for each in set(below) - WRITING_BELOW} <= tried


def test_a_command_that_hangs_dies_or_takes_all_memory_is_a_problem(monkeypatch) -> None:
    """The campaign would notice: the same process with commands that do each of these."""
    start = "import os, sys; sys.stdin.readline(); "
    programs = {"ended": start + "os.abort()", "hangs": start + "sys.stdin.read()"}
    monkeypatch.setattr(forgeries, "TIME_S", 5.0)
    for problem, program in programs.items():
        monkeypatch.setattr(forgeries, "_SERVE", program)
        process = forgeries._Commands()
        code, said = process.run(["status"])
        process.end()
        assert code is None
        assert problem in said
    assert MEMORY_BYTES < 1 << 33, "less than the holes of a forged file"


@pytest.mark.large
def test_the_command_says_what_it_tried(verify) -> None:
    answer = verify("forgeries", "1", "--from", "7", "--json")
    summary = json.loads(answer.stdout.splitlines()[-1])
    assert answer.exit_code == 0
    assert summary["forgeries"] == 1
    assert summary["problems"] == 0
    assert sum(summary["exit_codes"].values()) > 30
