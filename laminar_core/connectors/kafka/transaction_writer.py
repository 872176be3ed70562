"""Messages of one subtask, written into transactions that the driver ends.

Each checkpoint interval has a transaction of its own. At the barrier its messages are flushed, in
the background, and the brokers are asked for producer id and epoch: with the transactional id these
are the committable. Messages of the next interval wait until that flush is done, because otherwise
they could lie before those of the last one. If they become too many, the worker waits with them.
"""

import threading
from collections import deque
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any

import pyarrow as pa
from confluent_kafka import KafkaError, KafkaException, Message, Producer

from laminar_core.connectors.kafka.bounded import bounded
from laminar_core.connectors.kafka.marker_log import REQUEST_SECONDS_MAX, producer_settings
from laminar_core.connectors.kafka.open_transactions import OpenTransaction, TransactionalIds
from laminar_core.connectors.kafka.problems import has_remedy, is_denied, problem_of
from laminar_core.connectors.kafka.producing import failure_of, produce_all
from laminar_core.connectors.kafka.reports import ClientReports
from laminar_core.connectors.kafka.transactions import Transactions, TransactionState
from laminar_core.errors import ErrorCode, LaminarError, StorageUnavailable
from laminar_core.operators.base import JsonObject, PendingSnapshot, Snapshot, SubtaskContext
from laminar_core.protocol.types import CheckpointId

if TYPE_CHECKING:
    from laminar_core.connectors.kafka.sink import KafkaSink

WAITING_BYTES_MAX = 16 << 20
"""Messages of the next interval that wait for the flush of this one; then the worker waits."""
_ABORT_SECONDS = 2


class TransactionWriter:
    """The writer of one subtask. One thread writes; snapshots finish in others."""

    def __init__(self, context: SubtaskContext, sink: "KafkaSink") -> None:
        assert context.staging is not None, "the worker gives every sink a staging area"
        staging = context.staging
        self._context = context
        self._sink = sink
        group = f"laminar.{staging.job}.{staging.operator_id}"
        self._ids = TransactionalIds(group, staging.run_id() or "")
        self._running: _Interval | None = None
        self._before: _Interval | None = None
        self._kept: list[_Interval] = []
        """Intervals whose checkpoint is not committed."""
        self._pinned: list[_Interval] = []

    def write(self, batch: pa.RecordBatch) -> None:
        """Send messages within the transaction of this interval.

        Raises:
            StorageUnavailable: the brokers did not take messages, so the job must start again.
        """
        if not batch.num_rows:
            return
        if self._running is None:
            before = None if self._before is None or self._before.is_flushed() else self._before
            self._running = _Interval(self._sink, self._ids, self._context, self._slot(), before)
        self._running.write(batch)

    def snapshot(self, checkpoint_id: CheckpointId) -> PendingSnapshot:
        """Pin the messages of this interval, and intervals that no checkpoint has offered yet.

        Raises:
            StorageUnavailable: messages of an earlier interval are lost.
        """
        new, self._running = self._running, None
        self._pinned = pinned = [each for each in self._pinned if not each.offered]
        if new is not None:
            new.checkpoint_id = checkpoint_id
            self._before = new
            self._kept.append(new)
            pinned.append(new)
        for each in pinned:
            each.require_whole()

        def offer() -> Snapshot:
            with Transactions(self._sink.cluster) as transactions:
                found = tuple(each.finish(transactions) for each in pinned)
            for each in pinned:
                each.offered = True
            return Snapshot(committables=found)

        return offer

    def committed(self, checkpoint_id: CheckpointId) -> None:
        """Use the transactional ids of the intervals up to this checkpoint again."""
        self._kept = [each for each in self._kept if each.checkpoint_id > checkpoint_id]

    def restore(self, snapshots: Sequence[Snapshot]) -> None:
        """Do nothing: the committer ends what earlier generations left open."""

    def collected(self) -> Iterable[pa.RecordBatch]:
        """Return no rows: they are in the topic."""
        return ()

    def close(self) -> None:
        """Abort the transaction that no snapshot contains, if that is possible at once.

        Transactions in snapshots stay open.
        """
        if self._running is not None:
            self._running.abort()
        self._running = None

    def _slot(self) -> int:
        taken = {each.slot for each in self._kept}
        return next(slot for slot in range(len(taken) + 1) if slot not in taken)


