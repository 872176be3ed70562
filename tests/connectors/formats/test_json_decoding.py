"""JSON into rows: what is accepted, what is refused and why; no message pays for another."""

import json
import math
import re
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from laminar_core.connectors.formats.json_decoding import JsonDecoder
from laminar_core.connectors.formats.messages import Defect
from laminar_core.connectors.formats.sifting import decode_rows
from tests.connectors.formats.adversarial import BATCH, MESSAGE, check_invariants, messages
from tests.sampling import drawn

INNER = pa.struct([("x", pa.int64())])
SCHEMA = pa.schema(
    [
        ("id", pa.int64()),
        ("v", pa.string()),
        ("f", pa.float64()),
        ("l", pa.list_(pa.int64())),
        ("s", INNER),
    ]
)
DECODER = JsonDecoder(SCHEMA)
Row = dict[str, Any]


class RefusedError(Exception):
    """The oracle does not accept a message."""


class Number(str):
    """A number as it was written."""

    __slots__ = ()


class Pairs(list):
    """An object as it was written."""


def refuse(text: str) -> None:
    raise RefusedError(text)


def value_of(read: object, wanted: pa.DataType) -> object:
    """Convert what Python's parser read, strictly."""
    match read:
        case None:
            return None
        case Pairs() if pa.types.is_struct(wanted):
            return row_of(read, list(wanted))
        case list() if pa.types.is_list(wanted) and not isinstance(read, Pairs):
            return [value_of(item, wanted.value_type) for item in read]
        case Number() if pa.types.is_integer(wanted) and re.fullmatch(r"-?\d{1,19}", read):
            return int(read) if -(2**63) <= int(read) < 2**63 else refuse(read)
        case Number() if pa.types.is_floating(wanted) and math.isfinite(float(read)):
            return float(read)
        case str() if pa.types.is_string(wanted) and not isinstance(read, Number):
            return read.encode().decode()
    raise RefusedError(repr(read))


def row_of(pairs: Pairs, fields: list[pa.Field]) -> Row:
    names = [name for name, _ in pairs]
    if any(names.count(field.name) > 1 for field in fields):
        raise RefusedError("twice")
    known = dict(pairs)
    return {field.name: value_of(known.get(field.name), field.type) for field in fields}


def oracle(message: bytes | None) -> Row | None:
    """Return the row of a message, by Python alone; None if it is none."""
    if message is None:
        return None
    hooks = {"object_pairs_hook": Pairs, "parse_int": Number, "parse_float": Number}
    try:
        read = json.loads(message.decode(), parse_constant=refuse, **hooks)
        return row_of(read, list(SCHEMA)) if isinstance(read, Pairs) else None
    except (RefusedError, ValueError):
        return None


@given(BATCH)
@example([b'{"id":1', b"}", b'{"id":2} {"id":3}'])  # Bare, these are three rows.
@example([b"null", b'{"id":1}'])  # Bare, this ends the process.
@example([b'{"id":1}]} {"m":[{"id":7}]}\x00', b'{"id":2}'])
def test_exactly_the_objects_that_python_accepts_are_rows(values: list[bytes | None]) -> None:
    decoded = DECODER.decode(messages(values))
    expected = {n: row for n, value in enumerate(values) if (row := oracle(value)) is not None}
    assert decoded.origins.to_pylist() == list(expected)
    assert repr(decoded.rows.to_pylist()) == repr(list(expected.values()))


@given(BATCH)
def test_a_message_depends_on_its_own_bytes_alone(values: list[bytes | None]) -> None:
    check_invariants(DECODER, values)


@given(MESSAGE, st.binary(max_size=40))
@settings(max_examples=drawn(50))
def test_noise_beside_a_message_changes_nothing(message: bytes | None, noise: bytes) -> None:
    check_invariants(DECODER, [noise, message, noise])


