"""Avro schemas as Arrow types, and schemas that a short message could abuse."""

from typing import Any

import fastavro
import pyarrow as pa
import pytest

from laminar_core.connectors.formats.avro_types import (
    DEPTH_MAX,
    SchemaWalk,
    stored_type,
    without_meaning,
)
from laminar_core.connectors.formats.messages import Defect, MessageRefusedError
from tests.connectors.formats.avro_messages import record

NODE = {
    "type": "record",
    "name": "node",
    "fields": [{"name": "next", "type": ["null", "node"]}],
}
EMPTY = {"type": "record", "name": "empty", "fields": []}
NOTHING = {"type": "fixed", "name": "nothing", "size": 0}


def walk(schema: Any) -> tuple[SchemaWalk, Any]:
    named: dict[str, Any] = {}
    parsed = fastavro.parse_schema(schema, named_schemas=named)
    return SchemaWalk(named), parsed


def array(items: Any) -> dict[str, Any]:
    return {"type": "array", "items": items}


def nested(levels: int) -> Any:
    return "long" if not levels else array(nested(levels - 1))


@pytest.mark.parametrize(
    ("schema", "why"),
    [
        (NODE, "node contains itself"),
        (record(a=array(NODE)), "node contains itself"),
        (record(a={"type": "map", "values": NODE}), "node contains itself"),
        (record(a=array("null")), "items have no bytes"),
        (record(a=array(EMPTY)), "items have no bytes"),
        (record(a=array(NOTHING)), "items have no bytes"),
        (record(a=array(record("inner", b=EMPTY, c="null"))), "items have no bytes"),
        (record(a=EMPTY, b=array("empty")), "items have no bytes"),
        (record(a=nested(DEPTH_MAX + 1)), f"deeper than {DEPTH_MAX}"),
    ],
)
def test_schemas_that_a_short_message_could_abuse_are_refused(schema: Any, why: str) -> None:
    walker, parsed = walk(schema)
    with pytest.raises(MessageRefusedError, match=why) as caught:
        walker.check(parsed)
    assert caught.value.defect is Defect.WRONG_SCHEMA


@pytest.mark.parametrize(
    "schema",
    [
        record(a=array(["null", "long"]), b={"type": "map", "values": "null"}, c=EMPTY),
        record(a=array(record("inner", b="null", c="int"))),
        record(a={"type": "enum", "name": "e", "symbols": ["x"]}, b=array("e"), c="e"),
        record(a=nested(DEPTH_MAX - 2)),
    ],
)
def test_schemas_whose_items_cost_bytes_are_read(schema: Any) -> None:
    walker, parsed = walk(schema)
    walker.check(parsed)


def test_types_have_the_meaning_that_the_specification_gives_them() -> None:
    logical = {
        "day": ("int", "date", pa.date32()),
        "at": ("long", "timestamp-millis", pa.timestamp("ms", "UTC")),
        "there": ("long", "local-timestamp-micros", pa.timestamp("us")),
        "time": ("long", "time-micros", pa.time64("us")),
        "odd": ("long", "nobody-knows-it", pa.int64()),
    }
    schema = record(
        **{
            name: {"type": of, "logicalType": meaning} for name, (of, meaning, _) in logical.items()
        },
        amount={"type": "bytes", "logicalType": "decimal", "precision": 9, "scale": 2},
        hash={"type": "fixed", "name": "h", "size": 4},
        kind={"type": "enum", "name": "e", "symbols": ["x"]},
        tags={"type": "map", "values": "int"},
        either=["int", "string"],
    )
    walker, parsed = walk(schema)
    found = walker.fields(parsed)
    assert found is not None
    types = {field.name: field.type for field in found}
    expected = {name: of for name, (_, _, of) in logical.items()}
    expected |= {
        "amount": pa.decimal256(9, 2),
        "hash": pa.binary(4),
        "kind": pa.string(),
        "tags": pa.map_(pa.string(), pa.field("value", pa.int32(), nullable=False)),
    }
    assert types == expected
    assert not any(field.nullable for field in found)
    assert walker.fields(fastavro.parse_schema("string")) is None


def test_a_field_may_be_null_where_its_union_says_so() -> None:
    walker, parsed = walk(record(a=["null", "long"], b=["long", "null"], c=["long"], d="null"))
    found = walker.fields(parsed)
    assert found is not None
    assert [field.nullable for field in found] == [True, True, False, True]


def test_dates_are_read_as_numbers_and_decimals_as_they_are() -> None:
    date = {"type": "int", "logicalType": "date"}
    decimal = {"type": "bytes", "logicalType": "decimal", "precision": 9, "scale": 2}
    plain = without_meaning(record(a=["null", date], b=array(date), c=decimal))
    assert [field["type"] for field in plain["fields"]] == [
        ["null", {"type": "int"}],
        array({"type": "int"}),
        decimal,
    ]
    instant = pa.timestamp("us", "UTC")
    nested_type = pa.struct([("a", pa.list_(instant)), ("b", pa.map_(pa.string(), pa.date32()))])
    assert stored_type(nested_type) == pa.struct(
        [("a", pa.list_(pa.int64())), ("b", pa.map_(pa.string(), pa.int32()))]
    )
