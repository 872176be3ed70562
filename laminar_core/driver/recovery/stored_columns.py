"""Compare the columns of rows in a checkpoint with the pipeline's.

Descriptions define operators, not the types of their columns. These follow from the input, and
change with a stateless function upstream. So one file of each operator and of each edge is read
before anything is changed. Source: PROTOCOL sections 10 and 11.
"""

from collections.abc import Iterator

import pyarrow as pa

from laminar_core.driver.recovery.compatibility import Mismatch
from laminar_core.errors import ErrorCode, IncompatibleStateError
from laminar_core.operators.base import StatefulSpec
from laminar_core.plan.plan import Plan
from laminar_core.records.manifest import CheckpointManifest
from laminar_core.store.checkpoint_store import CheckpointStore


def column_mismatches(
    manifest: CheckpointManifest, plan: Plan, store: CheckpointStore
) -> Iterator[Mismatch]:
    """Yield state and in-flight rows with other columns than now.

    Raises:
        CorruptCheckpointError: a file has changed since the checkpoint was verified.
        StorageUnavailable: the store did not answer.
    """
    wanted = dict(_state_schemas(plan))
    looked_at: set[str] = set()
    for entry in manifest.subtasks:
        operator_id = entry.operator_id
        if operator_id in wanted and operator_id not in looked_at and entry.segments:
            looked_at.add(operator_id)
            found = store.parts.read_state(entry.segments[0]).schema
            if differs := _difference(found, wanted[operator_id]):
                what = f"the state of {operator_id} in checkpoint {manifest.checkpoint_id}"
                yield Mismatch(_changed(what, differs), frozenset({operator_id}))
    yield from _in_flight(manifest, plan, store)


def _state_schemas(plan: Plan) -> Iterator[tuple[str, pa.Schema]]:
    for vertex in plan.vertices:
        for spec, schema in zip(vertex.operators, vertex.schemas(), strict=False):
            if isinstance(spec, StatefulSpec):
                yield spec.operator_id, spec.state_schema(schema)


def _in_flight(
    manifest: CheckpointManifest, plan: Plan, store: CheckpointStore
) -> Iterator[Mismatch]:
    edges = {(e.upstream, e.downstream, plan.input_index(e)): e for e in plan.edges}
    for entry in manifest.inflight_data:
        key = entry.edge.upstream, entry.edge.downstream, entry.edge.input_index
        edge = edges.pop(key, None)  # One that is gone is told of already.
        if edge is None:
            continue
        try:
            store.parts.read_inflight(entry, edge.schema)
        except IncompatibleStateError as error:
            yield Mismatch(error)


def _difference(found: pa.Schema, wanted: pa.Schema) -> str:
    if found.equals(wanted):
        return ""
    before, now = _typed(found), _typed(wanted)
    names = [name for name in {**before, **now} if before.get(name) != now.get(name)]
    said = (f"{n} was {before.get(n, 'absent')}, is {now.get(n, 'absent')}" for n in names)
    return "; ".join(said) or "in another order"


def _typed(schema: pa.Schema) -> dict[str, str]:
    return {field.name: str(field.type) for field in schema}


def _changed(what: str, differs: str) -> IncompatibleStateError:
    return IncompatibleStateError(
        ErrorCode.OPERATORS_CHANGED,
        f"{what} has other columns than the pipeline has now: {differs}; run the pipeline as it "
        "was, or start a new job under another name",
    )
