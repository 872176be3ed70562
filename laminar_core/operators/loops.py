"""The head of a loop, and the check of operators that cannot be in one."""

from dataclasses import dataclass

import pyarrow as pa

from laminar_core.operators.aggregation import PartialAggregate, WindowAggregate
from laminar_core.operators.base import JsonObject, SubtaskContext
from laminar_core.operators.stateless import StatelessSubtask
from laminar_core.operators.watermarks import AssignWatermarks

EVENT_TIME_OPERATORS = (AssignWatermarks, PartialAggregate, WindowAggregate)
"""They wait for event time, or make it: inside a loop, where rows come back, there is none."""


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
