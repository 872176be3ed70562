"""Read and write a sink's marker in Kafka, with the only producer that may change it.

``init_transactions`` under the sink's transactional id fences every other holder of that id, aborts
the transaction that this holder left open, and waits until a commit that it had begun has ended.
Therefore the marker is read only afterwards.
If anything goes wrong, the producer is dropped: the next take-over makes another one, and the
marker is read again.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from confluent_kafka import Consumer, KafkaError, KafkaException, Producer, TopicPartition

from laminar_core.connectors.kafka.bounded import bounded
from laminar_core.connectors.kafka.marker import Marker, require_own
from laminar_core.connectors.kafka.problems import problem_of
from laminar_core.connectors.kafka.reports import ClientReports
from laminar_core.errors import ErrorCode, StorageUnavailable
from laminar_core.host.clock import Clock
from laminar_core.protocol.types import NO_CHECKPOINT, CheckpointId, Generation
from laminar_core.store.staging import StagingArea

if TYPE_CHECKING:
    from laminar_core.connectors.kafka.sink import KafkaSink

REQUEST_SECONDS_MAX = 20
RENEW_MS = 86_400_000
"""Brokers forget the offsets of a group that is not renewed, after seven days by default."""
_ASKED_SECONDS = 2
"""Time for one request for the marker."""
_MOMENT_MS = 200
_PATIENCE = 50
_NOT_READY = {
    KafkaError.COORDINATOR_LOAD_IN_PROGRESS,
    KafkaError.COORDINATOR_NOT_AVAILABLE,
    KafkaError.NOT_COORDINATOR,
}
_MARGIN_BYTES = 100_000
"""Room for the envelope of the largest message."""


def producer_settings(sink: "KafkaSink") -> dict[str, Any]:
    """Return the settings of a producer of the sink's messages, secrets included."""
    return {
        "log_level": 0,
        **sink.cluster.client_settings(),
        "compression.type": sink.compression,
        "partitioner": "murmur2_random",  # As Java producers do; the default differs.
        "message.max.bytes": sink.message_bytes_max + _MARGIN_BYTES,
        "linger.ms": 5,
        "queue.buffering.max.messages": 200_000,
    }


