"""Avro as a format: what decides that messages are read the same way, and what writing needs."""

import pyarrow as pa
import pytest

from laminar_core.connectors.formats.avro_format import AvroFormat
from laminar_core.connectors.formats.schema_registry import KnownSchemas, SchemaRegistry
from laminar_core.errors import ConfigurationError
from tests.connectors.formats.avro_messages import FORMAT, SCHEMA

REGISTRY = SchemaRegistry("https://registry:8081", user="me", password_variable="SECRET")


def test_the_description_names_the_registry_and_no_credentials() -> None:
    assert AvroFormat(REGISTRY).describe() == {
        "format": "avro",
        "registry": "https://registry:8081",
    }
    assert AvroFormat(KnownSchemas({1: '"int"'})).describe()["schemas"] == {"1": "int"}
    assert FORMAT.one_row_per_message


def test_writing_needs_a_subject_and_a_schema_that_is_known() -> None:
    with pytest.raises(ConfigurationError, match="give subject="):
        AvroFormat(KnownSchemas()).encoder(SCHEMA)
    with pytest.raises(ConfigurationError, match="no schema that is known is"):
        AvroFormat(KnownSchemas(), subject="t-value").encoder(pa.schema([("a", pa.int64())]))
