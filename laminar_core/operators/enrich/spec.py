"""Enrichment in a plan: the user's coroutine, its limits, and what becomes of failed calls."""

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from inspect import iscoroutinefunction
from typing import ClassVar, Literal

import pyarrow as pa

from laminar_core.aggregates.grouping import plain_type
from laminar_core.errors import ConfigurationError, ErrorCode
from laminar_core.operators.base import JsonObject, OutputMode, SubtaskContext
from laminar_core.operators.columns import require_distinct
from laminar_core.operators.enrich.subtask import ERROR, FAILED, EnrichSubtask, Limits
from laminar_core.state.rescaling import Redistribution

AsyncFunction = Callable[[pa.RecordBatch], Awaitable[pa.RecordBatch]]
"""From rows to their further columns: a batch with as many rows, in the same order."""

OnError = Literal["fail", "null", "side"]


@dataclass(frozen=True, slots=True)
class Enrich:
    """Add the columns of ``schema``, which calls of ``function`` return; rows keep their order.

    Rows whose calls are not answered yet are the state: after a restore, they are called again.
    """

    redistribution: ClassVar[Redistribution] = "union"
    accepts: ClassVar[frozenset[OutputMode]] = frozenset({"append"})
    operator_id: str
    function: AsyncFunction
    schema: pa.Schema
    limits: Limits
    on_error: OnError = "fail"

    def describe(self) -> JsonObject:
        """Return what it is: rows that wait fit any function, if their columns are the same."""
        return {"kind": "enrich"}

    def output_schema(self, input_schema: pa.Schema) -> pa.Schema:
        """Return the columns of the input, and the new ones.

        Raises:
            ConfigurationError: a name is used twice, the function is no coroutine function, a limit
                or the reaction to errors cannot be (INVALID_PIPELINE).
        """
        require_distinct(
            [*input_schema.names, *self.schema.names, *self._error_column()],
            "rename the column: the new columns stand beside those of the rows",
        )
        problem = ""
        if not iscoroutinefunction(self.function):
            problem = "needs a function that is declared with async def"
        elif self.on_error not in ("fail", "null", "side"):
            problem = f"has on_error={self.on_error!r}: choose 'fail', 'null' or 'side'"
        elif self.on_error == "null" and not all(column.nullable for column in self.schema):
            problem = "has on_error='null' and a column that cannot be null: let it be nullable"
        else:
            problem = self.limits.problem()
        if problem:
            raise ConfigurationError(
                ErrorCode.INVALID_PIPELINE, f"enrich {self.operator_id!r} {problem}"
            )
        return pa.schema([*input_schema, *self.schema])

    def side_outputs(self, input_schema: pa.Schema) -> Mapping[str, pa.Schema]:
        """Return the side output of rows whose calls failed, if ``on_error`` asks for one."""
        if self.on_error != "side":
            return {}
        return {FAILED: input_schema.append(pa.field(ERROR, pa.string()))}

    def state_tables(self, input_schema: pa.Schema) -> Mapping[str, pa.Schema]:
        """Return the columns of the rows that wait."""
        plain = [field.with_type(plain_type(field.type)) for field in input_schema]
        return {"": pa.schema(plain)}

    def open(self, context: SubtaskContext, input_schema: pa.Schema) -> EnrichSubtask:
        """Create the running instance."""
        return EnrichSubtask(
            context,
            self.function,
            input_schema,
            self.output_schema(input_schema),
            self.limits,
            self.on_error,
        )

    def _error_column(self) -> list[str]:
        return [ERROR] if self.on_error == "side" else []
