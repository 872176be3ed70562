"""Connections are counted, and the count says what a gap means and whom to ask."""

import pytest

from laminar_core.protocol.links import (
    LINK_DOWN_MAX_MS,
    ROLL_CALL_INTERVAL_MS,
    Connections,
    LinkWatch,
    Overdue,
    RollCall,
)


def seen(established: int, closed: int = 0, strangers: int = 0) -> Connections:
    return Connections(established + strangers, established, closed)


def watch(peers: int = 2) -> LinkWatch:
    return LinkWatch(range(1, peers + 1))


def test_one_connection_of_each_peer_is_what_there_should_be() -> None:
    links = watch()
    assert links.turn(seen(2), 0) is None
    assert not links.broken(seen(2))


@pytest.mark.parametrize("closed", [0, 1], ids=["not yet noticed", "noticed"])
def test_a_second_connection_of_a_peer_calls_the_roll_once(closed: int) -> None:
    links = watch()
    links.turn(seen(2), 0)
    assert links.broken(seen(3, closed))
    assert links.turn(seen(3, closed), 1) == RollCall()
    assert links.turn(seen(3, closed), 2) is None
    assert links.turn(seen(4, closed + 1), 3) == RollCall()


def test_a_connection_that_is_renewed_before_all_are_there_is_noticed_in_the_end() -> None:
    links = watch()
    assert links.turn(seen(1), 0) is None
    assert links.turn(seen(1, closed=1), 1) is None
    assert links.turn(seen(2, closed=1), 2) is None
    assert links.turn(seen(3, closed=1), 3) == RollCall()


def test_a_lost_connection_calls_the_roll_to_find_out_whose_it_was() -> None:
    links = watch(3)
    links.turn(seen(3), 0)
    links.hear(1)
    assert links.turn(seen(3, closed=1), 10) == RollCall()
    links.hear(2)
    links.hear(3)
    assert links.turn(seen(3, closed=1), 9 + ROLL_CALL_INTERVAL_MS) is None
    assert links.turn(seen(3, closed=1), 10 + ROLL_CALL_INTERVAL_MS) == RollCall()
    overdue = links.turn(seen(3, closed=1), 11 + LINK_DOWN_MAX_MS)
    assert overdue == Overdue(LINK_DOWN_MAX_MS + 1, (1,))


def test_a_connection_that_comes_back_in_time_is_forgotten() -> None:
    links = watch()
    links.turn(seen(2), 0)
    links.turn(seen(2, closed=1), 10)
    assert links.turn(seen(3, closed=1), LINK_DOWN_MAX_MS) == RollCall()
    assert links.turn(seen(3, closed=1), 9 * LINK_DOWN_MAX_MS) is None


def test_a_peer_that_never_connects_is_overdue() -> None:
    """Its address is one that others cannot reach; without this they would try for ever."""
    links = watch()
    assert links.turn(seen(1), 5) is None
    links.hear(2)
    assert links.turn(seen(1), 6 + LINK_DOWN_MAX_MS) == Overdue(LINK_DOWN_MAX_MS + 1, (1,))


def test_if_all_were_heard_it_can_be_any_of_them() -> None:
    links = watch()
    links.turn(seen(1), 0)
    links.hear(1)
    links.hear(2)
    assert links.turn(seen(1), LINK_DOWN_MAX_MS + 1) == Overdue(LINK_DOWN_MAX_MS + 1, (1, 2))


def test_a_worker_alone_waits_for_nobody() -> None:
    assert watch(0).turn(seen(0), 10 * LINK_DOWN_MAX_MS) is None


def test_a_stranger_in_its_handshake_is_no_peer() -> None:
    links = watch()
    assert links.turn(seen(2, strangers=5), 0) is None
    assert not links.broken(seen(2, strangers=5))


def test_how_long_a_connection_may_be_missing_can_be_set() -> None:
    links = LinkWatch([1], 5_000)
    links.turn(seen(0), 0)
    assert links.turn(seen(0), 5_000) == RollCall()
    assert links.turn(seen(0), 5_001) == Overdue(5_001, (1,))
