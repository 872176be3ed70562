"""Letters and rows are put together in the order of their messages."""

import numpy as np
import pyarrow as pa
import pytest

from laminar_core.connectors.formats.messages import (
    Accepted,
    Defect,
    MessageRefusedError,
    Messages,
    assembled,
    letters_schema,
    one_line,
)

SCHEMA = pa.schema([("k", pa.dictionary(pa.int32(), pa.string()))])


def part(origins: list[int], words: list[str]) -> Accepted:
    column = pa.array(words).dictionary_encode()
    return Accepted(pa.record_batch([column], schema=SCHEMA), np.array(origins, np.int64))


def test_parts_with_dictionaries_of_their_own_become_one_batch() -> None:
    messages = Messages(pa.array([b"1", b"2", None, b"4"]), pa.array(["a", "b", "c", "d"]))
    refusals = {2: MessageRefusedError(Defect.NO_VALUE, "nothing\nthere")}
    parts = [part([0, 0], ["x", "y"]), part([1, 3], ["y", "z"])]
    decoded = assembled(messages, SCHEMA, parts, refusals)
    assert decoded.rows.column("k").to_pylist() == ["x", "y", "y", "z"]
    assert decoded.origins.to_pylist() == [0, 0, 1, 3]
    assert decoded.letters.schema == letters_schema(pa.string())
    assert decoded.letters.to_pylist() == [
        {
            "index": 2,
            "position": "c",
            "value": None,
            "defect": "no-value",
            "reason": "nothing there",
        }
    ]


def test_nothing_becomes_no_rows_of_the_schema() -> None:
    decoded = assembled(Messages(pa.array([], pa.binary()), pa.array([])), SCHEMA, [], {})
    assert (decoded.rows.schema, decoded.rows.num_rows) == (SCHEMA, 0)
    assert (decoded.letters.num_rows, len(decoded.origins)) == (0, 0)


def test_nothing_becomes_no_rows_of_a_type_that_python_values_cannot_have() -> None:
    schema = pa.schema([pa.field("d", pa.dictionary(pa.int32(), pa.date32()), nullable=False)])
    nothing = Messages(pa.array([], pa.binary()), pa.array([]))
    assert assembled(nothing, schema, [], {}).rows.schema == schema


def test_parts_that_are_out_of_order_are_a_bug() -> None:
    messages = Messages(pa.array([b"1", b"2"]), pa.array([1, 2]))
    with pytest.raises(AssertionError):
        assembled(messages, SCHEMA, [part([1], ["x"]), part([0], ["y"])], {})


@pytest.mark.parametrize(
    ("text", "line"),
    [
        ("two\nlines\tand   blanks", "two lines and blanks"),
        ("bell\x07 and \x1b[31mred", r"bell\x07 and \x1b[31mred"),
        ("\ud800", r"\ud800"),
        ("é 漢", "é 漢"),
        (400 * "x", 299 * "x" + "…"),
    ],
)
def test_a_reason_is_one_printable_line(text: str, line: str) -> None:
    assert one_line(text) == line
