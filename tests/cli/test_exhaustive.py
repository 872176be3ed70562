"""``laminar simulate --exhaustive`` explores worlds and shows the way to what is wrong."""

import json

import pytest

from laminar_core.protocol.alignment import BarrierAligner
from laminar_core.testing.explorer import WORLDS
from laminar_core.testing.explorer.worlds import QUICK


@pytest.fixture
def broken(monkeypatch: pytest.MonkeyPatch) -> None:
    """What arrives after the cut is never recorded."""
    monkeypatch.setattr(BarrierAligner, "records", lambda *_: False)


def test_a_world_that_is_well(cli) -> None:
    answer = cli("simulate", "--exhaustive", "--world", "loop-replayed")
    assert answer.code == 0
    world, total = answer.out.splitlines()
    assert world.startswith("loop-replayed: ")
    assert world.endswith(": well")
    assert total.startswith("1 worlds, 0 violated; ")


def test_json_is_a_line_per_world_and_one_for_all(cli) -> None:
    said = cli("simulate", "--exhaustive", "--world", "pair-replayed", "--json").out
    world, total = map(json.loads, said.splitlines())
    assert (world["event"], world["world"], world["complete"]) == ("world", "pair-replayed", True)
    assert (total["event"], total["failed"]) == ("summary", [])
    assert total["states"] == world["states"] > 1000


@pytest.mark.usefixtures("broken")
def test_a_violation_is_shown_step_by_step(cli) -> None:
    answer = cli("simulate", "--exhaustive", "--world", "fan-in-few")
    assert answer.code == 1
    assert "  1. a checkpoint is triggered" in answer.out
    assert "  => channel state of b to j is [], and the cut needs [b0]" in answer.out
    assert "1 worlds, 1 violated" in answer.out


@pytest.mark.parametrize(
    ("options", "problem"),
    [
        (["--world", "fan-in"], "give both, or none"),
        (["--exhaustive", "--world", "nowhere"], "'nowhere' is not one of"),
        (["--exhaustive", "--seeds", "3"], "leave --seeds out"),
        (["--exhaustive", "--seed", "3"], "leave --seed out"),
        (["--exhaustive", "--corruptions", "3"], "leave --corruptions out"),
    ],
)
def test_what_makes_no_sense_is_refused(cli, options, problem: str) -> None:
    answer = cli("simulate", *options)
    assert answer.code == 2
    assert problem in answer.err


def test_without_a_name_the_quick_worlds_are_explored(cli, monkeypatch) -> None:
    explored = []
    monkeypatch.setattr(
        "laminar_core.cli.exhaustive.explore_worlds",
        lambda worlds, *, as_json: explored.extend(worlds) if not as_json else None,
    )
    cli("simulate", "--exhaustive")
    assert tuple(explored) == QUICK
    explored.clear()
    cli("simulate", "--exhaustive", "--world", "all")
    assert [world.name for world in explored] == list(WORLDS)
