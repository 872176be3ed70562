"""Rows as Avro messages, and what has no form in Avro."""

import pyarrow as pa
import pytest

from laminar_core.connectors.formats.avro_encoding import AvroEncoder, avro_schema, canonical
from laminar_core.connectors.formats.messages import Messages
from laminar_core.errors import ConfigurationError, DataError, ErrorCode
from tests.connectors.formats.avro_messages import FORMAT, SCHEMA, rows

ID = pa.field("id", pa.int64(), nullable=False)


@pytest.mark.parametrize("count", [0, 1, 2_500])
def test_rows_come_back_as_they_were(count: int) -> None:
    batch = rows(count)
    encoded = FORMAT.encoder(SCHEMA).encode(batch)
    found = FORMAT.decoder(SCHEMA).decode(Messages(encoded, pa.array(range(len(encoded)))))
    assert found.letters.to_pylist() == []
    assert found.rows.to_pylist() == batch.to_pylist()


def test_each_message_begins_with_the_number_of_its_schema() -> None:
    encoder = AvroEncoder(pa.schema([("a", pa.int8())]), "row", 258)
    (only,) = encoder.encode(pa.record_batch({"a": pa.array([3], pa.int8())})).to_pylist()
    assert only == b"\x00\x00\x00\x01\x02" + b"\x02\x06"


@pytest.mark.parametrize(
    ("schema", "why"),
    [
        (pa.schema([("a", pa.uint64())]), "column a: uint64 has no form in Avro"),
        (pa.schema([("a", pa.list_(pa.duration("s")))]), "duration"),
        (pa.schema([("a", pa.decimal128(5, -2))]), r"column a: decimal128\(5, -2\) has no form"),
        (pa.schema([("a", pa.list_(pa.decimal128(5, 6)))]), r"decimal128\(5, 6\) has no form"),
        (pa.schema([("a", pa.struct(2 * [("b", pa.int8())]))]), "more than one column b"),
        (pa.schema([("a-b", pa.int64())]), "a name that Avro does not allow"),
    ],
)
def test_what_has_no_form_in_avro_is_refused(schema: pa.Schema, why: str) -> None:
    with pytest.raises(ConfigurationError, match=why):
        avro_schema(schema, "row")


def test_a_value_that_would_lose_its_fraction_is_refused() -> None:
    schema = pa.schema([("t", pa.time64("ns"))])
    encoder = AvroEncoder(schema, "row", 1)
    with pytest.raises(DataError, match="would lose data") as caught:
        encoder.encode(pa.record_batch([pa.array([1], pa.time64("ns"))], schema=schema))
    assert caught.value.code is ErrorCode.NOT_ENCODABLE


def test_equal_schemas_have_equal_texts() -> None:
    assert canonical(avro_schema(SCHEMA, "row")) == canonical(avro_schema(SCHEMA, "row"))
    assert " " not in canonical(avro_schema(SCHEMA, "row"))


def test_a_column_that_may_be_null_has_a_default_so_that_it_can_be_added() -> None:
    added = pa.field("b", pa.struct([("c", pa.int32())]))
    (fixed, optional) = avro_schema(pa.schema([ID, added]), "row")["fields"]
    assert "default" not in fixed
    assert optional["default"] is None
    assert optional["type"][0] == "null", "a default is a value of the first type"
    assert optional["type"][1]["fields"][0]["default"] is None


def test_nested_records_have_names_of_their_own() -> None:
    inner = pa.struct([("c", pa.int8())])
    columns = [("a_b", inner), ("a", pa.struct([("b", inner), ("b_", inner)]))]
    schema = pa.schema(columns)
    first, second = avro_schema(schema, "row")["fields"]
    assert first["type"][1]["name"] == "row_a_b"
    names = [field["type"][1]["name"] for field in second["type"][1]["fields"]]
    assert names == ["row_a_b_", "row_a_b__"]
    value = {"a_b": {"c": 1}, "a": {"b": {"c": 2}, "b_": {"c": None}}}
    rows_ = pa.RecordBatch.from_pylist([value], schema=schema)
    assert len(AvroEncoder(schema, "row", 1).encode(rows_)) == 1
