"""Rows as messages of a Kafka topic, exactly once for readers of committed messages."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Literal, get_args

import pyarrow as pa

from laminar_core.arguments import (
    is_names,
    other_argument,
    require_choice,
    require_methods,
)
from laminar_core.connectors.base import SinkWriter
from laminar_core.connectors.formats.arrow_ipc import ArrowIpcFormat
from laminar_core.connectors.formats.json_format import JsonFormat
from laminar_core.connectors.formats.messages import OutputFormat
from laminar_core.connectors.formats.raw import RawFormat
from laminar_core.connectors.kafka.connection import KafkaConnection, is_name
from laminar_core.connectors.kafka.messages import MESSAGES, MessageWriter
from laminar_core.connectors.outlook import Promise
from laminar_core.connectors.plain import plain_schema
from laminar_core.connectors.staged_rows import StagedRows
from laminar_core.errors import ConfigurationError, ErrorCode
from laminar_core.host.extras import needs_extra
from laminar_core.operators.base import JsonObject, OutputMode, SubtaskContext
from laminar_core.operators.weights import unweighted_schema
from laminar_core.store.staging import StagingArea
from laminar_core.units import duration_ms, duration_text, is_whole

if TYPE_CHECKING:
    from laminar_core.connectors.kafka.committer import KafkaCommitter
    from laminar_core.connectors.kafka.transaction_committer import TransactionCommitter

FormatName = Literal["json", "arrow", "raw"]
KafkaCompression = Literal["none", "gzip", "snappy", "lz4", "zstd"]
Delivery = Literal["staged", "transaction"]

_FORMATS: Mapping[FormatName, OutputFormat] = {
    "json": JsonFormat(),
    "arrow": ArrowIpcFormat(),
    "raw": RawFormat(),
}
MESSAGE_BYTES_MAX = 1_000_000
"""The largest message that brokers take by default, with some room for its envelope."""
_BYTES_MAX = 999_900_000
"""The largest message that a client can send, with the same room."""
_NEEDED_FOR = "Kafka sources and sinks"
_TIMEOUT_MIN_MS = 5_000
_TIMEOUT_MAX_MS: dict[Delivery, int] = {"staged": 900_000, "transaction": 7 * 86_400_000}
_TIMEOUTS: dict[Delivery, str] = {"staged": "1 minute", "transaction": "15 minutes"}
"""The longest one that brokers allow by default, where the driver may be down meanwhile."""


@dataclass(frozen=True, slots=True)
class KafkaSink:
    """Publishes rows to ``topic``, which must exist.

    Read the topic with ``isolation.level=read_committed``.

    With ``staged``, rows of a checkpoint wait in the checkpoint store. Once it is complete, the
    driver publishes them in one transaction, together with a marker that tells a successor what is
    there. So nothing expires while the job is down, and no reader waits for it.

    With ``transaction``, each worker writes into a transaction of its own, and the driver ends them
    all once the checkpoint is complete. So no row passes through the driver or the store. But a
    transaction expires: if the job is down for longer, rows of its last checkpoint are lost, and
    the job has to go back to an older one. Readers of committed messages wait meanwhile.

    Of a stream whose rows come and go, a topic with keys gets the newest row of each key, and a
    message without value for a key that is gone, as a compacted topic wants it.

    >>> KafkaSink("broker:9092", "payments", key="merchant").topic
    'payments'

    Args:
        connection: addresses of brokers, ``host:port`` separated by commas, or a
            ``KafkaConnection`` with settings and names of secrets.
        format: ``json``, ``arrow`` or ``raw``, or a format with options of its own.
        key: one or more columns that make the key; None: messages have no key. The columns stay
            part of the value. With ``arrow`` there can be no key, because a message holds many
            rows.
        delivery: ``staged``, or ``transaction``, which needs the extra ``kafka-transaction`` and is
            for more messages per second than one driver can publish.
        compression: of the messages in the topic.
        message_bytes_max: a row that makes a larger message stops the job.
        transaction_timeout: longest time that a transaction may be open. With ``staged`` it is the
            publication of one checkpoint, 1 minute by default. With ``transaction`` it begins with
            an interval and has to outlast the checkpoint and an outage: 15 minutes by default,
            which is what brokers allow unless their ``transaction.max.timeout.ms`` is raised.

    Raises:
        ConfigurationError: a value is not possible (INVALID_OPTION).
    """

    connection: KafkaConnection | str
    topic: str
    format: OutputFormat | FormatName = "json"
    key: str | Sequence[str] | None = None
    delivery: Delivery = "staged"
    compression: KafkaCompression = "zstd"
    message_bytes_max: int = MESSAGE_BYTES_MAX
    transaction_timeout: str | None = None
    transaction_timeout_ms: int = field(init=False, default=0)
    deletes: bool = field(init=False, default=False)
    """Whether it is given rows with a weight, see ``with_deletions``."""

    def __post_init__(self) -> None:
        if not is_name(self.topic):
            raise _invalid(f"topic must be a name, not {self.topic!r}")
        object.__setattr__(self, "connection", KafkaConnection.of(self.connection))
        object.__setattr__(self, "format", _format_of(self.format))
        key = (self.key,) if isinstance(self.key, str) else self.key
        if key is not None and not is_names(key):
            raise other_argument(key, "key must be one or more names of columns")
        object.__setattr__(self, "key", None if key is None else tuple(key))
        require_choice(self.compression, get_args(KafkaCompression), "compression")
        require_choice(self.delivery, get_args(Delivery), "delivery")
        given = self.transaction_timeout
        timeout_ms = duration_ms(_TIMEOUTS[self.delivery] if given is None else given)
        object.__setattr__(self, "transaction_timeout_ms", timeout_ms)
        longest_ms = _TIMEOUT_MAX_MS[self.delivery]
        if not _TIMEOUT_MIN_MS <= timeout_ms <= longest_ms:
            raise _invalid(
                f"transaction_timeout must be from 5 seconds to {duration_text(longest_ms)}, not "
                f"{self.transaction_timeout!r}"
            )
        if not is_whole(self.message_bytes_max) or not 1 <= self.message_bytes_max <= _BYTES_MAX:
            raise _invalid(
                f"message_bytes_max must be from 1 to {_BYTES_MAX:,}, not"
                f" {self.message_bytes_max!r}"
            )
        if key is not None and not self.output_format.one_row_per_message:
            raise _invalid(
                "a message of many rows has no key: leave key out, or use another format"
            )

    @property
    def cluster(self) -> KafkaConnection:
        """The connection."""
        assert isinstance(self.connection, KafkaConnection)
        return self.connection

    @property
    def accepts(self) -> frozenset[OutputMode]:
        """Rows to append; with a key also those that replace earlier ones, for compacted topics."""
        return frozenset({"append"}) if self.key is None else frozenset({"append", "upsert"})

    @property
    def updates_by(self) -> tuple[str, ...]:
        """The columns of the key, by which a compacted topic keeps the newest message."""
        return () if self.key is None else tuple(self.key)

    def with_deletions(self) -> "KafkaSink":
        """Return the sink for rows with a weight: -1 publishes a message without value."""
        told = replace(self)
        object.__setattr__(told, "deletes", True)
        return told

    @property
    def output_format(self) -> OutputFormat:
        """The format."""
        assert not isinstance(self.format, str)
        return self.format

    def describe(self) -> JsonObject:
        """Return the topic and the delivery; addresses, format and key may change between runs."""
        return {"connector": "kafka", "topic": self.topic, "delivery": self.delivery}

    def check(self, schema: pa.Schema, promise: Promise | None = None) -> Sequence[str]:
        """Verify that rows have a form in the format, and that the topic is there.

        With ``transaction``, return how long the job may be down.

        Raises:
            ConfigurationError: a column has no form, a key column is missing, the topic does not
                exist, the cluster refuses the credentials, or a transaction could not live as long
                as the settings of the job ask for.
            MissingExtraError: the extra ``kafka`` is not installed.
            StorageUnavailable: no broker answers.
        """
        self._writer(schema)
        with needs_extra("kafka", _NEEDED_FOR):
            from laminar_core.connectors.kafka.topics import require_topic  # noqa: PLC0415
        require_topic(self.cluster, self.topic)
        if self.delivery == "staged":
            return ()
        with needs_extra("kafka", _NEEDED_FOR):
            from laminar_core.connectors.kafka.outages import check_outage  # noqa: PLC0415
        return check_outage(self, promise or Promise())

    def open(self, context: SubtaskContext, schema: pa.Schema) -> MessageWriter:
        """Create the writer; with ``staged`` it needs no client, because the driver publishes.

        Raises:
            MissingExtraError: an extra that ``transaction`` needs is not installed.
        """
        if self.delivery == "staged":
            return self._writer(schema, StagedRows(context, MESSAGES))
        with needs_extra("kafka", _NEEDED_FOR):
            from laminar_core.connectors.kafka.transaction_writer import (  # noqa: PLC0415
                TransactionWriter,
            )
        return self._writer(schema, TransactionWriter(context, self))

    def committer(self, staging: StagingArea) -> "KafkaCommitter | TransactionCommitter":
        """Return the committer, which publishes what waits in ``staging`` or in transactions.

        Raises:
            MissingExtraError: an extra is not installed.
        """
        with needs_extra("kafka", _NEEDED_FOR):
            from laminar_core.connectors.kafka.committer import KafkaCommitter  # noqa: PLC0415
            from laminar_core.connectors.kafka.transaction_committer import (  # noqa: PLC0415
                TransactionCommitter,
            )
        if self.delivery == "staged":
            return KafkaCommitter(self, staging)
        return TransactionCommitter(self, staging)

    def _writer(self, schema: pa.Schema, target: SinkWriter | None = None) -> MessageWriter:
        key = None if self.key is None else list(self.key)
        return MessageWriter(
            target,
            plain_schema(unweighted_schema(schema) if self.deletes else schema),
            self.output_format,
            key,
            self.message_bytes_max,
            deletes=self.deletes,
        )


def _format_of(given: OutputFormat | FormatName) -> OutputFormat:
    if isinstance(given, str):
        require_choice(given, tuple(_FORMATS), "format")
        return _FORMATS[given]
    wanted = "format must be json, arrow, raw or an object such as JsonFormat()"
    require_methods(given, ("encoder",), wanted)
    return given


def _invalid(message: str) -> ConfigurationError:
    return ConfigurationError(ErrorCode.INVALID_OPTION, message)
