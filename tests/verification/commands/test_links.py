"""The command explores every world, and fails if a mutant is not caught."""

import json

import pytest
from click.testing import CliRunner

from verification.commands.links import links
from verification.links import LINK_WORLDS, MUTANTS, LinkWorld

SMALL, CAUGHT = LinkWorld(frames=1, breaks=1), MUTANTS["credit that is no total"]


@pytest.mark.parametrize(
    ("world", "mutant", "right"),
    [(SMALL, CAUGHT, [True, True]), (CAUGHT, CAUGHT, [False, True]), (SMALL, SMALL, [True, False])],
    ids=["all is well", "a world is wrong", "a mutant is not caught"],
)
def test_the_exit_code_says_whether_all_is_right(
    monkeypatch: pytest.MonkeyPatch, world: LinkWorld, mutant: LinkWorld, right: list[bool]
) -> None:
    for worlds in (LINK_WORLDS, MUTANTS):
        for name in tuple(worlds):
            monkeypatch.delitem(worlds, name)
    monkeypatch.setitem(LINK_WORLDS, "world", world)
    monkeypatch.setitem(MUTANTS, "mutant", mutant)
    result = CliRunner().invoke(links, ["--json"])
    said = [json.loads(line) for line in result.output.splitlines()]
    assert [line["right"] for line in said] == right
    assert result.exit_code == (0 if all(right) else 1)
    assert ("WRONG" in CliRunner().invoke(links).output) is not all(right)
