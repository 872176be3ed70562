"""The head of a loop."""

from dataclasses import dataclass

import pyarrow as pa

from laminar_core.operators.base import JsonObject, SubtaskContext
from laminar_core.operators.stateless import StatelessSubtask


@dataclass(frozen=True, slots=True)
class LoopHead:
    """Lets rows pass: those that enter the loop, and those that come back."""

    operator_id: str

    def describe(self) -> JsonObject:
        """Return the kind."""
        return {"kind": "loop"}

    def output_schema(self, input_schema: pa.Schema) -> pa.Schema:
        """Return the input's schema."""
        return input_schema

    def open(self, context: SubtaskContext, input_schema: pa.Schema) -> StatelessSubtask:
        """Create the running instance."""
        del context, input_schema
        return StatelessSubtask(lambda batch: batch)