class MarkerLog:
    """The marker of one sink. One thread at a time uses it."""

    def __init__(self, sink: "KafkaSink", staging: StagingArea, clock: Clock) -> None:
        self._sink = sink
        self._staging = staging
        self._clock = clock
        self.group = f"laminar.{staging.job}.{staging.operator_id}"
        """Group of the marker, and transactional id."""
        self._producer: Producer | None = None
        self._reader: Consumer | None = None
        self._generation = Generation(0)
        self._marker: Marker | None = None
        self._marker_known = False
        self._renewed_ms: float | None = None
        self._reports = ClientReports(sink.cluster, self.group)

    def take_over(self, generation: Generation, timeout_ms: int) -> None:
        """Fence every other producer of this sink; ``timeout_ms`` bounds each transaction.

        Raises:
            ConfigurationError: credentials or rights.
            StorageUnavailable: the brokers did not answer.
        """
        self.drop()
        self._generation = generation
        with self.asking("taking over"):
            producer = Producer(
                {
                    **producer_settings(self._sink),
                    "error_cb": self._reports.note,
                    "transactional.id": self.group,
                    "transaction.timeout.ms": timeout_ms,
                }
            )
            try:
                limit = REQUEST_SECONDS_MAX
                bounded(
                    lambda: producer.init_transactions(limit),
                    limit,
                    refusal=lambda: self._reports.refusal(lambda: producer.poll(0)),
                )
            except KafkaException:
                producer.poll(0)  # It calls back with its reports.
                raise
        self._producer = producer

    def producer(self) -> Producer:
        """Return the producer of the last take-over.

        Raises:
            StorageUnavailable: there is none, so the sink has to be taken over.
        """
        if self._producer is None:
            raise StorageUnavailable(
                ErrorCode.BROKER_UNAVAILABLE, f"sink {self._staging.operator_id} has no connection"
            )
        return self._producer

    def drop(self) -> None:
        """Forget the producer and the marker: another driver may write from now on."""
        self._producer = None
        self._marker, self._marker_known = None, False
        if self._reader is not None:
            self._reader.close()
            self._reader = None

    def next(
        self,
        checkpoint_id: CheckpointId,
        messages: int,
        committing_id: CheckpointId = NO_CHECKPOINT,
    ) -> Marker:
        """Return a marker of this run and generation."""
        run_id = self._staging.run_id() or ""
        return Marker(checkpoint_id, self._generation, messages, run_id, committing_id)

    def send(self, marker: Marker) -> None:
        """Make the marker a part of the open transaction."""
        offset = TopicPartition(self._sink.topic, 0, marker.checkpoint_id, marker.metadata())
        producer, member = self.producer(), self.consumer().consumer_group_metadata()
        limit = REQUEST_SECONDS_MAX
        bounded(lambda: producer.send_offsets_to_transaction([offset], member, limit), limit)

    def commit(self) -> None:
        """Commit the open transaction."""
        producer = self.producer()
        bounded(lambda: producer.commit_transaction(REQUEST_SECONDS_MAX), REQUEST_SECONDS_MAX)

    def sent(self, marker: Marker) -> None:
        """Remember that the transaction with this marker is committed."""
        self._marker = marker
        self._renewed_ms = self._clock.monotonic_ms()

    def is_old(self) -> bool:
        """Whether the marker has to be written again, so that the broker keeps it."""
        return self._renewed_ms is None or self._clock.monotonic_ms() - self._renewed_ms >= RENEW_MS

    def expire(self) -> None:
        """Have the marker written again with the next commit."""
        self._renewed_ms = None

    def read(self) -> Marker | None:
        """Return the marker as it is now; None: there is none.

        Raises:
            ConfigurationError: it is of another run of the job.
            StorageUnavailable: the brokers did not answer.
        """
        if self._marker_known:
            return self._marker
        with self.asking("reading the marker"):
            found = self._group_offset()
        if found.error is not None:
            raise problem_of(found.error, "reading the marker", self._sink.cluster, self.group)
        marker = Marker.read(found.offset, found.metadata)
        require_own(marker, self._staging.run_id(), self.group)
        if self._producer is not None:  # No other driver can change it now.
            self._marker, self._marker_known = marker, True
        return marker

    def _group_offset(self) -> TopicPartition:
        """Ask for the offset; a broker that has just started may not know its groups yet."""
        place = TopicPartition(self._sink.topic, 0)
        for _ in range(_PATIENCE):
            try:
                return self._ask_for_offset(place)
            except KafkaException as error:
                if error.args[0].code() not in _NOT_READY:
                    raise
                self._clock.wait_ms(_MOMENT_MS)
        return self._ask_for_offset(place)

    def _ask_for_offset(self, place: TopicPartition) -> TopicPartition:
        """Ask again and again, because the client reports only between two requests."""
        for left_seconds in range(REQUEST_SECONDS_MAX, 0, -_ASKED_SECONDS):
            try:
                (found,) = self.consumer().committed([place], timeout=_ASKED_SECONDS)
            except KafkaException as error:
                is_silent = error.args[0].code() == KafkaError._TIMED_OUT  # noqa: SLF001 - public
                self._reports.listen_to(self.consumer())
                if not is_silent or self._reports.is_refused or left_seconds <= _ASKED_SECONDS:
                    raise
            else:
                return found
        raise AssertionError("the last attempt returns or raises")

    def consumer(self) -> Consumer:
        """Return a client that reads the marker; it never joins the group.

        Before a take-over it does not wait for transactions that are under way.
        """
        if self._reader is None:
            isolation = "read_uncommitted" if self._producer is None else "read_committed"
            self._reader = Consumer(
                {
                    "log_level": 0,
                    **self._sink.cluster.client_settings(),
                    "error_cb": self._reports.note,
                    "group.id": self.group,
                    "isolation.level": isolation,
                    "enable.auto.commit": False,
                }
            )
        return self._reader

    @contextmanager
    def asking(self, what: str) -> Iterator[None]:
        """Translate errors of the client into errors of Laminar.

        If the cluster refused the credentials, the error says so instead of "no broker answered".
        """
        with self._reports.explained(f"sink {self._staging.operator_id}, {what}"):
            try:
                yield
            except KafkaException:
                if self._reader is not None:
                    self._reports.listen_to(self._reader)
                raise
