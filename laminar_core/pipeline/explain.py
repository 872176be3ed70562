"""A plan as text: what runs together, where rows are exchanged, what is kept as state."""

from collections.abc import Iterator
from typing import TypeGuard

import pyarrow as pa

from laminar_core.operators.base import (
    AnySpec,
    JsonObject,
    JsonValue,
    OutputMode,
    StatefulSpec,
    makes_event_time,
    needs_event_time,
)
from laminar_core.plan.plan import Edge, Plan, Vertex
from laminar_core.plan.updates import Updates

_KIND = ("kind", "connector")
"""The fields that name the kind of an operator, and of a source or sink."""


def plan_lines(name: str, plan: Plan) -> Iterator[str]:
    """Yield the lines of ``Pipeline.explain``: a block for each chain of operators."""
    chains = len(plan.vertices)
    yield (
        f"pipeline {name}: {_counted(chains, 'chain')}, each with one subtask on every worker; "
        f"at most {plan.max_parallelism} workers"
    )
    for vertex in plan.vertices:
        yield ""
        yield vertex.vertex_id
        for edge in plan.inputs_of(vertex.vertex_id):
            yield f"  input: {_edge(edge)}"
        yield from _parts(vertex)
        for edge in plan.outputs_of(vertex.vertex_id):
            yield f"  output: to {edge.downstream}"
        if vertex.sink is None:
            yield f"  rows: {_columns(vertex.output_schema())}"


def _parts(vertex: Vertex) -> Iterator[str]:
    if (node := vertex.source) is not None:
        paced = "" if node.rows_per_second is None else f", {node.rows_per_second:g} rows per s"
        how = "side by side" if node.source.reading == "parallel" else "one after the other"
        told = _told(node.source.describe())
        yield f"  source {node.operator_id}: {told}, splits are read {how}{paced}"
    for operator, inputs in vertex.operators_with_inputs():
        told = f"{_told(operator.describe())}{_time(operator)}{_updates(operator)}"
        yield f"  operator {operator.operator_id}: {told}"
        if isinstance(operator, StatefulSpec):
            for table, schema in operator.state_tables(*inputs).items():
                yield f"    state{f' {table}' if table else ''}: {_columns(schema)}"
    if (sink := vertex.sink) is not None:
        told = _told(sink.sink.describe())
        yield f"  sink {sink.operator_id}: {told}, {_rows(sink.updates)}"


def _edge(edge: Edge) -> str:
    sender = edge.upstream if edge.side is None else str(edge.side)
    exchange = "" if edge.partitioning.kind == "forward" else ", between workers"
    back = ", back into the loop" if edge.feedback else ""
    number = f", as input {edge.feeds}" if edge.feeds else ""
    return f"{sender}, {edge.partitioning}{exchange}{number}{back}"


def _told(facts: JsonObject) -> str:
    """Return the kind of a part, and those of its options that are short."""
    kind = next((str(facts[name]) for name in _KIND if name in facts), "")
    said = (_option(name, value) for name, value in facts.items() if name not in _KIND)
    return ", ".join(filter(None, (kind, *said)))


def _option(name: str, value: JsonValue) -> str:
    """Return an option as text, or an empty text if it has no value or a very long one."""
    if name.endswith("_us"):
        name, value = name.removesuffix("_us"), f"{value / 1e6:g} s" if _is_time(value) else ""
    said = _value(value)
    return f"{name.replace('_', ' ')} {said}" if said else ""


def _is_time(value: JsonValue) -> TypeGuard[int]:
    return isinstance(value, int) and value != 0


def _value(value: JsonValue) -> str:
    if isinstance(value, dict):
        return _value(value.get("kind"))
    if isinstance(value, list):
        return " and ".join(v for v in map(_value, value) if v)
    return "" if value is None or value is False else str(value)


def _time(operator: AnySpec) -> str:
    if makes_event_time(operator):
        return "; event time begins here"
    return "; waits for event time" if needs_event_time(operator) else ""


def _updates(operator: AnySpec) -> str:
    mode: OutputMode = getattr(operator, "output_mode", "append")
    key = tuple(getattr(operator, "updates_by", ()))
    return "" if mode == "append" else f"; {_rows(Updates(mode, key))}"


def _rows(updates: Updates) -> str:
    match updates.mode:
        case "upsert":
            return f"rows replace earlier ones of {', '.join(updates.key) or 'their key'}"
        case "retract":
            return "rows come and go"
        case _:
            return "rows are appended"


def _columns(schema: pa.Schema) -> str:
    return ", ".join(f"{field.name} {field.type}" for field in schema)


def _counted(count: int, what: str) -> str:
    return f"{count} {what}{'' if count == 1 else 's'}"
