"""Avro messages for tests: rows that a format of one known schema has written."""

import json
from datetime import date, datetime
from decimal import Decimal
from io import BytesIO
from typing import Any

import fastavro
import pyarrow as pa

from laminar_core.connectors.formats.avro_decoding import MAGIC
from laminar_core.connectors.formats.avro_encoding import avro_schema, canonical
from laminar_core.connectors.formats.avro_format import AvroFormat
from laminar_core.connectors.formats.schema_registry import KnownSchemas

SCHEMA = pa.schema(
    [
        ("id", pa.int64()),
        pa.field("v", pa.string(), nullable=False),
        ("f", pa.float32()),
        ("d", pa.decimal128(20, 4)),
        ("t", pa.timestamp("us")),
        ("k", pa.dictionary(pa.int32(), pa.string())),
        ("l", pa.list_(pa.int32())),
        ("s", pa.struct([("x", pa.int8()), ("y", pa.date32())])),
    ]
)
SCHEMA_ID = 7
FORMAT = AvroFormat(KnownSchemas({SCHEMA_ID: canonical(avro_schema(SCHEMA, "row"))}), subject="t")


def rows(count: int) -> pa.RecordBatch:
    """Return rows with a value in each column, and one with nulls wherever they are allowed."""
    full = [
        {
            "id": n - 1,
            "v": f"é{n}",
            "f": n / 2,
            "d": Decimal("-1.2345") * n,
            "t": datetime(2026, 1, 1 + n % 28, 12, 30, 1, 5),  # noqa: DTZ001
            "k": "ab"[n % 2],
            "l": [1, None, n],
            "s": {"x": n % 100, "y": date(1969, 12, 31)},
        }
        for n in range(count)
    ]
    return pa.RecordBatch.from_pylist([*full, {"v": ""}], schema=SCHEMA)


def message(schema: Any, value: Any, schema_id: int = SCHEMA_ID) -> bytes:
    """Return one message as a foreign writer writes it."""
    stream = BytesIO()
    stream.write(MAGIC + schema_id.to_bytes(4, "big"))
    fastavro.schemaless_writer(stream, fastavro.parse_schema(schema), value)
    return stream.getvalue()


def record(name: str = "r", /, **types: Any) -> dict[str, Any]:
    """Return a record of these fields."""
    fields = [{"name": each, "type": of} for each, of in types.items()]
    return {"type": "record", "name": name, "fields": fields}


def known(**schemas: Any) -> KnownSchemas:
    """Return schemas by number: ``s7`` is the one with the number 7."""
    return KnownSchemas({int(name[1:]): json.dumps(schema) for name, schema in schemas.items()})
