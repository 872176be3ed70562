"""The interfaces of operators: batch in, batch out, and a snapshot in two phases.

An operator exists twice. Its *spec* is part of the plan: a small immutable value that travels from
the driver to the workers, knows its identity and describes itself for the fingerprint. Its
*subtask* is the running instance in one worker; it owns state, and one thread calls it.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal, Protocol, runtime_checkable

import pyarrow as pa

from laminar_core.host.calls import Calls, ThreadCalls
from laminar_core.host.clock import Clock, SystemClock
from laminar_core.protocol.split_watermarks import SplitWatermarks
from laminar_core.protocol.types import (
    WATERMARK_END_US,
    WATERMARK_MIN_US,
    CheckpointId,
    Generation,
    Watermark,
)
from laminar_core.state.chunks import MemoryBackend, StateBackend
from laminar_core.state.rescaling import Redistribution
from laminar_core.store.staging import StagingArea

JsonValue = None | bool | int | float | str | list["JsonValue"] | dict[str, "JsonValue"]
JsonObject = dict[str, JsonValue]

OutputMode = Literal["append", "upsert", "retract"]
"""Whether a row is new, replaces the earlier row of its key, or adds a row or takes one away."""

ANY_MODE: frozenset[OutputMode] = frozenset({"append", "upsert", "retract"})


@dataclass(frozen=True, slots=True)
class SubtaskContext:
    """The place of a subtask: index in [0, parallelism), and the generation that owns the job."""

    operator_id: str
    subtask_index: int
    parallelism: int
    max_parallelism: int
    generation: Generation
    backend: StateBackend = field(default_factory=MemoryBackend)
    """Storage for large state."""
    staging: StagingArea | None = None
    """Space in the checkpoint store for rows of a sink; only sinks get it."""
    clock: Clock = field(default_factory=SystemClock)
    """The clock of the worker, for operators with timers by it."""
    calls: Calls = field(default_factory=ThreadCalls)
    """Runs coroutines beside the worker's loop."""


@dataclass(frozen=True, slots=True)
class StateTable:
    """Rows of one of an operator's tables of state.

    An operator with one table calls it ``""``. Tables of other columns have names: letters, digits,
    ``-`` and ``_``. Rows that expire have a column that says when, see ``state.expiry``.
    """

    name: str
    rows: pa.Table


@dataclass(frozen=True, slots=True)
class Snapshot:
    """One operator subtask's part of a checkpoint.

    ``tables`` become segments, one each; they are made one at a time, where they are large, and so
    iterated once. Several may have one name, and names may come in any order. Without any, this
    subtask holds no rows, which is recorded as such.
    ``properties`` are small facts kept in the manifest itself. ``committables`` are handles of
    pre-committed output: the sink's committer gets them once the checkpoint is complete (PROTOCOL
    section 7).
    """

    tables: Iterable[StateTable] = ()
    properties: JsonObject = field(default_factory=dict[str, JsonValue])
    committables: tuple[JsonObject, ...] = ()

    expired_us: Mapping[str, int] = field(default_factory=dict[str, int])
    """By table: rows that expire at this time or before are void, also those of earlier snapshots.

    ``restore`` does not get them, whatever its own watermark is then: what an operator has given up
    it must not give up twice. The manifest has this, for readers, too.
    """

    @classmethod
    def of(cls, tables: Iterable[pa.Table], properties: JsonObject | None = None) -> "Snapshot":
        """Return the snapshot of an operator with one table, in one or several pieces.

        Pieces in a sequence can be read more than once; others are made as they are read.
        """
        pieces = one_table(tables)
        return cls(tuple(pieces) if isinstance(tables, Sequence) else pieces, properties or {})

    def rows(self) -> Iterator[pa.Table]:
        """Yield the tables of an operator that has only one, without its name."""
        for table in self.tables:
            assert not table.name, f"{table.name} is unknown"
            yield table.rows


def one_table(tables: Iterable[pa.Table]) -> Iterator[StateTable]:
    """Yield the pieces of an operator's only table as they are in a snapshot."""
    return (StateTable("", rows) for rows in tables)


@dataclass(frozen=True, slots=True)
class Side:
    """Rows for the side output of this name, instead of the operator's main output.

    Rows of a side output that no stream reads are dropped.
    """

    output: str
    rows: pa.RecordBatch


LATE = "late"
"""The name of the side output of rows that came too late."""

Emitted = pa.RecordBatch | Watermark | Side
"""A result of a batch: rows, event time that advances, or rows of a side output."""

PendingSnapshot = Callable[[], Snapshot]
"""The asynchronous phase of a snapshot. Runs once, in a background thread, on immutable data."""


