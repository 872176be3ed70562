"""Lines of CSV into rows, each for itself: a message is one line without a line break.

``pyarrow.csv`` reads a file, in which a quote that is not closed swallows the lines behind it. A
line has no line break here, so lines can be joined but never split: if as many rows come out as
lines went in, each line is a row. A last line that is added behind the messages counts as well, so
that the last message has something to swallow too. The parser would remove a byte order mark from
the first message and from no other, so a line is added before them.
"""

import csv
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.csv as pc
from pyarrow.compute import MatchSubstringOptions, call_function

from laminar_core.arguments import (
    is_names,
    other_argument,
    require_instance,
    require_whole,
)
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
from laminar_core.errors import ConfigurationError, ErrorCode
from laminar_core.operators.base import JsonObject

_LINE_BREAK = r"[\r\n]"
_DIGIT = MatchSubstringOptions("[0-9]")
_FIRST_LINE = b"\n"
_SHOWN_CHARS = 80


@dataclass(frozen=True, slots=True)
class CsvFormat:
    """One line of CSV per message; a quote inside of quotes is doubled.

    Dates, times and timestamps are in ISO 8601; a timestamp has an offset if its column has a zone,
    and none otherwise. A number for floating point is rounded, and one that would overflow is
    refused; ``inf`` and ``nan`` are values.

    Args:
        columns: the names of the columns as they follow in a line; None: those of the schema.
            Columns that the schema does not name are skipped, whatever they hold.
        delimiter: one character between two values.
        null_text: a value without quotes that is null. The same in quotes is a text.
        message_bytes_max: a line with more bytes is a letter, and is not read.

    Raises:
        ConfigurationError: the delimiter is not one plain character.
    """

    columns: Sequence[str] | None = None
    delimiter: str = ","
    null_text: str = ""
    message_bytes_max: int = MESSAGE_BYTES_MAX

    def __post_init__(self) -> None:
        require_instance(self.delimiter, str, "a delimiter is one ASCII character")
        require_instance(self.null_text, str, "null_text must be text")
        if self.columns is not None and not is_names(self.columns):
            raise other_argument(self.columns, 'columns must be names, as in ["id", "amount"]')
        require_whole(self.message_bytes_max, 1, "message_bytes_max")
        is_plain = len(self.delimiter) == 1 and self.delimiter.isascii()
        if any(character in self.null_text for character in f'{self.delimiter}"\r\n'):
            raise ConfigurationError(
                ErrorCode.INVALID_OPTION,
                "null_text must not contain the delimiter, a quote or a line break",
            )
        if not is_plain or self.delimiter in '"\r\n':
            raise ConfigurationError(
                ErrorCode.INVALID_OPTION,
                f"a delimiter is one ASCII character, no quote and no line break, not "
                f"{self.delimiter!r}",
            )

    @property
    def one_row_per_message(self) -> bool:
        """A line is one row."""
        return True

    def describe(self) -> JsonObject:
        """Return the description that decides whether lines are still read the same way."""
        return {
            "format": "csv",
            "columns": None if self.columns is None else list(self.columns),
            "delimiter": self.delimiter,
            "null_text": self.null_text,
        }

    def decoder(self, schema: pa.Schema) -> "CsvDecoder":
        """Return the decoder to rows of ``schema``.

        Raises:
            ConfigurationError: a type has no form in CSV, or a column is not in the lines.
        """
        return CsvDecoder(schema, self)


class CsvDecoder:
    """Reads messages that are one line of CSV each."""

    def __init__(self, schema: pa.Schema, options: CsvFormat) -> None:
        self._reader = _CsvReader(schema, options)
        self._message_bytes_max = options.message_bytes_max

    @property
    def schema(self) -> pa.Schema:
        """The schema of the rows."""
        return self._reader.schema

    def decode(self, messages: Messages) -> Decoded:
        """Return the rows of ``messages``, and a letter for each one that is no row."""
        return decode_rows(self._reader, messages, self._message_bytes_max)


