"""Cases of sinks: a publication meets a fault at one of its steps.

A sink is one row of the matrix: how it is made, how its committer is made with an observer, the
steps that the committer names, and the kinds of requests that faults wait for. ``DELIVERIES`` has
the rows, and ``FLAWED`` sinks that are wrong on purpose, which the same judge has to catch.
"""

from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Protocol

import pyarrow as pa
from confluent_kafka import Producer

from laminar_core.connectors.base import Committer
from laminar_core.connectors.kafka.committer import STEPS, KafkaCommitter
from laminar_core.connectors.kafka.connection import KafkaConnection
from laminar_core.connectors.kafka.marker import Marker
from laminar_core.connectors.kafka.marker_log import MarkerLog
from laminar_core.connectors.kafka.open_transactions import OpenTransaction
from laminar_core.connectors.kafka.sink import KafkaSink
from laminar_core.connectors.kafka.transaction_committer import STEPS as ENDING
from laminar_core.connectors.kafka.transaction_committer import TransactionCommitter
from laminar_core.connectors.outlook import Committable, Committed
from laminar_core.connectors.staged_rows import StagedPart
from laminar_core.errors import FencedError, LaminarError, StorageUnavailable
from laminar_core.host.clock import SystemClock
from laminar_core.objectstore.memory import MemoryObjectStore
from laminar_core.operators.base import JsonObject, SubtaskContext
from laminar_core.protocol.types import NO_CHECKPOINT, CheckpointId, Generation
from laminar_core.records.actor import Actor
from laminar_core.store.checkpoint_store import CheckpointStore
from laminar_core.store.claims import Claimant
from laminar_core.store.owner import this_process
from laminar_core.store.staging import StagingArea
from verification.brokers.cases import OF_A_COMMIT, Case
from verification.brokers.judge import Verdict, judge
from verification.brokers.place import SECONDS_MAX, Place
from verification.servers.kafka_requests import KafkaRequest

SCHEMA = pa.schema([("id", pa.int64())])
CHECKPOINTS = 4
STRUCK = 2
"""The checkpoint whose publication meets the fault."""
_PAUSE_MS = 100

Observe = Callable[[str], None]


class MakeCommitter(Protocol):
    """Makes a committer that calls ``observe`` with the name of each step when it is done."""

    def __call__(self, sink: KafkaSink, staging: StagingArea, observe: Observe, /) -> Committer:
        """Return the committer."""
        ...


@dataclass(frozen=True, slots=True)
class Delivery:
    """A sink of the matrix."""

    sink: Callable[[KafkaConnection, str], KafkaSink]
    committer: MakeCommitter
    steps: Sequence[str]
    requests: Sequence[KafkaRequest] = OF_A_COMMIT
    """The kinds of requests that a fault of the network may wait for."""


class DiedError(BaseException):
    """Ends a committer where it is, as a process that was killed ends."""


class _Forgetful(MarkerLog):
    """Never knows what is published."""

    def read(self) -> Marker | None:
        return self.next(NO_CHECKPOINT, 0)


class _WithoutMarker(KafkaCommitter):
    """Publishes whatever it is given."""

    def __init__(self, sink: KafkaSink, staging: StagingArea, observe: Observe) -> None:
        super().__init__(sink, staging, observe=observe)
        self.markers = _Forgetful(sink, staging, SystemClock())


class _MarkerOutside(KafkaCommitter):
    """Publishes the rows first, and the marker in a transaction of its own."""

    def _publish(
        self, producer: Producer, checkpoint_id: CheckpointId, parts: Sequence[StagedPart]
    ) -> None:
        with self.markers.asking("publishing rows"):
            producer.begin_transaction()
            self._produce(producer, parts, sum(part.rows for part in parts))
            producer.commit_transaction(20)
        self._observe("flushed")
        super()._publish(producer, checkpoint_id, ())