class _Interval:
    """The messages of one checkpoint interval, from the first one until they are committed."""

    def __init__(
        self,
        sink: "KafkaSink",
        ids: TransactionalIds,
        context: SubtaskContext,
        slot: int,
        before: "_Interval | None",
    ) -> None:
        self.checkpoint_id = CheckpointId(0)
        self.offered = False
        self.slot = slot
        self._sink = sink
        self._name = ids.of(context.generation, context.subtask_index, slot)
        self._reports = ClientReports(sink.cluster, self._name)
        self._before = before
        self._waiting: deque[pa.RecordBatch] = deque()
        self._waiting_bytes = 0
        self._rows = 0
        self._producer: Producer | None = None
        self._failed: KafkaError | None = None
        self._flushed = threading.Event()
        self._committable: JsonObject | None = None
        self._lock = threading.Lock()

    def is_flushed(self) -> bool:
        """Whether the brokers have all messages."""
        return self._flushed.is_set()

    def write(self, batch: pa.RecordBatch) -> None:
        """Send messages, or keep them until the interval before this one is flushed.

        Raises:
            StorageUnavailable: the brokers did not take messages.
        """
        self._waiting.append(batch)
        self._waiting_bytes += batch.nbytes
        self._rows += batch.num_rows
        if self._before is not None and self._waiting_bytes >= WAITING_BYTES_MAX:
            self._before.wait()
        if self._before is None or self._before.is_flushed():
            self._send()
        self.require_whole()

    def wait(self) -> None:
        """Wait until all messages are flushed, as long as the transaction may live.

        Raises:
            StorageUnavailable: they were not.
        """
        if not self._flushed.wait(self._sink.transaction_timeout_ms / 1000):
            raise self._unavailable("the brokers did not take all messages in time")

    def require_whole(self) -> None:
        """Raise what became of messages that were handed over.

        Raises:
            StorageUnavailable: some are lost; only a restart of the job produces them again.
            ConfigurationError: the rights do not suffice to write them.
        """
        if self._failed is None:
            return
        if is_denied(self._failed) or has_remedy(self._failed):
            doing = f"writing to {self._sink.topic}"
            raise problem_of(self._failed, doing, self._sink.cluster, self._name)
        raise self._unavailable(f"{self._failed.name()}: {self._failed.str()}")

    def finish(self, transactions: Transactions) -> JsonObject:
        """Flush and return the committable; call again after a failure.

        Raises:
            StorageUnavailable: the brokers did not answer, or the transaction is gone.
        """
        with self._lock:
            if self._committable is None:
                assert self._before is None or self._before.is_flushed(), "in their order"
                self._send()
                self._flush()
                self._committable = self._pre_committed(transactions)
                self._producer = None  # Its transaction stays open.
            return self._committable

    def abort(self) -> None:
        """Abort the transaction; readers need not wait until it expires or is swept."""
        producer = self._producer
        if producer is None:
            return
        try:
            producer.purge()
            bounded(lambda: producer.abort_transaction(_ABORT_SECONDS), _ABORT_SECONDS)
        except KafkaException:
            pass  # The next generation aborts it.
        finally:
            self._producer = None

    def _send(self) -> None:
        with self._reports.explained(f"writing to {self._sink.topic}"):
            if self._producer is None:
                self._producer = self._begin()
            while self._waiting:
                batch = self._waiting.popleft()
                self._waiting_bytes -= batch.nbytes
                produce_all(self._producer, self._sink.topic, batch)

    def _begin(self) -> Producer:
        settings: dict[str, Any] = {
            **producer_settings(self._sink),
            "transactional.id": self._name,
            "transaction.timeout.ms": self._sink.transaction_timeout_ms,
            "delivery.report.only.error": True,
            "on_delivery": self._delivered,
            "error_cb": self._reports.note,
        }
        producer = Producer(settings)
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
        producer.begin_transaction()
        return producer

    def _flush(self) -> None:
        assert self._producer is not None
        left = self._producer.flush(REQUEST_SECONDS_MAX)
        self._failed = self._failed or failure_of(self._producer)
        self.require_whole()
        if left:
            raise self._unavailable(f"the brokers did not take {left:,} messages yet")
        self._flushed.set()

    def _pre_committed(self, transactions: Transactions) -> JsonObject:
        facts = transactions.describe([self._name]).get(self._name)
        if facts is None or facts.state is not TransactionState.ONGOING:
            self._failed = KafkaError(
                KafkaError.INVALID_TXN_STATE
            )  # A restart produces them again.
            raise self._unavailable("the transaction has expired before its checkpoint")
        pre_committed = OpenTransaction(
            self.checkpoint_id,
            self._rows,
            self._name,
            facts.producer_id,
            facts.epoch,
            facts.expires_at_ms,
        )
        return pre_committed.to_json()

    def _delivered(self, error: KafkaError | None, message: Message) -> None:
        del message
        if error is not None and error.code() != KafkaError._PURGE_QUEUE:  # noqa: SLF001
            self._failed = error

    def _unavailable(self, why: str) -> LaminarError:
        why = self._sink.cluster.without_secrets(why)
        return StorageUnavailable(
            ErrorCode.BROKER_UNAVAILABLE,
            f"Kafka at {self._sink.cluster.bootstrap}, transaction {self._name}: {why}",
        )
