"""The key of a message: the bytes by which a topic is partitioned and compacted."""

from collections.abc import Sequence

import pyarrow as pa

from laminar_core.codec.canonical import canonical
from laminar_core.connectors.formats.json_encoding import JsonEncoder
from laminar_core.errors import ConfigurationError, ErrorCode

_BYTES = (pa.types.is_binary, pa.types.is_large_binary)
_TEXT = (pa.types.is_string, pa.types.is_large_string, pa.types.is_string_view)
_WORDS = (*_TEXT, pa.types.is_integer, pa.types.is_boolean)


class KeyEncoder:
    """Makes keys of one or more columns.

    One column of bytes, text, integers or booleans is the key as it is: its bytes, its UTF-8, or
    its digits. Several columns, or one of another type, become one JSON object. A row whose one
    column is null has no key. Both zeros of floats are one key.

    Raises:
        ConfigurationError: a column is not there, or has a type that no key can be made of.
    """

    def __init__(self, schema: pa.Schema, columns: Sequence[str]) -> None:
        missing = [name for name in columns if name not in schema.names]
        if missing or not columns:
            named = f"no column {missing[0]!r} to make a key of" if missing else "a key has columns"
            raise ConfigurationError(ErrorCode.WRONG_SCHEMA, f"{named}: {', '.join(schema.names)}")
        self._columns = list(columns)
        self._schema = pa.schema([schema.field(name) for name in columns])
        of = self._schema.field(0).type
        values = of.value_type if pa.types.is_dictionary(of) else of
        is_one = len(columns) == 1
        self._as_bytes = is_one and any(holds(values) for holds in _BYTES)
        self._as_text = is_one and any(holds(values) for holds in _WORDS)
        is_plain = self._as_bytes or self._as_text
        self._json = None if is_plain else JsonEncoder(self._schema)

    def encode(self, rows: pa.RecordBatch) -> pa.LargeBinaryArray:
        """Return the key of each row.

        Raises:
            DataError: a value has no form in JSON.
        """
        columns = [canonical(rows.column(name)) for name in self._columns]
        chosen = pa.RecordBatch.from_arrays(columns, names=self._columns)
        if self._json is not None:
            return self._json.encode(chosen)
        column = chosen.column(0)
        if pa.types.is_dictionary(column.type):
            column = column.dictionary_decode()
        text = column if self._as_bytes else column.cast(pa.large_string())
        return text.cast(pa.large_binary())
