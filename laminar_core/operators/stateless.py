"""Operators without state: map, filter, select.

Functions get and return whole batches, and are never called with an empty one. A function is part
of the pipeline's description by its name and, where Python can find it, its source text. Values it
closes over are not included: a changed constant outside the function goes unnoticed.
"""

import hashlib
import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import pyarrow as pa
import pyarrow.compute as pc

from laminar_core.arguments import other_argument
from laminar_core.codec.arrow import empty_table
from laminar_core.codec.source_text import source_text
from laminar_core.errors import ConfigurationError, ErrorCode
from laminar_core.operators.base import (
    ANY_MODE,
    JsonObject,
    JsonValue,
    OutputMode,
    PendingSnapshot,
    Snapshot,
    SubtaskContext,
)
from laminar_core.operators.columns import require_columns, require_distinct
from laminar_core.operators.emitted import require_emitted
from laminar_core.operators.weights import as_batch
from laminar_core.protocol.types import CheckpointId

BatchFunction = Callable[[pa.RecordBatch], pa.RecordBatch]
_UNKNOWN_FIELD = re.compile(r"FieldRef\.Name\((.*?)\)")  # As pyarrow words its error.

Predicate = pc.Expression | Callable[[pa.RecordBatch], pa.BooleanArray]


class StatelessSubtask:
    """Applies one function to every batch that has rows; has nothing to save."""

    def __init__(self, apply: BatchFunction) -> None:
        self._apply = apply

    def process(self, batch: pa.RecordBatch) -> Iterator[pa.RecordBatch]:
        """Yield the function's result, unless it is empty."""
        if batch.num_rows:
            result = self._apply(batch)
            if result.num_rows:
                yield result

    def on_watermark(self, watermark_us: int) -> Iterable[pa.RecordBatch]:
        """Yield nothing: results do not depend on event time."""
        del watermark_us
        return ()

    def snapshot(self, checkpoint_id: CheckpointId) -> PendingSnapshot:
        """Record that there is nothing to record."""
        del checkpoint_id
        return Snapshot

    def restore(self, snapshots: Sequence[Snapshot]) -> None:
        """Do nothing: there is no state."""


@dataclass(frozen=True, slots=True)
class MapBatches:
    """Replace every batch by ``function(batch)``.

    ``schema`` is what the function returns; without it, the function is called once on an empty
    batch to find out. Of rows that come and go it is given ``_weight``, and returns it with them.
    """

    accepts: ClassVar[frozenset[OutputMode]] = ANY_MODE
    operator_id: str
    function: BatchFunction
    schema: pa.Schema | None = None

    def describe(self) -> JsonObject:
        """Return name and source of the function."""
        return {"kind": "map", "function": describe_function(self.function)}

    def output_schema(self, input_schema: pa.Schema) -> pa.Schema:
        """Return the declared schema, or the schema of the function's result.

        Raises:
            ConfigurationError: the function cannot take an empty batch, or returns none for it
                (INVALID_PIPELINE).
        """
        if self.schema is not None:
            return self.schema
        empty = as_batch(empty_table(input_schema))
        try:
            result: Any = self.function(empty)
        except Exception as error:
            raise ConfigurationError(
                ErrorCode.INVALID_PIPELINE,
                f"map {self.operator_id!r} failed on an empty batch: {type(error).__name__}:"
                f" {error}; correct it, or declare its schema",
            ) from error
        if isinstance(result, pa.RecordBatch):
            return result.schema
        raise ConfigurationError(
            ErrorCode.INVALID_PIPELINE,
            f"map {self.operator_id!r} returned {type(result).__name__} for an empty batch: return"
            " a record batch",
        )

    def open(self, context: SubtaskContext, input_schema: pa.Schema) -> StatelessSubtask:
        """Create the running instance."""
        del context
        schema, what = self.output_schema(input_schema), f"map {self.operator_id!r} returned"

        def apply(batch: pa.RecordBatch) -> pa.RecordBatch:
            return require_emitted(self.function(batch), schema, what)

        return StatelessSubtask(apply)