@pytest.mark.parametrize(
    ("message", "defect", "reason"),
    [
        (None, Defect.NO_VALUE, "the message has no value"),
        (b"", Defect.MALFORMED, "not JSON: Expecting value: line 1 column 1 (char 0)"),
        (
            b'{"id":1',
            Defect.MALFORMED,
            "not JSON: Expecting ',' delimiter: line 1 column 8 (char 7)",
        ),
        (b'{"f":NaN}', Defect.MALFORMED, "not JSON: NaN is no number of JSON"),
        (b'{"v":"\xff"}', Defect.NOT_UTF8, "not UTF-8: invalid start byte at byte 6"),
        ('{"id":1}'.encode("utf-16"), Defect.NOT_UTF8, "not UTF-8: invalid start byte at byte 0"),
        (b"null", Defect.NOT_A_ROW, "a row is an object, and this is null"),
        (b"[{}]", Defect.NOT_A_ROW, "a row is an object, and this is a list"),
        (b"1.5", Defect.NOT_A_ROW, "a row is an object, and this is a number"),
        (b'"x"', Defect.NOT_A_ROW, "a row is an object, and this is a string"),
        (b"true", Defect.NOT_A_ROW, "a row is an object, and this is a boolean"),
        (b'{"id":1.0}', Defect.WRONG_TYPE, "field id: 1.0 does not fit int64"),
        (b'{"id":"1"}', Defect.WRONG_TYPE, 'field id: "1" does not fit int64'),
        (
            b'{"id":9223372036854775808}',
            Defect.WRONG_TYPE,
            "field id: 9223372036854775808 does not fit int64",
        ),
        (b'{"f":1e400}', Defect.WRONG_TYPE, "field f: 1e400 does not fit double"),
        (b'{"v":"\\ud800"}', Defect.WRONG_TYPE, 'field v: "\\ud800" does not fit string'),
        (
            b'{"s":{"x":true}}',
            Defect.WRONG_TYPE,
            'field s: {"x":true} does not fit struct<x: int64>',
        ),
        (b'{"s":[1,{"y":null}]}', Defect.WRONG_TYPE, None),
        (b'{"id":1,"id":2}', Defect.REPEATED_FIELD, "the field id is there more than once"),
        (b'{"s":{"x":1,"x":1}}', Defect.REPEATED_FIELD, "the field s.x is there more than once"),
    ],
)
def test_a_letter_says_in_one_line_what_is_wrong(
    message: bytes | None, defect: Defect, reason: str | None
) -> None:
    (letter,) = DECODER.decode(messages([message])).letters.to_pylist()
    assert (letter["index"], letter["position"], letter["value"]) == (0, 100, message)
    assert letter["defect"] == defect
    assert reason in (None, letter["reason"])


def test_a_reason_is_short_and_printable_whatever_the_message_is() -> None:
    value = json.dumps({"id": "\x1b[31m" + 10_000 * "x\n"}).encode()
    (letter,) = DECODER.decode(messages([value])).letters.to_pylist()
    assert letter["reason"].isprintable()
    assert len(letter["reason"]) < 150


def test_unknown_fields_are_skipped_or_refused_wherever_they_are() -> None:
    values = [b'{"id":1}', b'{"id":2,"x":0}', b'{"s":{"x":3,"y":0}}', b'{"x":1e400}']
    assert DECODER.decode(messages(values)).letters.num_rows == 0
    strict = JsonDecoder(SCHEMA, unknown_fields="refuse")
    decoded = check_invariants(strict, values)
    assert decoded.rows.column("id").to_pylist() == [1]
    assert set(decoded.letters.column("defect").to_pylist()) == {Defect.UNKNOWN_FIELD}
    assert decoded.letters.column("reason").to_pylist() == [
        "the schema has no field x",
        "the schema has no field s.y",
        "the schema has no field x",
    ]


@pytest.mark.parametrize("brackets", [b"[]", b"{}"])
def test_what_is_nested_deep_is_skipped_or_refused_and_never_a_crash(brackets: bytes) -> None:
    opening = brackets[:1] if brackets == b"[]" else b'{"u":'
    deep = 200_000 * opening + b"0" + 200_000 * brackets[1:]
    values = [b'{"id":1}', b'{"u":' + deep + b"}", deep, b'{"l":' + deep + b"}", b'{"id":2}']
    values += [200_000 * opening, b'{"u":"NaN","x":' + deep + b"}", b'{"v":"' + deep + b'"}']
    decoded = DECODER.decode(messages(values))
    skipped_without_recursion = {0, 1, 4}
    assert skipped_without_recursion <= set(decoded.origins.to_pylist())
    assert {3, 5, 6} <= set(decoded.letters.column("index").to_pylist())
    assert DECODER.decode(messages(values[:2])).letters.num_rows == 0


