"""Rules of each operator for other columns of its state: which ones it can begin to keep.

An operator with state that can take rows with fewer columns than it keeps has a method
``first_values``, or the class attribute ``added_columns``. Others get their rows with wider types
at most.
"""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Protocol, runtime_checkable

import pyarrow as pa

from laminar_core.operators.base import JsonObject, StatefulSpec
from laminar_core.plan.plan import Edge, Plan
from laminar_core.state.evolving import NOTHING_BUT_WIDER, Allowed
from laminar_core.state.named_tables import TABLES, layout_of


@runtime_checkable
class Accumulating(Protocol):
    """An operator whose rows, in state and on their way to it, consist of keys and accumulators."""

    def first_values(self, *inputs: pa.Schema) -> Mapping[str, pa.Scalar]:
        """Return, by accumulator that can be added, its value before the first row."""
        ...

    def kept_together(self) -> Iterable[tuple[str, ...]]:
        """Return the accumulators of each result that is computed from several."""
        ...


@runtime_checkable
class _Described(Protocol):
    def describe(self) -> JsonObject: ...


@dataclass(frozen=True, slots=True)
class KeptTable:
    """The columns of a table of state, and the first values of those that may be added."""

    schema: pa.Schema
    first: Mapping[str, pa.Scalar]


def rules_of_state(spec: StatefulSpec, *inputs: pa.Schema) -> Callable[[str], Allowed]:
    """Return what may differ in each table of the operator's state, by its name."""
    if isinstance(spec, Accumulating):
        allowed = _of_accumulators(spec, *inputs)
        return lambda _: allowed
    if getattr(spec, "added_columns", None) != "null":
        return lambda _: NOTHING_BUT_WIDER
    assert isinstance(spec, _Described), f"{spec.operator_id} is no operator"
    described = spec.describe()
    tables = spec.state_tables(*inputs)

    def of_table(name: str) -> Allowed:
        layout = layout_of(name, tables[name], described)
        is_set = layout.merging == "weights"  # A row with one more column is another row there.
        keys = frozenset({*layout.keys, tables[name].names[0]})
        return Allowed(adds_nulls=not is_set and TABLES in described, keys=keys)

    return of_table


def rules_of_edge(plan: Plan, edge: Edge) -> Allowed:
    """Return what may differ in rows on their way to a vertex."""
    vertex = next(v for v in plan.vertices if v.vertex_id == edge.downstream)
    first = next(iter(vertex.operators), None)
    if isinstance(first, Accumulating) and edge.feeds == 0:  # Other inputs get plain rows.
        return _of_accumulators(first, *vertex.input_schemas)
    return Allowed(adds_nulls=True, keys=frozenset(edge.key_columns or ()))


def state_tables_of(plan: Plan) -> dict[str, dict[str, KeptTable]]:
    """Return, per operator and table of state, the columns that it is read with."""
    found: dict[str, dict[str, KeptTable]] = {}
    for vertex in plan.vertices:
        for spec, inputs in vertex.operators_with_inputs():
            if isinstance(spec, StatefulSpec):
                rules = rules_of_state(spec, *inputs)
                found[spec.operator_id] = {
                    name: KeptTable(schema, rules(name).first)
                    for name, schema in spec.state_tables(*inputs).items()
                }
    return found


def _of_accumulators(spec: Accumulating, *inputs: pa.Schema) -> Allowed:
    first = spec.first_values(*inputs)
    return Allowed(first=first, together=tuple(spec.kept_together()), drops=True)
