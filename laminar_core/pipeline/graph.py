"""The graph that the user describes, and its translation to a plan."""

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import NamedTuple

import pyarrow as pa

from laminar_core.operators.base import AnySpec, MultiInputSpec, makes_event_time
from laminar_core.operators.watermarks import AssignWatermarks
from laminar_core.plan.cycles import cycles
from laminar_core.plan.plan import (
    Edge,
    Forward,
    Partitioning,
    Plan,
    SideOutput,
    SinkNode,
    SourceNode,
    Vertex,
)
from laminar_core.plan.updates import Updates


@dataclass(slots=True, eq=False)
class Node:
    """A source, an operator or a sink, and where its rows come from."""

    schema: pa.Schema
    """The schema of its output rows; of its input rows, if it is a sink."""
    inputs: "tuple[Input, ...]" = ()
    feedback: "list[Input]" = field(default_factory=list["Input"])
    """The back edges, if it is the head of a loop; known later than its inputs."""
    source: SourceNode | None = None
    operator: AnySpec | None = None
    sink: SinkNode | None = None
    is_union: bool = False
    """It is a vertex of its own also with one input, so that another stream can join it later."""
    sides: Mapping[str, pa.Schema] = field(default_factory=dict[str, pa.Schema])
    """The schema of each of its side outputs, by name."""
    updates: Updates = field(default_factory=Updates)
    """The mode of its output rows: whether they replace earlier ones."""

    @property
    def operator_id(self) -> str:
        """The id of what it is."""
        part = self.source or self.operator or self.sink
        assert part is not None, "a node is a source, an operator or a sink"
        return part.operator_id


class Input(NamedTuple):
    """Where rows come from, and how they are divided among subtasks."""

    node: Node
    by: Partitioning
    side: str | None = None
    """The name of a side output of the node; None: its main output."""
    feeds: int = 0
    """Which input of the receiving operator it feeds."""
    as_changes: bool = False
    """Each row is a row of its own, also if the node updates rows that it has emitted."""

    @property
    def schema(self) -> pa.Schema:
        """The schema of these rows."""
        return self.node.schema if self.side is None else self.node.sides[self.side]

    @property
    def updates(self) -> Updates:
        """The mode of these rows: whether they replace earlier ones."""
        return Updates() if self.as_changes or self.side is not None else self.node.updates

    @property
    def side_output(self) -> SideOutput | None:
        """The side output that the rows come from, if any."""
        return None if self.side is None else SideOutput(self.node.operator_id, self.side)


def plan_of(nodes: Sequence[Node], max_parallelism: int) -> Plan:
    """Chain nodes that need no exchange between them; all other connections become edges.

    ``nodes`` come in the order of creation, so inputs come before their consumers. A vertex is
    named after its first operator, so that its name does not depend on that order.

    Raises:
        ConfigurationError: the graph cannot run; see ``Plan.check``.
    """
    plan = _Planner(nodes).plan(max_parallelism)
    plan.check()
    plan.descriptions()  # Now: source files may change before the plan runs.
    return plan


class _Planner:
    def __init__(self, nodes: Sequence[Node]) -> None:
        self._nodes = nodes
        self._consumers = Counter(
            id(one.node) for n in nodes for one in (*n.inputs, *n.feedback) if one.side is None
        )
        self._chain_of: dict[int, list[Node]] = {}
        self._untimed: set[int] = set()
        """Nodes whose event time begins behind them, in their chain, and not for other readers."""

    def plan(self, max_parallelism: int) -> Plan:
        chains: list[list[Node]] = []
        edges: list[Edge] = []
        for node in self._nodes:
            if self._is_chained(node):
                before = node.inputs[0].node
                chain = self._chain_of[id(before)]
                if others := self._consumers[id(before)] - 1:
                    # They read what leaves the chain, so it ends here.
                    self._consumers[id(node)] += others
                    self._untimed.update(map(id, chain))
                chain.append(node)
            else:
                chain = [node]
                chains.append(chain)
            self._chain_of[id(node)] = chain
        for node, *_ in chains:
            edges.extend(self._edges(node, node.inputs, first_id=len(edges)))
        for node in self._nodes:
            edges.extend(self._edges(node, node.feedback, first_id=len(edges), feedback=True))
        vertices = tuple(_vertex(chain) for chain in chains)
        return Plan(vertices, tuple(_with_loops(vertices, edges)), max_parallelism)

    def _edges(
        self, node: Node, inputs: Sequence[Input], *, first_id: int, feedback: bool = False
    ) -> Iterator[Edge]:
        for edge_id, one in enumerate(inputs, first_id):
            sender = _vertex_id(self._chain_of[id(one.node)])
            receiver = _vertex_id(self._chain_of[id(node)] if feedback else [node])
            yield Edge(
                edge_id,
                sender,
                receiver,
                one.by,
                one.schema,
                feedback,
                side=one.side_output,
                feeds=one.feeds,
                timed=id(one.node) not in self._untimed,
            )

    def _is_chained(self, node: Node) -> bool:
        if not _could_be_chained(node):
            return False
        before = node.inputs[0].node
        return self._consumers[id(before)] == 1 or self._follows_splits(node, before)

    def _follows_splits(self, node: Node, before: Node) -> bool:
        """Return whether event time is that of splits that are read side by side.

        It is only in the chain of their source. Rows leave the operator as they came, so others
        that read them can do so behind it, but get none of its watermarks. Of several operators
        that make event time of the same rows, the first by name is in the chain.
        """
        chain = self._chain_of[id(before)]
        source = chain[0].source
        if source is None or source.source.reading != "parallel":
            return False
        if any(one.operator is not None and makes_event_time(one.operator) for one in chain):
            return False
        names = [
            one.operator_id
            for one in self._nodes
            if isinstance(one.operator, AssignWatermarks)
            and _could_be_chained(one)
            and one.inputs[0].node is before
        ]
        return isinstance(node.operator, AssignWatermarks) and node.operator_id == min(names)


def _could_be_chained(node: Node) -> bool:
    """Return whether nothing of the node itself needs a vertex of its own."""
    if len(node.inputs) != 1 or node.feedback or node.is_union:
        return False
    if isinstance(node.operator, MultiInputSpec):
        return False
    (only,) = node.inputs
    return only.side is None and isinstance(only.by, Forward)


def _with_loops(vertices: Sequence[Vertex], edges: Sequence[Edge]) -> Iterator[Edge]:
    """Yield the edges, with the loop that contains both ends, if any."""
    ids = [vertex.vertex_id for vertex in vertices]
    loops = cycles(ids, [(edge.upstream, edge.downstream) for edge in edges])
    for edge in edges:
        loop = loops.get(edge.upstream)
        yield replace(edge, loop=loop if loop == loops.get(edge.downstream) else None)


def _vertex_id(chain: Sequence[Node]) -> str:
    return chain[0].operator_id


def _vertex(chain: Sequence[Node]) -> Vertex:
    first, last = chain[0], chain[-1]
    by_input = {one.feeds: one.schema for one in first.inputs}
    entering = (
        [first.schema] if first.source is not None else [by_input[n] for n in sorted(by_input)]
    )
    return Vertex(
        _vertex_id(chain),
        tuple(entering),
        first.source,
        tuple(node.operator for node in chain if node.operator is not None),
        last.sink,
    )
