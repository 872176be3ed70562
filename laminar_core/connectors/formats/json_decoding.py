r"""JSON objects into rows, so that no message can kill, swallow or invent another.

``pyarrow.json`` is fast and is not made for foreign bytes. Given bare lines, version 26.0.1 dies if
the first one is ``null`` (apache/arrow#47409). It takes ``{"id":1``, ``}`` and ``{"id":2}{"id":3}``
for three rows, because a newline is a blank to it. So each message is wrapped: ``{"m":[MESSAGE]}``.
That a message is one row or an error, and never a part of its neighbour, follows from this:

1. Between two messages stands ``]}``, a newline and ``{``. A string cannot hold the newline, and
   ``{`` can follow ``}`` only where the outermost object has ended. So each wrapped line begins and
   ends outside of every object, and holds at least one of them.
2. There are as many rows as messages, so each line holds exactly one.
3. Each list has one element, and the element is an object, so the message is one object; unless it
   closes the list itself, as ``{}],"x":[{}`` does. Such a message has ``}``, ``]`` and a comma in
   a row, and whatever has that is examined alone (``json_text``).

The parser also reads NaN and Infinity, bytes that are not UTF-8, and numbers that become infinite
as float32; none of them is accepted here.
"""

import re
from typing import Literal

import numpy as np
import pyarrow as pa
import pyarrow.json as pj
from pyarrow.compute import MatchSubstringOptions, call_function

from laminar_core.connectors.formats.json_text import (
    check_fields,
    looks_like,
    plain_types,
    read_object,
    write,
)
from laminar_core.connectors.formats.json_types import converted, parsed_schema
from laminar_core.connectors.formats.messages import (
    MESSAGE_BYTES_MAX,
    Decoded,
    Defect,
    MessageRefusedError,
    Messages,
)
from laminar_core.connectors.formats.required import check_required
from laminar_core.connectors.formats.sifting import (
    Indexes,
    decode_rows,
    joined_bytes,
    joined_messages,
)

UnknownFields = Literal["ignore", "refuse"]

_BEFORE, _BETWEEN, _BEHIND = b'{"m":[', b']}\n{"m":[', b"]}\n"
_CLOSES_THE_LIST = r"\}[ \t\r\n]*\][ \t\r\n]*,"
_NO_NUMBERS = ("NaN", "Inf")
_SHOWN_CHARS = 80


class JsonDecoder:
    """Reads messages that are one JSON object each.

    Absent fields are null. Fields that the schema does not name are skipped (``ignore``) or refused
    (``refuse``).

    Raises:
        ConfigurationError: a type has no form in JSON.
    """

    def __init__(
        self,
        schema: pa.Schema,
        unknown_fields: UnknownFields = "ignore",
        message_bytes_max: int = MESSAGE_BYTES_MAX,
    ) -> None:
        self._reader = _JsonReader(schema, refuse_unknown=unknown_fields == "refuse")
        self._message_bytes_max = message_bytes_max

    @property
    def schema(self) -> pa.Schema:
        """The schema of the rows."""
        return self._reader.schema

    def decode(self, messages: Messages) -> Decoded:
        """Return the rows of ``messages``, and a letter for each one that is no row."""
        return decode_rows(self._reader, messages, self._message_bytes_max)


