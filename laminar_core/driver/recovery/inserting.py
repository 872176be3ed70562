"""Operators that are added between two others: the checkpoint as the pipeline of today connects it.

Behind an exchange, the second of the two operators then gets its rows on another edge. They come to
the same worker if the new edge divides them as the old one did, so its state still fits. Event time
of its senders begins anew, and its own never goes back. Rows that are in flight on the old edge
would pass the new operator by: with any of them the start is refused (``compatibility``).
"""

from collections.abc import Iterator
from collections.abc import Set as AbstractSet

from laminar_core.driver.recovery.rechaining import rechained
from laminar_core.driver.recovery.source_changes import first_channels, inputs_into
from laminar_core.operators.base import JsonObject
from laminar_core.plan.plan import INPUTS_KEY, Edge, Plan
from laminar_core.protocol.edges import PartitioningKind
from laminar_core.records.channel_entries import AlignmentEntry, EdgeEntry
from laminar_core.records.manifest import CheckpointManifest, fingerprint_of


def arranged(manifest: CheckpointManifest, plan: Plan) -> CheckpointManifest:
    """Return the checkpoint with the vertices and edges of the plan, as far as that is certain."""
    manifest = rechained(manifest, plan)
    between = dict(_between(manifest, plan))
    if not between:
        return manifest
    described, changed = dict(manifest.operators_description), dict[str, set[int]]()
    for edge, now in between.items():
        changed.setdefault(edge.downstream, set()).add(edge.input_index)
        described[edge.downstream] = _described(described[edge.downstream], plan, now)
    return manifest.model_copy(
        update={
            "edges": tuple(
                edge.model_copy(update={"upstream": between[edge].upstream})
                if edge in between
                else edge
                for edge in manifest.edges
            ),
            "operators_description": described,
            "fingerprint": {o: fingerprint_of(d) for o, d in described.items()},
            "alignment": tuple(
                _without_senders(manifest, entry, changed.get(entry.vertex_id, set()))
                for entry in manifest.alignment
            ),
        }
    )


def through(manifest: CheckpointManifest) -> Iterator[EdgeEntry]:
    """Yield edges of an arranged checkpoint that begin in an operator that was added."""
    return (edge for edge in manifest.edges if edge.upstream not in manifest.parallelism)


def _between(manifest: CheckpointManifest, plan: Plan) -> Iterator[tuple[EdgeEntry, Edge]]:
    """Yield edges of the checkpoint in which there are new operators, with the last new edge."""
    new = {v.vertex_id for v in plan.vertices} - manifest.parallelism.keys()
    now_described = plan.descriptions() if new else {}
    for vertex in plan.vertices if new else ():
        before = inputs_into(manifest, vertex.vertex_id)
        edges = plan.inputs_of(vertex.vertex_id)
        said = manifest.operators_description.get(vertex.vertex_id, {}).get(INPUTS_KEY)
        wanted = now_described[next(vertex.operator_ids())].get(INPUTS_KEY)
        if len(before) != len(edges) or not isinstance(said, list) or not isinstance(wanted, list):
            continue
        if len(said) != len(before):
            continue  # A checkpoint of an old format that does not say what they are.
        for old, after, was, now in zip(before, edges, said, wanted, strict=True):
            divides = old.partitioning is not PartitioningKind.FORWARD and after.loop is None
            moved = str(was).replace(old.upstream, after.upstream, 1)
            if divides and moved == now != was and _leads(plan, new, old.upstream, after.upstream):
                yield old, after


def _leads(plan: Plan, new: AbstractSet[str], before: str, now: str) -> bool:
    """Return whether all rows of a new vertex come from an old one, through new vertices only.

    A vertex is new if its first operator is. Those behind it that were elsewhere keep no state, or
    the start is refused for them (``evolution``).
    """
    seen, ends, due = set[str](), set[str](), [now]
    while due:
        vertex_id = due.pop()
        if vertex_id not in new:
            ends.add(vertex_id)
        elif vertex_id not in seen:
            seen.add(vertex_id)
            inputs = plan.inputs_of(vertex_id)
            ends |= set() if inputs else {vertex_id}  # A new source.
            due += [edge.upstream for edge in inputs]
    return ends == {before} and bool(seen)


def _described(before: JsonObject, plan: Plan, edge: Edge) -> JsonObject:
    now = plan.descriptions()[edge.downstream][INPUTS_KEY]
    inputs = before[INPUTS_KEY]
    assert isinstance(inputs, list), inputs
    assert isinstance(now, list), now
    index = plan.input_index(edge)
    return {**before, INPUTS_KEY: [*inputs[:index], now[index], *inputs[index + 1 :]]}


def _without_senders(
    manifest: CheckpointManifest, entry: AlignmentEntry, inputs: set[int]
) -> AlignmentEntry:
    """Leave out event time of senders that are others now; that of the subtask stays."""
    if not inputs:
        return entry
    kinds = [edge.partitioning for edge in inputs_into(manifest, entry.vertex_id)]
    first = first_channels(kinds, manifest.workers)
    gone = {channel for i in inputs for channel in range(first[i], first[i + 1])}
    kept = tuple(channel for channel in entry.channels if channel.input_id not in gone)
    return entry.model_copy(update={"channels": kept})