class _CsvReader:
    def __init__(self, schema: pa.Schema, options: CsvFormat) -> None:
        self.schema = schema
        self._options = options
        self._columns = list(schema.names if options.columns is None else options.columns)
        _check_names(schema.names, self._columns)
        self._delimiter = options.delimiter.encode()
        self._null = null = options.null_text.encode()
        self._last_line = b"\n" + self._delimiter.join([null] * len(self._columns)) + b"\n"
        self._numbers = [
            (self._columns.index(field.name), int if pa.types.is_integer(field.type) else float)
            for field in schema
            if pa.types.is_integer(field.type) or pa.types.is_floating(field.type)
        ]
        """Places of numbers in a line, and what reads them."""
        self._floats = [field.name for field in schema if _holds_floats(field.type)]
        for field in schema:  # Refuse now what cannot be read later.
            self._check_type(field)

    def suspects(self, values: pa.BinaryArray) -> Indexes:
        """Messages with a line break, which would be two lines, and empty ones.

        The parser takes an empty line for a row of nulls, however many columns there are.
        """
        suspects = np.asarray(call_function("binary_length", [values])) == 0
        data = joined_bytes(values)
        if b"\n" in data or b"\r" in data:
            options = MatchSubstringOptions(_LINE_BREAK)
            suspects = suspects | call_function("match_substring_regex", [values], options)
        return np.flatnonzero(suspects)

    def doubtful(self, values: pa.BinaryArray) -> list[int]:
        """Messages with another number of values, or with a text in the place of a number."""
        return [n for n, line in enumerate(values.to_pylist()) if not self._looks_right(line)]

    def _looks_right(self, line: bytes) -> bool:
        if b'"' in line:
            return True  # It takes a parser to say.
        texts = line.split(self._delimiter)
        if len(texts) != len(self._columns):
            return False
        try:
            for place, number in self._numbers:
                if texts[place] != self._null:
                    number(texts[place])
        except ValueError:
            return False
        return True

    def examine(self, value: bytes) -> None:
        """Refuse a message with a line break, or with too few or too many values."""
        if b"\n" in value or b"\r" in value:
            raise MessageRefusedError(Defect.NOT_A_ROW, "a line break inside of the message")
        if b'"' not in value:
            self._check_count(value.count(self._delimiter) + 1)

    def read(self, values: pa.BinaryArray) -> pa.RecordBatch:
        body = joined_messages(values, _FIRST_LINE, b"\n", self._last_line)
        table = self._parsed(body, self._columns, self.schema)
        if table.num_rows != len(values) + 1:
            raise MessageRefusedError(Defect.MALFORMED, "a quote is not closed")
        (rows,) = table.combine_chunks().to_batches()
        rows = pa.RecordBatch.from_arrays(rows.slice(0, len(values)).columns, schema=self.schema)
        rows.validate(full=True)
        check_required(rows, self.schema)
        self._check_overflow(body, rows)
        return rows

    def read_one(self, value: bytes) -> pa.RecordBatch:
        """Read a message again, and find out what is wrong with it."""
        self.examine(value)
        try:
            return self.read(pa.array([value], pa.binary()))
        except pa.ArrowException as error:
            raise self._what_is_wrong(value, error) from error

    def _parsed(self, body: pa.Buffer, columns: list[str], schema: pa.Schema) -> pa.Table:
        return pc.read_csv(
            body,
            read_options=pc.ReadOptions(
                use_threads=False, column_names=columns, skip_rows=1, block_size=body.size + 1
            ),
            parse_options=pc.ParseOptions(
                delimiter=self._options.delimiter, ignore_empty_lines=False
            ),
            convert_options=pc.ConvertOptions(
                column_types={field.name: field.type for field in schema},
                include_columns=schema.names,
                null_values=[self._options.null_text],
                strings_can_be_null=True,
                quoted_strings_can_be_null=False,
            ),
        )

    def _check_overflow(self, body: pa.Buffer, rows: pa.RecordBatch) -> None:
        """Refuse numbers that were read as infinite but are written in digits, such as 1e400."""
        for name in self._floats:
            column = rows.column(name)
            if pa.types.is_dictionary(column.type):
                column = column.dictionary_decode()
            infinite = call_function("is_inf", [column])
            if not infinite.true_count:
                continue
            table = self._parsed(body, self._columns, pa.schema([(name, pa.string())]))
            texts = table.column(name).slice(0, rows.num_rows).filter(infinite)
            has_digits = call_function("match_substring_regex", [texts], _DIGIT)
            if call_function("any", [has_digits]).as_py():
                why = f"column {name}: a number is too large for {rows.schema.field(name).type}"
                raise MessageRefusedError(Defect.WRONG_TYPE, why)

    def _check_type(self, field: pa.Field) -> None:
        try:
            null = self._options.null_text.encode()
            self._parsed(pa.py_buffer(b"\n%s\n" % null), [field.name], pa.schema([field]))
        except pa.ArrowNotImplementedError as error:
            raise ConfigurationError(
                ErrorCode.UNSUPPORTED_TYPE,
                f"{field.name}: CSV has no form for {field.type}; declare another type and convert "
                f"it with map",
            ) from error

    def _check_count(self, count: int) -> None:
        if count != len(self._columns):
            why = f"{count} values instead of {len(self._columns)}"
            raise MessageRefusedError(Defect.NOT_A_ROW, why)

    def _what_is_wrong(self, value: bytes, error: Exception) -> MessageRefusedError:
        try:
            (texts,) = csv.reader([value.decode()], delimiter=self._options.delimiter, strict=True)
            self._check_count(len(texts))
        except UnicodeDecodeError as wrong:
            why = f"not UTF-8: {wrong.reason} at byte {wrong.start}"
            return MessageRefusedError(Defect.NOT_UTF8, why)
        except (csv.Error, ValueError) as wrong:
            return MessageRefusedError(Defect.MALFORMED, f"not CSV: {wrong}")
        except MessageRefusedError as refused:
            return refused
        for name, text in zip(self._columns, texts, strict=True):
            if name in self.schema.names and not self._fits(self.schema.field(name), text):
                shown = text if len(text) <= _SHOWN_CHARS else text[: _SHOWN_CHARS - 1] + "…"
                why = f"column {name}: {shown!r} does not fit {self.schema.field(name).type}"
                why += "; is it the header? FileSource takes header=True" if text == name else ""
                return MessageRefusedError(Defect.WRONG_TYPE, why)
        return MessageRefusedError(Defect.WRONG_TYPE, str(error))

    def _fits(self, field: pa.Field, text: str) -> bool:
        quoted = text.replace('"', '""').encode()
        try:
            self._parsed(pa.py_buffer(b'\n"%s"\n' % quoted), [field.name], pa.schema([field]))
        except pa.ArrowInvalid:
            return not text
        return True


def _holds_floats(of: pa.DataType) -> bool:
    return pa.types.is_floating(of.value_type if pa.types.is_dictionary(of) else of)


def _check_names(wanted: list[str], columns: list[str]) -> None:
    missing = [name for name in wanted if name not in columns]
    if missing:
        raise ConfigurationError(
            ErrorCode.WRONG_SCHEMA, f"no column {missing[0]} among {', '.join(columns)}"
        )
    for names in (wanted, columns):
        if len(set(names)) < len(names) or not names:
            raise ConfigurationError(
                ErrorCode.WRONG_SCHEMA, "columns are taken by name, so each needs one of its own"
            )
