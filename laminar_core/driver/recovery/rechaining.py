"""A checkpoint as the pipeline of today chains its operators.

A stream with a second reader ends its chain there, and without it the chain goes on. So a pipeline
with one more branch has other vertices than before, although each operator gets the same rows. No
row is ever kept inside a chain, and none on its way from an operator to the next one of the same
worker (no barrier overtakes there), so a chain can be cut or joined between two runs: vertices get
other names, and event time of a vertex that begins is what its sender announces.
"""

from collections.abc import Iterator, Mapping

from laminar_core.operators.base import JsonObject
from laminar_core.plan.plan import INPUTS_KEY, Forward, Plan
from laminar_core.protocol.edges import PartitioningKind
from laminar_core.records.channel_entries import EdgeEntry, EdgeRef
from laminar_core.records.manifest import CheckpointManifest, fingerprint_of


def rechained(manifest: CheckpointManifest, plan: Plan) -> CheckpointManifest:
    """Return the checkpoint with the vertices of the plan, as far as operators only moved in them.

    Whatever else differs stays as it is, for those who compare the two.
    """
    before = vertices_of(manifest)
    chains = _Chains(manifest, plan, before)
    cut, joined = dict(chains.cut()), dict(chains.joined())
    if not cut and not joined:
        return manifest
    return chains.rewritten(cut, joined)


def vertices_of(manifest: CheckpointManifest) -> dict[str, list[str]]:
    """Return the operators that took part in the checkpoint, by vertex, in the order of the chain.

    The parts of a checkpoint are in the order of the plan: the members of a vertex follow its first
    one, whose name it has.
    """
    names = {name for edge in manifest.edges for name in (edge.upstream, edge.downstream)}
    names |= {entry.vertex_id for entry in manifest.alignment}
    found: dict[str, list[str]] = {}
    vertex: str | None = None
    for operator_id in dict.fromkeys(entry.operator_id for entry in manifest.subtasks):
        if operator_id in manifest.carried:
            continue
        vertex = operator_id if operator_id in names else vertex
        if vertex is not None:
            found.setdefault(vertex, []).append(operator_id)
    return found


