"""The physical plan: operators chained into vertices, vertices joined by edges.

Worker *i* hosts subtask *i* of every vertex. Inside a vertex operators call each other directly;
an edge is a set of channels, one FIFO per pair of sender and receiver subtask.
"""

from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import cached_property
from typing import ClassVar

import pyarrow as pa

from laminar_core.connectors.base import Sink, Source
from laminar_core.connectors.formats.bad_rows import BadRowPolicy
from laminar_core.connectors.formats.letters import LETTERS
from laminar_core.errors import ConfigurationError, ErrorCode, LaminarError
from laminar_core.operators.base import (
    AnySpec,
    JsonObject,
    JsonValue,
    makes_event_time,
    needs_event_time,
)
from laminar_core.operators.loops import LoopHead
from laminar_core.plan.event_time import check_event_time
from laminar_core.plan.inputs import check_inputs
from laminar_core.plan.updates import Updates
from laminar_core.protocol.edges import PartitioningKind, may_overtake

INPUTS_KEY = "inputs"
"""Key in the description of a vertex's first operator: its inputs."""


@dataclass(frozen=True, slots=True)
class Keyed:
    """Rows with equal keys meet in one subtask: the owner of their key group."""

    kind: ClassVar = PartitioningKind.KEYED
    columns: tuple[str, ...]

    def __str__(self) -> str:
        return f"keyed by {', '.join(self.columns)}"


@dataclass(frozen=True, slots=True)
class Forward:
    """Subtask i sends to subtask i only."""

    kind: ClassVar = PartitioningKind.FORWARD

    def __str__(self) -> str:
        return "forward"


@dataclass(frozen=True, slots=True)
class Rebalance:
    """Whole batches, round robin over all subtasks."""

    kind: ClassVar = PartitioningKind.REBALANCE

    def __str__(self) -> str:
        return "rebalanced"


@dataclass(frozen=True, slots=True)
class Broadcast:
    """Sends every batch to every subtask."""

    kind: ClassVar = PartitioningKind.BROADCAST

    def __str__(self) -> str:
        return "broadcast"


Partitioning = Keyed | Forward | Rebalance | Broadcast


@dataclass(frozen=True, slots=True)
class SideOutput:
    """A side output: what an operator or a source emits beside its rows, under a name."""

    operator_id: str
    name: str

    def __str__(self) -> str:
        return f"{self.name} of {self.operator_id}"


@dataclass(frozen=True, slots=True)
class SourceNode:
    """The source of a vertex without input edges."""

    operator_id: str
    source: Source
    rows_per_second: float | None = None
    """Pace over all subtasks together; None reads as fast as downstream takes it."""
    idle_timeout_ms: int | None = None
    """Without rows for so long, the subtask no longer holds event time back; None: always does."""
    bad_rows: BadRowPolicy = field(default_factory=BadRowPolicy)
    """The policy for messages that are no rows."""
    max_drift_us: int | None = None
    """A split so far ahead of the slowest one in event time is read no further; None: it is."""


@dataclass(frozen=True, slots=True)
class SinkNode:
    """The sink of a vertex without output edges."""

    operator_id: str
    sink: Sink
    updates: Updates = field(default_factory=Updates)
    """The mode of its rows: whether they replace earlier ones."""


@dataclass(frozen=True, slots=True)
class Vertex:
    """A chain: source or input edges, then operators, then sink or output edges."""

    vertex_id: str
    """Stable like the ids of its operators: event time is restored by it."""
    input_schemas: tuple[pa.Schema, ...]
    """The schema of each input of the first operator; only this one can have several."""
    source: SourceNode | None = None
    operators: tuple[AnySpec, ...] = ()
    sink: SinkNode | None = None

    def operator_ids(self) -> Iterator[str]:
        """Yield the ids of all members of the chain that take part in checkpoints, in order."""
        for operator_id, _ in self.members():
            yield operator_id

    def members(self) -> Iterator[tuple[str, Source | AnySpec | Sink]]:
        """Yield the source, the operators and the sink of the chain with their ids, in order."""
        if self.source is not None:
            yield self.source.operator_id, self.source.source
        for operator in self.operators:
            yield operator.operator_id, operator
        if self.sink is not None:
            yield self.sink.operator_id, self.sink.sink

    def operators_with_inputs(self) -> Iterator[tuple[AnySpec, tuple[pa.Schema, ...]]]:
        """Yield every operator with the schema of each of its inputs."""
        inputs = self.input_schemas
        for operator in self.operators:
            yield operator, inputs
            inputs = (operator.output_schema(*inputs),)

    def output_schema(self) -> pa.Schema:
        """Return the schema after the whole chain."""
        (schema,) = self.input_schemas[:1]
        for operator, inputs in self.operators_with_inputs():
            schema = operator.output_schema(*inputs)
        return schema


