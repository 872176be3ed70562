"""Reads partitions with the client: explicit offsets, committed messages only, no group.

The client fetches ahead in threads of its own; ``poll`` takes what is there and never waits. It
returns the rows of one partition at a time, that with the oldest next message first, so that
partitions that are read side by side stay together in time while they catch up.
"""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import NoReturn, Protocol

import numpy as np
import pyarrow as pa
from confluent_kafka import Consumer, KafkaError, Message, TopicPartition

from laminar_core.connectors.base import SourceBatch, SourceReader, SplitStatus
from laminar_core.connectors.formats.messages import Decoder
from laminar_core.connectors.kafka.cluster import Cluster
from laminar_core.connectors.kafka.connection import ClientSettings, KafkaConnection
from laminar_core.connectors.kafka.facts import Bounds, Place
from laminar_core.connectors.kafka.fetch_queue import STATISTICS_INTERVAL_MS, FetchQueue
from laminar_core.connectors.kafka.metadata import Metadata
from laminar_core.connectors.kafka.partition_ends import PartitionEnds, status_of
from laminar_core.connectors.kafka.problems import explained, problem_of
from laminar_core.connectors.kafka.records import (
    as_messages,
    by_partition,
    metadata_column,
    offsets_of,
    runs_of,
    time_of,
    uncollected,
    with_readable_headers,
)
from laminar_core.connectors.kafka.reports import ReaderRefusal
from laminar_core.connectors.kafka.split_reading import Chunk, SplitReading
from laminar_core.errors import ErrorCode, IncompatibleStateError
from laminar_core.host.clock import Clock, SystemClock

GROUP = "laminar"
"""The client wants a name; nothing is committed to the group, and nothing is read from it."""

FULL_QUEUE_MS = 20
"""How long the client fetches nothing once enough is here; by default it pauses for a second."""

_QUEUE_KIB_MAX = 2 * 1024**2 - 1
"""The client refuses more for a partition."""

_WAITED_FOR_BATCHES = 4
"""How many batches may be here before a partition that is behind is no longer waited for."""

_RANGE_ERRORS = frozenset(
    {
        KafkaError._AUTO_OFFSET_RESET,  # noqa: SLF001 - its public name has an underscore
        KafkaError._LOG_TRUNCATION,  # noqa: SLF001
        KafkaError.OFFSET_OUT_OF_RANGE,
    }
)


class Reading(Protocol):
    """The parts of a source that its readers need."""

    @property
    def connection(self) -> KafkaConnection:
        """How the cluster is reached."""
        ...

    @property
    def metadata(self) -> Sequence[Metadata]:
        """Columns about the messages."""
        ...

    @property
    def batch_messages(self) -> int:
        """How many messages are decoded at once."""
        ...

    @property
    def prefetch_bytes(self) -> int:
        """Memory for messages that were fetched ahead, over all partitions of a reader."""
        ...

    @property
    def skips_tombstones(self) -> bool:
        """Whether a message without a value is passed over."""
        ...

    def schema(self) -> pa.Schema:
        """Return the columns of the rows."""
        ...

    def decoder(self) -> Decoder:
        """Return the decoder of values."""
        ...


