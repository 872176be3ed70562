"""Every type that JSON has a form for is read, and every other one is refused in time."""

from datetime import UTC, date, datetime
from decimal import Decimal

import pyarrow as pa
import pytest

from laminar_core.connectors.formats.json_decoding import JsonDecoder
from laminar_core.connectors.formats.json_types import converted
from laminar_core.errors import ConfigurationError
from tests.connectors.formats.adversarial import check_invariants

INNER = pa.struct([("x", pa.int64())])
ENCODED_TEXT = pa.dictionary(pa.int32(), pa.string())
TYPES = [
    (pa.bool_(), b"true", True),
    (pa.int8(), b"-128", -128),
    (pa.uint64(), b"18446744073709551615", 2**64 - 1),
    (pa.float32(), b"1.5", 1.5),
    (pa.decimal128(38, 20), b"0.12345678901234567890", Decimal("0.12345678901234567890")),
    (pa.decimal128(10, 2), b'"1.25"', Decimal("1.25")),
    (pa.decimal256(60, 2), b"1e2", Decimal("100.00")),
    (
        pa.timestamp("us"),
        b'"2026-01-01T01:00:00.5+01:00"',
        datetime.fromisoformat("2026-01-01T00:00:00.5"),
    ),
    (pa.timestamp("ms", "UTC"), b'"2026-01-01 00:00"', datetime(2026, 1, 1, tzinfo=UTC)),
    (pa.date32(), b'"2026-01-31"', date(2026, 1, 31)),
    (pa.date64(), b'"2026-01-31"', date(2026, 1, 31)),
    (pa.large_string(), b'"\\u00e9"', "é"),
    (pa.string_view(), b'"a long text in a view"', "a long text in a view"),
    (ENCODED_TEXT, b'"a"', "a"),
    (pa.dictionary(pa.int32(), pa.date32()), b'"2026-01-31"', date(2026, 1, 31)),
    (pa.large_list(pa.date32()), b'["2026-01-31",null]', [date(2026, 1, 31), None]),
    (
        pa.struct([("d", pa.list_(pa.date32()))]),
        b'{"d":["2026-01-31"]}',
        {"d": [date(2026, 1, 31)]},
    ),
]


@pytest.mark.parametrize(("wanted", "text", "value"), TYPES, ids=[str(row[0]) for row in TYPES])
def test_every_type_that_json_has_a_form_for(
    wanted: pa.DataType, text: bytes, value: object
) -> None:
    decoder = JsonDecoder(pa.schema([("a", wanted)]))
    values = [b'{"a":null}', b'{"a":%s}' % text, b"{}", b'{"a":"?"}', b'{"a":%s}' % text]
    decoded = check_invariants(decoder, values)
    is_text = pa.types.is_string(wanted) or pa.types.is_large_string(wanted)
    is_text = is_text or pa.types.is_string_view(wanted) or wanted == ENCODED_TEXT
    expected = [None, value, None, "?", value] if is_text else [None, value, None, value]
    assert decoded.rows.column("a").to_pylist() == expected


@pytest.mark.parametrize(
    "wanted",
    [
        *(
            pa.binary(),
            pa.duration("us"),
            pa.time64("us"),
            pa.float16(),
            pa.map_(pa.string(), INNER),
        ),
        *(pa.dictionary(pa.int8(), pa.string()), pa.list_(pa.binary()), pa.struct([]), pa.null()),
        *(pa.dictionary(pa.int32(), of) for of in (pa.int64(), pa.bool_(), pa.string_view())),
        pa.struct([("d", ENCODED_TEXT)]),
        pa.struct([("x", pa.int64()), ("x", pa.int64())]),
    ],
    ids=str,
)
def test_a_type_without_a_form_in_json_is_refused_before_the_first_message(
    wanted: pa.DataType,
) -> None:
    with pytest.raises(ConfigurationError, match=r"^a\b.*(declare another type|more than one)"):
        JsonDecoder(pa.schema([("a", wanted)]))


def test_a_schema_has_columns_with_names_of_their_own() -> None:
    with pytest.raises(ConfigurationError, match="the schema has no columns"):
        JsonDecoder(pa.schema([]))
    with pytest.raises(ConfigurationError, match="more than one field 'a'"):
        JsonDecoder(pa.schema([("a", pa.int64()), ("a", pa.int64())]))


def test_a_text_below_a_null_is_not_converted() -> None:
    """Arrow's own cast of a struct reads the empty text that stands below a null, and fails."""
    column = pa.array([None, {"d": "2026-01-31"}], pa.struct([("d", pa.string())]))
    wanted = pa.struct([("d", pa.date32())])
    assert converted(column, wanted).to_pylist() == [None, {"d": date(2026, 1, 31)}]
    with pytest.raises(pa.ArrowInvalid):
        column.cast(wanted)
