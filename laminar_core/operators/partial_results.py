"""Columns of partial results: of operators that make them, and of operators that merge them."""

from collections.abc import Sequence

import pyarrow as pa

from laminar_core.aggregates.accumulators import (
    Accumulator,
    Aggregate,
    accumulator_type,
    accumulators_of,
    result_type,
)
from laminar_core.aggregates.grouping import plain_type
from laminar_core.codec.stable_hash import require_key_type
from laminar_core.operators.columns import require_columns, require_distinct


def combined_schema(
    input_schema: pa.Schema,
    keys: Sequence[str],
    accumulators: Sequence[Accumulator],
    between: Sequence[pa.Field] = (),
) -> pa.Schema:
    """Return the columns of partial results: plain ``keys``, ``between``, ``accumulators``.

    ``input_schema`` has the columns of the rows that are reduced.

    Raises:
        ConfigurationError: a column is missing (WRONG_SCHEMA), has a type that cannot be a key or
            aggregated so (UNSUPPORTED_TYPE), or two columns have one name (INVALID_PIPELINE).
    """
    values = [column for needs in accumulators for column in needs.columns]
    require_columns(input_schema, [*keys, *values])
    fields: list[pa.Field] = []
    for key in keys:
        require_key_type(input_schema.field(key).type)
        fields.append(pa.field(key, plain_type(input_schema.field(key).type)))
    fields += between
    for needs in accumulators:
        over = [input_schema.field(column).type for column in needs.columns]
        fields.append(pa.field(needs.name, accumulator_type(needs, *over)))
    require_distinct([field.name for field in fields], "rename the key column")
    return pa.schema(fields)


def partial_schema(
    input_schema: pa.Schema, keys: Sequence[str], aggregates: Sequence[Aggregate]
) -> pa.Schema:
    """Return the columns of partial results: ``keys``, then the accumulators of ``aggregates``.

    Raises:
        ConfigurationError: the input lacks one of them (WRONG_SCHEMA).
    """
    names = [*keys, *(needs.name for needs in accumulators_of(aggregates))]
    require_columns(input_schema, names)
    return pa.schema([input_schema.field(name) for name in names])


def result_schema(
    partial: pa.Schema,
    keys: Sequence[str],
    aggregates: Sequence[Aggregate],
    between: Sequence[pa.Field] = (),
) -> pa.Schema:
    """Return the columns of results: ``keys``, then ``between``, then one for each aggregate.

    ``partial`` are the columns of the partial results.

    Raises:
        ConfigurationError: two columns have one name (INVALID_PIPELINE).
    """
    fields = [pa.field(key, partial.field(key).type) for key in keys]
    fields += between
    fields += [pa.field(a.name, result_type(a, partial)) for a in aggregates]
    require_distinct(
        [field.name for field in fields], 'name one of them, as in agg.sum("amount", name="total")'
    )
    return pa.schema(fields)
