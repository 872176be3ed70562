"""No order of events breaks the protocol, and every planted fault is found in some order."""

from functools import cache

import pytest

from laminar_core.host.clock import ManualClock
from tests.verification.explorer.planted import PLANTED, Planted
from verification.explorer import WORLDS, Report, explore
from verification.explorer.worlds import QUICK


@cache
def explored(world: str) -> Report:
    return explore(WORLDS[world], ManualClock())


@pytest.mark.large
@pytest.mark.sampled(2)
@pytest.mark.parametrize("world", [world.name for world in QUICK])
def test_every_order_of_events_is_right(world: str) -> None:
    """Goal: PROTOCOL section 1 in every reachable state, with timeout, abort, crash and restore.

    Method: all interleavings of the real machines; every checkpoint that completes is compared with
    the algorithm of 1985, and every end with the answer computed in sequence.
    """
    report = explored(world)
    assert report.violation is None, f"\n{report.violation}"
    assert report.complete
    assert report.checkpoints > 1, "the world is too small to say anything"


@pytest.mark.sampled(3)
@pytest.mark.parametrize("planted", PLANTED, ids=lambda planted: planted.errata)
def test_a_planted_fault_is_found_and_without_it_the_world_is_right(planted: Planted) -> None:
    report = explore(WORLDS[planted.world], ManualClock(), planted.classes)
    assert report.violation is not None
    assert planted.found in report.violation.what
    assert explored(planted.world).violation is None
    assert explored(planted.world).complete


def test_the_world_that_must_be_complete_is_as_large_as_was_asked_for() -> None:
    world = WORLDS["fan-in"]
    assert len(world.nodes) == 3
    assert len(world.inputs_of("j")) == 2
    assert [node.record_count for node in world.nodes] == [2, 2, None]
    assert (world.checkpoints, world.crashes, world.expiries) == (1, 1, 1)
    assert world.alignment_timeout_ms
