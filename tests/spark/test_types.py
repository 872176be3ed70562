"""Whatever is in a checkpoint comes in a type that Spark takes, with the values it had."""

from datetime import UTC, date, datetime, time, timedelta
from decimal import Decimal

import numpy as np
import pyarrow as pa
import pyspark.sql.types
import pytest
from pyspark.sql.types import DoubleType, LongType, StringType, StructType

from laminar_core.errors import ConfigurationError, ErrorCode
from laminar_core.spark.types import ROWS_AT_ONCE, arrow_schema, spark_batches, spark_schema

NOON = datetime(2026, 11, 21, 12, tzinfo=UTC)
HAS_TIME = hasattr(pyspark.sql.types, "TimeType")
TIME_OF_DAY = ("time(6)", None) if HAS_TIME else ("string", ["12:30:00"])
"""Spark before 4.1 has no type for it."""
VALUES: list[tuple[pa.DataType, list, str, list | None]] = [
    (pa.int8(), [1, None], "tinyint", None),
    (pa.int64(), [1, None], "bigint", None),
    (pa.uint8(), [255], "smallint", None),
    (pa.uint16(), [65_535], "int", None),
    (pa.uint32(), [2**32 - 1], "bigint", None),
    (pa.uint64(), [2**64 - 1, None], "decimal(20,0)", [Decimal(2**64 - 1), None]),
    (pa.float16(), [np.float16(1.5)], "float", None),
    (pa.float64(), [1.5, float("inf")], "double", None),
    (pa.bool_(), [True, None], "boolean", None),
    (pa.string(), ["a", None], "string", None),
    (pa.large_string(), ["a"], "string", None),
    (pa.binary(), [b"a"], "binary", None),
    (pa.large_binary(), [b"a"], "binary", None),
    (pa.binary(2), [b"ab", None], "binary", None),
    (pa.string_view(), ["a", None], "string", None),
    (pa.binary_view(), [b"a"], "binary", None),
    (pa.dictionary(pa.int32(), pa.string()), ["a", None, "a"], "string", None),
    (pa.decimal128(10, 2), [Decimal("1.50")], "decimal(10,2)", None),
    (pa.decimal256(38, 0), [Decimal(7)], "decimal(38,0)", None),
    (pa.decimal256(60, 0), [Decimal(10**50)], "string", [f"{10**50}"]),
    (pa.date32(), [date(2026, 11, 21)], "date", None),
    (pa.date64(), [date(2026, 11, 21)], "date", None),
    (pa.timestamp("us", "UTC"), [NOON, None], "timestamp", None),
    (pa.timestamp("ms", "Europe/Berlin"), [NOON], "timestamp", None),
    (pa.timestamp("s"), [NOON.replace(tzinfo=None)], "timestamp_ntz", None),
    (pa.duration("ms"), [timedelta(seconds=1)], "interval day to second", None),
    (pa.time32("s"), [time(12, 30)], *TIME_OF_DAY),
    (pa.null(), [None], "string", None),
    (pa.list_(pa.uint8()), [[1, None], [], None], "array<smallint>", None),
    (pa.list_(pa.int32(), 2), [[1, 2]], "array<int>", None),
    (
        pa.struct([("a", pa.uint8()), ("b", pa.list_(pa.string()))]),
        [{"a": 1, "b": ["x"]}, None],
        "struct<a:smallint,b:array<string>>",
        None,
    ),
    (
        pa.list_(pa.struct([("value", pa.float64()), ("count", pa.int64())])),
        [[{"value": 1.0, "count": 2}]],
        "array<struct<value:double,count:bigint>>",
        None,
    ),
    (pa.map_(pa.string(), pa.int64()), [[("a", 1)]], "map<string,bigint>", None),
]  # fmt: skip


@pytest.mark.parametrize(
    ("of", "values", "name", "wanted"), VALUES, ids=[str(v[0]) for v in VALUES]
)
def test_every_type_becomes_one_that_spark_takes(of, values, name, wanted):
    rows = pa.table({"x": pa.array(values, of)})
    schema = spark_schema(rows.schema)
    assert schema["x"].dataType.simpleString() == name
    (batch,) = spark_batches(rows, schema)
    assert batch.schema.equals(arrow_schema(schema))
    assert batch.column(0).to_pylist() == (values if wanted is None else wanted)


def test_identifiers_become_their_bytes_at_any_depth():
    bytes_of = [b"0123456789abcdef", None]
    values = pa.ExtensionArray.from_storage(pa.uuid(), pa.array(bytes_of, pa.binary(16)))
    lists = pa.ListArray.from_arrays(pa.array([0, 1, 2], pa.int32()), values)
    rows = pa.table({"x": values, "y": lists})
    schema = spark_schema(rows.schema)
    assert schema.simpleString() == "struct<x:binary,y:array<binary>>"
    (batch,) = spark_batches(rows, schema)
    assert batch.to_pydict() == {"x": bytes_of, "y": [[one] for one in bytes_of]}


def test_only_the_columns_that_are_asked_for_are_there_in_that_order():
    rows = pa.table({"a": [1], "b": ["x"], "c": [2.0]})
    schema = StructType().add("c", DoubleType()).add("a", LongType()).add("new", StringType())
    (batch,) = spark_batches(rows, schema)
    assert batch.to_pydict() == {"c": [2.0], "a": [1], "new": [None]}


def test_fields_of_a_struct_are_found_by_name():
    rows = pa.table({"row": [{"a": 1, "b": "x"}, None]})
    inner = StructType().add("b", StringType()).add("z", LongType())
    (batch,) = spark_batches(rows, StructType().add("row", inner))
    assert batch.column(0).to_pylist() == [{"b": "x", "z": None}, None]


def test_large_tables_come_in_batches():
    rows = pa.table({"a": pa.array(range(ROWS_AT_ONCE + 1))})
    batches = list(spark_batches(rows, spark_schema(rows.schema)))
    assert [batch.num_rows for batch in batches] == [ROWS_AT_ONCE, 1]


def test_no_rows_are_no_batches():
    rows = pa.table({"a": pa.array([], pa.int64())})
    assert list(spark_batches(rows, spark_schema(rows.schema))) == []


def test_a_column_that_has_no_such_values_is_refused():
    rows = pa.table({"a": ["x"]})
    with pytest.raises(ConfigurationError, match="column 'a' is string") as caught:
        list(spark_batches(rows, StructType().add("a", LongType())))
    assert caught.value.code is ErrorCode.WRONG_SCHEMA
