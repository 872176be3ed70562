"""Process functions in a plan: what a user's class declares, and its description.

    class Visits:
        state = {"count": ValueState(pa.int64(), ttl="1 hour")}
        schema = pa.schema([("user", pa.string()), ("count", pa.int64())])

        def process(self, rows, keys, state, timers):
            counts = pc.add(pc.fill_null(state["count"].get(keys), 0), np.bincount(keys.of_row))
            state["count"].put(keys, counts)
            timers.set(keys, keys.times_us + 60_000_000)

        def on_timer(self, due, keys, state, timers):
            columns = [keys.column("user"), state["count"].get(keys)]
            return pa.record_batch(columns, schema=self.schema)

The functions are called with whole batches, and never with an empty one.
"""

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import ClassVar, Generic, Protocol, TypeVar, runtime_checkable

import pyarrow as pa

from laminar_core.aggregates.grouping import plain_type
from laminar_core.arguments import require_instance, require_methods
from laminar_core.codec.code_digest import code_digest
from laminar_core.codec.stable_hash import require_key_type
from laminar_core.errors import ConfigurationError, ErrorCode
from laminar_core.operators.base import LATE, Emitted, JsonObject, Side, SubtaskContext
from laminar_core.operators.columns import require_columns, require_distinct
from laminar_core.operators.process.declared import State
from laminar_core.operators.process.entries import PLACE
from laminar_core.operators.process.handles import Timers
from laminar_core.operators.process.keys import Keys
from laminar_core.operators.process.lists import POSITION, ListState
from laminar_core.operators.process.maps import ENTRY, MapState
from laminar_core.operators.process.subtask import (
    CLOCK_TIMERS,
    DUE,
    TIMERS,
    Calls,
    InputCalls,
    KeyedState,
    ProcessSubtask,
    Setup,
)
from laminar_core.operators.process.timers import IS_SET, timer_layout
from laminar_core.operators.windows import require_time_column
from laminar_core.state.expiry import EXPIRES
from laminar_core.state.named_tables import TABLES, TableLayout, described
from laminar_core.state.rescaling import Redistribution
from laminar_core.state.window_layout import KEY_GROUP

RowsOut = Iterable[Emitted] | pa.RecordBatch | Side | None
"""The result of a process function: batches of its schema, one batch, or nothing.

``Side(name, batch)`` in place of a batch is for a side output.
"""


class DeclaresState(Protocol):
    """Declares state and the columns of the result; every process function does."""

    @property
    def state(self) -> Mapping[str, State]:
        """The states by name; most often an attribute of the class."""
        ...

    @property
    def schema(self) -> pa.Schema:
        """The columns of what it emits; most often an attribute of the class."""
        ...


P = TypeVar("P", bound=DeclaresState)


@runtime_checkable
class Process(DeclaresState, Protocol):
    """A user's code over keyed rows.

    ``on_timer`` and ``on_clock_timer`` have the form of ``on_timer`` in ``TimedProcess``; a class
    without them can set no such timers. An attribute ``sides`` declares side outputs: the columns
    of each, by name. An attribute ``version`` numbers what the state means; a class without it must
    not change while its state is to be continued.
    """

    def process(
        self, rows: pa.RecordBatch, keys: Keys, state: KeyedState, timers: Timers
    ) -> RowsOut:
        """Take rows; ``keys`` are those of the rows, each once."""
        ...


@runtime_checkable
class TimedProcess(Protocol):
    """A process function with timers in event time."""

    def on_timer(
        self, due: pa.RecordBatch, keys: Keys, state: KeyedState, timers: Timers
    ) -> RowsOut:
        """Take timers that are due: key columns and the time in ``due``, a key at most once."""
        ...


@runtime_checkable
class ClockProcess(Protocol):
    """A process function with timers by the clock."""

    def on_clock_timer(
        self, due: pa.RecordBatch, keys: Keys, state: KeyedState, timers: Timers
    ) -> RowsOut:
        """Take timers that are due by the clock, as ``on_timer`` does."""
        ...


ProcessFunction = Callable[[pa.RecordBatch, Keys, KeyedState, Timers], RowsOut]


@dataclass(frozen=True, slots=True)
class FunctionProcess:
    """A single function as a process without timers."""

    function: ProcessFunction
    schema: pa.Schema
    state: Mapping[str, State] = field(default_factory=dict[str, State])
    sides: Mapping[str, pa.Schema] = field(default_factory=dict[str, pa.Schema])

    def process(
        self, rows: pa.RecordBatch, keys: Keys, state: KeyedState, timers: Timers
    ) -> RowsOut:
        """Call the function."""
        return self.function(rows, keys, state, timers)


