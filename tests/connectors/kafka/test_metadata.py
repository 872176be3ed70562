"""Columns about a message stand behind those of its value, under names of their own."""

import pyarrow as pa
import pytest

from laminar_core.connectors.kafka.metadata import METADATA_TYPES, with_metadata
from laminar_core.errors import ConfigurationError

VALUE = pa.schema([("key", pa.string())])


def test_names_have_a_prefix() -> None:
    schema = with_metadata(VALUE, list(METADATA_TYPES))
    assert schema.names == ["key", *(f"kafka_{name}" for name in METADATA_TYPES)]


@pytest.mark.parametrize(
    ("columns", "metadata", "why"),
    [
        (VALUE, ["colour"], "no metadata 'colour': choose from key, headers"),
        (VALUE, ["key", "key"], "kafka_key is there twice"),
        (pa.schema([("kafka_key", pa.string())]), ["key"], "kafka_key is there twice"),
    ],
)
def test_what_cannot_be_is_refused(columns, metadata, why: str) -> None:
    with pytest.raises(ConfigurationError, match=why):
        with_metadata(columns, metadata)
