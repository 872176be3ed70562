"""Rows as messages of a Kafka topic, exactly once for readers of committed messages."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Literal, get_args

import pyarrow as pa

from laminar_core.connectors.formats.arrow_ipc import ArrowIpcFormat
from laminar_core.connectors.formats.json_format import JsonFormat
from laminar_core.connectors.formats.messages import OutputFormat
from laminar_core.connectors.formats.raw import RawFormat
from laminar_core.connectors.kafka.connection import KafkaConnection
from laminar_core.connectors.kafka.messages import MessageWriter
from laminar_core.connectors.outlook import Promise
from laminar_core.connectors.plain import plain_schema
from laminar_core.errors import ConfigurationError, ErrorCode
from laminar_core.host.extras import needs_extra
from laminar_core.operators.base import JsonObject, SubtaskContext
from laminar_core.store.staging import StagingArea
from laminar_core.units import duration_ms

if TYPE_CHECKING:
    from laminar_core.connectors.kafka.committer import KafkaCommitter

FormatName = Literal["json", "arrow", "raw"]
KafkaCompression = Literal["none", "gzip", "snappy", "lz4", "zstd"]
Delivery = Literal["staged"]

MESSAGE_BYTES_MAX = 1_000_000
"""The largest message that brokers take by default, with some room for its envelope."""
_NEEDED_FOR = "Kafka sources and sinks"
_TIMEOUT_MIN_MS, _TIMEOUT_MAX_MS = 5_000, 900_000


@dataclass(frozen=True, slots=True)
class KafkaSink:
    """Publishes rows to ``topic``, which must exist.

    Read the topic with ``isolation.level=read_committed``.

    Rows of a checkpoint wait in the checkpoint store. Once it is complete, the driver publishes
    them in one transaction, together with a marker that tells a successor what is there. So nothing
    expires while the job is down, and no reader waits for it.

    >>> KafkaSink("broker:9092", "payments", key="merchant").topic
    'payments'

    Args:
        connection: addresses of brokers, ``host:port`` separated by commas, or a
            ``KafkaConnection`` with settings and names of secrets.
        format: ``json``, ``arrow`` or ``raw``, or a format with options of its own.
        key: one or more columns that make the key; None: messages have no key. The columns stay
            part of the value. With ``arrow`` there can be no key, because a message holds many
            rows.
        delivery: ``staged``, the only one so far.
        compression: of the messages in the topic.
        message_bytes_max: a row that makes a larger message stops the job.
        transaction_timeout: longest time that the publication of one checkpoint may take. After a
            driver died, readers may wait so long.

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
    transaction_timeout: str = "1 minute"
    transaction_timeout_ms: int = field(init=False, default=0)

    def __post_init__(self) -> None:
        object.__setattr__(self, "connection", KafkaConnection.of(self.connection))
        object.__setattr__(self, "format", _format_of(self.format))
        key = (self.key,) if isinstance(self.key, str) else self.key
        object.__setattr__(self, "key", None if key is None else tuple(key))
        timeout_ms = duration_ms(self.transaction_timeout)
        object.__setattr__(self, "transaction_timeout_ms", timeout_ms)
        for name, value, allowed in (
            ("compression", self.compression, get_args(KafkaCompression)),
            ("delivery", self.delivery, get_args(Delivery)),
        ):
            if value not in allowed:
                raise _invalid(f"{name} must be one of {', '.join(allowed)}, not {value!r}")
        if not _TIMEOUT_MIN_MS <= timeout_ms <= _TIMEOUT_MAX_MS:
            raise _invalid(
                f"transaction_timeout must be from 5 seconds to 15 minutes, not "
                f"{self.transaction_timeout!r}"
            )
        if self.message_bytes_max < 1:
            raise _invalid(f"message_bytes_max must be positive, not {self.message_bytes_max}")
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
    def output_format(self) -> OutputFormat:
        """The format."""
        assert not isinstance(self.format, str)
        return self.format

    def describe(self) -> JsonObject:
        """Return the topic and the delivery; addresses, format and key may change between runs."""
        return {"connector": "kafka", "topic": self.topic, "delivery": self.delivery}

    def check(self, schema: pa.Schema, promise: Promise | None = None) -> Sequence[str]:
        """Verify that rows have a form in the format, and that the topic is there.

        Raises:
            ConfigurationError: a column has no form, a key column is missing, the topic does not
                exist, or the cluster refuses the credentials.
            MissingExtraError: the extra ``kafka`` is not installed.
            StorageUnavailable: no broker answers.
        """
        del promise
        self._writer(schema)
        with needs_extra("kafka", _NEEDED_FOR):
            from laminar_core.connectors.kafka.topics import require_topic  # noqa: PLC0415
        require_topic(self.cluster, self.topic)
        return ()

    def open(self, context: SubtaskContext, schema: pa.Schema) -> MessageWriter:
        """Create the writer; it needs no client, because the driver publishes."""
        return self._writer(schema, context)

    def committer(self, staging: StagingArea) -> "KafkaCommitter":
        """Return the committer, which publishes what waits in ``staging``.

        Raises:
            MissingExtraError: the extra ``kafka`` is not installed.
        """
        with needs_extra("kafka", _NEEDED_FOR):
            from laminar_core.connectors.kafka.committer import (  # noqa: PLC0415
                KafkaCommitter,
            )
        return KafkaCommitter(self, staging)

    def _writer(self, schema: pa.Schema, context: SubtaskContext | None = None) -> MessageWriter:
        key = None if self.key is None else list(self.key)
        return MessageWriter(
            context, plain_schema(schema), self.output_format, key, self.message_bytes_max
        )


def _format_of(given: OutputFormat | str) -> OutputFormat:
    match given:
        case "json":
            return JsonFormat()
        case "arrow":
            return ArrowIpcFormat()
        case "raw":
            return RawFormat()
        case str():
            raise _invalid(f"format must be json, arrow or raw, not {given!r}")
        case _:
            return given


def _invalid(message: str) -> ConfigurationError:
    return ConfigurationError(ErrorCode.INVALID_OPTION, message)
