"""Whatever a connection loses: each frame is delivered once, in order, and nothing stays open."""

from collections import deque

from hypothesis import given
from hypothesis import strategies as st

from laminar_core.protocol.fifo import Broken, Delivered, FifoChannel
from laminar_core.protocol.kept_frames import CONFIRM_EVERY, FRAMES_MAX, KeptFrames
from laminar_core.protocol.types import Generation

NOW = Generation(1)
CREDITS = 3
MOVES = st.lists(
    st.tuples(
        st.sampled_from(["send", "send", "take", "arrive", "back", "lose", "lose-back", "wait"]),
        st.integers(0, 4),
    ),
    max_size=120,
)


class Channel:
    """Both ends of a channel, and what is under way in both directions."""

    def __init__(self) -> None:
        self.kept = KeptFrames[int]()
        self.order = FifoChannel[int](NOW, FRAMES_MAX)
        self.there: deque[tuple[str, int]] = deque()
        self.back: deque[tuple[str, int, int]] = deque()
        self.sent = self.batches = self.taken = self.told = 0
        self.credited = 0
        self.delivered: list[int] = []
        self.now_ms = 0.0

    def send(self) -> None:
        """Every second frame is a batch, which needs credit."""
        batch = self.sent % 2 == 0
        if not self.kept.has_room or (batch and self.batches - self.credited == CREDITS):
            return
        self.kept.add(self.sent, batch=batch)
        self.there.append(("frame", self.sent))
        self.sent += 1
        self.batches += batch

    def arrive(self) -> None:
        if not self.there:
            return
        kind, number = self.there.popleft()
        if kind == "mark":
            self.confirm("resend" if self.order.expected < number else "credit")
            return
        receipt = self.order.receive(NOW, number, number)
        assert not isinstance(receipt, Broken), "I3"
        if isinstance(receipt, Delivered):
            self.delivered += receipt.frames
            if self.order.expected - self.told >= CONFIRM_EVERY:
                self.confirm("credit")

    def take(self) -> None:
        if self.taken < (len(self.delivered) + 1) // 2:
            self.taken += 1
            self.confirm("credit")

    def confirm(self, kind: str) -> None:
        self.told = self.order.expected
        self.back.append((kind, self.told, self.taken))

    def answer(self) -> None:
        if not self.back:
            return
        kind, arrived, taken = self.back.popleft()
        self.kept.confirm(arrived, taken)
        self.credited = max(self.credited, taken)
        if kind == "resend":
            self.there.extend(("frame", n) for n in self.kept.lacking(arrived))

    def wait(self) -> None:
        self.now_ms += 500
        if self.kept.mark_is_due(self.now_ms):
            self.there.append(("mark", self.kept.next_sequence))

    def move(self, what: str, n: int) -> None:
        match what:
            case "send":
                self.send()
            case "take":
                self.take()
            case "arrive":
                self.arrive()
            case "back":
                self.answer()
            case "lose":
                for _ in range(min(n, len(self.there))):
                    self.there.pop()
            case "lose-back":
                for _ in range(min(n, len(self.back))):
                    self.back.pop()
            case _:
                self.wait()


@given(MOVES)
def test_everything_arrives_once_and_in_order_and_is_confirmed(
    moves: list[tuple[str, int]],
) -> None:
    channel = Channel()
    for what, n in moves:
        channel.move(what, n)
        assert channel.delivered == list(range(len(channel.delivered))), "I1"
        assert channel.order.waiting <= FRAMES_MAX
    for _ in range(200):  # Nothing is lost any more.
        for what in ("arrive", "take", "back", "wait"):
            channel.move(what, 0)
    assert channel.delivered == list(range(channel.sent)), "I2"
    assert (len(channel.kept), channel.credited) == (0, channel.batches), "I2"