def test_a_message_with_many_equal_names_costs_no_more_than_its_length() -> None:
    value = b"{" + b",".join(100_000 * [b'"id":1']) + b"}"
    (letter,) = DECODER.decode(messages([value])).letters.to_pylist()
    assert letter["defect"] == Defect.REPEATED_FIELD


def test_a_large_message_is_read_and_one_above_the_limit_is_not_looked_at() -> None:
    decoder = JsonDecoder(SCHEMA, message_bytes_max=20_000_000)
    large = b'{"v":"' + 19_000_000 * b"x" + b'"}'  # More than is read at once.
    values = [b'{"id":1}', large, b'{"id":2}', large + 2_000_000 * b" "]
    decoded = decoder.decode(messages(values))
    assert decoded.rows.column("id").to_pylist() == [1, None, 2]
    (letter,) = decoded.letters.to_pylist()
    assert letter["reason"] == "21000008 bytes, of at most 20000000"
    assert letter["defect"] == Defect.TOO_LARGE


def test_a_flood_of_bad_messages_is_sorted_out_with_few_reads() -> None:
    """One read of a batch costs as much as examining a hundred messages."""
    reads = 0
    reader = DECODER._reader

    class Counting(type(reader)):
        def _parsed(self, body, count):
            nonlocal reads
            reads += 1
            return super()._parsed(body, count)

    values = 5_000 * [b"oops"]
    values[77] = b'{"id":1}'
    counting = Counting(SCHEMA, refuse_unknown=False)
    decoded = decode_rows(counting, messages(values), 100)
    assert decoded.origins.to_pylist() == [77]
    assert reads < 2 * 2 * 5_000 / 64


def test_messages_are_read_in_parts_and_come_out_in_order() -> None:
    values = [b'{"id":%d,"v":"%s"}' % (n, 100_000 * b"x") for n in range(200)]
    values[77] = values[140] = b"oops"
    decoded = DECODER.decode(messages(values))
    good = [n for n in range(200) if n not in (77, 140)]
    assert decoded.rows.column("id").to_pylist() == good == decoded.origins.to_pylist()


def test_a_slice_of_messages_is_read_as_such() -> None:
    all_of_them = messages([b"oops", b'{"id":1}', None, b'{"id":2}', b"oops"])
    part = type(all_of_them)(all_of_them.values.slice(1, 3), all_of_them.positions.slice(1, 3))
    decoded = DECODER.decode(part)
    assert decoded.rows.column("id").to_pylist() == [1, 2]
    assert decoded.letters.column("position").to_pylist() == [102]


def test_a_value_that_a_column_must_have_is_missed_by_name() -> None:
    item = pa.field("item", pa.struct([pa.field("z", pa.int8(), nullable=False)]))
    required = pa.field("q", pa.int32(), nullable=False)
    decoder = JsonDecoder(pa.schema([required, ("n", pa.list_(item))]))
    values = [b'{"q":1}', b"{}", b'{"q":null}', b'{"q":2,"n":[null,{"z":1}]}', b'{"q":3,"n":[{}]}']
    decoded = check_invariants(decoder, values)
    assert decoded.rows.column("q").to_pylist() == [1, 2]
    assert decoded.letters.column("reason").to_pylist() == [
        "no value for q",
        "no value for q",
        "no value for n.item.z",
    ]


def test_no_number_becomes_infinite() -> None:
    narrow = pa.struct([("g", pa.list_(pa.float32()))])
    decoder = JsonDecoder(pa.schema([("g", pa.float32()), ("s", narrow)]))
    values = [b'{"g":3e38}', b'{"g":1e39}', b'{"s":{"g":[1,-1e39]}}', b'{"g":1e-50}']
    decoded = check_invariants(decoder, values)
    assert decoded.origins.to_pylist() == [0, 3]
    assert set(decoded.letters.column("defect").to_pylist()) == {Defect.WRONG_TYPE}


def test_digits_survive_the_second_opinion() -> None:
    decoder = JsonDecoder(pa.schema([("d", pa.decimal128(38, 20)), ("f", pa.float64())]))
    digits = b"123456789012345678.12345678901234567890"
    decoded = decoder.decode(messages([b'{"u":1e999,"f":0.1,"d":%s}' % digits]))
    assert decoded.rows.to_pylist() == [{"d": Decimal(digits.decode()), "f": 0.1}]
