"""Input and output columns of operators that merge partial results."""

from collections.abc import Sequence

import pyarrow as pa

from laminar_core.aggregates.accumulators import Aggregate, accumulators_of, result_type
from laminar_core.operators.columns import require_columns, require_distinct


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
