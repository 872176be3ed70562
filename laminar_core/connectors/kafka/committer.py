"""Publishes staged messages in transactions, each with the marker of its checkpoint.

There is one transactional id for each job and sink. ``init_transactions`` fences every other holder
of it, aborts what that left open, and waits until a commit that had begun has ended. So the marker
is read after it, and then says exactly what is published. If anything goes wrong, the producer is
dropped: the next take-over makes another one, and the marker is read again.

The steps have names, because tests stop the committer at each of them. Source: Kafka's protocol of
transactions (KIP-98, KIP-447).
"""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Literal

import pyarrow as pa
from confluent_kafka import (
    Consumer,
    KafkaError,
    KafkaException,
    Producer,
    TopicPartition,
)

from laminar_core.connectors.kafka.marker import Marker, require_own
from laminar_core.connectors.kafka.problems import explained, is_denied, problem_of
from laminar_core.connectors.outlook import Committed, Doubtful, Outlook
from laminar_core.connectors.staged_rows import StagedPart, outlook_of, parts_after
from laminar_core.errors import ErrorCode, StorageUnavailable
from laminar_core.host.clock import Clock, SystemClock
from laminar_core.operators.base import JsonObject
from laminar_core.protocol.types import NO_CHECKPOINT, CheckpointId, Generation
from laminar_core.store.staging import StagingArea

if TYPE_CHECKING:
    from laminar_core.connectors.kafka.sink import KafkaSink

KafkaStep = Literal[
    "taken-over",
    "marker-read",
    "begun",
    "half-produced",
    "flushed",
    "marker-sent",
    "committed",
]
STEPS: tuple[KafkaStep, ...] = (
    "taken-over",
    "marker-read",
    "begun",
    "half-produced",
    "flushed",
    "marker-sent",
    "committed",
)
"""The steps of a publication, in order; each name says what has just been done."""

REQUEST_SECONDS_MAX = 20
RENEW_MS = 86_400_000
"""Brokers forget the offsets of a group that is not renewed, after seven days by default."""
_CHUNK = 10_000
_MOMENT_MS = 200
_PATIENCE = 50
_NOT_READY = {
    KafkaError.COORDINATOR_LOAD_IN_PROGRESS,
    KafkaError.COORDINATOR_NOT_AVAILABLE,
    KafkaError.NOT_COORDINATOR,
}
_MARGIN_BYTES = 100_000
"""Room for the envelope of the largest message."""


def _unobserved(step: KafkaStep) -> None:
    del step


