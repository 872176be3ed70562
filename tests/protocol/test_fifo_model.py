"""Within the bound a transport may do anything: what was sent is delivered once and in order."""

from collections.abc import Iterable
from random import Random

from hypothesis import given
from hypothesis import strategies as st

from laminar_core.protocol.fifo import Broken, Delivered, Dropped, FifoChannel
from laminar_core.protocol.types import Generation

NOW, BEFORE = Generation(2), Generation(1)
Frame = tuple[Generation, int]


def deliveries(channel: FifoChannel[Frame], frames: Iterable[Frame]) -> list[int]:
    """Receive; check the buffer after each frame; return the numbers delivered."""
    delivered: list[int] = []
    for generation, sequence in frames:
        match channel.receive(generation, sequence, (generation, sequence)):
            case Delivered(ready):
                assert all(of is NOW for of, _ in ready), "of another generation"
                delivered += [number for _, number in ready]
            case Broken() as broken:
                raise AssertionError(broken)
            case Dropped():
                pass
    return delivered


@st.composite
def disordered(draw: st.DrawFn) -> tuple[int, int, list[Frame]]:
    """(frames sent, bound, arrivals): within the bound, with repetitions and old frames.

    At each moment any frame may arrive that is at most ``bound`` ahead of the first one missing.
    """
    sent, bound = draw(st.integers(0, 30)), draw(st.integers(0, 6))
    random = Random(draw(st.integers(0, 2**32)))
    missing, arrivals, gone = list(range(sent)), [], []
    while missing:
        choice = random.random()
        if choice < 0.2 and gone:
            arrivals.append((NOW, random.choice(gone)))
        elif choice < 0.3:
            arrivals.append((BEFORE, random.randrange(sent + 9)))
        else:
            within = [number for number in missing if number - missing[0] <= bound]
            number = random.choice(within)
            missing.remove(number)
            gone.append(number)
            arrivals.append((NOW, number))
    return sent, bound, arrivals


@given(disordered())
def test_any_order_within_the_bound_delivers_each_frame_once_and_in_order(
    case: tuple[int, int, list[Frame]],
) -> None:
    sent, bound, arrivals = case
    channel: FifoChannel[Frame] = FifoChannel(NOW, bound)
    delivered: list[int] = []
    for arrival in arrivals:
        delivered += deliveries(channel, [arrival])
        assert channel.waiting <= bound
    assert delivered == list(range(sent))
    counters = channel.counters
    assert counters.delivered == sent
    assert counters.delivered + counters.duplicates + counters.other_generation == len(arrivals)
    assert channel.waiting == 0


@given(st.lists(st.integers(0, 12), max_size=40), st.integers(0, 4))
def test_whatever_arrives_only_a_prefix_is_delivered_and_memory_is_bounded(
    arrivals: list[int], bound: int
) -> None:
    """Goal: also a transport that breaks every promise causes no wrong delivery, only a refusal.

    Method: an oracle that remembers all numbers accepted so far; what is delivered is exactly the
    prefix that has come.
    """
    channel: FifoChannel[int] = FifoChannel(NOW, bound)
    accepted: set[int] = set()
    delivered: list[int] = []
    for number in arrivals:
        awaited = len(delivered)
        outcome = channel.receive(NOW, number, number)
        assert isinstance(outcome, Broken) == (number not in accepted and number > awaited + bound)
        assert (outcome is Dropped.DUPLICATE) == (number in accepted)
        if isinstance(outcome, Delivered):
            accepted.add(number)
            delivered += outcome.frames
        prefix = next(n for n in range(len(accepted) + 1) if n not in accepted)
        assert delivered == list(range(prefix))
        assert channel.waiting == len(accepted) - prefix <= bound