class KafkaReader(SourceReader):
    """Reads the partitions of one subtask.

    Raises:
        ConfigurationError: settings or secrets of the connection are wrong.
    """

    def __init__(self, source: Reading, splits: pa.Table, clock: Clock | None = None) -> None:
        self._source = source
        self._clock = clock or SystemClock()
        self._ends = PartitionEnds(self._ask_for_ends, self._clock)
        self._queue = FetchQueue(self._clock)
        self._schema = source.schema()
        self._decoder = source.decoder()
        self._columns = splits.schema
        self._refusal = ReaderRefusal(self._clock)
        self._held: frozenset[int] = frozenset()
        self._splits: dict[tuple[str, int], SplitReading] = {}
        self._topics: set[str] = set()
        settings = reader_settings(source, max(splits.num_rows, 1))
        with explained("opening a reader", source.connection):
            callbacks = {"error_cb": self._refusal.note, "stats_cb": self._queue.take}
            self._consumer = Consumer(settings | callbacks)
        self.add(splits)

    def add(self, splits: pa.Table) -> None:
        """Read these partitions as well, from where they stand."""
        added = [SplitReading(row) for row in splits.to_pylist()]
        for split in added:
            self._splits[split.topic, split.partition] = split
        self._topics = {split.topic for split in self._splits.values()}
        with explained("assigning partitions", self._source.connection):
            self._consumer.incremental_assign(
                [_start_of(split) for split in added if not split.done]
            )

    def poll(self, rows_max: int) -> SourceBatch | None:
        """Return the next rows and letters of one partition; None if none are here.

        Raises:
            IncompatibleStateError: messages are gone that were to be read (SOURCE_CHANGED).
            ConfigurationError: the cluster refuses the credentials.
            StorageUnavailable: the client gave up.
        """
        if self._needs_messages():
            self._fetch()
        split = self._oldest()
        if split is None:
            return None
        taken = split.take(rows_max)
        return SourceBatch(taken.rows, split.split_id, taken.letters, taken.messages)

    @property
    def finished(self) -> bool:
        """Whether all partitions are read to the end that a bounded source has."""
        return all(split.done for split in self._splits.values())

    def hold(self, split_ids: frozenset[int]) -> None:
        """Pause these partitions until the next call; what was fetched is kept."""
        places = {
            split.split_id: TopicPartition(split.topic, split.partition)
            for split in self._splits.values()
            if not split.done
        }
        paused = [places[n] for n in split_ids - self._held if n in places]
        resumed = [places[n] for n in self._held - split_ids if n in places]
        with explained("pausing partitions", self._source.connection):
            if paused:
                self._consumer.pause(paused)
            if resumed:
                self._consumer.resume(resumed)
        self._held = split_ids

    def status(self) -> Sequence[SplitStatus]:
        """Return lag, caught up or blocked of each partition, as a broker said seconds ago."""
        unread = {place: split for place, split in self._splits.items() if not split.done}
        known = self._ends.known(tuple(unread))
        now_ms = self._clock.now_ms()
        for split in unread.values():
            split.look()
        queued = self._queue.known()
        return [
            replace(status_of(split, known.get(place), now_ms), queued_bytes=queued.get(place))
            for place, split in unread.items()
        ]

    def position(self) -> pa.Table:
        """Return all partitions, each behind the rows that ``poll`` returned."""
        rows = [split.position() for split in self._splits.values()]
        return pa.Table.from_pylist(rows, self._columns)

    def close(self) -> None:
        """Leave the brokers."""
        self._consumer.close()

    def _ask_for_ends(self, places: Sequence[Place]) -> Mapping[Place, Bounds]:
        with Cluster(self._source.connection) as cluster:
            return cluster.bounds(places)

    # --- what is returned next ------------------------------------------------------------------

    def _needs_messages(self) -> bool:
        splits = self._readable()
        pending = [split for split in splits if split.next_time_ms is not None]
        if not pending:
            return True
        is_somebody_behind = any(split.is_waiting for split in splits)
        return is_somebody_behind and len(pending) < _WAITED_FOR_BATCHES

    def _readable(self) -> Sequence[SplitReading]:
        return [split for split in self._splits.values() if split.split_id not in self._held]

    def _oldest(self) -> SplitReading | None:
        times = [(split.next_time_ms, split) for split in self._readable()]
        known = [(time_ms, split) for time_ms, split in times if time_ms is not None]
        return min(known, key=lambda pair: pair[0])[1] if known else None

    # --- what the client has --------------------------------------------------------------------

    def _fetch(self) -> None:
        with uncollected():
            self._take_in()
        self._refusal.accepted(self._ends.asked_ms)
        if (denied := self._refusal.standing()) is not None:
            raise problem_of(denied, "reading", self._source.connection, GROUP)

    def _take_in(self) -> None:
        """Decode what the client has."""
        with explained("reading", self._source.connection):
            events = self._consumer.consume(self._source.batch_messages, 0)
        for records, event in runs_of(events):
            for place, of_one in by_partition(records, self._topics):
                self._decode(place, of_one)
            if event is not None:
                self._note_event(event)

    def _note_event(self, event: Message) -> None:
        """Note the end of a partition.

        Raises:
            LaminarError: it is another event, an error.
        """
        place = (event.topic() or "", event.partition() or 0)
        error = event.error()
        assert error is not None
        if error.code() != KafkaError._PARTITION_EOF:  # noqa: SLF001
            self._refuse(place, error)
        self._splits[place].reach_end(event.offset() or 0)

    def _decode(self, place: tuple[str, int], records: Sequence[Message]) -> None:
        split = self._splits[place]
        if split.done:
            return
        end, next_offset = split.end_offset, _at(records[-1]) + 1
        if end is not None and next_offset > end:
            records = [record for record in records if _at(record) < end]
            next_offset = end
        epoch = records[-1].leader_epoch() if records else None
        split.add(self._chunk(records, next_offset, epoch))

    def _chunk(self, records: Sequence[Message], next_offset: int, epoch: int | None) -> Chunk:
        if self._source.skips_tombstones:
            records = [record for record in records if record.value() is not None]
        messages, metadata = as_messages(records), self._source.metadata
        decoded = self._decoder.decode(messages)
        origins = np.asarray(decoded.origins)
        columns = [metadata_column(name, records, origins) for name in metadata]
        rows = pa.RecordBatch.from_arrays([*decoded.rows.columns, *columns], schema=self._schema)
        decoded = replace(decoded, rows=rows)
        if "headers" in metadata:
            decoded = with_readable_headers(decoded, messages)
        return Chunk(
            decoded.rows,
            np.asarray(decoded.origins),
            offsets_of(records),
            decoded.letters,
            next_offset,
            epoch,
            time_of(records[0]) if records else 0,
        )

    def _refuse(self, place: tuple[str, int], error: KafkaError) -> NoReturn:
        topic, partition = place
        connection = self._source.connection
        if error.code() in _RANGE_ERRORS and place in self._splits:
            split = self._splits[place]
            why = connection.without_secrets(error.str())
            raise IncompatibleStateError(
                ErrorCode.SOURCE_CHANGED,
                f"{split.split} has no messages at offset {split.offset} any more: {why}: start "
                "the job again to see which rows are lost",
            )
        doing = f"reading partition {partition} of {topic}" if topic else "reading"
        raise problem_of(error, doing, connection, GROUP)


def reader_settings(source: Reading, partitions: int) -> ClientSettings:
    """Return the settings of the client: what exactly once needs, and its share of memory.

    The client's limit is for each partition, so the budget is divided.
    """
    budget_kib = min(max(source.prefetch_bytes // partitions // 1024, 64), _QUEUE_KIB_MAX)
    return {
        "queued.max.messages.kbytes": budget_kib,
        "fetch.queue.backoff.ms": FULL_QUEUE_MS,
        "fetch.message.max.bytes": min(1024 * budget_kib, 1024**2),
        "log_level": 0,
        **source.connection.client_settings(),
        "auto.offset.reset": "error",
        "check.crcs": True,
        "enable.auto.commit": False,
        "enable.auto.offset.store": False,
        "enable.partition.eof": True,
        "group.id": GROUP,
        "isolation.level": "read_committed",
        "statistics.interval.ms": STATISTICS_INTERVAL_MS,
    }


def _start_of(split: SplitReading) -> TopicPartition:
    known = None if split.leader_epoch is None else int(split.leader_epoch)
    place = split.topic, split.partition, split.offset
    return TopicPartition(*place) if known is None else TopicPartition(*place, leader_epoch=known)


def _at(record: Message) -> int:
    return record.offset() or 0
