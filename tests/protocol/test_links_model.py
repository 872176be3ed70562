"""Whatever connections do: no renewal without a roll call, and no alarm without a loss."""

from hypothesis import given
from hypothesis import strategies as st

from laminar_core.protocol.links import (
    LINK_DOWN_MAX_MS,
    Connections,
    LinkWatch,
    Overdue,
    RollCall,
)

PEERS = st.integers(1, 4)
STEP_MS = LINK_DOWN_MAX_MS / 3
MOVES = st.lists(st.sampled_from(["lose", "renew", "half-open", "wait", "look"]), max_size=40)


class Network:
    """Each peer has one connection, or none; of old ones the receiver may not know yet."""

    def __init__(self, peers: int) -> None:
        self.up = [True] * peers
        self.accepted = self.established = peers
        self.closed = 0

    def lose(self) -> None:
        if any(self.up):
            self.up[self.up.index(True)] = False
            self.closed += 1

    def renew(self) -> None:
        if not all(self.up):
            self.up[self.up.index(False)] = True
            self.accepted += 1
            self.established += 1

    def half_open(self) -> None:
        """A peer connects again, and the old connection is still open at this end."""
        self.accepted += 1
        self.established += 1

    def seen(self) -> Connections:
        return Connections(self.accepted, self.established, self.closed)


@given(PEERS, MOVES)
def test_each_new_connection_is_followed_by_a_roll_call(peers: int, moves: list[str]) -> None:
    """I1 and I2."""
    network, links, now_ms = Network(peers), LinkWatch(range(peers)), 0.0
    called_at, first = peers, True
    for move in [*moves, "look"]:
        match move:
            case "lose":
                network.lose()
            case "renew":
                network.renew()
            case "half-open":
                network.half_open()
            case _:
                now_ms += 1
        said = links.turn(network.seen(), now_ms)
        if network.established > called_at:
            assert said == RollCall()
            called_at = network.established
        if isinstance(said, RollCall):
            assert links.broken(network.seen())
        first = first and network.closed == 0 and network.established == peers
        assert not first or (said is None and not links.broken(network.seen()))


@given(PEERS, MOVES)
def test_a_missing_connection_is_reported_if_it_stays_away(peers: int, moves: list[str]) -> None:
    """I3, and nothing is reported before its time."""
    network, links, now_ms = Network(peers), LinkWatch(range(peers)), 0.0
    down_since_ms: float | None = None
    for move in moves:
        if move == "lose":
            network.lose()
        elif move == "renew":
            network.renew()
        elif move == "wait":
            now_ms += STEP_MS
        said = links.turn(network.seen(), now_ms)
        if all(network.up):
            down_since_ms = None
        elif down_since_ms is None:
            down_since_ms = now_ms
        overdue = down_since_ms is not None and now_ms - down_since_ms > LINK_DOWN_MAX_MS
        assert isinstance(said, Overdue) is overdue
