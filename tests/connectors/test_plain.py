"""Dictionary columns become the columns they stand for."""

import pyarrow as pa

from laminar_core.connectors.plain import plain_schema, plain_tables

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
        key = pa.DictionaryArray.from_arrays([0, 1] * 500, ["x" * 1_000, None])
        batch = pa.record_batch({"key": key, "n": range(1_000)})
        parts = list(plain_tables([batch], plain_schema(batch.schema), 10_000))
        assert len(parts) == 50
        assert max(part.nbytes for part in parts) < 11_000
        assert pa.concat_tables(parts).to_pydict() == batch.to_pydict()

    def test_one_long_text_among_many_short_ones_makes_few_parts(self):
        key = pa.DictionaryArray.from_arrays([1] * 999 + [0], ["x" * 90_000, "y"])
        batch = pa.record_batch({"key": key})
        (part,) = plain_tables([batch], plain_schema(batch.schema), 100_000)
        assert part.num_rows == 1_000

    def test_a_row_may_have_more_than_a_part(self):
        batch = pa.record_batch({"key": pa.array(["x" * 100, "y", "z"]).dictionary_encode()})
        parts = list(plain_tables([batch], plain_schema(batch.schema), 50))
        assert [part.num_rows for part in parts] == [1, 2]

    def test_a_large_dictionary_of_which_few_texts_are_used_makes_no_parts(self):
        values = pa.array([f"{n:0300d}" for n in range(1_000)])
        key = pa.DictionaryArray.from_arrays(pa.array(range(1_000), pa.int32()), values)
        few = pa.record_batch({"key": key}).slice(500, 3)
        (part,) = plain_tables([few], plain_schema(few.schema), 1_000_000)
        assert part.nbytes < 2_000

    def test_batches_stay_in_their_order_around_one_in_parts(self):
        def batch(text, count):
            key = pa.DictionaryArray.from_arrays([0] * count, [text])
            return pa.record_batch({"key": key})

        batches = [batch("a", 2), batch("b" * 100, 20), batch("c", 1), batch("d", 1)]
        parts = list(plain_tables(batches, plain_schema(batches[0].schema), 1_000))
        assert [part.num_rows for part in parts] == [2, 10, 10, 2]
        rows = pa.concat_tables(parts)["key"].to_pylist()
        assert "".join(row[0] for row in rows) == "aa" + 20 * "b" + "cd"

    def test_nothing_is_nothing(self):
        assert list(plain_tables([], pa.schema([]), 10)) == []
