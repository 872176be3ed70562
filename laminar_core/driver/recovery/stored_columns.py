"""Compare the columns of rows in a checkpoint with the pipeline's.

Descriptions define operators, not the types of their columns. These follow from the input, and
change with a stateless function upstream. So one file of each table of an operator, and of each
edge, is read before anything is changed. Source: PROTOCOL sections 10 and 11.
"""

from collections.abc import Iterator, Mapping

import pyarrow as pa

from laminar_core.driver.recovery.compatibility import Mismatch
from laminar_core.errors import ErrorCode, IncompatibleStateError
from laminar_core.operators.base import StatefulSpec
from laminar_core.plan.plan import Plan
from laminar_core.records.manifest import CheckpointManifest
from laminar_core.records.segment import SegmentRef
from laminar_core.store.checkpoint_store import CheckpointStore


def column_mismatches(
    manifest: CheckpointManifest, plan: Plan, store: CheckpointStore
) -> Iterator[Mismatch]:
    """Yield state and in-flight rows with other columns than now.

    Raises:
        CorruptCheckpointError: a file has changed since the checkpoint was verified.
        StorageUnavailable: the store did not answer.
    """
    wanted = dict(_state_tables(plan))
    where = f"in checkpoint {manifest.checkpoint_id}"
    for (operator_id, table), segment in _one_of_each_table(manifest):
        if operator_id not in wanted:
            continue
        what = f"table {table} of {operator_id}" if table else f"the state of {operator_id}"
        if table not in wanted[operator_id]:
            yield Mismatch(_unknown(f"{what} {where}"), frozenset({operator_id}))
            continue
        found = store.parts.read_state(segment).schema
        if differs := _difference(found, wanted[operator_id][table]):
            yield Mismatch(_changed(f"{what} {where}", differs), frozenset({operator_id}))
    yield from _in_flight(manifest, plan, store)


def _one_of_each_table(
    manifest: CheckpointManifest,
) -> Iterator[tuple[tuple[str, str], SegmentRef]]:
    found: dict[tuple[str, str], SegmentRef] = {}
    for entry in manifest.subtasks:
        for segment in entry.segments:
            found.setdefault((entry.operator_id, segment.table), segment)
    yield from found.items()


def _state_tables(plan: Plan) -> Iterator[tuple[str, Mapping[str, pa.Schema]]]:
    for vertex in plan.vertices:
        for spec, inputs in vertex.operators_with_inputs():
            if isinstance(spec, StatefulSpec):
                yield spec.operator_id, spec.state_tables(*inputs)


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


def _unknown(what: str) -> IncompatibleStateError:
    return IncompatibleStateError(
        ErrorCode.OPERATORS_CHANGED,
        f"{what} is unknown to the pipeline; run the pipeline as it was, or start a new job under "
        "another name",
    )


def _changed(what: str, differs: str) -> IncompatibleStateError:
    return IncompatibleStateError(
        ErrorCode.OPERATORS_CHANGED,
        f"{what} has other columns than the pipeline has now: {differs}; run the pipeline as it "
        "was, or start a new job under another name",
    )
