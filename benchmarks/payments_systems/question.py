"""The question that all systems answer: payments per merchant in windows of five minutes.

A system reads Parquet files with the columns merchant, amount_cents and paid_at, and writes Parquet
or CSV files with count, sum, minimum, maximum and average per merchant and window. What it wrote is
read after its time was taken, and made into an ``Answer``, which does not depend on the order of
rows: systems whose answers are equal have written the same rows.
"""

import json
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any, NamedTuple, Self

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv as pacsv
import pyarrow.parquet as pq

WINDOW_US = 300_000_000
FILES = 8
ROW_GROUP_ROWS = 500_000
START_US = 1_767_225_600_000_000
"""The start of a window."""
CODEC = "zstd"
CODEC_LEVEL = 1
"""How all systems compress Parquet: as Laminar's sink does by default."""
COUNTS = ("payments", "total_cents", "min_cents", "max_cents")
COLUMNS = ("merchant", "window_start", *COUNTS, "average_cents")
"""The columns of an answer; a system may write more of them."""
_MIX = tuple(
    np.uint64(number) for number in (0x9E3779B97F4A7C15, 0xBF58476D1CE4E5B9, 0x94D049BB133111EB)
)
_SHIFT = np.uint64(29)
_WORD = 1 << 64

Numbers = npt.NDArray[np.uint64]


@dataclass(frozen=True, slots=True)
class Question:
    """A line of a program's input: the files, the folder for the answer, and how many workers."""

    rows: str
    output: str
    workers: int

    def line(self) -> str:
        """Return the line."""
        return json.dumps([self.rows, self.output, self.workers])

    @classmethod
    def of(cls, line: str) -> Self:
        """Read a line."""
        return cls(*json.loads(line))

    def files(self) -> list[Path]:
        """Return the files with the rows."""
        return sorted(Path(self.rows).glob("*.parquet"))


class Answer(NamedTuple):
    """Sums over all rows that a system wrote, and a sum of numbers that are mixed from each row."""

    rows: int
    payments: int
    total_cents: int
    mixed: int


def write_rows(folder: Path, rows: int, keys: int) -> None:
    """Write payments of one window: each of a merchant who is drawn from so many numbers."""
    folder.mkdir(parents=True)
    bounds = [rows * number // FILES for number in range(FILES + 1)]
    for number, (start, stop) in enumerate(pairwise(bounds)):
        random = np.random.default_rng(number)
        columns = {
            "merchant": random.integers(0, keys, stop - start),
            "amount_cents": random.integers(100, 100_000, stop - start),
            "paid_at": pa.array(START_US + np.arange(start, stop)).cast(pa.timestamp("us", "UTC")),
        }
        path = folder / f"payments-{number:03d}.parquet"
        pq.write_table(
            pa.table(columns),
            path,
            row_group_size=ROW_GROUP_ROWS,
            compression="lz4",
            use_dictionary=False,
            store_schema=False,
        )


def answer_of(output: str) -> Answer:
    """Read what a system wrote into the folder."""
    rows = payments = total_cents = mixed = 0
    for table in _written(Path(output)):
        rows += table.num_rows
        payments += pc.sum(table.column("payments")).as_py() or 0
        total_cents += pc.sum(table.column("total_cents")).as_py() or 0
        mixed = (mixed + _mixed(table)) % _WORD
    return Answer(rows, payments, total_cents, mixed)


def _written(folder: Path) -> Iterator[pa.Table]:
    """Yield the visible tables; those of Flink are CSV without header and ending."""
    for path in sorted(folder.rglob("*")):
        if not path.is_file() or path.name.startswith((".", "_")):
            continue
        if path.suffix == ".parquet":
            yield _of_codec(pq.ParquetFile(path)).read()
        elif path.name.startswith("part-") and path.stat().st_size:
            options = pacsv.ReadOptions(column_names=list(COLUMNS))
            yield pacsv.read_csv(path, read_options=options)


def _of_codec(file: pq.ParquetFile) -> pq.ParquetFile:
    """Refuse a file for which a system had less to do, or more, than the others."""
    groups = [file.metadata.row_group(number) for number in range(file.metadata.num_row_groups)]
    codecs = {group.column(n).compression for group in groups for n in range(group.num_columns)}
    if codecs - {CODEC.upper()}:
        raise ValueError(f"a system compressed its answer with {codecs}, not {CODEC}")
    return file


def _mixed(table: pa.Table) -> int:
    columns = [_merchants(table.column("merchant")), _microseconds(table.column("window_start"))]
    columns += [_numbers(table.column(name)) for name in COUNTS]
    average = pc.multiply(table.column("average_cents").cast(pa.float64()), 1000.0)
    columns.append(_numbers(pc.round(average)))
    found = np.zeros(table.num_rows, np.uint64)
    for column in columns:
        found = (found ^ column) * _MIX[0]
        for factor in _MIX[1:]:
            found = (found ^ (found >> _SHIFT)) * factor
        found ^= found >> _SHIFT
    return int(found.sum(dtype=np.uint64))


def _merchants(column: pa.ChunkedArray) -> Numbers:
    """Return their numbers, which the names end with."""
    if pa.types.is_integer(column.type):
        return _numbers(column)
    names = column.cast(pa.string())
    return _numbers(pc.replace_substring(names, "merchant-", "").cast(pa.int64()))


def _microseconds(column: pa.ChunkedArray) -> Numbers:
    if pa.types.is_string(column.type):
        column = column.cast(pa.timestamp("us"))
    if pa.types.is_timestamp(column.type):
        column = column.cast(pa.timestamp("us", column.type.tz)).cast(pa.int64())
    return _numbers(column)


def _numbers(column: pa.ChunkedArray) -> Numbers:
    numbers: npt.NDArray[Any] = column.cast(pa.int64()).to_numpy()
    return numbers.view(np.uint64)
