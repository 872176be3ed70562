"""Streams of rows that come and go: each row has a weight.

In a *retract* stream the column ``_weight`` says how many such rows come (2: two more) or go (-1:
one fewer). What is there at the end is the sum of the weights of equal rows. That does not depend
on the order of rows, so a row may go before it has come, when the two took different ways. Until
then its sum is negative, and operators keep it.

Rows are equal if all other columns are: nulls are, and floats with equal bits, so that a row always
takes back itself. Inside a struct floats are compared as keys: one zero, one NaN.
"""

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from laminar_core.aggregates.grouping import plain_column
from laminar_core.aggregates.row_groups import as_array
from laminar_core.codec.stable_hash import require_key_type
from laminar_core.errors import ConfigurationError, ErrorCode
from laminar_core.state.named_tables import WEIGHT, added_up
from laminar_core.state.rows_layout import WEIGHT_TYPE

WEIGHT_FIELD = pa.field(WEIGHT, WEIGHT_TYPE, nullable=False)

Weights = npt.NDArray[np.int32]


def is_weighted(schema: pa.Schema) -> bool:
    """Return whether rows of this schema can have weights: one column ``_weight`` of int32.

    Whether they are weights the mode of the stream says: of changes that were appended to a table
    it is a column like others.
    """
    return schema.names.count(WEIGHT) == 1 and schema.field(WEIGHT).type == WEIGHT_TYPE


def weighted_schema(schema: pa.Schema) -> pa.Schema:
    """Return the schema with ``_weight`` as its last column.

    Raises:
        ConfigurationError: there is such a column already (INVALID_PIPELINE), or rows cannot be
            compared (UNSUPPORTED_TYPE).
    """
    if WEIGHT in schema.names:
        raise ConfigurationError(
            ErrorCode.INVALID_PIPELINE,
            f"a column is called {WEIGHT!r}, and rows that come and go have their weight there:"
            " rename it",
        )
    for field in schema:
        try:
            require_key_type(field.type)
        except ConfigurationError as error:
            raise ConfigurationError(
                ErrorCode.UNSUPPORTED_TYPE,
                f"rows that go are found by their values, and {field.name!r} is {field.type}:"
                " leave it out, or turn it into text",
            ) from error
    return schema.append(WEIGHT_FIELD)


def unweighted_schema(schema: pa.Schema) -> pa.Schema:
    """Return the schema without ``_weight``."""
    return schema.remove(schema.get_field_index(WEIGHT))


def weights_of(batch: pa.RecordBatch | pa.Table) -> Weights:
    """Return the weight of each row."""
    return batch.column(WEIGHT).to_numpy()


def weighted(batch: pa.RecordBatch, weights: npt.ArrayLike) -> pa.RecordBatch:
    """Append ``_weight`` to rows without one: a weight per row, or one for all."""
    column = np.broadcast_to(np.asarray(weights, np.int32), (batch.num_rows,))
    schema = batch.schema.append(WEIGHT_FIELD)
    return pa.RecordBatch.from_arrays([*batch.columns, pa.array(column)], schema=schema)


def unweighted(batch: pa.RecordBatch) -> pa.RecordBatch:
    """Return the rows without their weights."""
    return batch.drop_columns([WEIGHT])


def consolidate(rows: pa.Table | Sequence[pa.RecordBatch]) -> pa.RecordBatch:
    """Add up the weights of equal rows, and leave out those that add up to zero.

    Shapes: at least one batch, all of one schema, which the result has, too. The order of the
    result follows from the input alone.

    Raises:
        DataError: a weight leaves 32 bits (ARITHMETIC_OVERFLOW).
    """
    table = pa.Table.from_batches(rows) if isinstance(rows, Sequence) else rows
    plain = pa.table({name: plain_column(table.column(name)) for name in table.column_names})
    return as_batch(added_up(plain).cast(table.schema))


def as_batch(table: pa.Table) -> pa.RecordBatch:
    """Return the rows of a table as one batch, also if there are none."""
    columns = [as_array(column) for column in table.columns]
    return pa.RecordBatch.from_arrays(columns, schema=table.schema)
