"""Explore all orders of events on a channel between two workers whose connections fail.

The real ends of the channel are explored: ``SendingEnd`` and ``ReceivingEnd``. Between them are two
connections, one in each direction. A connection may break, which loses any number of the last
frames under way. It may also be silent: its sender still believes in it, and everything that is
sent is lost until the connection is made again. Neither end gets a notice; a mark of the channel is
sent at any moment while something is open, as the timer does.

Checked in every state: what was delivered is a beginning of what was sent, and what the receiver
lacks is kept. From every state, once nothing is lost any more: all is delivered, confirmed and
credited. Worlds with one fault planted must be caught.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from copy import deepcopy
from dataclasses import dataclass, field

from laminar_core.errors import ProtocolError
from laminar_core.link.channel_ends import Frame, ReceivingEnd, SendingEnd
from laminar_core.link.sockets import Buffer
from laminar_core.link.wire import (
    ArrowElement,
    ElementCodec,
    FrameKind,
    Header,
    decode_arrived,
    decode_header,
)

Carried = tuple[bytes, bytes]
"""Header and payload of a frame under way."""

ROUNDS_MAX = 12
"""Marks until everything must be settled, once nothing is lost any more."""

_CHANNEL = Header(1, 0, 0, 1, FrameKind.BATCH, 0)


@dataclass(frozen=True, slots=True)
class LinkWorld:
    """A world to explore: how much of everything there is, and by which ends."""

    frames: int = 3
    credits: int = 2
    """Batches that may be under way or queued. Frames of odd numbers are no batches."""
    breaks: int = 2
    """How often connections break or fall silent, both directions together."""
    marks: int = 2
    """Marks that are sent although frames may be lost."""
    sending: type[SendingEnd] = SendingEnd
    receiving: type[ReceivingEnd] = ReceivingEnd


@dataclass(frozen=True, slots=True)
class LinkReport:
    """The result of one world."""

    states: int
    settled: int
    """States from which everything arrived in the end."""
    violations: tuple[str, ...]


class _Numbers(ElementCodec):
    """Elements are numbers: even ones are batches."""

    def __init__(self) -> None:
        pass

    def encode(self, element: ArrowElement) -> tuple[FrameKind, Buffer]:
        number: int = element  # pyright: ignore[reportAssignmentType] - it stands for an element
        return (FrameKind.WATERMARK if number % 2 else FrameKind.BATCH), bytes([number])


@dataclass(slots=True)
class _Wire:
    """One direction; stands for the transport of the end that sends on it."""

    reorder_max: int = 0
    under_way: list[Carried] = field(default_factory=list[Carried])
    silent: bool = False

    def send(self, peer: int, header: bytes, payload: Buffer) -> None:
        del peer
        if not self.silent:
            self.under_way.append((header, bytes(payload)))


def _connection_broke() -> bool:
    return True


class _State:
    def __init__(self, world: LinkWorld) -> None:
        self.there, self.back = _Wire(), _Wire()
        self.sending = world.sending(self.there, _Numbers(), _CHANNEL)
        self.receiving = world.receiving(self.back, _CHANNEL, 0, _connection_broke)
        self.sent = self.batches = self.credited = self.taken = self.faults = self.marks = 0
        self.delivered: list[int] = []

    def key(self) -> tuple[object, ...]:
        """Everything that decides what can follow."""
        order = self.receiving.order
        return (
            tuple(self.there.under_way),
            tuple(self.back.under_way),
            (self.there.silent, self.back.silent),
            (self.sent, self.credited, self.taken, self.faults, self.marks, self.sending.kept),
            tuple(self.delivered),
            (order.expected, order.early_numbers),
        )

    @property
    def open(self) -> bool:
        """Whether the sender still waits for a confirmation or for credit."""
        return self.sending.kept > 0 or self.credited < self.batches

    # --- steps ----------------------------------------------------------------------------------

    def send(self) -> None:
        self.batches += self.sent % 2 == 0
        self.sending(self.sent)  # pyright: ignore[reportArgumentType] - it stands for an element
        self.sent += 1

    def mark(self) -> None:
        self.marks += 1
        self.sending.mark()

    def take(self) -> None:
        self.taken += 1
        self.receiving(1)

    def arrive(self) -> None:
        header_bytes, payload = self.there.under_way.pop(0)
        header = decode_header(header_bytes)
        if header.kind is FrameKind.MARK:
            self.receiving.marked(header.sequence)
        else:
            frames: Sequence[Frame] = self.receiving.receive(header, payload)
            self.delivered += [bytes(data)[0] for _, data in frames]

    def answer(self) -> None:
        header_bytes, payload = self.back.under_way.pop(0)
        header = decode_header(header_bytes)
        self.credited = max(self.credited, header.sequence)
        self.sending.confirmed(header, payload)

    def lose(self, wire: str, first: int, *, silent: bool) -> None:
        """Lose what is under way from this frame on; a silent connection loses the next ones."""
        line: _Wire = getattr(self, wire)
        self.faults += 1
        del line.under_way[first:]
        line.silent = silent

    def connect_again(self, wire: str) -> None:
        getattr(self, wire).silent = False


Step = Callable[[_State], None]


def explore_links(world: LinkWorld) -> LinkReport:
    """Return how many states there are, and what is wrong in them."""
    start = _State(world)
    todo, seen, settled = [start], {start.key()}, 0
    violations: dict[str, None] = {}
    while todo and not violations:
        state = todo.pop()
        violations |= dict.fromkeys(_never_settles(state))
        settled += 1
        for step in _steps(world, state):
            following = deepcopy(state)
            try:
                step(following)
            except ProtocolError as error:
                violations[str(error)] = None
                continue
            violations |= dict.fromkeys(_wrong_with(following))
            if (key := following.key()) not in seen:
                seen.add(key)
                todo.append(following)
    return LinkReport(len(seen), settled, tuple(violations))


def _steps(world: LinkWorld, state: _State) -> Iterator[Step]:
    has_credit = state.sent % 2 or state.batches - state.credited < world.credits
    if state.sent < world.frames and has_credit:
        yield _State.send
    if state.open and state.marks < world.marks:
        yield _State.mark
    if state.taken < _batches(state.delivered):
        yield _State.take
    if state.there.under_way:
        yield _State.arrive
    if state.back.under_way:
        yield _State.answer
    for wire, line in (("there", state.there), ("back", state.back)):
        if line.silent:
            yield lambda s, wire=wire: s.connect_again(wire)
        elif state.faults < world.breaks:
            for first in range(len(line.under_way)):
                yield lambda s, wire=wire, first=first: s.lose(wire, first, silent=False)
            yield lambda s, wire=wire: s.lose(wire, 0, silent=True)


def _batches(delivered: Sequence[int]) -> int:
    return sum(number % 2 == 0 for number in delivered)


def _wrong_with(state: _State) -> Iterator[str]:
    if state.delivered != list(range(len(state.delivered))):
        yield f"delivered {state.delivered}"
    kept_from = state.sent - state.sending.kept
    if kept_from > len(state.delivered):
        yield f"frame {len(state.delivered)} is lacking, and those below {kept_from} are not kept"
    for header, payload in state.back.under_way:
        if decode_header(header).kind in (FrameKind.CREDIT, FrameKind.RESEND):
            arrived = decode_arrived(payload)
            if arrived > len(state.delivered):
                yield f"{arrived} frames are confirmed, and {len(state.delivered)} have arrived"


def _never_settles(state: _State) -> Iterator[str]:
    """Go on without any loss, and look whether everything is settled in the end."""
    state = deepcopy(state)
    try:
        _go_on(state)
    except ProtocolError as error:
        yield str(error)
        return
    if len(state.delivered) != state.sent or state.open:
        yield (
            f"stands still: {state.sent} frames sent, {len(state.delivered)} delivered, "
            f"{state.sending.kept} not confirmed, {state.batches - state.credited} credits out"
        )


def _go_on(state: _State) -> None:
    """Mark the channel as long as something is open; everything that is under way arrives."""
    state.connect_again("there")
    state.connect_again("back")
    for _ in range(ROUNDS_MAX):
        if state.open:
            state.mark()
        while state.there.under_way:
            state.arrive()
        while state.taken < _batches(state.delivered):
            state.take()
        while state.back.under_way:
            state.answer()


class _SendsNothingAgain(SendingEnd):
    """A frame that is asked for is not sent again."""

    def confirmed(self, header: Header, payload: Buffer) -> None:
        credit = Header(*(header.generation, header.edge_id, header.sender, header.receiver),
                        FrameKind.CREDIT, header.sequence)  # fmt: skip
        super().confirmed(credit, payload)


class _AcceptsDuplicates(ReceivingEnd):
    """A frame that came before is taken as a new one."""

    def receive(self, header: Header, payload: Buffer) -> Sequence[Frame]:
        if header.sequence < self.order.expected:
            return ((header.kind, payload),)
        return super().receive(header, payload)


class _ConfirmsTooEarly(ReceivingEnd):
    """A frame that came early is confirmed, although one before it is missing."""

    def _arrived(self) -> int:
        return max([self.order.expected, *(n + 1 for n in self.order.early_numbers)])


class _CreditIsNoTotal(ReceivingEnd):
    """The credit of a lost frame is not repeated by the next one."""

    def __call__(self, batches: int) -> None:
        self._taken = 0
        super().__call__(batches)


class _AsksOnlyOnce(ReceivingEnd):
    """A question for missing frames that is lost is not asked again."""

    asked = False

    def marked(self, sent: int) -> None:
        if sent > self.order.expected and self.asked:
            self.repeat()
            return
        self.asked = self.asked or sent > self.order.expected
        super().marked(sent)


LINK_WORLDS: Mapping[str, LinkWorld] = {
    "one loss": LinkWorld(breaks=1),
    "two losses": LinkWorld(frames=2),
}
"""In all of these, every order of events is right."""

MUTANTS: Mapping[str, LinkWorld] = {
    "a frame that is not sent again": LinkWorld(sending=_SendsNothingAgain),
    "a duplicate that is accepted": LinkWorld(receiving=_AcceptsDuplicates),
    "a confirmation that comes too early": LinkWorld(receiving=_ConfirmsTooEarly),
    "credit that is no total": LinkWorld(receiving=_CreditIsNoTotal),
    "a question that is asked only once": LinkWorld(frames=1, receiving=_AsksOnlyOnce),
}
"""In each of these, some order of events is wrong."""
