"""The search is complete, stops where it is told to, and shows a shortest way to what is wrong."""

import json

from laminar_core.host.clock import ManualClock
from tests.verification.explorer.planted import CapturesOnce, PanicsWhenHeld
from verification.explorer import WORLDS, Classes, Link, Node, World, explore
from verification.explorer.search import Violation

TINY = World(
    "tiny", "one record", (Node("a", 1), Node("k", sink=True)), (Link("a", "k"),), checkpoints=0,
    ends=False, latency=False,
)  # fmt: skip


def test_every_state_of_a_tiny_world() -> None:
    report = explore(TINY, ManualClock())
    assert (report.states, report.transitions, report.depth, report.ends) == (3, 2, 2, 1)
    assert report.complete
    assert report.violation is None
    assert json.loads(json.dumps(report.as_dict()))["world"] == "tiny"


def test_a_limit_leaves_it_incomplete() -> None:
    report = explore(WORLDS["fan-in"], ManualClock(), states_max=100)
    assert not report.complete
    assert 100 <= report.states < 1000


def test_the_trace_is_a_shortest_one_and_can_be_read() -> None:
    report = explore(WORLDS["fan-in-few"], ManualClock(), Classes(aligner=PanicsWhenHeld))
    assert report.violation is not None
    assert report.violation.what.endswith("entered unreachable code")
    assert len(report.violation.trace) == 5
    assert report.violation.trace[0] == "a checkpoint is triggered"
    assert str(Violation("broken", ("x", "y"))) == "  1. x\n  2. y\n  => broken"


def test_equal_searches_find_the_same() -> None:
    first, second = (
        explore(WORLDS["fan-in-few"], ManualClock(), Classes(aligner=CapturesOnce))
        for _ in range(2)
    )
    assert first == second
