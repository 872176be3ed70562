"""What an operator is: batch in, batch out, and a snapshot in two phases.

An operator exists twice. Its *spec* is part of the plan: a small immutable value that travels from
the driver to the workers, knows its identity and describes itself for the fingerprint. Its
*subtask* is the running instance in one worker; it owns state, and one thread calls it.
"""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Protocol, runtime_checkable

import pyarrow as pa

from laminar_core.protocol.types import (
    WATERMARK_END_US,
    WATERMARK_MIN_US,
    CheckpointId,
    Generation,
    Watermark,
)
from laminar_core.state.chunks import MemoryBackend, StateBackend
from laminar_core.state.rescaling import Redistribution

JsonValue = None | bool | int | float | str | list["JsonValue"] | dict[str, "JsonValue"]
JsonObject = dict[str, JsonValue]


@dataclass(frozen=True, slots=True)
class SubtaskContext:
    """Where a subtask runs: index in [0, parallelism), and the generation that owns the job."""

    operator_id: str
    subtask_index: int
    parallelism: int
    max_parallelism: int
    generation: Generation
    backend: StateBackend = field(default_factory=MemoryBackend)
    """Where large state is put."""


@dataclass(frozen=True, slots=True)
class Snapshot:
    """One operator subtask's part of a checkpoint.

    ``tables`` become segments, one each; they are made one at a time, where they are large, and so
    iterated once. Without any, this subtask holds no rows, which is recorded as such.
    ``properties`` are small facts kept in the manifest itself. ``committables`` are handles of
    pre-committed output: the sink's committer gets them once the checkpoint is complete (PROTOCOL
    section 7).
    """

    tables: Iterable[pa.Table] = ()
    properties: JsonObject = field(default_factory=dict)
    committables: tuple[JsonObject, ...] = ()

    finished_window_us: int | None = None
    """Of a snapshot of changes: what earlier ones hold of windows up to this start is void."""


PendingSnapshot = Callable[[], Snapshot]
"""The asynchronous phase of a snapshot. Runs once, in a background thread, on immutable data."""


class OperatorSubtask(Protocol):
    """The running instance. Never called concurrently; never blocks."""

    def process(self, batch: pa.RecordBatch) -> Iterable[pa.RecordBatch | Watermark]:
        """Take one batch; yield what follows from it, in order."""
        ...

    def on_watermark(self, watermark_us: int) -> Iterable[pa.RecordBatch]:
        """Event time advanced. Yield what it completes.

        The caller then passes the watermark on, or what ``HoldsWatermark`` lets pass of it. At the
        end of the input this is called with ``WATERMARK_END_US``.
        """
        ...

    def snapshot(self, checkpoint_id: CheckpointId) -> PendingSnapshot:
        """Synchronous phase: pin the state as it is now, return the rest as a function.

        Rows processed after this call are not in the snapshot.
        """
        ...

    def restore(self, snapshots: Sequence[Snapshot]) -> None:
        """Start from these snapshots; called at most once, before any batch."""
        ...


@runtime_checkable
class HoldsWatermark(Protocol):
    """An operator subtask whose output may be older than the watermark that it has got."""

    def output_watermark(self, watermark_us: int) -> int | None:
        """Return the watermark to pass on, after ``on_watermark`` has returned everything.

        Nothing that is emitted later is older, as long as no input is older than ``watermark_us``.
        None: nothing can be said yet. The end of the input is not asked for: it passes as it is.
        """
        ...


def output_watermark_of(subtask: OperatorSubtask, watermark_us: int) -> int | None:
    """Return what ``subtask`` lets pass of a watermark; by default all of it.

    An operator that keeps rows until event time has passed them, or that emits times which lie
    before those of its input, is ``HoldsWatermark``. Else what it emits is late for the next one.
    """
    if watermark_us == WATERMARK_END_US or not isinstance(subtask, HoldsWatermark):
        return watermark_us
    held_us = subtask.output_watermark(watermark_us)
    return None if held_us is None else max(held_us, WATERMARK_MIN_US)


@runtime_checkable
class IncrementalSubtask(Protocol):
    """An operator subtask that can also tell what changed since it was asked last.

    What it returns, merged by ``merge_tables`` with what it returned before, is its state. So a
    checkpoint costs what changed, and not what there is.
    """

    def snapshot_changes(self, checkpoint_id: CheckpointId) -> PendingSnapshot:
        """Like ``snapshot``, but the tables are those of what changed since the last call.

        After ``restore`` everything has changed.
        """
        ...

    def merge_tables(
        self, tables: Iterable[pa.Table], finished_window_us: int | None
    ) -> Iterable[pa.Table]:
        """Put tables of consecutive snapshots together; called in a background thread.

        Shapes: as in a snapshot, with one row per key. Rows of windows that start at
        ``finished_window_us`` or before are left out.
        """
        ...


@runtime_checkable
class StatefulSpec(Protocol):
    """An operator that says beforehand which columns its rows have in a checkpoint."""

    @property
    def operator_id(self) -> str:
        """That of the operator."""
        ...

    def state_schema(self, input_schema: pa.Schema) -> pa.Schema:
        """Columns of each table of a snapshot, and the only ones that ``restore`` takes."""
        ...


class OperatorSpec(Protocol):
    """The plan's view of an operator: immutable, and cheap to send to every worker.

    An operator that keeps something and can be restored with another number of workers says so in
    a class attribute ``redistribution``, see ``redistribution_of``.
    """

    @property
    def operator_id(self) -> str:
        """Stable identity of the state: letters, digits, ``-`` and ``_``."""
        ...

    def describe(self) -> JsonObject:
        """What decides whether old state still fits; equal descriptions are compatible."""
        ...

    def output_schema(self, input_schema: pa.Schema) -> pa.Schema:
        """Schema after this operator.

        Raises:
            ConfigurationError: the input lacks a column or has a type that is not supported.
        """
        ...

    def open(self, context: SubtaskContext, input_schema: pa.Schema) -> OperatorSubtask:
        """Create the running instance in a worker."""
        ...


def redistribution_of(spec: OperatorSpec) -> Redistribution | None:
    """Which old snapshots ``restore`` gets when the number of workers has changed.

    None: the operator does not say. A checkpoint in which it kept something is then restored with
    as many workers as before only.
    """
    return getattr(spec, "redistribution", None)