class _Chains:
    def __init__(
        self, manifest: CheckpointManifest, plan: Plan, before: Mapping[str, list[str]]
    ) -> None:
        self._manifest = manifest
        self._plan = plan
        self._before = before
        self._vertex_before = {o: v for v, members in before.items() for o in members}
        self._now = {v.vertex_id: list(v.operator_ids()) for v in plan.vertices}
        self._vertex_now = {o: v for v, members in self._now.items() for o in members}

    def cut(self) -> Iterator[tuple[str, str]]:
        """Yield operators that begin a vertex and did not, with the last operator before them."""
        for vertex in self._plan.vertices:
            head, edges = vertex.vertex_id, self._plan.inputs_of(vertex.vertex_id)
            was_in = self._vertex_before.get(head)
            if was_in in (None, head) or len(edges) != 1:
                continue
            (edge,) = edges
            last = self._known(self._now[edge.upstream], self._vertex_before)
            is_direct = isinstance(edge.partitioning, Forward) and edge.side is None
            if is_direct and last is not None and self._preceding(head) == last:
                yield head, last

    def joined(self) -> Iterator[tuple[str, str]]:
        """Yield operators that began a vertex and do not now, with the vertex that fed them."""
        for head in self._before:
            now_in = self._vertex_now.get(head)
            edges = [e for e in self._manifest.edges if e.downstream == head]
            if now_in in (None, head) or len(edges) != 1:
                continue
            (edge,) = edges
            chain = self._now[now_in]
            last = self._known(chain[: chain.index(head)], self._vertex_before)
            is_direct = edge.partitioning is PartitioningKind.FORWARD and not edge.feedback
            if is_direct and last is not None and self._last_before(edge.upstream) == last:
                yield head, edge.upstream

    def _preceding(self, operator_id: str) -> str | None:
        """Return the operator before it in its old chain that is still there."""
        chain = self._before[self._vertex_before[operator_id]]
        return self._known(chain[: chain.index(operator_id)], self._vertex_now)

    def _last_before(self, vertex_id: str) -> str | None:
        return self._known(self._before.get(vertex_id, []), self._vertex_now)

    @staticmethod
    def _known(members: list[str], among: Mapping[str, str]) -> str | None:
        return next((o for o in reversed(members) if o in among), None)

    # --- the checkpoint with other vertices -----------------------------------------------------

    def rewritten(self, cut: Mapping[str, str], joined: Mapping[str, str]) -> CheckpointManifest:
        vertices = dict(self._new_vertices(cut, joined))
        last_of = {v: members[-1] for v, members in self._before.items()}
        vertex_of = {o: v for v, members in vertices.items() for o in members}
        sender = {v: vertex_of[last] for v, last in last_of.items()}
        edges = (
            *(
                edge.model_copy(update={"upstream": sender[edge.upstream]})
                for edge in self._manifest.edges
                if edge.downstream not in joined
            ),
            *(
                EdgeEntry(
                    upstream=vertex_of[last],
                    downstream=head,
                    input_index=0,
                    partitioning=PartitioningKind.FORWARD,
                )
                for head, last in cut.items()
            ),
        )
        described = self._described(cut, joined, sender)
        parts = self._manifest.subtasks
        order = {o: n for n, o in enumerate(o for m in vertices.values() for o in m)}
        return self._manifest.model_copy(
            update={
                "edges": edges,
                "operators_description": described,
                "fingerprint": {o: fingerprint_of(d) for o, d in described.items()},
                "subtasks": tuple(
                    sorted(parts, key=lambda e: order.get(e.operator_id, len(order)))
                ),
                "alignment": tuple(
                    entry for entry in self._manifest.alignment if entry.vertex_id not in joined
                ),
                "inflight_data": tuple(
                    entry.model_copy(update={"edge": _moved(entry.edge, sender)})
                    for entry in self._manifest.inflight_data
                ),
            }
        )

    def _new_vertices(
        self, cut: Mapping[str, str], joined: Mapping[str, str]
    ) -> Iterator[tuple[str, list[str]]]:
        """Yield the old vertices, cut and joined."""
        pieces: dict[str, list[str]] = {}
        for members in self._before.values():
            head = members[0]
            for operator_id in members:
                head = operator_id if operator_id in cut else head
                pieces.setdefault(head, []).append(operator_id)
        for head, upstream in joined.items():
            last = self._before[upstream][-1]
            into = next(v for v, members in pieces.items() if last in members)
            pieces[into] += pieces.pop(head)
        yield from pieces.items()

    def _described(
        self, cut: Mapping[str, str], joined: Mapping[str, str], sender: Mapping[str, str]
    ) -> dict[str, JsonObject]:
        now = self._plan.descriptions()
        described: dict[str, JsonObject] = {}
        for operator_id, description in self._manifest.operators_description.items():
            said = dict(description)
            inputs = said.get(INPUTS_KEY)
            edges = sorted(
                (e for e in self._manifest.edges if e.downstream == operator_id),
                key=lambda e: e.input_index,
            )
            if operator_id in joined:
                said.pop(INPUTS_KEY, None)
            elif operator_id in cut:
                said[INPUTS_KEY] = now[operator_id][INPUTS_KEY]
            elif isinstance(inputs, list) and len(inputs) == len(edges):
                said[INPUTS_KEY] = [
                    str(text).replace(edge.upstream, sender[edge.upstream], 1)
                    for text, edge in zip(inputs, edges, strict=True)
                ]
            described[operator_id] = said
        return described


def _moved(edge: EdgeRef, sender: Mapping[str, str]) -> EdgeRef:
    return edge.model_copy(update={"upstream": sender.get(edge.upstream, edge.upstream)})
