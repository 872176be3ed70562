"""The graph as the user draws it, and how it becomes a plan."""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

import pyarrow as pa

from laminar_core.operators.base import OperatorSpec
from laminar_core.runtime.plan import (
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
    """Of the rows that leave it; of those that enter it, if it is a sink."""
    inputs: "tuple[tuple[Node, Partitioning], ...]" = ()
    source: SourceNode | None = None
    operator: OperatorSpec | None = None
    sink: SinkNode | None = None


def plan_of(nodes: Sequence[Node], max_parallelism: int) -> Plan:
    """Chain nodes that nothing stands between; everything else becomes an edge.

    ``nodes`` come in the order of creation, so inputs come before their consumers.

    Raises:
        ConfigurationError: the graph cannot run; see ``Plan.check``.
    """
    plan = _Planner(nodes).plan(max_parallelism)
    plan.check()
    return plan


class _Planner:
    def __init__(self, nodes: Sequence[Node]) -> None:
        self._nodes = nodes
        self._consumers = Counter(id(node) for n in nodes for node, _ in n.inputs)
        self._vertex_of: dict[int, str] = {}

    def plan(self, max_parallelism: int) -> Plan:
        chains: dict[str, list[Node]] = {}
        edges: list[Edge] = []
        for node in self._nodes:
            if self._is_chained(node):
                vertex_id = self._vertex_of[id(node.inputs[0][0])]
            else:
                vertex_id = f"v{len(chains)}"
                for upstream, by in node.inputs:
                    edge_id, sender = len(edges), self._vertex_of[id(upstream)]
                    edges.append(Edge(edge_id, sender, vertex_id, by, upstream.schema))
            chains.setdefault(vertex_id, []).append(node)
            self._vertex_of[id(node)] = vertex_id
        vertices = tuple(_vertex(vertex_id, chain) for vertex_id, chain in chains.items())
        return Plan(vertices, tuple(edges), max_parallelism)

    def _is_chained(self, node: Node) -> bool:
        if len(node.inputs) != 1:
            return False
        upstream, by = node.inputs[0]
        return isinstance(by, Forward) and self._consumers[id(upstream)] == 1


def _vertex(vertex_id: str, chain: Sequence[Node]) -> Vertex:
    first, last = chain[0], chain[-1]
    entering = first.schema if first.source is not None else first.inputs[0][0].schema
    return Vertex(
        vertex_id,
        entering,
        first.source,
        tuple(node.operator for node in chain if node.operator is not None),
        last.sink,
    )
