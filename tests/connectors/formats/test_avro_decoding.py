"""Messages in Avro: each is a row of its own schema or a letter, whatever its neighbours are."""

import json
from datetime import UTC, date, datetime
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from laminar_core.connectors.formats.avro_decoding import AvroDecoder
from laminar_core.connectors.formats.messages import Defect, MessageRefusedError
from laminar_core.connectors.formats.schema_registry import KnownSchemas, SchemaText
from laminar_core.errors import ConfigurationError
from tests.connectors.formats.adversarial import messages
from tests.connectors.formats.avro_messages import FORMAT, SCHEMA, known, message, record, rows

GOOD = [value.as_py() for value in FORMAT.encoder(SCHEMA).encode(rows(3))]
BAD = [
    b"",
    b"oops!",
    b"\x00\x00\x00",
    GOOD[0][:-1],
    GOOD[0] + b"\x00",
    b"\x01" + GOOD[0][1:],
    GOOD[0][:4] + b"\x08" + GOOD[0][5:],
    GOOD[0][:6] + b"\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01",
]


def decoded(schemas: KnownSchemas, wanted: pa.Schema, *values: bytes) -> tuple[list, list]:
    found = AvroDecoder(wanted, schemas).decode(messages(list(values)))
    return found.rows.to_pylist(), found.letters.to_pylist()


@given(st.lists(st.sampled_from([*GOOD, *BAD]), max_size=12))
def test_a_message_depends_on_its_own_bytes_alone(values: list[bytes]) -> None:
    decoder = FORMAT.decoder(SCHEMA)
    found = decoder.decode(messages(values))
    alone = [decoder.decode(messages([value])) for value in values]
    assert found.rows.to_pylist() == [row for one in alone for row in one.rows.to_pylist()]
    bad = [n for n, one in enumerate(alone) if one.letters.num_rows]
    assert found.letters.column("index").to_pylist() == bad
    assert bad == [n for n, value in enumerate(values) if value in BAD]


@given(st.integers(0, 10**6), st.integers(0, 255))
def test_any_changed_byte_is_a_row_or_a_letter(place: int, byte: int) -> None:
    value = bytearray(GOOD[1])
    value[place % len(value)] = byte
    found = FORMAT.decoder(SCHEMA).decode(messages([bytes(value)]))
    found.rows.validate(full=True)
    assert found.rows.num_rows + found.letters.num_rows == 1


def test_messages_of_several_schemas_keep_their_order() -> None:
    old, new = record(id="int"), record(id="long", v=["null", "string"], extra=["int", "string"])
    found, letters = decoded(
        known(s1=old, s2=new),
        pa.schema([("id", pa.int64()), ("v", pa.string())]),
        message(old, {"id": 1}, 1),
        message(new, {"id": 2, "v": "a", "extra": "x"}, 2),
        message(old, {"id": 3}, 1),
        message(new, {"id": 4, "v": None, "extra": 5}, 2),
    )
    assert found == [
        {"id": 1, "v": None},
        {"id": 2, "v": "a"},
        {"id": 3, "v": None},
        {"id": 4, "v": None},
    ]
    assert not letters


def test_instants_become_times_in_utc_where_no_zone_is_wanted() -> None:
    schema = record(
        t={"type": "long", "logicalType": "timestamp-millis"},
        d={"type": "int", "logicalType": "date"},
    )
    value = message(schema, {"t": datetime(2026, 1, 1, tzinfo=UTC), "d": date(1960, 1, 1)})
    wanted = pa.schema([("t", pa.timestamp("us")), ("d", pa.date32())])
    assert decoded(known(s7=schema), wanted, value)[0] == [
        {"t": datetime(2026, 1, 1), "d": date(1960, 1, 1)}  # noqa: DTZ001
    ]
    zoned = pa.schema([("t", pa.timestamp("us", "Europe/Berlin"))])
    assert decoded(known(s7=schema), zoned, value)[0][0]["t"].timestamp() == 1_767_225_600


@pytest.mark.parametrize(
    ("schema", "value", "wanted", "defect", "why"),
    [
        (record(id="long"), {"id": 2**40}, pa.int32(), Defect.WRONG_TYPE, "not in range"),
        (record(id="string"), {"id": "1"}, pa.int64(), Defect.WRONG_SCHEMA, "does not fit int64"),
        ("long", 5, pa.int64(), Defect.NOT_A_ROW, "its schema is no record"),
        (record(other="int"), {"other": 1}, pa.int64(), Defect.WRONG_SCHEMA, "no column id"),
        (record(id=["null", "long"]), {"id": None}, pa.int64(), Defect.MISSING_VALUE, "for id"),
        (record(id=["int", "string"]), {"id": 1}, pa.int64(), Defect.WRONG_SCHEMA, "no column id"),
    ],
)
def test_what_does_not_fit_is_a_letter_with_the_reason(
    schema: Any, value: Any, wanted: pa.DataType, defect: Defect, why: str
) -> None:
    columns = pa.schema([pa.field("id", wanted, nullable=False)])
    found, letters = decoded(known(s7=schema), columns, message(schema, value))
    assert not found
    assert letters[0]["defect"] == defect
    assert why in letters[0]["reason"]