@dataclass(frozen=True, slots=True)
class ProcessSpec(Generic[P]):
    """A user's process function in a plan; ``keys`` are the key columns of its state."""

    redistribution: ClassVar[Redistribution] = "keyed"
    operator_id: str
    keys: tuple[str, ...]
    process: P

    def __post_init__(self) -> None:
        states = self.process.state
        process = f"process {self.operator_id!r}"
        require_instance(
            states, Mapping, f"{process}: state must be a mapping from names to states"
        )
        for name, declared in states.items():
            wanted = f"state {name!r} of {process} must be a state such as ValueState(pa.int64())"
            require_methods(declared, ("ttl_us",), wanted)

    @property
    def needs_event_time(self) -> bool:
        """Whether it acts on event time, which there is not in a loop."""
        return isinstance(self.process, TimedProcess) or any(
            declared.ttl_us is not None for declared in self.process.state.values()
        )

    @property
    def sides(self) -> Mapping[str, pa.Schema]:
        """The side outputs that the process declares."""
        return getattr(self.process, "sides", {})

    def describe(self) -> JsonObject:
        """Return keys and states: their meaning is the version, or the code if there is none.

        The time to live may change from now on.
        """
        states: JsonObject = {
            name: declared.describe() for name, declared in self.process.state.items()
        }
        version = getattr(self.process, "version", None)
        meaning: JsonObject = {"code": code_digest(self.process)}
        if version is not None:
            meaning = {"version": int(version)}
        fields = [pa.field(key, pa.null()) for key in self.keys]
        return {
            "kind": "process",
            "keys": list(self.keys),
            "states": states,
            **meaning,
            TABLES: described(self._layouts(fields)),
        }

    def state_tables(self, *inputs: pa.Schema) -> Mapping[str, pa.Schema]:
        """Return a table per state, and the timers."""
        layouts = self._layouts(self._key_fields(inputs[0]))
        return {layout.name: layout.schema for layout in layouts}

    def require_names(self, late: Collection[str]) -> None:
        """Accept the names that the process declares; ``late``: side outputs of late rows.

        Raises:
            ConfigurationError: a name is used twice, or cannot be one (INVALID_PIPELINE).
        """
        reserved = [KEY_GROUP, EXPIRES, IS_SET, DUE, POSITION, ENTRY]
        if any(isinstance(kept, ListState | MapState) for kept in self.process.state.values()):
            reserved.append(PLACE)
        require_distinct(
            [*self.keys, *self.process.state, *reserved],
            "rename the key or the state: what is kept has a column for each",
        )
        for name in self.process.state:
            if not name.isidentifier() or not name.isascii():
                raise ConfigurationError(
                    ErrorCode.INVALID_PIPELINE,
                    f"process {self.operator_id!r} calls a state {name!r}: use letters, digits, _",
                )
        for name in late:
            if name in self.sides:
                raise ConfigurationError(
                    ErrorCode.INVALID_PIPELINE,
                    f"process {self.operator_id!r} declares the side output {name!r}, which is for"
                    " its late rows: rename it",
                )

    def require_time(self, schema: pa.Schema, time_column: str | None, of: str = "") -> None:
        """Accept the event time of an input; ``of`` names it in the message if there are several.

        Raises:
            ConfigurationError: the column is missing (WRONG_SCHEMA) or no time (UNSUPPORTED_TYPE),
                or there is none and event time is needed (INVALID_PIPELINE).
        """
        if time_column is not None:
            require_columns(schema, [time_column])
            require_time_column(schema, time_column)
        elif self.needs_event_time:
            raise ConfigurationError(
                ErrorCode.INVALID_PIPELINE,
                f"timers and times to live of process {self.operator_id!r} need event time{of}:"
                " call watermark(column) before, or pass time=column",
            )

    def setup(self, inputs: Sequence[InputCalls], first: pa.Schema) -> Setup:
        """Return the parts of a subtask; ``first``: the columns of the first input."""
        layouts = self._layouts(self._key_fields(first))
        return Setup(
            self.operator_id,
            self.keys,
            self.process.schema,
            {layout.name: layout for layout in layouts},
            dict(self.process.state),
            self.sides,
            inputs,
            Calls(
                getattr(self.process, "on_timer", None),
                getattr(self.process, "on_clock_timer", None),
            ),
        )

    def _key_fields(self, schema: pa.Schema) -> list[pa.Field]:
        return [pa.field(k, plain_type(schema.field(k).type)) for k in self.keys]

    def _layouts(self, fields: list[pa.Field]) -> list[TableLayout]:
        states = self.process.state.items()
        found = [declared.layout(name, fields) for name, declared in states]
        if isinstance(self.process, TimedProcess):
            found.append(timer_layout(TIMERS, fields))
        if isinstance(self.process, ClockProcess):
            found.append(timer_layout(CLOCK_TIMERS, fields))
        return found


@dataclass(frozen=True, slots=True)
class ProcessRows(ProcessSpec[Process]):
    """Run a user's process function over rows that are exchanged by ``keys``.

    ``time_column``: the event time, whose values may lag ``lag_us`` behind the watermark. Without
    it there are no timers in event time, no time to live, and no row is late.
    """

    time_column: str | None = None
    lag_us: int = 0

    def output_schema(self, input_schema: pa.Schema) -> pa.Schema:
        """Return the schema that the process declares.

        Raises:
            ConfigurationError: a key or the time is missing (WRONG_SCHEMA) or of a type that cannot
                be one (UNSUPPORTED_TYPE); a name is used twice, or event time is needed and there
                is none (INVALID_PIPELINE).
        """
        require_columns(input_schema, self.keys)
        for key in self.keys:
            require_key_type(input_schema.field(key).type)
        self.require_names([LATE] if self.needs_event_time else [])
        self.require_time(input_schema, self.time_column)
        return self.process.schema

    def side_outputs(self, input_schema: pa.Schema) -> Mapping[str, pa.Schema]:
        """Return what the process declares, and the schema of late rows, if there can be any."""
        late = {LATE: input_schema} if self.needs_event_time else {}
        return {**late, **self.sides}

    def open(self, context: SubtaskContext, input_schema: pa.Schema) -> ProcessSubtask:
        """Create the running instance."""
        time_column = self.time_column if self.needs_event_time else None
        rows = InputCalls(self.process.process, self.keys, time_column, self.lag_us)
        return ProcessSubtask(self.setup([rows], input_schema), context)