class KafkaCommitter:
    """One sink's publications. One thread at a time calls it."""

    def __init__(
        self,
        sink: "KafkaSink",
        staging: StagingArea,
        clock: Clock | None = None,
        observe: Callable[[KafkaStep], None] | None = None,
    ) -> None:
        self._sink = sink
        self._staging = staging
        self._clock = clock or SystemClock()
        self._observe = observe or _unobserved
        self.group = f"laminar.{staging.job}.{staging.operator_id}"
        """Group of the marker, and transactional id."""
        self._producer: Producer | None = None
        self._reader: Consumer | None = None
        self._generation = Generation(0)
        self._marker: Marker | None = None
        self._marker_known = False
        self._renewed_ms: float | None = None
        self._denied: KafkaError | None = None

    @property
    def repeat(self) -> Literal["visible"]:
        """Say that readers see repeated rows twice: a topic takes nothing back."""
        return "visible"

    # --- the contract ---------------------------------------------------------------------------

    def take_over(self, generation: Generation) -> None:
        """Fence every other producer of this sink, and abort what it left open.

        Raises:
            ConfigurationError: credentials, rights, or output of another run.
            StorageUnavailable: the brokers did not answer.
        """
        self._drop()
        self._generation = generation
        with self._asking("taking over"):
            producer = Producer(self._producer_settings())
            producer.init_transactions(REQUEST_SECONDS_MAX)
        self._producer = producer
        self._observe("taken-over")

    def last_committed(self) -> CheckpointId | None:
        """Return the marker; before a take-over it is preliminary."""
        marker = self._read_marker()
        return None if marker is None or not marker.checkpoint_id else marker.checkpoint_id

    def outlook(self, checkpoint_id: CheckpointId, committables: Sequence[JsonObject]) -> Outlook:
        """Compare the marker with what is to be published, and look after its files."""
        marker = self._read_marker()
        newer = parts_after(None if marker is None else marker.checkpoint_id, committables)
        if not newer:
            return Committed()
        if marker is None:
            return Doubtful(
                f"{sum(part.rows for part in newer):,} messages for topic {self._sink.topic} were "
                f"to be published with checkpoint {checkpoint_id}, and the consumer group "
                f"{self.group}, which would say whether they were, is gone (brokers forget it "
                "after offsets.retention.minutes): look into the topic"
            )
        return outlook_of(newer, self._staging)

    def commit(self, checkpoint_id: CheckpointId, committables: Sequence[JsonObject]) -> None:
        """Publish what is newer than the marker, and set the marker, in one transaction.

        Raises:
            FencedError: another driver has taken over since.
            StorageUnavailable: it may or may not have happened; take over again, and repeat.
            ConfigurationError: the rights do not suffice, or the topic is gone.
            CorruptCheckpointError: a staged file is gone or damaged.
        """
        producer = self._producer
        if producer is None:
            raise StorageUnavailable(
                ErrorCode.BROKER_UNAVAILABLE, f"sink {self._staging.operator_id} has no connection"
            )
        try:
            marker = self._read_marker()
            self._observe("marker-read")
            seen = NO_CHECKPOINT if marker is None else marker.checkpoint_id
            newer = parts_after(seen, committables)
            if newer or marker is None or self._is_old():
                newest = max(checkpoint_id, seen)
                self._publish(producer, newest, newer)
        except BaseException:
            self._drop()  # Whatever the state of the transaction: the next take-over settles it.
            raise

    def discard_uncommitted(self, generation: Generation) -> None:
        """Renew the marker; what was left open is aborted already.

        The first one of a job is written here, so that a marker that is missing later has been
        forgotten.
        """
        del generation
        self._renewed_ms = None
        self.commit(NO_CHECKPOINT, ())

    # --- a publication --------------------------------------------------------------------------

    def _publish(
        self, producer: Producer, checkpoint_id: CheckpointId, parts: Sequence[StagedPart]
    ) -> None:
        run_id = self._staging.run_id()
        messages = sum(part.rows for part in parts)
        marker = Marker(checkpoint_id, self._generation, messages, run_id or "")
        offset = TopicPartition(self._sink.topic, 0, checkpoint_id, marker.metadata())
        with self._asking(f"publishing checkpoint {checkpoint_id}"):
            producer.begin_transaction()
            self._observe("begun")
            self._produce(producer, parts, messages)
            if producer.flush(self._sink.transaction_timeout_ms / 1000):
                raise StorageUnavailable(
                    ErrorCode.BROKER_UNAVAILABLE,
                    f"Kafka at {self._sink.cluster.bootstrap} did not take all messages of "
                    f"checkpoint {checkpoint_id} in {self._sink.transaction_timeout_ms} ms",
                )
            self._observe("flushed")
            member = self._consumer().consumer_group_metadata()
            producer.send_offsets_to_transaction([offset], member, REQUEST_SECONDS_MAX)
            self._observe("marker-sent")
            producer.commit_transaction(REQUEST_SECONDS_MAX)
        self._marker = marker
        self._renewed_ms = self._clock.monotonic_ms()
        self._observe("committed")

    def _produce(self, producer: Producer, parts: Sequence[StagedPart], messages: int) -> None:
        produced, is_half = 0, False
        at_once = min(_CHUNK, max(messages // 2, 1))
        batches = (batch for part in parts for batch in part.batches(self._staging))
        for chunk in (b.slice(n, at_once) for b in batches for n in range(0, b.num_rows, at_once)):
            if not is_half and 2 * produced >= messages:
                is_half = True
                producer.flush(REQUEST_SECONDS_MAX)
                self._observe("half-produced")
            self._produce_all(producer, chunk)
            produced += chunk.num_rows

    def _produce_all(self, producer: Producer, chunk: pa.RecordBatch) -> None:
        keys, values = (chunk.column(name).to_pylist() for name in ("key", "value"))
        left: list[dict[str, Any]] = [
            {"key": key, "value": value} for key, value in zip(keys, values, strict=True)
        ]
        while left:
            producer.produce_batch(self._sink.topic, left)
            left = [_again(message) for message in left if message.get("_error") is not None]
            producer.poll(0.05 if left else 0)

    # --- the marker -----------------------------------------------------------------------------

    def _read_marker(self) -> Marker | None:
        """Return the marker as it is now; None: there is none.

        Raises:
            ConfigurationError: it is of another run of the job.
            StorageUnavailable: the brokers did not answer.
        """
        if self._marker_known:
            return self._marker
        with self._asking("reading the marker"):
            found = self._group_offset()
        if found.error is not None:
            raise problem_of(found.error, "reading the marker", self._sink.cluster)
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
                (found,) = self._consumer().committed([place], timeout=REQUEST_SECONDS_MAX)
            except KafkaException as error:
                if error.args[0].code() not in _NOT_READY:
                    raise
                self._clock.wait_ms(_MOMENT_MS)
            else:
                return found
        (found,) = self._consumer().committed([place], timeout=REQUEST_SECONDS_MAX)
        return found

    def _is_old(self) -> bool:
        return self._renewed_ms is None or self._clock.monotonic_ms() - self._renewed_ms >= RENEW_MS

    # --- clients --------------------------------------------------------------------------------

    def _drop(self) -> None:
        """Forget the producer and the marker: another driver may write from now on."""
        self._producer = None
        self._marker, self._marker_known = None, False
        if self._reader is not None:
            self._reader.close()
            self._reader = None

    def _consumer(self) -> Consumer:
        """Return a client that reads the marker; it never joins the group.

        Before a take-over it does not wait for transactions that are under way.
        """
        if self._reader is None:
            isolation = "read_uncommitted" if self._producer is None else "read_committed"
            self._reader = Consumer(
                {
                    **self._client_settings(),
                    "group.id": self.group,
                    "isolation.level": isolation,
                    "enable.auto.commit": False,
                }
            )
        return self._reader

    def _producer_settings(self) -> dict[str, Any]:
        sink = self._sink
        return {
            **self._client_settings(),
            "transactional.id": self.group,
            "transaction.timeout.ms": sink.transaction_timeout_ms,
            "compression.type": sink.compression,
            "partitioner": "murmur2_random",  # As Java producers do; the default differs.
            "message.max.bytes": sink.message_bytes_max + _MARGIN_BYTES,
            "linger.ms": 5,
            "queue.buffering.max.messages": 200_000,
        }

    def _client_settings(self) -> dict[str, Any]:
        settings = {"log_level": 0, **self._sink.cluster.client_settings()}
        settings["error_cb"] = self._remember
        return settings

    def _remember(self, error: KafkaError) -> None:
        if is_denied(error):
            self._denied = error

    @contextmanager
    def _asking(self, what: str) -> Iterator[None]:
        """Raise errors of the client as errors of Laminar; refused credentials as what they are."""
        doing = f"sink {self._staging.operator_id}, {what}"
        try:
            with explained(doing, self._sink.cluster):
                yield
        except StorageUnavailable as error:
            if self._denied is not None:  # A broker that refuses looks like one that is silent.
                raise problem_of(self._denied, doing, self._sink.cluster) from error
            raise


def _again(message: dict[str, Any]) -> dict[str, Any]:
    """Return a message that the client did not take, to be offered again.

    Raises:
        KafkaException: it never will.
    """
    error = message.pop("_error")
    if error.code() != KafkaError._QUEUE_FULL:  # noqa: SLF001 - its public name has an underscore
        raise KafkaException(error)
    return message
