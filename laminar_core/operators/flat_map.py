"""Functions that return any number of batches, and functions of one row at a time.

Both are stateless and known by the name and the source of their function, like ``map``. A function
of rows is for those who think in rows: every value becomes a Python object and back, which costs a
hundred times and more what an operation on the whole column costs.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, ClassVar, TypeGuard

import pyarrow as pa

from laminar_core.aggregates.python_values import array_of
from laminar_core.codec.arrow import empty_table
from laminar_core.errors import ConfigurationError, ErrorCode
from laminar_core.operators.base import ANY_MODE, JsonObject, OutputMode, Side, SubtaskContext
from laminar_core.operators.columns import require_distinct
from laminar_core.operators.emitted import one_or_several, require_emitted, require_side
from laminar_core.operators.stateless import StatelessSubtask, describe_function
from laminar_core.operators.weights import (
    as_batch,
    unweighted,
    weighted,
    weighted_schema,
    weights_of,
)

BatchesOut = pa.RecordBatch | Side
BatchesFunction = Callable[[pa.RecordBatch], BatchesOut | Iterable[BatchesOut]]
"""From a batch to one or several batches, or none; ``Side(name, batch)`` is for a side output."""

Row = Mapping[str, Any]
RowFunction = Callable[[dict[str, Any]], Row | Iterable[Row] | None]
"""From a row to a row, several rows, or None for no row."""


class FlatMapSubtask(StatelessSubtask):
    """Applies one function to every batch and passes on all batches that it returns."""

    def __init__(self, apply: Callable[[pa.RecordBatch], Iterable[BatchesOut]]) -> None:
        super().__init__(lambda batch: batch)
        self._apply_many = apply

    def process(self, batch: pa.RecordBatch) -> Iterator[Any]:
        """Yield the results that have rows, one at a time as the function makes them."""
        if batch.num_rows:
            for result in self._apply_many(batch):
                rows = result.rows if isinstance(result, Side) else result
                if rows.num_rows:
                    yield result


@dataclass(frozen=True, slots=True)
class FlatMapBatches:
    """Replace every batch by the batches that ``function`` returns for it.

    ``schema`` is what these have; without it, the function is called once on an empty batch to
    find out. Of rows that come and go it is given ``_weight``, and returns it with them.
    ``sides``: the columns of each side output, by name.
    """

    operator_id: str
    function: BatchesFunction
    schema: pa.Schema | None = None
    sides: Mapping[str, pa.Schema] = field(default_factory=dict[str, pa.Schema])

    @property
    def accepts(self) -> frozenset[OutputMode]:
        """Return the streams that it takes: rows of a side output have no weights."""
        return ANY_MODE - {"retract"} if self.sides else ANY_MODE

    def describe(self) -> JsonObject:
        """Return name and source of the function."""
        return {"kind": "flat-map", "function": describe_function(self.function)}

    def output_schema(self, input_schema: pa.Schema) -> pa.Schema:
        """Return the declared schema, or the schema of the function's first result.

        Raises:
            ConfigurationError: the function cannot take an empty batch, or returns none for it
                (INVALID_PIPELINE).
        """
        if self.schema is not None:
            return self.schema
        empty = as_batch(empty_table(input_schema))
        try:
            results = [made for made in self._results(empty) if not isinstance(made, Side)]
        except ConfigurationError:
            raise
        except Exception as error:
            raise ConfigurationError(
                ErrorCode.INVALID_PIPELINE,
                f"flat_map {self.operator_id!r} failed on an empty batch: {type(error).__name__}:"
                f" {error}; correct it, or declare its schema",
            ) from error
        if not results:
            raise ConfigurationError(
                ErrorCode.INVALID_PIPELINE,
                f"flat_map {self.operator_id!r} returned no batch for an empty one: declare its"
                " schema",
            )
        return results[0].schema

    def side_outputs(self, input_schema: pa.Schema) -> Mapping[str, pa.Schema]:
        """Return the declared side outputs."""
        del input_schema
        return self.sides

    def open(self, context: SubtaskContext, input_schema: pa.Schema) -> FlatMapSubtask:
        """Create the running instance."""
        del context
        schema = self.output_schema(input_schema)

        what = f"flat_map {self.operator_id!r} returned"

        def apply(batch: pa.RecordBatch) -> Iterator[BatchesOut]:
            for result in self._results(batch):
                if isinstance(result, Side):
                    require_side(result, self.sides, what)
                else:
                    require_emitted(result, schema, what)
                yield result

        return FlatMapSubtask(apply)

    def _results(self, batch: pa.RecordBatch) -> Iterator[BatchesOut]:
        for result in one_or_several(self.function(batch)):
            if not isinstance(result, BatchesOut):
                raise _wrong_schema(
                    f"flat_map {self.operator_id!r} returned a {type(result).__name__} where a"
                    " record batch is needed"
                )
            yield result


@dataclass(frozen=True, slots=True)
class MapRows:
    """Replace every row, as a dictionary, by the rows that ``function`` returns for it.

    Each of these has exactly the columns of ``schema``, with values that fit their types. Of rows
    that come and go the function is not given the weight: a row has the weight of the row that it
    is made of.
    """

    accepts: ClassVar[frozenset[OutputMode]] = ANY_MODE
    operator_id: str
    function: RowFunction
    schema: pa.Schema
    has_weights: bool = False

    def describe(self) -> JsonObject:
        """Return name and source of the function."""
        described: JsonObject = {"kind": "map-rows", "function": describe_function(self.function)}
        return {**described, "has_weights": True} if self.has_weights else described

    def output_schema(self, input_schema: pa.Schema) -> pa.Schema:
        """Return the declared schema.

        Raises:
            ConfigurationError: it has no column, or two of one name (INVALID_PIPELINE).
        """
        del input_schema
        if not self.schema.names:
            raise ConfigurationError(
                ErrorCode.INVALID_PIPELINE,
                f"map_rows {self.operator_id!r} needs a schema with at least one column",
            )
        require_distinct(self.schema.names, "give each column of the schema its own name")
        return weighted_schema(self.schema) if self.has_weights else self.schema

    def open(self, context: SubtaskContext, input_schema: pa.Schema) -> StatelessSubtask:
        """Create the running instance."""
        del context
        self.output_schema(input_schema)
        return StatelessSubtask(self._map)

    def _map(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        found = list(self._rows(unweighted(batch) if self.has_weights else batch))
        rows = [row for _, row in found]
        made = pa.RecordBatch.from_arrays(
            [self._column(field, rows) for field in self.schema], schema=self.schema
        )
        if not self.has_weights:
            return made
        return weighted(made, weights_of(batch)[[place for place, _ in found]])

    def _rows(self, batch: pa.RecordBatch) -> Iterator[tuple[int, Row]]:
        """Yield the rows that are made, each with the place of the row that it is made of."""
        names = dict.fromkeys(self.schema.names).keys()
        for place, row in enumerate(batch.to_pylist()):
            result = self.function(row)
            if result is None:
                continue
            for made in _several(result):
                if not _is_row(made):
                    raise self._wrong(f"a {type(made).__name__}")
                if made.keys() != names:
                    raise self._wrong(f"({', '.join(made)})")
                yield place, made

    def _wrong(self, found: str) -> ConfigurationError:
        wanted = ", ".join(self.schema.names)
        return _wrong_schema(
            f"map_rows {self.operator_id!r} returned {found} instead of a row with ({wanted})"
        )

    def _column(self, field: pa.Field, rows: list[Row]) -> pa.Array:
        try:
            return array_of([row[field.name] for row in rows], field.type)
        except (pa.ArrowException, TypeError, ValueError, OverflowError) as error:
            reason = str(error).partition("\n")[0]
            raise _wrong_schema(
                f"map_rows {self.operator_id!r} returned a value that does not fit column"
                f" {field.name!r} ({field.type}): {reason}"
            ) from error


def _several(result: Row | Iterable[Row]) -> Iterable[object]:
    return (result,) if _is_row(result) or not hasattr(result, "__iter__") else result


def _is_row(thing: object) -> TypeGuard[Row]:
    return isinstance(thing, dict | Mapping)  # A dictionary is known much faster than a mapping.


def _wrong_schema(problem: str) -> ConfigurationError:
    return ConfigurationError(ErrorCode.WRONG_SCHEMA, problem)
