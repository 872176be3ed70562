"""Reliable delivery between coordinator and worker: no message is lost or processed twice.

Messages that must arrive carry a number, are kept until the other end confirms them, and are
processed once and in order. Every message carries the count of numbered messages received so far,
so heartbeats confirm all the others. Heartbeats, and the order to cancel, have no number, because
the next one repeats the content.
"""

import math
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import partial
from typing import Generic, TypeVar

from laminar_core.host.clock import Clock
from laminar_core.link.messages import (
    Alive,
    Cancel,
    Ping,
    Progress,
    Restoring,
    ToCoordinator,
    ToWorker,
    WaitingCheckpoint,
    encode,
)
from laminar_core.protocol.fifo import Delivered, FifoChannel
from laminar_core.protocol.resend import SendWindow
from laminar_core.protocol.types import Generation

EARLY_MAX = 256
"""Messages that may wait for one that was lost; more are dropped, and will be sent again."""

NOT_NUMBERED = (Ping, Restoring, Progress, Alive, WaitingCheckpoint, Cancel)
"""Messages that may be lost: the next heartbeat repeats the content, and a worker that misses
``Cancel`` notices that its coordinator is silent.
"""

Heard = TypeVar("Heard", bound=ToCoordinator | ToWorker)
Said = TypeVar("Said", bound=ToCoordinator | ToWorker)


class ControlEnd(Generic[Heard, Said]):
    """One end of the line: sent and received messages of one generation."""

    def __init__(self, generation: Generation, send: Callable[[bytes], None], clock: Clock) -> None:
        self._send = send
        self._clock = clock
        self._unconfirmed = SendWindow[bytes]()
        self._heard = FifoChannel[Heard](generation, EARLY_MAX)

    @property
    def due_ms(self) -> float | None:
        """Monotonic time at which unconfirmed messages must be sent again; None: there are none."""
        return self._unconfirmed.due_ms

    @property
    def sent_count(self) -> int:
        """The number of numbered messages sent so far."""
        return self._unconfirmed.next_sequence

    @property
    def confirmed_count(self) -> int:
        """The number of numbered messages that the other end has certainly received."""
        return self._unconfirmed.confirmed

    def send(self, message: Said) -> None:
        """Send it, and unless it is a mere sign of life, see to it that it arrives."""
        heard = {"confirmed": self._heard.counters.delivered}
        if isinstance(message, NOT_NUMBERED):
            self._send(encode(message.model_copy(update=heard)))
            return
        sequence = {"sequence": self._unconfirmed.next_sequence}
        data = encode(message.model_copy(update=heard | sequence))
        self._unconfirmed.add(data, self._clock.monotonic_ms())
        self._send(data)

    def receive(self, message: Heard) -> tuple[Heard, ...]:
        """Take a message of this generation; return the messages that are now in order."""
        self._unconfirmed.confirm(message.confirmed, self._clock.monotonic_ms())
        if message.sequence is None:
            return (message,)
        generation = Generation(message.generation)
        match self._heard.receive(generation, message.sequence, message):
            case Delivered(messages):
                return messages
            case _:
                return ()  # Known already, or so early that it will be sent again.

    def tick(self) -> None:
        """Send unconfirmed messages again if they are due."""
        for data in self._unconfirmed.take_due(self._clock.monotonic_ms()):
            self._send(data)


@dataclass(slots=True)
class _Receipt:
    """Messages that must be confirmed before an action may run."""

    missing: dict[int, int]
    """Per worker, how many numbered messages it has to have taken."""
    action: Callable[[], None]


class ControlLines:
    """The coordinator's end of the lines to all workers."""

    def __init__(
        self, generation: Generation, send: Callable[[int, bytes], None], clock: Clock
    ) -> None:
        self._generation = generation
        self._send = send
        self._clock = clock
        self._lines: dict[int, ControlEnd[ToCoordinator, ToWorker]] = {}
        self._receipts: list[_Receipt] = []
        self._due_ms = math.inf

    @property
    def due_ms(self) -> float:
        """Monotonic time of the next ``tick``; possibly too early, never too late."""
        return self._due_ms

    def receive(self, message: ToCoordinator) -> tuple[ToCoordinator, ...]:
        """Take a message of this generation; return its sender's messages that are now in order."""
        line = self._line(message.worker)
        due = line.receive(message)
        self._note_due(line)
        self._collect_receipts(message.worker, line.confirmed_count)
        return due

    def broadcast(self, message: ToWorker, workers: Iterable[int]) -> None:
        """Send a message to these workers."""
        for worker in workers:
            line = self._line(worker)
            line.send(message)
            self._note_due(line)

    def when_confirmed(self, action: Callable[[], None]) -> None:
        """Do this once every worker has taken everything that was sent up to now."""
        missing = {
            worker: line.sent_count
            for worker, line in self._lines.items()
            if line.confirmed_count < line.sent_count
        }
        if missing:
            self._receipts.append(_Receipt(missing, action))
        else:
            action()

    def tick(self) -> None:
        """Send unconfirmed messages again if they are due."""
        if self._clock.monotonic_ms() < self._due_ms:
            return
        self._due_ms = math.inf
        for line in self._lines.values():
            line.tick()
            self._note_due(line)

    def _line(self, worker: int) -> ControlEnd[ToCoordinator, ToWorker]:
        if worker not in self._lines:
            send = partial(self._send, worker)
            self._lines[worker] = ControlEnd(self._generation, send, self._clock)
        return self._lines[worker]

    def _note_due(self, line: ControlEnd[ToCoordinator, ToWorker]) -> None:
        if line.due_ms is not None:
            self._due_ms = min(self._due_ms, line.due_ms)

    def _collect_receipts(self, worker: int, confirmed: int) -> None:
        for receipt in tuple(self._receipts):
            if confirmed >= receipt.missing.get(worker, math.inf):
                del receipt.missing[worker]
            if not receipt.missing:
                self._receipts.remove(receipt)
                receipt.action()
