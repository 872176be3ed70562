"""The command explores every world, and fails if a mutant is not caught."""

import json
from dataclasses import replace

import pytest
from click.testing import CliRunner

from verification.commands.splits import splits
from verification.splits import MUTANTS, SPLIT_WORLDS


def test_every_world_is_well_and_every_mutant_caught() -> None:
    result = CliRunner().invoke(splits)
    lines = result.output.splitlines()
    assert (result.exit_code, len(lines)) == (0, len(SPLIT_WORLDS) + len(MUTANTS))
    assert [line.rpartition(": ")[2] for line in lines] == ["well"] * 3 + ["caught"] * 2


def test_a_wrong_world_fails_the_command(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(SPLIT_WORLDS, "two workers", MUTANTS["messages that overtake"])
    result = CliRunner().invoke(splits, ["--json"])
    said = [json.loads(line) for line in result.output.splitlines()]
    assert (result.exit_code, [s["right"] for s in said].count(False)) == (1, 1)


def test_a_mutant_that_is_not_caught_fails_the_command(monkeypatch: pytest.MonkeyPatch) -> None:
    for name, world in tuple(MUTANTS.items()):
        monkeypatch.setitem(MUTANTS, name, replace(world, kept="trigger", ordered=True))
    assert CliRunner().invoke(splits).exit_code == 1