@dataclass(frozen=True, slots=True)
class FilterRows:
    """Keep the rows for which ``predicate`` is true; null is not true.

    The predicate is an expression, ``pc.field("amount") > 0``, or a function from a batch to a
    boolean array of the same length.
    """

    accepts: ClassVar[frozenset[OutputMode]] = ANY_MODE
    keeps_keys: ClassVar[bool] = True
    operator_id: str
    predicate: Predicate

    def describe(self) -> JsonObject:
        """Return the expression as text, or name and source of the function."""
        if isinstance(self.predicate, pc.Expression):
            return {"kind": "filter", "expression": str(self.predicate)}
        return {"kind": "filter", "function": describe_function(self.predicate)}

    def output_schema(self, input_schema: pa.Schema) -> pa.Schema:
        """Return the input's schema.

        Raises:
            ConfigurationError: the predicate does not fit the input (WRONG_SCHEMA), or is neither
                an expression nor a function (INVALID_OPTION).
        """
        if not isinstance(self.predicate, pc.Expression) and not callable(self.predicate):
            wanted = "needs an expression, as in pc.field('amount') > 0, or a function of a batch"
            raise other_argument(self.predicate, f"filter {self.operator_id!r} {wanted}")
        empty = as_batch(empty_table(input_schema))
        try:
            self._keep(empty)
        except Exception as error:
            if unknown := _UNKNOWN_FIELD.search(str(error)):
                require_columns(input_schema, [unknown[1]])
            reason = f"{type(error).__name__}: {error}".splitlines()[0]
            raise ConfigurationError(
                ErrorCode.WRONG_SCHEMA,
                f"filter {self.operator_id!r} does not fit its input: {reason};"
                f" columns are: {', '.join(input_schema.names) or 'none'}",
            ) from error
        return input_schema

    def open(self, context: SubtaskContext, input_schema: pa.Schema) -> StatelessSubtask:
        """Create the running instance."""
        del context, input_schema
        return StatelessSubtask(self._keep)

    def _keep(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        if isinstance(self.predicate, pc.Expression):
            # Of a batch, pyarrow could not keep no rows with a dictionary of dates or decimals.
            rows = pa.Table.from_batches([batch]).filter(self.predicate).combine_chunks()
            return rows.to_batches()[0] if rows.num_rows else batch.slice(0, 0)
        return batch.filter(self.predicate(batch))


@dataclass(frozen=True, slots=True)
class SelectColumns:
    """Keep these columns, in this order."""

    accepts: ClassVar[frozenset[OutputMode]] = ANY_MODE
    keeps_keys: ClassVar[bool] = True
    operator_id: str
    columns: tuple[str, ...]

    def describe(self) -> JsonObject:
        """Return the names of the columns."""
        return {"kind": "select", "columns": list(self.columns)}

    def output_schema(self, input_schema: pa.Schema) -> pa.Schema:
        """Return the fields of the selected columns.

        Raises:
            ConfigurationError: a column is missing (WRONG_SCHEMA) or named twice
                (INVALID_PIPELINE).
        """
        require_columns(input_schema, self.columns)
        require_distinct(self.columns, "select each once")
        return pa.schema([input_schema.field(name) for name in self.columns])

    def open(self, context: SubtaskContext, input_schema: pa.Schema) -> StatelessSubtask:
        """Create the running instance."""
        del context, input_schema
        return StatelessSubtask(lambda batch: batch.select(self.columns))


def describe_function(function: Callable[..., object]) -> dict[str, JsonValue]:
    """Name a function and, where its source text can be had, digest that.

    The text rather than the bytecode, because the same text compiles differently in every release
    of Python.
    """
    name = f"{getattr(function, '__module__', '?')}.{getattr(function, '__qualname__', '?')}"
    text = source_text(function)
    digest = None if text is None else hashlib.sha256(text.encode()).hexdigest()
    return {"name": name, "source_sha256": digest}
