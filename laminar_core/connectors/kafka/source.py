"""Kafka topics as a replayable input: a split is a partition, its offset the next message."""

import hashlib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from typing import TYPE_CHECKING, Literal, cast, get_args

import pyarrow as pa

from laminar_core.arguments import (
    other_argument,
    require_choice,
    require_instance,
    require_methods,
    require_schema,
    require_whole,
)
from laminar_core.connectors.base import Gap, GapCause, Headroom, Mend, Reading, Source
from laminar_core.connectors.formats.arrow_ipc import ArrowIpcFormat
from laminar_core.connectors.formats.json_format import JsonFormat
from laminar_core.connectors.formats.messages import Decoder, InputFormat
from laminar_core.connectors.formats.raw import RawFormat
from laminar_core.connectors.kafka.connection import KafkaConnection, is_name
from laminar_core.connectors.kafka.metadata import Metadata, with_metadata
from laminar_core.connectors.kafka.partitions import Loss, Start, without_topics
from laminar_core.connectors.kafka.start_text import start_of
from laminar_core.errors import ConfigurationError, ErrorCode, IncompatibleStateError
from laminar_core.host.clock import SystemClock
from laminar_core.host.extras import needs_extra
from laminar_core.operators.base import JsonObject
from laminar_core.state.splits import skipped
from laminar_core.units import is_whole

if TYPE_CHECKING:
    from laminar_core.connectors.kafka.reader import KafkaReader
    from laminar_core.connectors.kafka.search import PartitionSearch

FormatName = Literal["json", "arrow", "raw"]
Tombstones = Literal["refuse", "skip"]

_FORMATS: Mapping[FormatName, InputFormat] = {
    "json": JsonFormat(),
    "arrow": ArrowIpcFormat(),
    "raw": RawFormat(),
}
_CAUSES: Mapping[Loss, GapCause] = {
    Loss.RETENTION: "retention",
    Loss.RECREATED: "recreated",
    Loss.GONE: "gone",
    Loss.TRUNCATED: "truncated",
}
_WHAT_IS_THERE: Mapping[GapCause, str] = {
    "truncated": "the messages that are there were read before",
}
_AT_ONCE_MAX = 1_000_000
"""The client returns no more messages at once."""
_NEEDED_FOR = "Kafka sources and sinks"


