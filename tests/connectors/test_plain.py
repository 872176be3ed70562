"""Dictionary columns become the columns they stand for."""

import pyarrow as pa

from laminar_core.connectors.plain import plain_batches, plain_schema

ENCODED = pa.dictionary(pa.int32(), pa.string())


def test_only_dictionary_columns_change():
    schema = pa.schema([("key", ENCODED), ("n", pa.int64()), ("at", pa.timestamp("us", tz="UTC"))])
    assert plain_schema(schema).types == [pa.string(), pa.int64(), pa.timestamp("us", tz="UTC")]
    assert plain_schema(schema).names == schema.names


def test_a_batch_cast_to_the_plain_schema_has_the_same_values():
    batch = pa.record_batch({"key": pa.array(["b", None, "b"]).dictionary_encode()})
    plain = batch.cast(plain_schema(batch.schema))
    assert plain.to_pydict() == {"key": ["b", None, "b"]}


class TestParts:
    """Texts of a dictionary are counted by what they take once they are decoded."""

    def test_long_texts_come_in_parts(self):
        batch = pa.record_batch(
            {
                "key": pa.DictionaryArray.from_arrays([0, 1] * 500, ["x" * 1_000, None]),
                "n": range(1_000),
            }
        )
        parts = list(plain_batches(batch, plain_schema(batch.schema), 10_000))
        assert [part.num_rows for part in parts] == [10] * 100
        assert pa.Table.from_batches(parts).to_pydict() == batch.to_pydict()

    def test_a_row_may_have_more_than_a_part(self):
        batch = pa.record_batch({"key": pa.array(["x" * 100, "y", "z"]).dictionary_encode()})
        assert len(list(plain_batches(batch, plain_schema(batch.schema), 50))) == 3

    def test_a_large_dictionary_of_which_few_texts_are_used_makes_no_parts(self):
        values = pa.array([f"{n:0300d}" for n in range(1_000)])
        key = pa.DictionaryArray.from_arrays(pa.array(range(1_000), pa.int32()), values)
        few = pa.record_batch({"key": key}).slice(500, 3)
        (part,) = plain_batches(few, plain_schema(few.schema), 1_000_000)
        assert part.nbytes < 2_000

    def test_plain_rows_are_what_they_were(self):
        batch = pa.record_batch({"key": ["x" * 1_000] * 9})
        assert [part is batch for part in plain_batches(batch, batch.schema, 10)] == [True]
