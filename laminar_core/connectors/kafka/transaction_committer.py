"""Ends the transactions that workers have written into, once their checkpoint is complete.

The marker is a group offset, as for staged rows, but it cannot be part of the same transaction.
So it is written twice: before the first transaction is ended, with the number of the checkpoint as
``committing``, and after the last one. Both are transactions of the sink's own transactional id,
which each take-over fences. So a driver that slept cannot begin to commit any more, and what it had
begun to commit is known to its successor.

The steps have names, because tests stop the committer at each of them. Source: Kafka's protocol of
transactions (KIP-98, KIP-664).
"""

from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Literal

from confluent_kafka import Producer

from laminar_core.connectors.kafka.bounded import bounded
from laminar_core.connectors.kafka.marker import Marker
from laminar_core.connectors.kafka.marker_log import (
    REQUEST_SECONDS_MAX,
    MarkerLog,
    producer_settings,
)
from laminar_core.connectors.kafka.open_transactions import (
    Fates,
    OpenTransaction,
    TransactionalIds,
    fates_of,
    transactions_after,
)
from laminar_core.connectors.kafka.transactions import Transactions, TransactionState
from laminar_core.connectors.outlook import Committable, Committed, Doubtful, Lost, Outlook
from laminar_core.errors import CorruptCheckpointError, ErrorCode
from laminar_core.host.clock import Clock, SystemClock
from laminar_core.operators.base import JsonObject
from laminar_core.protocol.types import NO_CHECKPOINT, CheckpointId, Generation
from laminar_core.store.staging import StagingArea

if TYPE_CHECKING:
    from laminar_core.connectors.kafka.sink import KafkaSink

TransactionStep = Literal[
    "taken-over",
    "marker-read",
    "described",
    "announced",
    "half-ended",
    "ended",
    "marker-set",
]
STEPS: tuple[TransactionStep, ...] = (
    "taken-over",
    "marker-read",
    "described",
    "announced",
    "half-ended",
    "ended",
    "marker-set",
)
"""The steps of a commit, in order; each name says what has just been done."""

MARKER_TIMEOUT_MS = 60_000
"""Longest time between the first and the last request of a transaction of the marker."""
SWEEP_MS = 60_000
"""Time between two looks for transactions of generations that are dead."""
_AT_ONCE = 16


def _unobserved(step: TransactionStep) -> None:
    del step


