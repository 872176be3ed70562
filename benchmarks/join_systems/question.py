"""The question that all systems answer: two files of rows, a join, and totals of its result.

The left side is orders with an amount, the right side prices; both come in the order of time, ten a
millisecond. The *interval* join pairs an order with the prices of its key in the time after it, the
*as-of* join with the last one before it. The result is summed up by kind of order and by minute, so
that no system has to write many rows, and the totals of all systems are compared.
"""

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Self

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.parquet as pq

LEFT, RIGHT = "left", "right"
LEFT_SCHEMA = pa.schema(
    [
        ("key", pa.int64()),
        ("kind", pa.int32()),
        ("amount", pa.int64()),
        ("ordered_at", pa.timestamp("ms")),
    ]
)
RIGHT_SCHEMA = pa.schema(
    [("key", pa.int64()), ("price", pa.int64()), ("priced_at", pa.timestamp("ms"))]
)
KINDS = 8
WIDTH_MS = 30_000
"""How long after an order a price may come, in the interval join."""
WINDOW_MS = 60_000
FILES = 2
"""Files of each side, one for each worker; rows alternate, so workers see the same time."""
ROWS_PER_MS = 10

Total = tuple[int, int, int, int, int]
"""Kind of order, start of the minute in milliseconds, pairs, sum of amounts, sum of prices."""


@dataclass(frozen=True, slots=True)
class Question:
    """A line of a program's input: the join, the folder with the rows, and the file for totals."""

    join: str
    folder: str
    output: str

    def line(self) -> str:
        """Return the line."""
        return json.dumps([self.join, self.folder, self.output])

    @classmethod
    def of(cls, line: str) -> Self:
        """Read a line."""
        return cls(*json.loads(line))

    def path(self, side: str) -> str:
        """Return the folder with the files of a side."""
        return f"{self.folder}/{side}"


def write_rows(folder: Path, rows: int, keys: int) -> None:
    """Write so many rows of each side; a right row is the only one of its key at its time."""
    random = np.random.default_rng(7)
    times_ms = np.arange(rows) // ROWS_PER_MS
    drawn = random.integers(0, keys, rows)
    _, first = np.unique(times_ms * keys + drawn, return_index=True)
    chosen = np.sort(first)
    prices = random.integers(1, 100_000, len(chosen))
    right = [drawn[chosen], prices, times_ms[chosen]]
    left = [
        random.integers(0, keys, rows),
        random.integers(0, KINDS, rows),
        random.integers(1, 1_000, rows),
        times_ms,
    ]
    for side, schema, columns in ((LEFT, LEFT_SCHEMA, left), (RIGHT, RIGHT_SCHEMA, right)):
        (folder / side).mkdir(parents=True)
        for number in range(FILES):
            arrays = [
                pa.array(column[number::FILES]).cast(field.type)
                for column, field in zip(columns, schema, strict=True)
            ]
            table = pa.Table.from_arrays(arrays, schema=schema)
            # One row group, and so one split: nobody reads the end of a file before its beginning.
            path = folder / side / f"{number}.parquet"
            pq.write_table(table, path, row_group_size=max(1, table.num_rows))


def write_totals(path: str, totals: list[Total]) -> None:
    """Write the totals of a program that has no files of its own."""
    Path(path).write_text(json.dumps(totals))


def read_totals(path: str) -> list[Total]:
    """Read what ``write_totals`` has written."""
    return sorted(tuple(total) for total in json.loads(Path(path).read_text()))


Values = npt.NDArray[np.int64]
"""A column; times are in milliseconds."""
