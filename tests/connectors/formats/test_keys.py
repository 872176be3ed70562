"""Keys: as other producers write them, where there is one way to write them."""

import pyarrow as pa
import pytest

from laminar_core.connectors.formats.keys import KeyEncoder
from laminar_core.errors import ConfigurationError

ROWS = pa.record_batch(
    {
        "text": ["é", None, ""],
        "word": pa.array(["a", "a", None]).dictionary_encode(),
        "raw": [b"\xff", b"", None],
        "number": pa.array([-7, None, 12], pa.int32()),
        "flag": [True, None, False],
        "share": [0.5, None, 2.0],
    }
)


@pytest.mark.parametrize(
    ("columns", "keys"),
    [
        (["text"], ["é".encode(), None, b""]),
        (["word"], [b"a", b"a", None]),
        (["raw"], [b"\xff", b"", None]),
        (["number"], [b"-7", None, b"12"]),
        (["flag"], [b"true", None, b"false"]),
        (["share"], [b'{"share":0.5}', b'{"share":null}', b'{"share":2}']),
        (
            ["number", "word"],
            [
                b'{"number":-7,"word":"a"}',
                b'{"number":null,"word":"a"}',
                b'{"number":12,"word":null}',
            ],
        ),
    ],
)
def test_a_key_is_the_value_or_an_object_of_several(
    columns: list[str], keys: list[bytes | None]
) -> None:
    assert KeyEncoder(ROWS.schema, columns).encode(ROWS).to_pylist() == keys
    assert KeyEncoder(ROWS.schema, columns).encode(ROWS.slice(1)).to_pylist() == keys[1:]


def test_both_zeros_are_one_key() -> None:
    """A topic is compacted by the bytes of keys."""
    rows = pa.record_batch({"x": [0.0, -0.0], "s": [{"y": -0.0}, {"y": 0.0}]})
    for column in ("x", "s"):
        first, second = KeyEncoder(rows.schema, [column]).encode(rows).to_pylist()
        assert first == second


@pytest.mark.parametrize(
    ("columns", "message"),
    [
        (["text", "x"], "no column 'x' to make a key of: text, word"),
        ([], "a key has columns"),
        (["raw", "text"], "raw: JSON has no form for binary"),
    ],
)
def test_a_key_that_cannot_be_made_is_refused(columns: list[str], message: str) -> None:
    with pytest.raises(ConfigurationError, match=message):
        KeyEncoder(ROWS.schema, columns)
