"""Process functions of two inputs: rows of both meet in the state of their key.

    class Settle:
        state = {"order": ValueState(pa.int64()), "cents": ValueState(pa.int64())}
        schema = pa.schema([("order", pa.int64()), ("cents", pa.int64())])

        def process_left(self, rows, keys, state, timers): ...

        def process_right(self, rows, keys, state, timers): ...

A key has one state, whichever input its rows come from, and one set of timers. Its columns have the
names of the left input.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple, Protocol, runtime_checkable

import pyarrow as pa

from laminar_core.codec.stable_hash import require_key_type
from laminar_core.operators.base import LATE, JsonObject, SubtaskContext
from laminar_core.operators.columns import require_columns
from laminar_core.operators.joins.side import require_keys
from laminar_core.operators.process.handles import Timers
from laminar_core.operators.process.keys import Keys
from laminar_core.operators.process.spec import DeclaresState, ProcessSpec, RowsOut
from laminar_core.operators.process.subtask import ConnectedSubtask, InputCalls, KeyedState

LATE_SIDES = (f"{LATE}_left", f"{LATE}_right")
"""Names of the side outputs of late rows."""


@runtime_checkable
class ConnectedProcess(DeclaresState, Protocol):
    """A user's code over rows of two inputs with equal keys.

    All else is as in ``Process``: ``on_timer``, ``on_clock_timer``, ``sides`` and ``version``.
    ``keys`` are those of the rows, each once, with the column names of the left input.
    """

    def process_left(
        self, rows: pa.RecordBatch, keys: Keys, state: KeyedState, timers: Timers
    ) -> RowsOut:
        """Take rows of the first input."""
        ...

    def process_right(
        self, rows: pa.RecordBatch, keys: Keys, state: KeyedState, timers: Timers
    ) -> RowsOut:
        """Take rows of the second input."""
        ...


class ProcessInput(NamedTuple):
    """The columns of an input that a process function acts on, as in ``ProcessRows``."""

    keys: tuple[str, ...]
    time_column: str | None = None
    lag_us: int = 0


@dataclass(frozen=True, slots=True)
class ProcessConnected(ProcessSpec[ConnectedProcess]):
    """Run a user's process function over two inputs, each exchanged by its keys.

    ``keys`` are those of the left input.
    """

    inputs: tuple[ProcessInput, ProcessInput]

    @property
    def input_names(self) -> Sequence[str]:
        """Return what each input is called in messages."""
        return ("left input", "right input")

    def describe(self) -> JsonObject:
        """Return the description of a process function, and the keys of the right input."""
        described = ProcessSpec[ConnectedProcess].describe(self)
        return {**described, "right_keys": list(self.inputs[1].keys)}

    def output_schema(self, *inputs: pa.Schema) -> pa.Schema:
        """Return the schema that the process declares.

        Raises:
            ConfigurationError: a key or time is missing (WRONG_SCHEMA) or of a type that cannot be
                one, or keys differ in type (UNSUPPORTED_TYPE); a name is used twice, or event time
                is needed and there is none (INVALID_PIPELINE).
        """
        for one, schema in zip(self.inputs, inputs, strict=True):
            require_columns(schema, one.keys)
            for key in one.keys:
                require_key_type(schema.field(key).type)
        require_keys(*self.inputs, inputs)
        self.require_names(self._late(inputs))
        for one, schema, name in zip(self.inputs, inputs, self.input_names, strict=True):
            self.require_time(schema, one.time_column, f" of the {name}")
        return self.process.schema

    def side_outputs(self, *inputs: pa.Schema) -> Mapping[str, pa.Schema]:
        """Return what the process declares, and late rows of each input, if there can be any."""
        return {**self._late(inputs), **self.sides}

    def open(self, context: SubtaskContext, *inputs: pa.Schema) -> ConnectedSubtask:
        """Create the running instance."""
        functions = (self.process.process_left, self.process.process_right)
        calls = [
            InputCalls(call, keys, time_column if self.needs_event_time else None, lag_us, late)
            for call, (keys, time_column, lag_us), late in zip(
                functions, self.inputs, LATE_SIDES, strict=True
            )
        ]
        return ConnectedSubtask(self.setup(calls, inputs[0]), context)

    def _late(self, inputs: Sequence[pa.Schema]) -> Mapping[str, pa.Schema]:
        return dict(zip(LATE_SIDES, inputs, strict=True)) if self.needs_event_time else {}