class _JsonReader:
    def __init__(self, schema: pa.Schema, *, refuse_unknown: bool) -> None:
        self.schema = schema
        self._row = pa.struct(list(parsed_schema(schema)))
        self._refuse_unknown = refuse_unknown
        self._options = pj.ParseOptions(
            explicit_schema=pa.schema([("m", pa.list_(self._row))]),
            unexpected_field_behavior="error" if refuse_unknown else "ignore",
        )
        self._can_be_infinite = _holds_floats(self._row)
        self._plain = plain_types(self._row)

    def suspects(self, values: pa.BinaryArray) -> Indexes:
        """Messages that the parser might take for JSON although they are not."""
        data = joined_bytes(values)
        patterns = [_CLOSES_THE_LIST] if b"]" in data else []
        patterns += ["\\x00"] if b"\0" in data else []
        for word in _NO_NUMBERS:  # One byte is looked for ten times faster than three.
            found = word[:1].encode() in data and word.encode() in data
            patterns += [re.escape(word)] if found else []
        if not patterns:
            return np.empty(0, np.int64)
        options = MatchSubstringOptions("|".join(patterns))
        return np.flatnonzero(call_function("match_substring_regex", [values], options))

    def doubtful(self, values: pa.BinaryArray) -> list[int]:
        """Messages that Python's parser refuses, or with a value that its column cannot have."""
        types = self._plain
        return [n for n, value in enumerate(values.to_pylist()) if not looks_like(value, types)]

    def examine(self, value: bytes) -> None:
        """Let the exact parser look at it."""
        read_object(value)

    def read(self, values: pa.BinaryArray) -> pa.RecordBatch:
        values.cast(pa.string())  # Fails if a byte is not UTF-8, also where the parser skips it.
        body = joined_messages(values, _BEFORE, _BETWEEN, _BEHIND)
        return self._rows(self._parsed(body, len(values)))

    def read_one(self, value: bytes) -> pa.RecordBatch:
        """Read a message again, by the exact parser and without what the schema does not name."""
        fields = read_object(value)
        try:
            check_fields(fields, self._row, "", refuse_unknown=self._refuse_unknown)
            return self._read_again(fields)
        except pa.ArrowException as error:
            raise self._wrong_type(fields) from error

    def _parsed(self, body: pa.Buffer, count: int) -> pa.StructArray:
        """Return the parsed objects, one for each wrapped message."""
        options = pj.ReadOptions(use_threads=False, block_size=body.size + 1)
        table = pj.read_json(body, read_options=options, parse_options=self._options)
        lists = table.column("m").combine_chunks()
        lists = lists.chunk(0) if isinstance(lists, pa.ChunkedArray) else lists
        lists.validate(full=True)  # The parser gets offsets wrong at times (apache/arrow#51305).
        lengths = np.asarray(call_function("list_value_length", [lists]).fill_null(0))
        rows = lists.flatten()
        if len(lists) != count or np.any(lengths != 1) or rows.null_count:
            raise MessageRefusedError(Defect.NOT_A_ROW, "not one object in each message")
        return rows

    def _rows(self, parsed: pa.StructArray) -> pa.RecordBatch:
        columns = [
            converted(column, field.type)
            for column, field in zip(parsed.flatten(), self.schema, strict=True)
        ]
        rows = pa.RecordBatch.from_arrays(columns, schema=self.schema)
        check_required(rows, self.schema)
        if self._can_be_infinite and any(map(_has_infinity, columns)):
            raise MessageRefusedError(Defect.WRONG_TYPE, "a number is too large for its column")
        return rows

    def _read_again(self, fields: dict[str, object]) -> pa.RecordBatch:
        return self.read(pa.array([write(fields, self._row).encode()], pa.binary()))

    def _wrong_type(self, fields: dict[str, object]) -> MessageRefusedError:
        """Say which field does not fit, by reading one at a time."""
        for field in self.schema:
            reader = _JsonReader(pa.schema([(field.name, field.type)]), refuse_unknown=False)
            try:
                reader._read_again({field.name: fields.get(field.name)})
            except (pa.ArrowException, MessageRefusedError):
                written = write(fields.get(field.name), None)
                return MessageRefusedError(Defect.WRONG_TYPE, _does_not_fit(field, written))
        return MessageRefusedError(Defect.WRONG_TYPE, "the fields do not fit the columns")


def _does_not_fit(field: pa.Field, written: str) -> str:
    shown = written if len(written) <= _SHOWN_CHARS else written[: _SHOWN_CHARS - 1] + "…"
    return f"field {field.name}: {shown} does not fit {field.type}"


def _holds_floats(of: pa.DataType) -> bool:
    if pa.types.is_struct(of):
        return any(_holds_floats(field.type) for field in of)
    return _holds_floats(of.value_type) if pa.types.is_list(of) else pa.types.is_floating(of)


def _has_infinity(column: pa.Array) -> bool:
    if pa.types.is_struct(column.type):
        return any(map(_has_infinity, column.flatten()))
    if pa.types.is_list(column.type) or pa.types.is_large_list(column.type):
        return _has_infinity(column.flatten())
    is_float = pa.types.is_floating(column.type)
    return is_float and bool(call_function("is_inf", [column]).true_count)
