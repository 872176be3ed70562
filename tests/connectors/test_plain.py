"""Dictionary columns become the columns they stand for."""

import pyarrow as pa

from laminar_core.connectors.plain import plain_schema

ENCODED = pa.dictionary(pa.int32(), pa.string())


def test_only_dictionary_columns_change():
    schema = pa.schema([("key", ENCODED), ("n", pa.int64()), ("at", pa.timestamp("us", tz="UTC"))])
    assert plain_schema(schema).types == [pa.string(), pa.int64(), pa.timestamp("us", tz="UTC")]
    assert plain_schema(schema).names == schema.names


def test_a_batch_cast_to_the_plain_schema_has_the_same_values():
    batch = pa.record_batch({"key": pa.array(["b", None, "b"]).dictionary_encode()})
    plain = batch.cast(plain_schema(batch.schema))
    assert plain.to_pydict() == {"key": ["b", None, "b"]}
