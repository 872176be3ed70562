"""Publishes staged messages in transactions, each with the marker of its checkpoint.

There is one transactional id for each job and sink. ``init_transactions`` fences every other holder
of it, aborts what that left open, and waits until a commit that had begun has ended. So the marker
is read after it, and then says exactly what is published. If anything goes wrong, the producer is
dropped: the next take-over makes another one, and the marker is read again.

The steps have names, because tests stop the committer at each of them. Source: Kafka's protocol of
transactions (KIP-98, KIP-447).
"""

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Literal

from confluent_kafka import KafkaError, KafkaException, Producer

from laminar_core.connectors.kafka.marker_log import REQUEST_SECONDS_MAX, MarkerLog
from laminar_core.connectors.kafka.producing import failure_of, produce_all
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

_CHUNK = 10_000


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
        self._observe = observe or _unobserved
        self.markers = MarkerLog(sink, staging, clock or SystemClock())
        """The marker, and the producer that changes it."""

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
        self.markers.take_over(generation, self._sink.transaction_timeout_ms)
        self._observe("taken-over")

    def last_committed(self) -> CheckpointId | None:
        """Return the marker; before a take-over it is preliminary."""
        marker = self.markers.read()
        return None if marker is None or not marker.checkpoint_id else marker.checkpoint_id

    def outlook(self, checkpoint_id: CheckpointId, committables: Sequence[JsonObject]) -> Outlook:
        """Compare the marker with what is to be published, and look after its files."""
        marker = self.markers.read()
        newer = parts_after(None if marker is None else marker.checkpoint_id, committables)
        if not newer:
            return Committed()
        if marker is None:
            return Doubtful(
                f"{sum(part.rows for part in newer):,} messages for topic {self._sink.topic} were "
                f"to be published with checkpoint {checkpoint_id}, and the consumer group "
                f"{self.markers.group}, which would say whether they were, is gone (brokers "
                "forget it after offsets.retention.minutes): look into the topic"
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
        producer = self.markers.producer()
        try:
            marker = self.markers.read()
            self._observe("marker-read")
            seen = NO_CHECKPOINT if marker is None else marker.checkpoint_id
            newer = parts_after(seen, committables)
            if newer or marker is None or self.markers.is_old():
                newest = max(checkpoint_id, seen)
                self._publish(producer, newest, newer)
        except BaseException:
            # Whatever the state of the transaction is, the next take-over settles it.
            self.markers.drop()
            raise

    def discard_uncommitted(self, generation: Generation) -> None:
        """Renew the marker; what was left open is aborted already.

        The first one of a job is written here, so that a marker that is missing later has been
        forgotten.
        """
        del generation
        self.markers.expire()
        self.commit(NO_CHECKPOINT, ())

    # --- a publication --------------------------------------------------------------------------

    def _publish(
        self, producer: Producer, checkpoint_id: CheckpointId, parts: Sequence[StagedPart]
    ) -> None:
        messages = sum(part.rows for part in parts)
        marker = self.markers.next(checkpoint_id, messages)
        with self.markers.asking(f"publishing checkpoint {checkpoint_id}"):
            producer.begin_transaction()
            self._observe("begun")
            self._hand_over(producer, checkpoint_id, parts)
            self._observe("flushed")
            self.markers.send(marker)
            self._observe("marker-sent")
            self.markers.commit()
        self.markers.sent(marker)
        self._observe("committed")

    def _hand_over(
        self, producer: Producer, checkpoint_id: CheckpointId, parts: Sequence[StagedPart]
    ) -> None:
        """Send all messages, and wait until the brokers have them.

        Raises:
            KafkaException: the transaction has failed.
            StorageUnavailable: brokers answer, and do not take messages.
        """
        cause: KafkaException | None = None
        try:
            self._produce(producer, parts, sum(part.rows for part in parts))
            left = producer.flush(self._sink.transaction_timeout_ms / 1000)
        except KafkaException as error:
            if error.args[0].code() != KafkaError._TIMED_OUT:  # noqa: SLF001 - its public name has an underscore
                raise
            left, cause = 1, error
        failed = failure_of(producer)
        if left or (failed is not None and failed.code() == KafkaError._TIMED_OUT):  # noqa: SLF001
            raise StorageUnavailable(
                ErrorCode.BROKER_UNAVAILABLE,
                f"Kafka at {self._sink.cluster.bootstrap} did not take all messages of "
                f"checkpoint {checkpoint_id} in {self._sink.transaction_timeout_ms} ms: look for "
                "missing replicas (min.insync.replicas) and full disks",
            ) from cause

    def _produce(self, producer: Producer, parts: Sequence[StagedPart], messages: int) -> None:
        produced, is_half = 0, False
        at_once = min(_CHUNK, max(messages // 2, 1))
        batches = (batch for part in parts for batch in part.batches(self._staging))
        for chunk in (b.slice(n, at_once) for b in batches for n in range(0, b.num_rows, at_once)):
            if not is_half and 2 * produced >= messages:
                is_half = True
                producer.flush(REQUEST_SECONDS_MAX)
                self._observe("half-produced")
            produce_all(producer, self._sink.topic, chunk)
            produced += chunk.num_rows
