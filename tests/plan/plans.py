"""A small plan for tests: a source, an exchange, an operator with state, a sink."""

from dataclasses import replace
from typing import Any

from laminar_core.connectors.collect import CollectSink
from laminar_core.connectors.datagen import DatagenSource, EventTime, Sequence
from laminar_core.operators.stateless import SelectColumns
from laminar_core.operators.watermarks import AssignWatermarks
from laminar_core.plan.plan import (
    Edge,
    Keyed,
    Partitioning,
    Plan,
    SinkNode,
    SourceNode,
    Vertex,
)

SOURCE = DatagenSource({"key": Sequence(), "at": EventTime(0, 1_000_000)}, rows=100, splits=3)
SCHEMA = SOURCE.schema()
KEEP = SelectColumns("keep", ("key", "at"))
TIME = AssignWatermarks("time", "at", 0)


def small_plan(by: Partitioning | None = None, **changes: Any) -> Plan:
    """``in -> keep`` in one vertex, ``time -> out`` in the next, keyed in between."""
    fields: dict[str, Any] = {
        "vertices": (
            Vertex("in", (SCHEMA,), source=SourceNode("in", SOURCE), operators=(KEEP,)),
            Vertex("time", (SCHEMA,), operators=(TIME,), sink=SinkNode("out", CollectSink())),
        ),
        "edges": (Edge(0, "in", "time", by or Keyed(("key",)), SCHEMA),),
    }
    return Plan(**fields | changes)


def with_second(plan: Plan, **changes: Any) -> Plan:
    """Return the plan with another second vertex."""
    return replace(plan, vertices=(plan.vertices[0], replace(plan.vertices[1], **changes)))


def with_first(plan: Plan, **changes: Any) -> Plan:
    """Return the plan with another first vertex."""
    return replace(plan, vertices=(replace(plan.vertices[0], **changes), plan.vertices[1]))
