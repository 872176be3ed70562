"""The command explores every world, and fails if a mutant is not caught."""

import json
from dataclasses import replace

import pytest
from click.testing import CliRunner

from verification.commands.greetings import greetings
from verification.greetings import GREETING_MUTANTS, GREETING_WORLDS

EARLY = "begins without one greeting"


def test_every_world_is_well_and_every_mutant_caught() -> None:
    result = CliRunner().invoke(greetings)
    lines = result.output.splitlines()
    assert (result.exit_code, len(lines)) == (0, len(GREETING_WORLDS) + len(GREETING_MUTANTS))
    assert [line.rpartition(": ")[2] for line in lines] == ["well"] * 5 + ["caught"] * 2


def test_a_wrong_world_fails_the_command(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(GREETING_WORLDS, "one worker", GREETING_MUTANTS[EARLY])
    result = CliRunner().invoke(greetings, ["--json"])
    said = [json.loads(line) for line in result.output.splitlines()]
    assert (result.exit_code, [s["right"] for s in said].count(False)) == (1, 1)


def test_a_mutant_that_is_not_caught_fails_the_command(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(GREETING_MUTANTS, EARLY, replace(GREETING_MUTANTS[EARLY], forgiving=False))
    assert CliRunner().invoke(greetings).exit_code == 1
