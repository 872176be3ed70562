"""The value that a user writes down for JSON."""

import copy

import pyarrow as pa
import pytest

from laminar_core.connectors.formats.json_format import JsonFormat
from laminar_core.errors import ConfigurationError
from tests.connectors.formats.adversarial import messages

SCHEMA = pa.schema([("id", pa.int64())])


def test_the_options_reach_the_decoder() -> None:
    values = [b'{"id":1}', b'{"id":2,"x":1}', b'{"id":3       }']
    strict = JsonFormat(unknown_fields="refuse", message_bytes_max=10)
    for format_, rows in ((JsonFormat(), [1, 2, 3]), (strict, [1])):
        decoded = copy.deepcopy(format_).decoder(SCHEMA).decode(messages(values))
        assert decoded.rows.column("id").to_pylist() == rows


def test_what_changes_how_messages_are_read_is_in_the_description() -> None:
    descriptions = [JsonFormat(unknown_fields=u).describe() for u in ("ignore", "refuse")]
    assert descriptions[0] != descriptions[1]
    assert JsonFormat(message_bytes_max=10).describe() == descriptions[0]
    assert JsonFormat().one_row_per_message


def test_a_type_without_a_form_is_refused_both_ways() -> None:
    schema = pa.schema([("b", pa.binary())])
    for make in (JsonFormat().decoder, JsonFormat().encoder):
        with pytest.raises(ConfigurationError, match=r"^b: JSON has no form for binary"):
            make(schema)
