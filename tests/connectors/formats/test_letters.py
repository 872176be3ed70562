"""Letters of a decoder become rows with a source, a split and an offset."""

import pyarrow as pa

from laminar_core.connectors.formats.json_format import JsonFormat
from laminar_core.connectors.formats.letters import LETTERS_SCHEMA, letter_rows
from laminar_core.connectors.formats.messages import Messages


def test_a_letter_keeps_the_bytes_and_says_where_they_are_and_why_they_are_no_row() -> None:
    values = pa.array([b'{"n":1}', b"{", None], pa.binary())
    messages = Messages(values, pa.array([100, 108, 110], pa.int64()))
    decoded = JsonFormat().decoder(pa.schema([("n", pa.int64())])).decode(messages)
    rows = letter_rows("in", "day=1/a.json", decoded.letters)
    assert rows.schema == LETTERS_SCHEMA
    first, second = rows.to_pylist()
    assert first.pop("reason")
    assert first == {
        "source": "in",
        "split": "day=1/a.json",
        "offset": "108",
        "value": b"{",
        "defect": "malformed",
    }
    assert (second["offset"], second["value"], second["defect"]) == ("110", None, "no-value")