class Subtask(Protocol):
    """The running instance of an operator. Never called concurrently; never blocks."""

    def on_watermark(self, watermark_us: int) -> Iterable[pa.RecordBatch | Side]:
        """Advance event time and yield the results that this completes.

        The caller then passes the watermark on, or the watermark of ``HoldsWatermark``. At the end
        of the input it calls this with ``WATERMARK_END_US``.
        """
        ...

    def snapshot(self, checkpoint_id: CheckpointId) -> PendingSnapshot:
        """Pin the current state (synchronous phase); return a function for the rest.

        Rows processed after this call are not in the snapshot.
        """
        ...

    def restore(self, snapshots: Sequence[Snapshot]) -> None:
        """Start from these snapshots; called at most once, before any batch."""
        ...


class OperatorSubtask(Subtask, Protocol):
    """The running instance of an operator with one input."""

    def process(self, batch: pa.RecordBatch) -> Iterable[Emitted]:
        """Take one batch; yield what follows from it, in order."""
        ...


@runtime_checkable
class MultiInputSubtask(Subtask, Protocol):
    """The running instance of an operator with several inputs.

    Event time is the least of all inputs: ``on_watermark`` is called once for all of them. Rows of
    one input keep the order of their sender; there is no order between inputs, and a restore can
    change it. So results must not depend on which input's rows come first.
    """

    def process_input(self, index: int, batch: pa.RecordBatch) -> Iterable[Emitted]:
        """Take one batch of this input, counted from 0; yield what follows from it, in order."""
        ...


AnySubtask = OperatorSubtask | MultiInputSubtask


@runtime_checkable
class HoldsWatermark(Protocol):
    """An operator subtask that may emit rows older than the watermark it received."""

    def output_watermark(self, watermark_us: int) -> int | None:
        """Return the watermark to pass on, after ``on_watermark`` has returned everything.

        No later output is older than it, as long as no input is older than ``watermark_us``. None:
        no watermark is known yet. This is not called for the end of the input, which passes
        unchanged.
        """
        ...


@runtime_checkable
class LimitsRows(Protocol):
    """An operator subtask whose work for a batch may be out of proportion to the rows.

    The runtime then takes a part of the batch, and can cut before the rest. It asks only the first
    operator of a vertex.
    """

    def rows_at_once(self, index: int, batch: pa.RecordBatch) -> int:
        """Return how many rows of this input to take at once, from the first one on: 1 or more."""
        ...


@runtime_checkable
class TimedSubtask(Protocol):
    """An operator subtask that acts at times of the clock, between two elements of its input."""

    def next_due_ms(self) -> float | None:
        """Return when it has to act next, in milliseconds since 1970; None: it need not."""
        ...

    def on_time(self, now_ms: float) -> Iterable[Emitted]:
        """Act, and yield what follows; called when the clock has reached ``next_due_ms``.

        It may be called late: after a restore for all times that have passed meanwhile.
        """
        ...


@runtime_checkable
class KeepsRowsWaiting(TimedSubtask, Protocol):
    """A timed operator subtask that emits rows some time after it has taken them."""

    @property
    def has_pending(self) -> bool:
        """Whether rows wait in it; the end of the input waits until none does."""
        ...

    @property
    def is_full(self) -> bool:
        """Whether no further rows are to be taken for now."""
        ...


@runtime_checkable
class KeepsBundle(Protocol):
    """An operator subtask that keeps rows while more of them come, to emit fewer for all of them.

    They are no state: the runtime finishes the bundle before each cut, and as soon as no input is
    there. Before event time passes what it keeps, the operator emits that by itself.
    """

    @property
    def has_bundle(self) -> bool:
        """Whether it keeps any rows."""
        ...

    def finish_bundle(self) -> Iterable[Emitted]:
        """Yield what follows from the rows that it keeps, and keep none."""
        ...


@runtime_checkable
class FollowsSplits(Protocol):
    """An operator subtask that makes event time of rows, per split of a source before it."""

    def follow(self, splits: SplitWatermarks) -> None:
        """Use the event time of the source's splits, which the runtime keeps up to date."""
        ...

    def from_split(self, split_id: int) -> None:
        """Note that the next batches come from this split."""
        ...

    def risen(self) -> Iterable[Watermark]:
        """Yield the watermark, if event time has risen without a batch."""
        ...


def output_watermark_of(subtask: Subtask, watermark_us: int) -> int | None:
    """Return the watermark that ``subtask`` passes on; by default the watermark it received.

    An operator must be ``HoldsWatermark`` if it keeps rows until event time has passed them, or
    emits times earlier than its input. Otherwise its output is late downstream.
    """
    if watermark_us == WATERMARK_END_US or not isinstance(subtask, HoldsWatermark):
        return watermark_us
    held_us = subtask.output_watermark(watermark_us)
    return None if held_us is None else max(held_us, WATERMARK_MIN_US)


@runtime_checkable
class IncrementalSubtask(Protocol):
    """An operator subtask with incremental snapshots.

    The result of ``snapshot_changes``, merged by ``merge_tables`` with all earlier results, is the
    state. So the cost of a checkpoint is in proportion to the changes.
    """

    def snapshot_changes(self, checkpoint_id: CheckpointId) -> PendingSnapshot:
        """Snapshot like ``snapshot``, with only the changes since the last call.

        After ``restore`` the whole state counts as changed.
        """
        ...

    def merge_tables(
        self, name: str, tables: Iterable[pa.Table], expired_us: int | None
    ) -> Iterable[pa.Table]:
        """Put tables of this name, of consecutive snapshots, together; in a background thread.

        Shapes: as in a snapshot, with one row per key. Rows that expire at ``expired_us`` or before
        are left out.
        """
        ...


