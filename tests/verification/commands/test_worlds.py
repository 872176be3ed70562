"""``python -m verification worlds`` explores worlds and shows the way to what is wrong."""

import json

import pytest

from laminar_core.protocol.alignment import BarrierAligner
from verification.explorer import WORLDS
from verification.explorer.worlds import QUICK


@pytest.fixture
def broken(monkeypatch: pytest.MonkeyPatch) -> None:
    """Break the recording: rows that arrive after the cut are not captured."""
    monkeypatch.setattr(BarrierAligner, "records", lambda *_: False)


def test_a_world_that_is_well(verify) -> None:
    answer = verify("worlds", "loop-replayed")
    assert answer.exit_code == 0
    world, total = answer.stdout.splitlines()
    assert world.startswith("loop-replayed: ")
    assert world.endswith(": well")
    assert total.startswith("1 worlds, 0 violated; ")


def test_json_is_a_line_per_world_and_one_for_all(verify) -> None:
    said = verify("worlds", "pair-replayed", "--json").stdout
    world, total = map(json.loads, said.splitlines())
    assert (world["event"], world["world"], world["complete"]) == ("world", "pair-replayed", True)
    assert (total["event"], total["failed"]) == ("summary", [])
    assert total["states"] == world["states"] > 1000


@pytest.mark.usefixtures("broken")
def test_a_violation_is_shown_step_by_step(verify) -> None:
    answer = verify("worlds", "fan-in-few")
    assert answer.exit_code == 1
    assert "  1. a checkpoint is triggered" in answer.stdout
    assert "  => channel state of b to j is [], and the cut needs [b0]" in answer.stdout
    assert "1 worlds, 1 violated" in answer.stdout


def test_a_world_that_is_not_there_is_refused(verify) -> None:
    answer = verify("worlds", "nowhere")
    assert answer.exit_code == 2
    assert "'nowhere' is not one of" in answer.stderr


def test_the_worlds_are_listed(verify) -> None:
    assert [line.split(":")[0] for line in verify("worlds", "--list").stdout.splitlines()] == list(
        WORLDS
    )


def test_without_a_name_the_quick_worlds_are_explored(verify, monkeypatch) -> None:
    explored = []
    monkeypatch.setattr(
        "verification.commands.worlds.explore_worlds",
        lambda chosen, *, as_json: explored.extend(chosen) if not as_json else None,
    )
    verify("worlds")
    assert tuple(explored) == QUICK
    explored.clear()
    verify("worlds", "all")
    assert [world.name for world in explored] == list(WORLDS)
