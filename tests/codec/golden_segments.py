"""The rows of the golden state files, ``tests/golden/state_v1.arrow`` and ``segment_v*.seg``."""

import pyarrow as pa

from laminar_core.aggregates.accumulators import VERSIONS_KEY

ROWS = [
    {"key_group": 3, "merchant": "a", "window_start": 0, "count(*)": 2, "distinct(v)": [1.5, 2.5]},
    {"key_group": 3, "merchant": "a", "window_start": 60_000_000, "count(*)": 1, "distinct(v)": []},
    {"key_group": 90, "merchant": None, "window_start": -1, "count(*)": 7, "distinct(v)": [0.0]},
]
SCHEMA = pa.schema(
    [
        ("key_group", pa.int32()),
        ("merchant", pa.string()),
        ("window_start", pa.timestamp("us", tz="UTC")),
        ("count(*)", pa.int64()),
        ("distinct(v)", pa.list_(pa.float64())),
    ],
    metadata={VERSIONS_KEY: b'{"count(*)": 1, "distinct(v)": 1}'},
)
TABLE = pa.Table.from_pylist(ROWS, SCHEMA)
