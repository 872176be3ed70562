"""JSON: one object per message."""

from dataclasses import dataclass
from typing import get_args

import pyarrow as pa

from laminar_core.arguments import require_choice, require_whole
from laminar_core.connectors.formats.json_decoding import JsonDecoder, UnknownFields
from laminar_core.connectors.formats.json_encoding import JsonEncoder
from laminar_core.connectors.formats.messages import MESSAGE_BYTES_MAX
from laminar_core.operators.base import JsonObject


@dataclass(frozen=True, slots=True)
class JsonFormat:
    """One JSON object per message, in UTF-8.

    A message is accepted if RFC 8259 calls it an object and each field that the schema names has a
    value of its column's type:

    - Integers have no fraction or exponent, and fit. Numbers for floating point are rounded, not
      overflowed. Decimals may be numbers or strings, with no more digits than the column has.
    - Timestamps and dates are ISO 8601 strings. A timestamp without an offset is in UTC.
    - A field that is absent or null is null. A column that must not be null refuses it.
    - A field that the schema names may be there once only.

    Args:
        unknown_fields: what happens to a message with a field that the schema does not name:
            ``ignore`` skips the field, ``refuse`` makes the message a letter.
        message_bytes_max: a message with more bytes is a letter, and is not read.
    """

    unknown_fields: UnknownFields = "ignore"
    message_bytes_max: int = MESSAGE_BYTES_MAX

    def __post_init__(self) -> None:
        require_choice(self.unknown_fields, get_args(UnknownFields), "unknown_fields")
        require_whole(self.message_bytes_max, 1, "message_bytes_max")

    @property
    def one_row_per_message(self) -> bool:
        """A message is one row."""
        return True

    def describe(self) -> JsonObject:
        """Return the description that decides whether messages are still read the same way."""
        return {"format": "json", "unknown_fields": self.unknown_fields}

    def decoder(self, schema: pa.Schema) -> JsonDecoder:
        """Return the decoder to rows of ``schema``.

        Raises:
            ConfigurationError: a type has no form in JSON.
        """
        return JsonDecoder(schema, self.unknown_fields, self.message_bytes_max)

    def encoder(self, schema: pa.Schema) -> JsonEncoder:
        """Return the encoder of rows of ``schema``.

        Raises:
            ConfigurationError: a type has no form in JSON.
        """
        return JsonEncoder(schema)