class _EndsSome(TransactionCommitter):
    """Ends half of the transactions of one checkpoint, and sets the marker as if it were all."""

    def _end(
        self, marker: Marker | None, newest: CheckpointId, transactions: Sequence[OpenTransaction]
    ) -> None:
        ended = len(transactions) // 2 if self._forgets_in(newest) else len(transactions)
        super()._end(marker, newest, transactions[:ended])

    def _forgets_in(self, checkpoint_id: CheckpointId) -> bool:
        return checkpoint_id == STRUCK


class _AlwaysEndsSome(_EndsSome):
    """Ends half of the transactions of each checkpoint."""

    def _forgets_in(self, checkpoint_id: CheckpointId) -> bool:
        del checkpoint_id
        return True


def _staged(connection: KafkaConnection, topic: str) -> KafkaSink:
    return KafkaSink(connection, topic, key="id", transaction_timeout="10 seconds")


def _in_transactions(connection: KafkaConnection, topic: str) -> KafkaSink:
    return KafkaSink(connection, topic, key="id", delivery="transaction")


_OF_TRANSACTIONS = (
    *OF_A_COMMIT,
    KafkaRequest.INIT_PRODUCER_ID,
    KafkaRequest.DESCRIBE_TRANSACTIONS,
    KafkaRequest.LIST_TRANSACTIONS,
)

DELIVERIES: Mapping[str, Delivery] = {
    "staged": Delivery(
        _staged, lambda sink, staging, see: KafkaCommitter(sink, staging, observe=see), STEPS
    ),
    "transaction": Delivery(
        _in_transactions,
        lambda sink, staging, see: TransactionCommitter(sink, staging, observe=see),
        ENDING,
        _OF_TRANSACTIONS,
    ),
}
FLAWED: Mapping[str, Delivery] = {
    "no-marker": Delivery(_staged, _WithoutMarker, STEPS),
    "marker-outside": Delivery(
        _staged, lambda sink, staging, see: _MarkerOutside(sink, staging, observe=see), STEPS
    ),
    "ends-some": Delivery(
        _in_transactions,
        lambda sink, staging, see: _EndsSome(sink, staging, observe=see),
        ENDING,
    ),
    "always-ends-some": Delivery(
        _in_transactions,
        lambda sink, staging, see: _AlwaysEndsSome(sink, staging, observe=see),
        ENDING,
    ),
}


def publish_through(place: Place, delivery: Delivery, case: Case) -> Verdict:
    """Run a case of a sink, and judge what readers of committed messages see."""
    publication = Publication(place, delivery, case)
    before, problem = place.fired, None
    try:
        publication.run()
    except LaminarError as error:
        problem = f"{error.code}: {error}"
    place.settle()
    expected = range(CHECKPOINTS * case.rows)
    found = place.read(publication.topic)
    return judge(expected, found, place.fired - before, problem)


