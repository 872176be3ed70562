"""The graph that the user describes, and its translation to a plan."""

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace

import pyarrow as pa

from laminar_core.operators.base import OperatorSpec
from laminar_core.plan.cycles import cycles
from laminar_core.plan.plan import (
    Edge,
    Forward,
    Partitioning,
    Plan,
    SinkNode,
    SourceNode,
    Vertex,
)


@dataclass(slots=True, eq=False)
class Node:
    """A source, an operator or a sink, and where its rows come from."""

    schema: pa.Schema
    """The schema of its output rows; of its input rows, if it is a sink."""
    inputs: "tuple[tuple[Node, Partitioning], ...]" = ()
    feedback: "list[tuple[Node, Partitioning]]" = field(default_factory=list)
    """The back edges, if it is the head of a loop; known later than its inputs."""
    source: SourceNode | None = None
    operator: OperatorSpec | None = None
    sink: SinkNode | None = None


_Inputs = Sequence[tuple[Node, Partitioning]]


def plan_of(nodes: Sequence[Node], max_parallelism: int) -> Plan:
    """Chain nodes that need no exchange between them; all other connections become edges.

    ``nodes`` come in the order of creation, so inputs come before their consumers. A vertex is
    named after its first operator, so that its name does not depend on that order.

    Raises:
        ConfigurationError: the graph cannot run; see ``Plan.check``.
    """
    plan = _Planner(nodes).plan(max_parallelism)
    plan.check()
    return plan


class _Planner:
    def __init__(self, nodes: Sequence[Node]) -> None:
        self._nodes = nodes
        self._consumers = Counter(id(node) for n in nodes for node, _ in (*n.inputs, *n.feedback))
        self._chain_of: dict[int, list[Node]] = {}

    def plan(self, max_parallelism: int) -> Plan:
        chains: list[list[Node]] = []
        edges: list[Edge] = []
        for node in self._nodes:
            if self._is_chained(node):
                chain = self._chain_of[id(node.inputs[0][0])]
                chain.append(node)
            else:
                chain = [node]
                chains.append(chain)
                edges.extend(self._edges(node, node.inputs, first_id=len(edges)))
            self._chain_of[id(node)] = chain
        for node in self._nodes:
            edges.extend(self._edges(node, node.feedback, first_id=len(edges), feedback=True))
        vertices = tuple(_vertex(chain) for chain in chains)
        return Plan(vertices, tuple(_with_loops(vertices, edges)), max_parallelism)

    def _edges(
        self, node: Node, inputs: _Inputs, *, first_id: int, feedback: bool = False
    ) -> Iterator[Edge]:
        for edge_id, (upstream, by) in enumerate(inputs, first_id):
            sender = _vertex_id(self._chain_of[id(upstream)])
            receiver = _vertex_id(self._chain_of[id(node)] if feedback else [node])
            yield Edge(edge_id, sender, receiver, by, upstream.schema, feedback)

    def _is_chained(self, node: Node) -> bool:
        if len(node.inputs) != 1 or node.feedback:
            return False
        upstream, by = node.inputs[0]
        return isinstance(by, Forward) and self._consumers[id(upstream)] == 1


def _with_loops(vertices: Sequence[Vertex], edges: Sequence[Edge]) -> Iterator[Edge]:
    """Yield the edges, with the loop that contains both ends, if any."""
    ids = [vertex.vertex_id for vertex in vertices]
    loops = cycles(ids, [(edge.upstream, edge.downstream) for edge in edges])
    for edge in edges:
        loop = loops.get(edge.upstream)
        yield replace(edge, loop=loop if loop == loops.get(edge.downstream) else None)


def _vertex_id(chain: Sequence[Node]) -> str:
    first = chain[0].source or chain[0].operator or chain[0].sink
    assert first is not None, "a node is a source, an operator or a sink"
    return first.operator_id


def _vertex(chain: Sequence[Node]) -> Vertex:
    first, last = chain[0], chain[-1]
    entering = first.schema if first.source is not None else first.inputs[0][0].schema
    return Vertex(
        _vertex_id(chain),
        entering,
        first.source,
        tuple(node.operator for node in chain if node.operator is not None),
        last.sink,
    )
