"""The exact parser: what JSON is, how deep it may be, and a message without unknown fields."""

import pyarrow as pa
import pytest

from laminar_core.connectors.formats.json_decoding import JsonDecoder
from laminar_core.connectors.formats.json_text import (
    DEPTH_MAX,
    looks_like,
    plain_types,
    read_object,
    write,
)
from laminar_core.connectors.formats.messages import Defect, MessageRefusedError
from tests.connectors.formats.adversarial import messages

INNER = pa.struct([("x", pa.int64()), ("l", pa.list_(pa.float64()))])
ROW = pa.struct([("id", pa.int64()), ("s", INNER), ("n", pa.list_(INNER))])
DECODER = JsonDecoder(pa.schema(list(ROW)))


@pytest.mark.parametrize(("levels", "defects"), [(127, []), (128, [Defect.TOO_DEEP])])
def test_what_must_be_examined_may_have_so_many_levels_and_no_more(
    levels: int, defects: list[Defect]
) -> None:
    value = b'{"x":1e400,"v":"[[[\\"[[[","u":' + levels * b"[" + levels * b"]" + b"}"
    decoded = DECODER.decode(messages([value]))
    assert decoded.letters.column("defect").to_pylist() == defects
    assert decoded.rows.num_rows == 1 - len(defects)


@pytest.mark.parametrize(
    ("message", "levels"),
    [
        (300 * b"[" + 300 * b"]", 300),
        (200 * b"[]", 1),
        (b'"' + 200 * b"[" + b'"', 0),
        (b'"' + 200 * b'\\"[', 0),
        (b'{"a":"' + 200 * b"{" + b'\\\\"}' + 130 * b"[", 130),
    ],
)
def test_brackets_in_a_string_are_no_levels(message: bytes, levels: int) -> None:
    if levels > DEPTH_MAX:
        with pytest.raises(MessageRefusedError, match="nested more than 128 levels deep"):
            read_object(message)
    else:
        with pytest.raises(MessageRefusedError, match=r"^(not JSON|a row is an object)"):
            read_object(message)


def test_a_message_is_written_with_the_fields_of_a_type_and_the_numbers_as_they_were() -> None:
    fields = read_object(
        b'{"u":1e999,"id":1.50,"s":{"l":[1E+2,-0],"y":0,"x":"\\u00e9\\ud800"},"n":[{"z":1},null,[{}],true]}'
    )
    assert write(fields, ROW) == (
        '{"id":1.50,"s":{"x":"\\u00e9\\ud800","l":[1E+2,-0]},"n":[{},null,[{}],true]}'
    )
    assert write(read_object(b'{"a":[{"b":1}]}'), None) == '{"a":[{"b":1}]}'


@pytest.mark.parametrize(
    ("message", "seems_right"),
    [
        (b'{"id":1,"at":1.5,"name":"a","yes":true,"more":[]}', True),
        (b'{"at":1,"more":{"x":"any"},"other":7}', True),
        (b'{"id":null}', True),
        (b'{"id":"1"}', False),
        (b'{"id":true}', False),
        (b'{"name":1}', False),
        (b'{"yes":0}', False),
        (b'{"id":1', False),
        (b'{"id":1}}', False),
        (b'{"name":"\xff"}', False),
        (b"[]", False),
        (100_000 * b'{"a":', False),
        (b'{"id":' + 10_000 * b"9" + b"}", False),
    ],
)
def test_a_quick_look_sees_what_is_broken_and_what_has_another_type(
    message: bytes, *, seems_right: bool
) -> None:
    row = pa.struct(
        {
            "id": pa.int64(),
            "at": pa.float32(),
            "name": pa.string(),
            "yes": pa.bool_(),
            "more": pa.list_(pa.int8()),
        }
    )
    assert looks_like(message, plain_types(row)) is seems_right
