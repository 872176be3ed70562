"""The stream's aggregation as a Spark batch query, and a comparison row by row."""

# What Arrow compares is Any.
# pyright: reportUnknownArgumentType=false, reportUnknownVariableType=false

from dataclasses import dataclass
from functools import reduce
from operator import or_
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from pyspark.sql import SparkSession

from laminar_core.connectors import committed_files

KEYS = ["merchant", "window_start"]
DIFFERENCES_MAX = 5

_BATCH_QUERY = """
    SELECT merchant,
           window.start AS window_start,
           window.end AS window_end,
           count(*) AS payments,
           sum(amount_cents) AS total_cents,
           min(amount_cents) AS min_cents,
           max(amount_cents) AS max_cents,
           avg(amount_cents) AS average_cents
    FROM {payments}
    GROUP BY merchant, window(paid_at, '5 minutes')
"""


@dataclass(frozen=True, slots=True)
class Comparison:
    """The comparison of two results. ``differences`` describes the first ones."""

    rows_expected: int
    rows_found: int
    differences: tuple[str, ...]

    @property
    def exact(self) -> bool:
        """Whether both have the same rows, each once."""
        return self.rows_expected == self.rows_found and not self.differences


def batch_answer(spark: SparkSession, payments: Path) -> pa.Table:
    """Return the result of Spark's batch engine for the files."""
    return spark.sql(_BATCH_QUERY, payments=spark.read.parquet(str(payments))).toArrow()


def committed_output(output: Path) -> pa.Table:
    """Return the rows that the stream has committed.

    Raises:
        ConfigurationError: nothing was written to ``output``.
        CorruptCheckpointError: a committed file is missing.
    """
    return pa.concat_tables(pq.read_table(file) for file in committed_files(output))


def compare(expected: pa.Table, found: pa.Table) -> Comparison:
    """Compare row by row; the order of rows and the encoding of columns do not count."""
    found = found.select(expected.column_names).cast(expected.schema)
    differences: list[str] = []
    if not expected.sort_by(_ORDER).equals(found.sort_by(_ORDER)):
        differences = [*_repeated(found), *_unequal(expected, found)]
    return Comparison(expected.num_rows, found.num_rows, tuple(differences[:DIFFERENCES_MAX]))


_ORDER = [(key, "ascending") for key in KEYS]


def _repeated(found: pa.Table) -> list[str]:
    counts = found.group_by(KEYS).aggregate([([], "count_all")])
    repeated = counts.filter(pc.field("count_all") > 1).slice(0, DIFFERENCES_MAX)
    return [f"{_name(row)} is there {row['count_all']} times" for row in repeated.to_pylist()]


def _unequal(expected: pa.Table, found: pa.Table) -> list[str]:
    columns = [name for name in expected.column_names if name not in KEYS]
    both = expected.join(found, KEYS, join_type="full outer", right_suffix="_found")
    differs = [
        (pc.field(name) != pc.field(f"{name}_found"))
        | pc.field(name).is_null()
        | pc.field(f"{name}_found").is_null()
        for name in columns
    ]
    unequal = both.filter(reduce(or_, differs)).sort_by(_ORDER).slice(0, DIFFERENCES_MAX)
    return [_difference(row, columns) for row in unequal.to_pylist()]


def _difference(row: dict[str, object], columns: list[str]) -> str:
    if all(row[f"{name}_found"] is None for name in columns):
        return f"{_name(row)} is missing"
    if all(row[name] is None for name in columns):
        return f"{_name(row)} should not be there"
    wrong = [name for name in columns if row[name] != row[f"{name}_found"]]
    return f"{_name(row)}: " + ", ".join(
        f"{name} is {row[f'{name}_found']} instead of {row[name]}" for name in wrong
    )


def _name(row: dict[str, object]) -> str:
    return f"{row['merchant']} at {row['window_start']:%Y-%m-%d %H:%M}"