@dataclass(frozen=True, slots=True)
class Edge:
    """Connects two vertices. ``edge_id`` is dense from 0; it is used on the wire only."""

    edge_id: int
    upstream: str
    downstream: str
    partitioning: Partitioning
    schema: pa.Schema
    feedback: bool = False
    """Whether the edge leads back to the head of a loop."""
    loop: str | None = None
    """The loop that both ends are in, named after its first head."""
    side: SideOutput | None = None
    """The side output of the upstream vertex that it carries; None: the rows of the whole chain.

    Barriers of the upstream vertex go to all of its edges."""
    feeds: int = 0
    """The input of the downstream vertex that gets its rows; several edges may feed one."""
    timed: bool = True
    """Whether watermarks of the upstream vertex go to it.

    False: its rows are taken before the operator of the chain that makes event time."""

    @property
    def key_columns(self) -> tuple[str, ...] | None:
        """The columns by which its rows are keyed; None if they are not."""
        return self.partitioning.columns if isinstance(self.partitioning, Keyed) else None

    @property
    def may_overtake(self) -> bool:
        """Whether an unaligned barrier may overtake the data on it."""
        return may_overtake(self.partitioning.kind, self.loop)


@dataclass(frozen=True)  # No slots: ``cached_property`` needs a ``__dict__``.
class Plan:
    """The whole pipeline, vertices in topological order but for feedback edges."""

    vertices: tuple[Vertex, ...]
    edges: tuple[Edge, ...]
    max_parallelism: int = 128

    def inputs_of(self, vertex_id: str) -> list[Edge]:
        """Return the edges into the vertex, by id."""
        return [e for e in self.edges if e.downstream == vertex_id]

    def input_index(self, edge: Edge) -> int:
        """Return the position of the edge among its receiver's inputs: stable, unlike its id."""
        return self.inputs_of(edge.downstream).index(edge)

    def outputs_of(self, vertex_id: str) -> list[Edge]:
        """Return the edges out of the vertex, by id."""
        return [e for e in self.edges if e.upstream == vertex_id]

    def loops(self) -> dict[str, str]:
        """Return the loop of each vertex in one.

        Loops that are nested or share a vertex are one.
        """
        return {e.downstream: e.loop for e in self.edges if e.loop is not None}

    def sources(self) -> list[SourceNode]:
        """Return all sources."""
        return [v.source for v in self.vertices if v.source is not None]

    def sinks(self) -> list[SinkNode]:
        """Return all sinks."""
        return [v.sink for v in self.vertices if v.sink is not None]

    def operator_ids(self) -> list[str]:
        """Return the ids of all operators, sources and sinks that take part in checkpoints."""
        return [o for v in self.vertices for o in v.operator_ids()]

    def descriptions(self) -> dict[str, JsonObject]:
        """Return the description per operator that decides whether old state fits.

        The first operator of a vertex is described with its inputs, because a checkpoint stores
        event time by the number of the input channel. Later calls return what the first one did,
        in a new dictionary with the same values: do not change these.

        Raises:
            ConfigurationError: an operator cannot be described (INVALID_PIPELINE).
        """
        return dict(self._described)

    @cached_property
    def _described(self) -> dict[str, JsonObject]:
        described: dict[str, JsonObject] = {}
        for vertex in self.vertices:
            for operator_id, member in vertex.members():
                try:
                    described[operator_id] = member.describe()
                except LaminarError:
                    raise
                except Exception as error:
                    raise ConfigurationError(
                        ErrorCode.INVALID_PIPELINE,
                        f"{operator_id!r} cannot be described: {error!r}",
                    ) from error
            if edges := self.inputs_of(vertex.vertex_id):
                first = next(vertex.operator_ids())
                inputs: list[JsonValue] = [_describe_input(e) for e in edges]
                described[first] = {**described[first], INPUTS_KEY: inputs}
        return described

    def check(self) -> None:
        """Refuse a plan that cannot run.

        Raises:
            ConfigurationError: an id is used twice, there is no source or no sink, something is
                not consumed, an operator does not get the inputs that it needs, a loop is none, or
                has operators that cannot be in it, an operator needs event time and no watermark
                comes to it, or a sink would append updates.
        """
        ids = self.operator_ids()
        if repeated := sorted({o for o in ids if ids.count(o) > 1}):
            raise ConfigurationError(
                ErrorCode.INVALID_PIPELINE,
                f"operator names must be unique, {', '.join(repeated)} is used twice: "
                "give one of them another name",
            )
        if not self.sources() or not self.sinks():
            raise ConfigurationError(
                ErrorCode.INVALID_PIPELINE, "a pipeline needs at least one source and one sink"
            )
        for vertex in self.vertices:
            outputs = self.outputs_of(vertex.vertex_id)
            taken = [edge for edge in outputs if edge.side is None and edge.timed]
            if vertex.sink is None and not taken:
                raise ConfigurationError(
                    ErrorCode.INVALID_PIPELINE,
                    f"nothing consumes {vertex.vertex_id}: end it in a sink",
                )
            check_inputs(vertex, self.inputs_of(vertex.vertex_id))
            self._check_letters(vertex)
            self._check_loop(vertex)
            if vertex.sink is not None:
                vertex.sink.updates.check(vertex.sink.operator_id, vertex.sink.sink)
        check_event_time(self)

    def _check_letters(self, vertex: Vertex) -> None:
        node = vertex.source
        if node is None or node.bad_rows.on_bad_row != "letters":
            return
        letters = SideOutput(node.operator_id, LETTERS)
        if all(edge.side != letters for edge in self.outputs_of(vertex.vertex_id)):
            raise ConfigurationError(
                ErrorCode.INVALID_PIPELINE,
                f"nothing reads the letters of {node.operator_id}: end .side({LETTERS!r}) in a "
                'sink, or drop bad rows with on_bad_row="drop"',
            )

    def _check_loop(self, vertex: Vertex) -> None:
        feedback = [e for e in self.inputs_of(vertex.vertex_id) if e.feedback]
        for operator in vertex.operators:
            if isinstance(operator, LoopHead) and not feedback:
                raise _no_loop(f"nothing leads back to loop {operator.operator_id}: remove it")
        for edge in feedback:
            if edge.loop is None:
                raise _no_loop(
                    f"what comes back to loop {vertex.vertex_id} from {edge.upstream} has never "
                    "left it: derive it from the stream that the body is given"
                )
        loop = self.loops().get(vertex.vertex_id)
        for operator in vertex.operators:
            by_event_time = needs_event_time(operator) or makes_event_time(operator)
            if loop is not None and by_event_time:
                raise _no_loop(
                    f"{operator.operator_id} needs event time, and in loop {loop} there is none: "
                    "put it behind the loop"
                )


def _describe_input(edge: Edge) -> str:
    """Describe an edge for the fingerprint of its receiver; the format must never change.

    No program parses it: the manifest names each edge in its own fields (``EdgeEntry``).
    """
    side = "" if edge.side is None else f", {edge.side}"
    said = f"{edge.upstream}{side}, {edge.partitioning}"
    said += f", input {edge.feeds}" if edge.feeds else ""
    return f"{said}, feedback" if edge.feedback else said


def _no_loop(problem: str) -> ConfigurationError:
    return ConfigurationError(ErrorCode.INVALID_PIPELINE, problem)
