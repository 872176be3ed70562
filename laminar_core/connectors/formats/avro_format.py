"""Avro, with the number of its schema in front of each message."""

from dataclasses import dataclass
from typing import TYPE_CHECKING

import pyarrow as pa

from laminar_core.arguments import require_methods, require_whole
from laminar_core.connectors.formats.messages import MESSAGE_BYTES_MAX
from laminar_core.connectors.formats.schema_registry import KnownSchemas, SchemaRegistry
from laminar_core.errors import ConfigurationError, ErrorCode
from laminar_core.host.extras import needs_extra
from laminar_core.operators.base import JsonObject

if TYPE_CHECKING:
    from laminar_core.connectors.formats.avro_decoding import AvroDecoder
    from laminar_core.connectors.formats.avro_encoding import AvroEncoder

_NEEDED_BY = "Messages in Avro"


@dataclass(frozen=True, slots=True)
class AvroFormat:
    """One Avro record per message, behind a byte 0 and the number of its schema in four bytes.

    This is the wire format of Confluent's serializers. Columns are taken by name. An integer may be
    narrower or wider than declared if every value fits; a field that the message's schema does not
    have is null. Timestamps are instants; a column without a zone has them in UTC. Enumerations are
    texts. Fields that no column names may have any type, unions of several types included.

    Refused as a whole are schemas that contain themselves, and arrays of items without bytes: a
    short message could claim any amount of memory.

    Args:
        schemas: a registry, or the schemas themselves.
        subject: the name under which the schema of messages that are written is registered, mostly
            ``{topic}-value``; needed to write.
        message_bytes_max: a message with more bytes is a letter, and is not read.
    """

    schemas: SchemaRegistry | KnownSchemas
    subject: str | None = None
    message_bytes_max: int = MESSAGE_BYTES_MAX

    def __post_init__(self) -> None:
        wanted = "schemas must be a SchemaRegistry(url) or KnownSchemas"
        require_methods(self.schemas, ("read", "describe"), wanted)
        require_whole(self.message_bytes_max, 1, "message_bytes_max")

    @property
    def one_row_per_message(self) -> bool:
        """A message is one row."""
        return True

    def describe(self) -> JsonObject:
        """Return the description that decides whether messages are still read the same way."""
        return {"format": "avro", **self.schemas.describe()}

    def decoder(self, schema: pa.Schema) -> "AvroDecoder":
        """Return the decoder to rows of ``schema``.

        Raises:
            ConfigurationError: two columns have the same name, or one is a dictionary of values
                that are no text.
            MissingExtraError: fastavro is not installed.
        """
        with needs_extra("kafka-avro", _NEEDED_BY):
            from laminar_core.connectors.formats.avro_decoding import AvroDecoder  # noqa: PLC0415
        return AvroDecoder(schema, self.schemas, self.message_bytes_max)

    def encoder(self, schema: pa.Schema) -> "AvroEncoder":
        """Register the schema of the messages, and return the encoder.

        Raises:
            ConfigurationError: no subject; a type or a name that Avro does not have; the registry
                refuses the schema.
            MissingExtraError: fastavro is not installed.
            StorageUnavailable: the registry does not answer.
        """
        with needs_extra("kafka-avro", _NEEDED_BY):
            from laminar_core.connectors.formats import avro_encoding  # noqa: PLC0415
        if self.subject is None:
            raise ConfigurationError(
                ErrorCode.INVALID_OPTION,
                "AvroFormat writes under a subject of the schema registry: "
                'give subject="{topic}-value"',
            )
        name = "row"
        text = avro_encoding.canonical(avro_encoding.avro_schema(schema, name))
        return avro_encoding.AvroEncoder(schema, name, self.schemas.register(self.subject, text))
