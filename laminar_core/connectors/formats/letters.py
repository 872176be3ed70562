"""Letters as rows: the side output of a source for messages that are no rows."""

import pyarrow as pa

LETTERS = "letters"
"""The name of the side output."""

LETTERS_SCHEMA = pa.schema(
    [
        pa.field("source", pa.string(), nullable=False),
        pa.field("split", pa.string(), nullable=False),
        pa.field("offset", pa.string()),
        pa.field("value", pa.large_binary()),
        pa.field("defect", pa.string(), nullable=False),
        pa.field("reason", pa.string(), nullable=False),
    ]
)
"""Where a message came from, its bytes, and why it is no row.

``source`` and ``split``: names. ``offset``: the place in the split, as ``--skip-bad`` takes it.
``value``: the bytes as they came; null if the message has none. ``defect``: a ``Defect``.
``reason``: one line for people.
"""


def letter_rows(source: str, split: str, letters: pa.RecordBatch) -> pa.RecordBatch:
    """Return letters of one split, as a decoder writes them, in the columns of the side output."""
    count = letters.num_rows
    columns = [
        pa.array([source] * count, pa.string()),
        pa.array([split] * count, pa.string()),
        letters.column("position").cast(pa.string()),
        letters.column("value").cast(pa.large_binary()),
        letters.column("defect"),
        letters.column("reason"),
    ]
    return pa.RecordBatch.from_arrays(columns, schema=LETTERS_SCHEMA)