@dataclass(frozen=True, slots=True)
class KafkaSource(Source):
    """Committed messages of one or more topics, each exactly once.

    Partitions are read with offsets that the checkpoints hold; no consumer group is involved.
    Messages of aborted transactions are never seen. The identity of each topic is part of a
    checkpoint, so a topic that was deleted and created again is not taken for the old one.

    >>> KafkaSource("broker:9092", "payments", pa.schema([("merchant", pa.string())]))
    ... # doctest: +SKIP

    Args:
        connection: ``host:port`` of brokers, or a :class:`KafkaConnection` with TLS or SASL.
        topics: a name, or several.
        columns: the columns of a value.
        format: how a value is read: ``json``, ``arrow`` (an Arrow IPC stream per message), ``raw``
            (one column of bytes or text), or an input format with options.
        start: where a fresh start begins: ``earliest``; ``latest``, for messages that are written
            from then on; a time, for messages with a timestamp from then on; or offsets by
            partition, as in ``{"payments/0": 1287}``.
        until: ``latest`` ends the source at the messages that were committed at its fresh start;
            None reads on for ever.
        metadata: columns about the message, named ``kafka_key``, ``kafka_offset`` and so on.
        tombstones: a message without a value deletes its key in a compacted topic; ``skip`` passes
            over such messages, ``refuse`` treats them as bad rows.
        batch_messages: how many messages are decoded at once.
        prefetch_bytes: memory for messages that the client fetches ahead, for each worker.

    Raises:
        ConfigurationError: an argument has a value that is not possible (INVALID_OPTION).
    """

    connection: KafkaConnection
    topics: Sequence[str]
    columns: pa.Schema
    format: InputFormat
    start: Start
    until: Literal["latest"] | None
    metadata: Sequence[Metadata]
    tombstones: Tombstones
    batch_messages: int
    prefetch_bytes: int

    def __init__(  # noqa: PLR0913 - they are options, given by name
        self,
        connection: str | KafkaConnection,
        topics: str | Sequence[str],
        columns: pa.Schema,
        *,
        format: FormatName | InputFormat = "json",  # noqa: A002 - as in SQL
        start: Start = "earliest",
        until: Literal["latest"] | None = None,
        metadata: Sequence[Metadata] = (),
        tombstones: Tombstones = "refuse",
        batch_messages: int = 10_000,
        prefetch_bytes: int = 64 * 1024**2,
    ) -> None:
        named = (topics,) if isinstance(topics, str) or not _is_several(topics) else tuple(topics)
        if isinstance(metadata, str) or not _is_several(metadata):
            raise other_argument(metadata, 'metadata must be names, as in ("key", "offset")')
        given = {
            "connection": KafkaConnection.of(connection),
            "topics": named,
            "columns": columns,
            "format": _format(format),
            "start": dict(start) if isinstance(start, Mapping) else start,
            "until": until,
            "metadata": tuple(metadata),
            "tombstones": tombstones,
            "batch_messages": batch_messages,
            "prefetch_bytes": prefetch_bytes,
        }
        for name, value in given.items():
            object.__setattr__(self, name, value)
        self._check_arguments()

    def _check_arguments(self) -> None:
        names = self.topics
        if not names or not all(map(is_name, names)) or len(set(names)) < len(names):
            raise _invalid(f"topics must be one or more different names, got {list(names)}")
        _check_start(self.start)
        require_instance(self.until, str | None, "until must be 'latest' or None")
        if self.until not in (None, "latest"):
            raise _invalid(f"until must be 'latest' or None, not {self.until!r}")
        require_choice(self.tombstones, get_args(Tombstones), "tombstones")
        if not (is_whole(self.batch_messages) and 1 <= self.batch_messages <= _AT_ONCE_MAX):
            raise _invalid(
                f"batch_messages must be from 1 to {_AT_ONCE_MAX:,}, got {self.batch_messages!r}"
            )
        require_whole(self.prefetch_bytes, 1, "prefetch_bytes")
        require_schema(self.columns, "columns")
        self.schema()
        self.decoder()

    @property
    def reading(self) -> Reading:
        """Say that partitions are read side by side: each has an event time of its own."""
        return "parallel"

    @property
    def skips_tombstones(self) -> bool:
        """Whether a message without a value is passed over."""
        return self.tombstones == "skip"

    def describe(self) -> JsonObject:
        """Return topics, format and columns; not where the brokers are, nor where reading began.

        The identities of the topics are part of the position.
        """
        return {
            "connector": "kafka",
            "topics": list(self.topics),
            "format": self.format.describe(),
            "columns": hashlib.sha256(self.schema().serialize().to_pybytes()).hexdigest(),
            "metadata": list(self.metadata),
            "tombstones": self.tombstones,
        }

    def schema(self) -> pa.Schema:
        """Return the columns of the values, and those about the messages behind them."""
        return with_metadata(self.columns, self.metadata)

    def decoder(self) -> Decoder:
        """Return the decoder of values."""
        return self.format.decoder(self.columns)

    def starting_at(self, position: str) -> "KafkaSource":
        """Return the same source with another ``start``.

        ``position``: ``earliest``, ``latest``, a time in ISO 8601 with a zone, or the offset of
        each partition as a JSON object, ``{"payments/0": 120}``.

        Raises:
            ConfigurationError: it is none of these (INVALID_OPTION).
        """
        return replace(self, start=start_of(position))

    def discovery(self) -> "PartitionSearch":
        """Return the search for partitions; one with an end does not look for more."""
        with needs_extra("kafka", _NEEDED_FOR):
            from laminar_core.connectors.kafka.search import PartitionSearch  # noqa: PLC0415
        return PartitionSearch(self.connection, self.topics, self.start, self.until)

    def gaps(self, splits: pa.Table) -> list[Gap]:
        """Return the partitions whose next message is gone: retention, or another topic.

        Raises:
            StorageUnavailable: no broker answered.
        """
        with needs_extra("kafka", _NEEDED_FOR):
            from laminar_core.connectors.kafka.search import find_lost_ranges  # noqa: PLC0415
        return [
            Gap(
                lost.split,
                str(lost.offset),
                lost.available and (str(lost.available[0]), str(lost.available[1])),
                lost.messages_lost_max,
                _CAUSES[lost.why],
                str(lost),
            )
            for lost in find_lost_ranges(self.connection, splits)
        ]

    def headroom(self, splits: pa.Table) -> Headroom:
        """Return how far these positions are from messages that retention has deleted.

        Raises:
            StorageUnavailable: no broker answered.
        """
        with needs_extra("kafka", _NEEDED_FOR):
            from laminar_core.connectors.kafka.headroom import find_headroom  # noqa: PLC0415
        return find_headroom(self.connection, splits, SystemClock().now_ms())

    def mend(self, splits: pa.Table, gap: Gap, how: Mend) -> pa.Table:
        """Return the splits at the first message that is there, or without this partition.

        Raises:
            IncompatibleStateError: the topic is another one, so its first message is no place to
                continue.
        """
        if how == "skip-split":
            return skipped(splits, "split", gap.split)
        if gap.available is None or gap.rows_lost is None:  # Known for retention only.
            there = _WHAT_IS_THERE.get(gap.why, "the topic is not the one that was read before")
            raise IncompatibleStateError(
                ErrorCode.SOURCE_CHANGED,
                f"{gap.split} ({gap.why}) cannot continue at its earliest message, because "
                f"{there}: accept source-gap:NAME=skip-split instead",
            )
        names = splits.column("split").to_pylist()
        rows = splits.to_pylist()
        rows[names.index(gap.split)] |= {"offset": gap.available[0], "row": 0}
        return pa.Table.from_pylist(rows, splits.schema)

    def leave_out(self, state: JsonObject, gaps: Sequence[Gap]) -> JsonObject:
        """Return the state of the search without topics that are gone or were made anew."""
        gone = {g.split.rpartition("/")[0] for g in gaps if g.why in ("recreated", "gone")}
        return without_topics(state, gone) if gone else state

    def open(self, splits: pa.Table) -> "KafkaReader":
        """Start reading at the offsets in ``splits``; called in a worker."""
        with needs_extra("kafka", _NEEDED_FOR):
            from laminar_core.connectors.kafka.reader import KafkaReader  # noqa: PLC0415
        return KafkaReader(self, splits)


def _is_several(topics: object) -> bool:
    return isinstance(topics, Iterable)


def _check_start(start: object) -> None:
    match start:
        case str() if start in ("earliest", "latest"):
            return
        case datetime():
            if start.tzinfo is None:
                raise _invalid(
                    "start must be a time with a zone, as in datetime(2026, 7, 1, tzinfo=UTC)"
                )
        case dict() if all(
            isinstance(split, str) and is_whole(offset)
            for split, offset in cast("dict[object, object]", start).items()
        ):
            return
        case _:
            wanted = 'start must be earliest, latest, a time or offsets such as {"payments/0": 5}'
            raise other_argument(start, wanted)


def _format(given: FormatName | InputFormat) -> InputFormat:
    if not isinstance(given, str):
        wanted = "format must be json, arrow, raw or an object such as JsonFormat()"
        require_methods(given, ("decoder",), wanted)
        return given
    if given not in _FORMATS:
        raise _invalid(f"there is no format {given!r}: choose from {', '.join(_FORMATS)}")
    return _FORMATS[given]


def _invalid(message: str) -> ConfigurationError:
    return ConfigurationError(ErrorCode.INVALID_OPTION, message)