@pytest.mark.parametrize(
    "text",
    [
        *("", "{", '"nobody"', "[]", '{"type":"record"}', "7", 500 * "[" + 500 * "]"),
        json.dumps(record(id="int", unread={"type": "fixed", "name": "f", "size": 2**31})),
    ],
)
def test_what_is_no_schema_refuses_its_messages_only(text: str) -> None:
    schemas = KnownSchemas(
        {1: text, 2: '{"type":"record","name":"r","fields":[{"name":"id","type":"int"}]}'}
    )
    good = message(record(id="int"), {"id": 1}, 2)
    found, letters = decoded(
        schemas, pa.schema([("id", pa.int64())]), b"\x00\x00\x00\x00\x01x", good
    )
    assert [row["id"] for row in found] == [1]
    assert letters[0]["defect"] in (Defect.WRONG_SCHEMA, Defect.NOT_A_ROW)


def test_a_number_that_nobody_knows_is_looked_up_once() -> None:
    class Counting(KnownSchemas):
        reads = 0

        def read(self, schema_id: int) -> SchemaText:
            Counting.reads += 1
            raise MessageRefusedError(Defect.UNKNOWN_SCHEMA, f"no schema {schema_id}")

    values = 200 * [b"\x00\x00\x00\x00\x09rest"]
    _, letters = decoded(Counting(), SCHEMA, *values)
    assert len(letters) == 200
    assert {each["defect"] for each in letters} == {Defect.UNKNOWN_SCHEMA}
    assert Counting.reads == 1


def test_columns_need_names_of_their_own() -> None:
    with pytest.raises(ConfigurationError, match="one of its own"):
        AvroDecoder(pa.schema([("a", pa.int64()), ("a", pa.int64())]), KnownSchemas())


def test_a_dictionary_of_what_is_no_text_is_refused_before_the_first_message() -> None:
    numbers = pa.dictionary(pa.int32(), pa.int64())
    for of in (numbers, pa.struct([("d", numbers)]), pa.list_(numbers)):
        with pytest.raises(ConfigurationError, match=r"^a: Avro has no form for .*dictionary"):
            AvroDecoder(pa.schema([("a", of)]), KnownSchemas())
    assert AvroDecoder(pa.schema([("a", pa.dictionary(pa.int8(), pa.binary()))]), KnownSchemas())


@pytest.mark.parametrize("is_inside", [False, True])
def test_a_time_outside_of_a_day_is_a_letter(*, is_inside: bool) -> None:
    of: Any = {"type": "int", "logicalType": "time-millis"}
    schema = record(t={"type": "array", "items": of} if is_inside else of)
    columns = pa.schema([("t", pa.list_(pa.time32("ms")) if is_inside else pa.time32("ms"))])
    bodies = [b"\x00", b"\x01", b"\x80\xf0\xb2\x52", b"\xfe\xef\xb2\x52"]  # 0, -1, and a day.
    values = [b"\0\0\0\0\7" + (b"\2%s\0" % body if is_inside else body) for body in bodies]
    found, letters = decoded(known(s7=schema), columns, *values)
    assert len(found) == 2
    assert [letter["index"] for letter in letters] == [1, 2]
    assert {letter["defect"] for letter in letters} == {Defect.WRONG_TYPE}


def test_a_number_that_no_symbol_has_is_a_letter() -> None:
    paid = {"type": "enum", "name": "e", "symbols": ["PAID", "OPEN"]}
    columns = pa.schema([("x", pa.string()), ("y", pa.string())])
    bodies = [b"\x00\x02\x02", b"\x00\x02\x01", b"\x01\x00", b"\x04\x00"]  # -1 is 1, and 2 is 4.
    values = [b"\0\0\0\0\7" + body for body in bodies]
    found, letters = decoded(known(s7=record(x=paid, y=["null", "e"])), columns, *values)
    assert found == [{"x": "PAID", "y": "OPEN"}]
    assert [letter["defect"] for letter in letters] == 3 * [Defect.MALFORMED]