class TransactionCommitter:
    """One sink's commits. One thread at a time calls it."""

    def __init__(
        self,
        sink: "KafkaSink",
        staging: StagingArea,
        clock: Clock | None = None,
        observe: Callable[[TransactionStep], None] | None = None,
    ) -> None:
        self._sink = sink
        self._staging = staging
        self._clock = clock or SystemClock()
        self._observe = observe or _unobserved
        self._generation = Generation(0)
        self._swept_ms = self._clock.monotonic_ms()
        self.markers = MarkerLog(sink, staging, self._clock)
        """The marker, and the producer that changes it."""
        self.transactions = Transactions(sink.cluster, self._clock)
        """The client that asks about transactions and ends them; connected within one call."""

    @property
    def repeat(self) -> Literal["visible"]:
        """Say that readers see repeated rows twice: a topic takes nothing back."""
        return "visible"

    # --- the contract ---------------------------------------------------------------------------

    def take_over(self, generation: Generation) -> None:
        """Fence every older committer of this sink; the transactions of workers stay open.

        Raises:
            ConfigurationError: credentials or rights.
            StorageUnavailable: the brokers did not answer.
        """
        self._generation = generation
        self.markers.take_over(generation, MARKER_TIMEOUT_MS)
        self._observe("taken-over")

    def last_committed(self) -> CheckpointId | None:
        """Return the newest checkpoint whose output readers may see, in whole or in part."""
        marker = self.markers.read()
        if marker is None:
            return None
        return max(marker.checkpoint_id, marker.committing_id) or None

    def outlook(self, checkpoint_id: CheckpointId, committables: Sequence[JsonObject]) -> Outlook:
        """Compare the marker and the brokers' transactions with what is to be committed."""
        marker = self.markers.read()
        newer = transactions_after(_seen(marker), committables)
        with self.transactions:
            fates = self._look(marker, newer)
        if fates.unknown:
            rows = sum(each.rows for each in fates.unknown)
            return Doubtful(
                f"{rows:,} messages for topic {self._sink.topic} were to be committed with "
                f"checkpoint {checkpoint_id}, and the brokers no longer know "
                f"{fates.unknown[0].transactional_id} or the marker in the consumer group "
                f"{self.markers.group}: look into the topic; what is not there can be produced "
                "only from an older checkpoint"
            )
        if fates.aborted:
            return _lost(newer, fates.aborted)
        if fates.open:
            return Committable(fates.expires_at_ms)
        return Committed()

    def commit(self, checkpoint_id: CheckpointId, committables: Sequence[JsonObject]) -> None:
        """End the transactions that are newer than the marker, in order, and set the marker.

        Raises:
            FencedError: another driver has taken over since.
            StorageUnavailable: it may or may not have happened; take over again, and repeat.
            ConfigurationError: the rights do not suffice, or the topic is gone.
            CorruptCheckpointError: a transaction was aborted, so none is ended.
        """
        with self.transactions:
            self._commit(checkpoint_id, committables)
            self._sweep_now_and_then()

    def discard_uncommitted(self, generation: Generation) -> None:
        """Abort open transactions of generations before ``generation``, and renew the marker.

        The first marker of a job is written here, so that one that is missing later has been
        forgotten.
        """
        with self.transactions:
            self._fence(generation, frozenset(TransactionState) - {TransactionState.NONE})
            self.markers.expire()
            self._commit(NO_CHECKPOINT, ())

    # --- a commit -------------------------------------------------------------------------------

    def _commit(self, checkpoint_id: CheckpointId, committables: Sequence[JsonObject]) -> None:
        self.markers.producer()
        try:
            marker = self.markers.read()
            self._observe("marker-read")
            seen = _seen(marker)
            newer = transactions_after(seen, committables)
            newest = max(checkpoint_id, seen)
            if newer:
                self._end(marker, newest, newer)
            if newer or marker is None or self.markers.is_old():
                self._set(self.markers.next(newest, sum(each.rows for each in newer)))
                self._observe("marker-set")
        except BaseException:
            # Whatever the state of the marker is, the next take-over settles it.
            self.markers.drop()
            raise

    def _look(self, marker: Marker | None, transactions: Sequence[OpenTransaction]) -> Fates:
        facts = self.transactions.describe(each.transactional_id for each in transactions)
        return fates_of(transactions, facts, marker_known=marker is not None)

    def _end(
        self, marker: Marker | None, newest: CheckpointId, transactions: Sequence[OpenTransaction]
    ) -> None:
        """End all or none: a checkpoint that expired in part can only be refused as a whole."""
        fates = self._look(marker, transactions)
        self._observe("described")
        if gone := [*fates.aborted, *fates.unknown]:
            # Who is fenced finds the same; only the owner may say that rows are lost.
            self._set(self.markers.next(_seen(marker), 0, _committing(marker)))
            raise CorruptCheckpointError(ErrorCode.TRANSACTION_LOST, _lost(transactions, gone).why)
        self._set(self.markers.next(_seen(marker), 0, newest))
        self._observe("announced")
        for number, each in enumerate(fates.open):
            self.transactions.commit(each.transactional_id, each.producer_id, each.epoch)
            if number == (len(fates.open) - 1) // 2:
                self._observe("half-ended")
        self._observe("ended")

    def _set(self, marker: Marker) -> None:
        with self.markers.asking("setting the marker"):
            self.markers.producer().begin_transaction()
            self.markers.send(marker)
            self.markers.commit()
        self.markers.sent(marker)

    # --- dead generations -----------------------------------------------------------------------

    def _sweep_now_and_then(self) -> None:
        """Look again: a worker that slept may have begun a transaction that readers wait for."""
        if self._clock.monotonic_ms() - self._swept_ms >= SWEEP_MS:
            self._fence(self._generation, frozenset({TransactionState.ONGOING}))

    def _fence(self, generation: Generation, states: frozenset[TransactionState]) -> None:
        """Abort transactions of older generations, and let no worker begin one under their ids."""
        self._swept_ms = self._clock.monotonic_ms()
        ids = TransactionalIds(self.markers.group, self._staging.run_id() or "")
        listed = self.transactions.listed(ids.older_than(generation))
        dead = sorted(name for name, state in listed.items() if state in states)
        if dead:
            with ThreadPoolExecutor(min(_AT_ONCE, len(dead))) as pool:
                list(pool.map(self._fence_one, dead))

    def _fence_one(self, transactional_id: str) -> None:
        with self.markers.asking(f"aborting transaction {transactional_id}"):
            settings = producer_settings(self._sink)
            producer = Producer({**settings, "transactional.id": transactional_id})
            bounded(lambda: producer.init_transactions(REQUEST_SECONDS_MAX), REQUEST_SECONDS_MAX)


def _seen(marker: Marker | None) -> CheckpointId:
    return NO_CHECKPOINT if marker is None else marker.checkpoint_id


def _committing(marker: Marker | None) -> CheckpointId:
    return NO_CHECKPOINT if marker is None else marker.committing_id


def _lost(all_of_them: Sequence[OpenTransaction], gone: Sequence[OpenTransaction]) -> Lost:
    rows = sum(each.rows for each in gone)
    why = (
        f"{len(gone)} of {len(all_of_them)} transactions that wait for their commit were aborted "
        f"({rows:,} messages, first {gone[0].transactional_id}): the job was down for longer than "
        "their timeout, or another client aborted them. Restore an older checkpoint, from which "
        "their rows are produced again"
    )
    return Lost(rows, why, [each.to_json() for each in gone])
