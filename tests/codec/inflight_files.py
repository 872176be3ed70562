"""Elements of a channel for tests: a small mixed sequence, and what is written of it."""

from collections.abc import Iterable

import pyarrow as pa

from laminar_core.codec.envelope import Compression
from laminar_core.codec.inflight import InflightElement, InflightEncoder, join
from laminar_core.protocol.types import Batch, Idle, Watermark

SCHEMA = pa.schema([("merchant", pa.dictionary(pa.int8(), pa.string())), ("amount", pa.int64())])
INPUT_ID = 3


def batch(*rows: tuple[str | None, int | None]) -> Batch[pa.RecordBatch]:
    """Shape (len(rows), merchant | amount); its dictionary holds its own merchants only."""
    columns = [[row[0] for row in rows], [row[1] for row in rows]]
    return Batch(
        pa.RecordBatch.from_arrays(
            [pa.array(values, field.type) for values, field in zip(columns, SCHEMA, strict=True)],
            schema=SCHEMA,
        )
    )


ELEMENTS: list[InflightElement] = [
    Watermark(-(2**63)),
    batch(("a", 1), ("b", None), (None, 2)),
    Idle(),
    batch(("c", 3)),
    batch(),
    Watermark(2**63 - 1),
]
"""6 elements, 4 rows."""


def file(
    elements: Iterable[InflightElement] = ELEMENTS,
    schema: pa.Schema = SCHEMA,
    compression: Compression | None = None,
    input_id: int = INPUT_ID,
) -> bytes:
    encoder = InflightEncoder(schema, input_id, compression)
    for element in elements:
        encoder.add(element)
    data = join(encoder.finish()).to_pybytes()
    assert encoder.size_bytes == len(data)
    return data
