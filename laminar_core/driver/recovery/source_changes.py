"""Compare the sources of a pipeline with those of a checkpoint: which are new, gone, or back.

A source that is gone takes the operators with it that are chained to it. Their entries are carried
along in every later checkpoint, unread, until the source returns or a person drops them. A new
source brings operators that nothing else feeds; they begin empty. Between the two and the rest of
the pipeline are unions, whose inputs change: event time and rows in flight, which a checkpoint
stores by the number of the input, are numbered anew (``fitted``).

Pure. Everything that does not fit remains as it was, so the comparison of operators refuses it.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, field

from laminar_core.driver.recovery.acceptance import Acceptance, AcceptanceKind
from laminar_core.driver.recovery.rechaining import vertices_of
from laminar_core.operators.base import JsonObject
from laminar_core.plan.plan import INPUTS_KEY, Plan
from laminar_core.protocol.edges import PartitioningKind
from laminar_core.protocol.types import WATERMARK_END_US
from laminar_core.records.channel_entries import AlignmentEntry, EdgeEntry, EdgeRef
from laminar_core.records.manifest import CheckpointManifest
from laminar_core.records.manifest_fields import CarriedOperator


@dataclass(frozen=True, slots=True)
class SourceChanges:
    """The differences, and the checkpoint as the changed pipeline reads it."""

    fitted: CheckpointManifest
    """Without operators that are gone, and with the inputs numbered as in the pipeline."""
    new: tuple[str, ...] = ()
    """Sources that begin at their beginning."""
    gone: tuple[str, ...] = ()
    """Sources that the pipeline lacks, and whose positions are carried along."""
    back: tuple[str, ...] = ()
    """Sources that continue from positions that were carried along."""
    new_operators: frozenset[str] = frozenset()
    """Operators that the checkpoint lacks and that new sources alone feed."""
    carried: Mapping[str, CarriedOperator] = field(default_factory=dict[str, CarriedOperator])
    """Per operator: the mark of a source that is gone, for every later checkpoint."""
    problems: tuple[tuple[str, str], ...] = ()
    """Each an operator, and the reason why the job cannot continue with it."""
    used: tuple[Acceptance, ...] = ()
    accepted: tuple[str, ...] = ()
    """One line for each source whose positions are dropped."""

    def facts(self) -> JsonObject:
        """Return the changes for the audit log; empty if there are none."""
        changes = {"sources_new": self.new, "sources_gone": self.gone, "sources_back": self.back}
        return {name: list(sources) for name, sources in changes.items() if sources}


def source_changes(
    manifest: CheckpointManifest, plan: Plan, accepted: Iterable[Acceptance] = ()
) -> SourceChanges:
    """Compare the sources; ``accepted`` may name those whose positions are dropped."""
    return _Comparison(manifest, plan, accepted).result()


class _Comparison:
    def __init__(
        self, manifest: CheckpointManifest, plan: Plan, accepted: Iterable[Acceptance]
    ) -> None:
        self._manifest = manifest
        self._plan = plan
        self._vertex_now = {o: v.vertex_id for v in plan.vertices for o in v.operator_ids()}
        self._feeds_now = _feeds((e.upstream, e.downstream) for e in plan.edges)
        self._vertex_before = {o: v for v, of in vertices_of(manifest).items() for o in of}
        self._feeds_before = _feeds((e.upstream, e.downstream) for e in manifest.edges)
        self._kept = {
            entry.operator_id for entry in manifest.subtasks if entry.segments or entry.properties
        }
        self._committing = {e.operator_id for e in manifest.subtasks if e.committables}
        removed = [source for source in self._sources_before() if source not in self._vertex_now]
        known = {*removed, *(carried.source for carried in manifest.carried.values())}
        self._used = tuple(
            by for by in accepted if by.kind is AcceptanceKind.SOURCE_DROP and by.name in known
        )
        dropped = {by.name for by in self._used}
        self._dropped = {o for source in dropped for o in self._with(source)}
        self._removed = frozenset(removed)
        """Sources that the checkpoint has and the pipeline lacks."""
        sources = [node.operator_id for node in plan.sources()]
        self._back = tuple(o for o in sources if o in manifest.carried and o not in dropped)
        there = manifest.parallelism.keys() - self._dropped
        self._new = tuple(o for o in sources if o not in there)
        staying = {c.source for c in manifest.carried.values()} - {*self._back, *dropped}
        self._gone = tuple(sorted({*removed, *staying} - dropped))

    def result(self) -> SourceChanges:
        manifest = self._manifest
        vertices_new = _fed_only_by(self._feeds_now, {*self._new, *self._back})
        there = manifest.parallelism.keys() - self._dropped
        sinks = {node.operator_id for node in self._plan.sinks()}
        new_operators = frozenset(
            o for o, vertex in self._vertex_now.items() if vertex in vertices_new and o not in there
        )
        return SourceChanges(
            self._fitted(vertices_new),
            self._new,
            self._gone,
            self._back,
            new_operators - sinks,
            dict(self._carried()),
            (*self._renamed(), *self._misplaced(vertices_new), *self._too_late(vertices_new)),
            self._used,
            tuple(f"{by}: {by.name} begins anew if it returns" for by in self._used),
        )

    def _sources_before(self) -> Iterator[str]:
        """Yield the sources that took part in the checkpoint, without those that cannot go.

        A source that is chained to a sink with output goes only together with this output.
        """
        for vertex in dict.fromkeys(self._vertex_before.values()):
            members = {o for o, v in self._vertex_before.items() if v == vertex}
            if vertex not in self._feeds_before and not members & self._committing:
                yield vertex

    def _with(self, source: str) -> Iterator[str]:
        """Yield the source, and the operators with state that were chained to it."""
        for operator_id in self._manifest.parallelism:
            carried = self._manifest.carried.get(operator_id)
            if carried is not None:
                if carried.source == source:
                    yield operator_id
            elif self._vertex_before.get(operator_id) == source and (
                operator_id in self._kept or operator_id == source
            ):
                yield operator_id

    def _carried(self) -> Iterator[tuple[str, CarriedOperator]]:
        before = self._manifest.carried
        for source in self._gone:
            now = CarriedOperator(source=source, checkpoint_id=self._manifest.checkpoint_id)
            for operator_id in self._with(source):
                yield operator_id, before.get(operator_id, now)

    # --- what is refused ------------------------------------------------------------------------

    def _misplaced(self, vertices_new: AbstractSet[str]) -> Iterator[tuple[str, str]]:
        """Yield operators whose state is of another source than the one that feeds them now."""
        for operator_id in sorted(self._kept - self._dropped):
            carried = self._manifest.carried.get(operator_id)
            before = carried.source if carried else self._vertex_before.get(operator_id)
            now = self._vertex_now.get(operator_id)
            problem = None
            if before in self._back and now != before:
                problem = f"source {before} returns, and {operator_id}, which was chained to it, is"
                problem += " not there: its state goes with the positions of the source"
            elif now is not None and before in self._gone:
                problem = f"{operator_id} has state of source {before}, which the pipeline lacks: "
                problem += "give it another name"
            elif now in vertices_new and before != now:
                problem = f"{operator_id} has state of rows from elsewhere: give it another name"
            if problem is not None:
                yield operator_id, problem

    def _renamed(self) -> Iterator[tuple[str, str]]:
        """Yield new sources that read what one reads whose positions are kept."""
        now = self._plan.descriptions()
        before = self._manifest.operators_description
        for source in self._new:
            for gone in self._gone:
                if now[source] == before.get(gone):
                    problem = f"source {source} reads the same as {gone}, whose positions are kept:"
                    problem += f" call it {gone} to continue, or give up the positions with "
                    problem += f"--accept source-drop:{gone} and a --reason"
                    yield source, problem

    def _too_late(self, vertices_new: AbstractSet[str]) -> Iterator[tuple[str, str]]:
        """Yield sources that flow into a vertex whose event time has ended."""
        over = {a.vertex_id for a in self._manifest.alignment if a.watermark_us == WATERMARK_END_US}
        for edge in self._plan.edges:
            inside = edge.downstream in vertices_new
            if edge.upstream in vertices_new and not inside and edge.downstream in over:
                problem = f"all sources of {edge.downstream} have ended, so rows of "
                problem += f"{edge.upstream} would be too late there: start a new job"
                yield edge.upstream, problem

    # --- the checkpoint as the pipeline reads it ------------------------------------------------

    def _fitted(self, vertices_new: AbstractSet[str]) -> CheckpointManifest:
        manifest, left = self._manifest, {*self._carried_ids(), *self._dropped}
        inputs = dict(self._inputs(vertices_new))
        if not left and not inputs:
            return manifest
        described = {o: d for o, d in manifest.operators_description.items() if o not in left}
        now = self._plan.descriptions()
        for vertex in inputs:
            described[vertex] = {**described[vertex], INPUTS_KEY: now[vertex][INPUTS_KEY]}
        return manifest.model_copy(
            update={
                "operators_description": described,
                "parallelism": {o: n for o, n in manifest.parallelism.items() if o not in left},
                "subtasks": tuple(e for e in manifest.subtasks if e.operator_id not in left),
                "discovery": {o: d for o, d in manifest.discovery.items() if o not in left},
                "carried": {o: c for o, c in manifest.carried.items() if o in self._vertex_now},
                "alignment": tuple(
                    self._renumbered(entry, inputs[entry.vertex_id])
                    if entry.vertex_id in inputs
                    else entry
                    for entry in manifest.alignment
                ),
                "inflight_data": tuple(
                    entry.model_copy(
                        update={"edge": entry.edge.model_copy(update={"input_index": index})}
                    )
                    if (index := _place(entry.edge, inputs)) is not None
                    else entry
                    for entry in manifest.inflight_data
                ),
            }
        )

    def _carried_ids(self) -> Iterator[str]:
        return (operator_id for operator_id, _ in self._carried())

    def _inputs(self, vertices_new: AbstractSet[str]) -> Iterator[tuple[str, dict[int, int]]]:
        """Yield vertices whose inputs changed only by sources, with the new number of each input.

        All inputs that stay have to be what they were, and in the same order.
        """
        vertices_gone = _fed_only_by(self._feeds_before, self._removed) - self._vertex_now.keys()
        now = self._plan.descriptions()
        for vertex in self._plan.vertices:
            vertex_id = vertex.vertex_id
            before = self._manifest.operators_description.get(vertex_id, {}).get(INPUTS_KEY)
            after = now[next(vertex.operator_ids())].get(INPUTS_KEY)
            edges = inputs_into(self._manifest, vertex_id)
            if not isinstance(before, list) or not isinstance(after, list) or before == after:
                continue
            if len(before) != len(edges):
                continue  # A checkpoint of an old format that does not say what they are.
            stay = [n for n, edge in enumerate(edges) if edge.upstream not in vertices_gone]
            known = [
                n
                for n, edge in enumerate(self._plan.inputs_of(vertex_id))
                if edge.upstream not in vertices_new
            ]
            if [before[n] for n in stay] == [after[n] for n in known]:
                yield vertex_id, dict(zip(stay, known, strict=True))

    def _renumbered(self, entry: AlignmentEntry, inputs: Mapping[int, int]) -> AlignmentEntry:
        """Give the channels the numbers that they have in the pipeline."""
        workers = self._manifest.workers
        before = first_channels(
            [edge.partitioning for edge in inputs_into(self._manifest, entry.vertex_id)], workers
        )
        now = first_channels(
            [edge.partitioning.kind for edge in self._plan.inputs_of(entry.vertex_id)], workers
        )
        moved = {
            before[old] + n: now[new] + n
            for old, new in inputs.items()
            for n in range(before[old + 1] - before[old])
        }
        channels = tuple(
            channel.model_copy(update={"input_id": moved[channel.input_id]})
            for channel in entry.channels
            if channel.input_id in moved
        )
        return entry.model_copy(update={"channels": channels})


def _feeds(pairs: Iterable[tuple[str, str]]) -> dict[str, set[str]]:
    """Return by vertex what flows into it; sources are missing."""
    feeds: dict[str, set[str]] = {}
    for upstream, downstream in pairs:
        feeds.setdefault(downstream, set()).add(upstream)
    return feeds


def _fed_only_by(feeds: Mapping[str, set[str]], sources: AbstractSet[str]) -> set[str]:
    """Return the vertices, these sources included, into which nothing else flows."""
    found = set(sources)
    while more := {v for v, fed_by in feeds.items() if fed_by <= found} - found:
        found |= more
    return found


def inputs_into(manifest: CheckpointManifest, vertex_id: str) -> list[EdgeEntry]:
    """Return the edges into a vertex, in the order of its inputs."""
    edges = [edge for edge in manifest.edges if edge.downstream == vertex_id]
    return sorted(edges, key=lambda edge: edge.input_index)


def _place(edge: EdgeRef, inputs: Mapping[str, Mapping[int, int]]) -> int | None:
    return inputs.get(edge.downstream, {}).get(edge.input_index)


def first_channels(kinds: Sequence[PartitioningKind], workers: int) -> list[int]:
    """Return the first channel of each input, and then the number of channels."""
    first = [0]
    for kind in kinds:
        first.append(first[-1] + (1 if kind is PartitioningKind.FORWARD else workers))
    return first