@runtime_checkable
class StatefulSpec(Protocol):
    """An operator that declares the columns of its rows in a checkpoint."""

    @property
    def operator_id(self) -> str:
        """The id of the operator."""
        ...

    def state_tables(self, *inputs: pa.Schema) -> Mapping[str, pa.Schema]:
        """Return the columns of each table of a snapshot by its name, ``""`` if there is one.

        ``inputs``: the schema of each input. An operator with one input names its one argument.
        ``restore`` accepts no other tables.
        """
        ...


class Spec(Protocol):
    """The plan's view of an operator with any inputs: immutable, and cheap to send to workers.

    An operator with state that can be restored with another number of workers has a class attribute
    ``redistribution``, see ``redistribution_of``. One that works by event time has a class
    attribute ``needs_event_time``, and one that assigns watermarks ``makes_event_time``.
    ``output_mode`` is the mode of its output rows, if that is not the mode of its input; with
    ``upsert`` and ``retract``, ``updates_by`` names the columns of the key: a key has one row at a
    time. ``accepts`` are the modes that it takes, see ``modes_taken_by``. ``keeps_keys``: a row
    becomes at most one row, with the same key.
    """

    @property
    def operator_id(self) -> str:
        """The stable identity of the state: letters, digits, ``-`` and ``_``."""
        ...

    def describe(self) -> JsonObject:
        """Return the description that decides whether old state fits; equal ones are compatible."""
        ...


class OperatorSpec(Spec, Protocol):
    """The plan's view of an operator with one input."""

    def output_schema(self, input_schema: pa.Schema) -> pa.Schema:
        """Return the schema after this operator.

        Raises:
            ConfigurationError: the input lacks a column or has a type that is not supported.
        """
        ...

    def open(self, context: SubtaskContext, input_schema: pa.Schema) -> OperatorSubtask:
        """Create the running instance in a worker."""
        ...


@runtime_checkable
class MultiInputSpec(Spec, Protocol):
    """The plan's view of an operator with several inputs, each with a schema of its own.

    It is the first operator of its vertex. It is called with as many schemas as it has inputs.
    """

    @property
    def input_names(self) -> Sequence[str]:
        """The name of each input in messages, in the order of their numbers."""
        ...

    def output_schema(self, *inputs: pa.Schema) -> pa.Schema:
        """Return the schema after this operator, given the schema of each input.

        Raises:
            ConfigurationError: an input lacks a column or has a type that is not supported.
        """
        ...

    def open(self, context: SubtaskContext, *inputs: pa.Schema) -> MultiInputSubtask:
        """Create the running instance in a worker."""
        ...


AnySpec = OperatorSpec | MultiInputSpec
"""An operator in a plan. One with one input is the case of one: it is called in the same way."""


@runtime_checkable
class SideOutputs(Protocol):
    """An operator that yields ``Side``: it declares each side output with its columns."""

    def side_outputs(self, *inputs: pa.Schema) -> Mapping[str, pa.Schema]:
        """Return the schema of each side output, by name, given the schema of each input."""
        ...


def side_outputs_of(spec: Spec, *inputs: pa.Schema) -> Mapping[str, pa.Schema]:
    """Return the schema of each side output of an operator, by name; most have none."""
    return spec.side_outputs(*inputs) if isinstance(spec, SideOutputs) else {}


def input_names_of(spec: Spec) -> Sequence[str]:
    """Return the name of each input of an operator; most have one."""
    return spec.input_names if isinstance(spec, MultiInputSpec) else ("input",)


def modes_taken_by(spec: Spec) -> frozenset[OutputMode]:
    """Return the modes of streams that an operator takes, by default all without weights.

    One with several inputs by default takes rows that are appended.
    """
    default: set[OutputMode] = {"append"}
    if not isinstance(spec, MultiInputSpec):
        default.add("upsert")
    return getattr(spec, "accepts", frozenset(default))


def keeps_keys(spec: Spec) -> bool:
    """Return whether a column that identified rows still does so behind an operator."""
    return getattr(spec, "keeps_keys", False)


def needs_event_time(spec: Spec) -> bool:
    """Return whether an operator waits for watermarks; it is refused where none can come."""
    return getattr(spec, "needs_event_time", False)


def makes_event_time(spec: Spec) -> bool:
    """Return whether an operator emits watermarks of its own, from the rows."""
    return getattr(spec, "makes_event_time", False)


def redistribution_of(spec: Spec) -> Redistribution | None:
    """Return how old snapshots are redistributed when the number of workers has changed.

    None: undeclared. A checkpoint with state of such an operator can be restored only with the same
    number of workers.
    """
    return getattr(spec, "redistribution", None)
