"""Columns of partial results: of operators that make them, and of operators that merge them."""

from collections.abc import Iterator, Sequence

import pyarrow as pa

from laminar_core.aggregates.accumulators import (
    Accumulator,
    Aggregate,
    accumulator_type,
    accumulators_of,
    first_value,
    result_type,
)
from laminar_core.aggregates.grouping import plain_type
from laminar_core.codec.stable_hash import require_key_type
from laminar_core.operators.columns import require_columns, require_distinct
from laminar_core.state.window_layout import KEY_GROUP


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
            aggregated so (UNSUPPORTED_TYPE), or two columns have one name (INVALID_PIPELINE), be it
            with the key group in a checkpoint.
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
    require_distinct([KEY_GROUP, *(field.name for field in fields)], "rename the key column")
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


def first_values(partial: pa.Schema, aggregates: Sequence[Aggregate]) -> dict[str, pa.Scalar]:
    """Return, by accumulator in ``partial`` that can be added, its value before the first row."""
    values = {
        a.name: first_value(a, partial.field(a.name).type) for a in accumulators_of(aggregates)
    }
    return {name: value for name, value in values.items() if value is not None}


def kept_together(aggregates: Sequence[Aggregate]) -> Iterator[tuple[str, ...]]:
    """Yield the accumulators of each aggregate that is computed from several."""
    for aggregate in aggregates:
        if len(aggregate.accumulators) > 1:
            yield tuple(needs.name for needs in aggregate.accumulators)


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
