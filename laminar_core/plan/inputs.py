"""The inputs of a vertex: how many its first operator has, and which rows meet in a subtask.

Rows of two inputs meet only if equal keys have one owner. So all inputs of a keyed operator are
divided by as many key columns, of types whose equal values have one hash, or are broadcast.
"""

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

import pyarrow as pa

from laminar_core.codec.stable_hash import key_form
from laminar_core.errors import ConfigurationError, ErrorCode
from laminar_core.operators.base import MultiInputSpec, Spec, input_names_of
from laminar_core.protocol.edges import PartitioningKind

if TYPE_CHECKING:
    from laminar_core.plan.plan import Edge, Vertex


def check_inputs(vertex: "Vertex", edges: Sequence["Edge"]) -> None:
    """Refuse a vertex whose first operator does not get the inputs that it needs.

    Raises:
        ConfigurationError: an operator with several inputs is not the first one, an input has no
            edge or there is none for an edge, or equal keys would not meet.
    """
    is_fed = vertex.source is None
    for behind in vertex.operators[is_fed:]:
        if isinstance(behind, MultiInputSpec):
            raise _refused(
                f"{behind.operator_id} has several inputs, so it must be the first operator of its "
                f"vertex, not behind {next(vertex.operator_ids())}"
            )
    if not is_fed or not vertex.operators:
        return
    first = vertex.operators[0]
    require_input_count(first, len({edge.feeds for edge in edges}))
    _check_schemas(first, vertex.input_schemas, edges)
    if isinstance(first, MultiInputSpec):
        _check_keys(first, edges)


def require_input_count(spec: Spec, count: int) -> None:
    """Check that an operator gets as many inputs as it has.

    Raises:
        ConfigurationError: it gets more or fewer.
    """
    names = input_names_of(spec)
    if count != len(names):
        wanted = "one input" if len(names) == 1 else f"{len(names)} inputs ({', '.join(names)})"
        raise _refused(f"{spec.operator_id} needs {wanted} and is given {count}")


def _check_schemas(spec: Spec, schemas: Sequence[pa.Schema], edges: Sequence["Edge"]) -> None:
    require_input_count(spec, len(schemas))
    names = input_names_of(spec)
    for edge in edges:
        if edge.feeds not in range(len(names)):
            raise _refused(
                f"{edge.upstream} feeds input {edge.feeds} of {spec.operator_id}, which has "
                f"{len(names)}, counted from 0"
            )
        if not edge.schema.equals(schemas[edge.feeds]):
            raise _refused(
                f"{edge.upstream} sends {edge.schema.names} to {spec.operator_id}, and its "
                f"{names[edge.feeds]} is {schemas[edge.feeds].names} or has other types",
                ErrorCode.WRONG_SCHEMA,
            )


def _check_keys(spec: MultiInputSpec, edges: Sequence["Edge"]) -> None:
    keyed = [edge for edge in edges if edge.key_columns is not None]
    if not keyed:
        return
    first = keyed[0]
    for edge in edges:
        if edge.partitioning.kind not in _MEET_KEYS:
            raise _refused(
                f"{spec.operator_id} is {first.partitioning} on {_named(spec, first)} and "
                f"{edge.partitioning} on {_named(spec, edge)}, so equal keys would not meet: call "
                "key_by on both, or broadcast one"
            )
    forms = list(_forms(spec, first))
    for edge in keyed[1:]:
        others = list(_forms(spec, edge))
        if len(others) != len(forms):
            raise _refused(
                f"{spec.operator_id} needs as many key columns on every input, and "
                f"{_named(spec, first)} is {first.partitioning}, {_named(spec, edge)} is "
                f"{edge.partitioning}"
            )
        for (column, one), (other_column, other) in zip(forms, others, strict=True):
            if one != other:
                raise _refused(
                    f"keys of {spec.operator_id} would not meet, because {column} of "
                    f"{_named(spec, first)} has {one} and {other_column} of {_named(spec, edge)} "
                    f"has {other}: cast one of them",
                    ErrorCode.UNSUPPORTED_TYPE,
                )


_MEET_KEYS = {PartitioningKind.KEYED, PartitioningKind.BROADCAST}


def _forms(spec: MultiInputSpec, edge: "Edge") -> Iterator[tuple[str, str]]:
    """Yield each key column of an edge with the form in which its values hash."""
    for column in edge.key_columns or ():
        if column not in edge.schema.names:
            raise _refused(
                f"{_named(spec, edge)} of {spec.operator_id} is {edge.partitioning} and has no "
                f"column {column}, only {', '.join(edge.schema.names)}",
                ErrorCode.WRONG_SCHEMA,
            )
        data_type: pa.DataType = edge.schema.field(column).type
        yield column, key_form(data_type)


def _named(spec: MultiInputSpec, edge: "Edge") -> str:
    return spec.input_names[edge.feeds]


def _refused(problem: str, code: ErrorCode = ErrorCode.INVALID_PIPELINE) -> ConfigurationError:
    return ConfigurationError(code, problem)
