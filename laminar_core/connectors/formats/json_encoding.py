"""Rows as JSON objects, column by column: Arrow's functions join texts, and Python sees no row.

Objects have a field for each column, null included. Timestamps with a zone are in UTC with ``Z``,
decimals are numbers with all their digits. What ``json_decoding`` reads gives the same rows again.
"""

import json
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
from pyarrow.compute import MatchSubstringOptions, ReplaceSubstringOptions, call_function

from laminar_core.connectors.formats.json_types import parsed_schema
from laminar_core.errors import DataError, ErrorCode

_TEXT = pa.large_string()
_MUST_BE_ESCAPED = r'["\\\x00-\x1f]'
_CONTROL = r"[\x00-\x1f]"
_DAYS_MIN, _DAYS_MAX = -719_528, 2_932_896
"""The first day of the year 0 and the last one of 9999, counted from 1970."""


@dataclass(frozen=True, slots=True)
class JsonEncoder:
    """Writes each row as one JSON object without line breaks."""

    schema: pa.Schema

    def __post_init__(self) -> None:
        parsed_schema(self.schema)  # A type that cannot be read is not written either.

    def encode(self, rows: pa.RecordBatch) -> pa.LargeBinaryArray:
        """Return one message for each row.

        Raises:
            DataError: a number is NaN or infinite, which JSON has no form for.
        """
        struct = pa.StructArray.from_arrays(rows.columns, fields=list(self.schema))
        return _objects(struct, self.schema.names).cast(pa.large_binary())


def _text(column: pa.Array, path: str) -> pa.LargeStringArray:
    """Return the JSON of each value."""
    if not len(column):  # No lists may have any offset, and ``flatten`` would end the process.
        return pa.array([], _TEXT)
    written = _writer(column.type)(column, path)
    return written.fill_null("null") if column.null_count else written


def _writer(of: pa.DataType) -> Callable[[pa.Array, str], pa.LargeStringArray]:
    """Return the function for a type; what it makes of nulls does not count, if it is null."""
    if pa.types.is_struct(of):
        return _struct
    if pa.types.is_list(of) or pa.types.is_large_list(of):
        return _list
    if pa.types.is_dictionary(of):
        return _dictionary
    if pa.types.is_floating(of):
        return _float
    if pa.types.is_timestamp(of):
        return _timestamp
    if pa.types.is_date(of):
        return _date
    is_text = pa.types.is_string(of) or pa.types.is_large_string(of)
    return _string if is_text or pa.types.is_string_view(of) else _plain


def _plain(column: pa.Array, _path: str) -> pa.LargeStringArray:
    return column.cast(_TEXT)


def _float(column: pa.Array, path: str) -> pa.LargeStringArray:
    if call_function("all", [call_function("is_finite", [column])]).as_py() is False:
        why = f"{path} is NaN or infinite, and JSON has no such number: replace it with map"
        raise DataError(ErrorCode.NOT_ENCODABLE, why)
    return column.cast(_TEXT)


def _timestamp(column: pa.Array, path: str) -> pa.LargeStringArray:
    if column.type.tz is not None:
        column = column.cast(pa.timestamp(column.type.unit, "UTC"))
    _check_years(column, path)
    options = ReplaceSubstringOptions(" ", "T", max_replacements=1)
    return _quoted(call_function("replace_substring", [column.cast(_TEXT)], options))


def _date(column: pa.Array, path: str) -> pa.LargeStringArray:
    _check_years(column, path)
    return _quoted(column.cast(pa.date32()).cast(_TEXT))


def _check_years(column: pa.Array, path: str) -> None:
    """Check that the values are of the years 0 to 9999, which ISO 8601 writes with four digits."""
    extremes = call_function("min_max", [column])
    days = [extremes[name].cast(pa.date32(), safe=False).value for name in ("min", "max")]
    if any(day is not None and not _DAYS_MIN <= day <= _DAYS_MAX for day in days):
        why = f"{path} has a year that is not between 0 and 9999: correct or drop the row"
        raise DataError(ErrorCode.NOT_ENCODABLE, why)


def _dictionary(column: pa.DictionaryArray, path: str) -> pa.LargeStringArray:
    return _text(column.dictionary, path).take(column.indices)


def _string(column: pa.Array, _path: str) -> pa.LargeStringArray:
    return _quoted(_escaped(column.cast(_TEXT)))


def _escaped(column: pa.LargeStringArray) -> pa.LargeStringArray:
    if not _any_match(column, _MUST_BE_ESCAPED):
        return column
    column = _replaced(_replaced(column, "\\", "\\\\"), '"', '\\"')
    if _any_match(column, _CONTROL):
        for code in range(0x20):
            column = _replaced(column, chr(code), f"\\u{code:04x}")
    return column


def _any_match(column: pa.LargeStringArray, pattern: str) -> bool:
    options = MatchSubstringOptions(pattern)
    return bool(call_function("match_substring_regex", [column], options).true_count)


def _replaced(column: pa.LargeStringArray, old: str, new: str) -> pa.LargeStringArray:
    options = ReplaceSubstringOptions(old, new)
    return call_function("replace_substring", [column], options)


def _struct(column: pa.StructArray, path: str) -> pa.LargeStringArray:
    written = _objects(column, [field.name for field in column.type], f"{path}.")
    return _null_where(column, written)


def _objects(struct: pa.StructArray, names: list[str], path: str = "") -> pa.LargeStringArray:
    pieces: list[pa.Scalar | pa.Array] = []
    for name, column in zip(names, struct.flatten(), strict=True):
        before = "," if pieces else "{"
        pieces += [_literal(f"{before}{json.dumps(name)}:"), _text(column, f"{path}{name}")]
    return _joined(*pieces, _literal("}"))


def _list(column: pa.Array, path: str) -> pa.LargeStringArray:
    lengths = call_function("list_value_length", [column]).fill_null(0)
    offsets = np.concatenate([[0], np.cumsum(np.asarray(lengths), dtype=np.int64)])
    items = pa.LargeListArray.from_arrays(pa.array(offsets), _text(column.flatten(), path))
    inner = call_function("binary_join", [items, _literal(",")])
    return _null_where(column, _joined(_literal("["), inner, _literal("]")))


def _null_where(column: pa.Array, written: pa.LargeStringArray) -> pa.LargeStringArray:
    """Return null wherever ``column`` is."""
    if not column.null_count:
        return written
    return call_function("if_else", [column.is_valid(), written, pa.scalar(None, _TEXT)])


def _quoted(column: pa.LargeStringArray) -> pa.LargeStringArray:
    return _joined(_literal('"'), column, _literal('"'))


def _joined(*pieces: pa.Scalar | pa.Array) -> pa.LargeStringArray:
    return call_function("binary_join_element_wise", [*pieces, _literal("")])


def _literal(text: str) -> pa.Scalar:
    return pa.scalar(text, _TEXT)