class Publication:
    """A job with one sink and two workers that are gone once they have written a checkpoint."""

    def __init__(self, place: Place, delivery: Delivery, case: Case) -> None:
        self.topic = place.new_topic(2)
        self._place = place
        self._delivery = delivery
        self._case = case
        self._clock = SystemClock()
        self._store = CheckpointStore(MemoryObjectStore(), "payments")
        self._store.objects.create()
        self._sink = delivery.sink(place.connection, self.topic)
        self._staging = StagingArea(self._store.objects, self._store.paths, f"out-{self.topic}")
        self._generation = self._claimed()
        self._staged: dict[int, tuple[JsonObject, ...]] = {}
        self._at = 0
        """The checkpoint that is being published."""
        self._has_struck = False
        self._successor: Committer | None = None

    def run(self) -> None:
        """Publish all checkpoints."""
        committer = self._committer()
        self._insist(lambda: committer.take_over(self._generation))
        self._insist(lambda: committer.discard_uncommitted(self._generation))
        for number in range(1, CHECKPOINTS + 1):
            committer = self._stage_somehow(committer, number)
            self._at = number
            committer = self._publish_somehow(committer, number)

    def _stage_somehow(self, committer: Committer, number: int) -> Committer:
        """Stage; if a worker cannot, the job starts again and stages anew, as the runtime does."""
        deadline_ms = self._clock.monotonic_ms() + 1000 * SECONDS_MAX
        while True:
            try:
                self._stage(number)
            except StorageUnavailable:
                if self._clock.monotonic_ms() > deadline_ms:
                    raise
                committer, self._successor = self._recover(), None
            else:
                return committer

    def _publish_somehow(self, committer: Committer, number: int) -> Committer:
        """Publish, by whoever is left to do it; return the one who goes on."""
        try:
            self._publish(committer, number)
        except DiedError:
            return self._recover()
        return self._successor or committer

    def _publish(self, committer: Committer, number: int) -> None:
        again = number == STRUCK and self._case.step == "taken-over"
        if self._successor is not None:
            committer = self._successor

        def attempt() -> None:
            nonlocal again
            generation = self._generation
            try:
                if again:
                    committer.take_over(generation)
                if generation != self._generation:
                    return  # It slept in the take-over, and does not own the job any more.
                again = True
                committer.commit(CheckpointId(number), self._staged[number])
            except (FencedError, StorageUnavailable):
                if generation == self._generation:
                    raise
                with suppress(FencedError, StorageUnavailable):
                    committer.take_over(generation)  # It sees that it is no owner only then.

        self._insist(attempt)

    def _recover(self) -> Committer:
        """Do what a start does: claim, take over, look, commit again what is not recorded."""
        self._generation = self._claimed()
        committer, number = self._committer(), self._at
        parts = self._staged.get(number, ())

        def attempt() -> None:
            committer.take_over(self._generation)
            outlook = committer.outlook(CheckpointId(number), parts)
            assert isinstance(outlook, Committed | Committable), outlook
            committer.commit(CheckpointId(number), parts)
            committer.discard_uncommitted(self._generation)

        self._insist(attempt)
        return committer

    def _observe(self, step: str) -> None:
        is_now = self._at == STRUCK and step == self._case.step
        if not is_now or self._has_struck:
            return
        self._has_struck = True
        if (fault := self._case.fault) is not None:
            self._place.strike(fault)
        elif self._case.event == "broker-killed":
            self._place.kill_broker()
        if self._case.life == "dies":
            raise DiedError
        if self._case.life == "sleeps":
            self._successor = self._recover()

    def _insist(self, act: Callable[[], None]) -> None:
        """Repeat what a target did not do, as the queue of commits repeats it."""
        deadline_ms = self._clock.monotonic_ms() + 1000 * SECONDS_MAX
        while True:
            try:
                act()
            except (FencedError, StorageUnavailable):
                if self._clock.monotonic_ms() > deadline_ms:
                    raise
                self._clock.wait_ms(_PAUSE_MS)
            else:
                return

    def _stage(self, number: int) -> None:
        """Write the rows of a checkpoint, the halves in two workers, one after the other."""
        rows = self._case.rows
        first = (number - 1) * rows
        parts: list[JsonObject] = []
        ids = range(first, first + rows)
        for subtask, half in enumerate((ids[: rows // 2], ids[rows // 2 :])):
            # Subtasks of their own for each checkpoint: a worker that is gone names no other slot.
            context = SubtaskContext(
                self._staging.operator_id, 2 * number + subtask, 2 * (CHECKPOINTS + 1), 128,
                self._generation, staging=self._staging,
            )  # fmt: skip
            writer = self._sink.open(context, SCHEMA)
            writer.write(pa.record_batch([pa.array(half, pa.int64())], schema=SCHEMA))
            parts += writer.snapshot(CheckpointId(number))().committables
            writer.close()
        self._staged[number] = tuple(parts)

    def _committer(self) -> Committer:
        return self._delivery.committer(self._sink, self._staging, self._observe)

    def _claimed(self) -> Generation:
        claimant = Claimant(this_process(), Actor("brokers", reason="verify"), "0", 1)
        return self._store.claims.claim(claimant, wait_ms=lambda _: None, take_over=True)
