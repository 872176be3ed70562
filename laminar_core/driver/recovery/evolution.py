"""Decide which changes of operators fit a checkpoint, and what becomes of its state; pure.

``docs/state.md`` has the rules as a table. A change fits if the result is certain: it is what the
checkpoint had, continued. Where something is lost by it, or begins in the midst of the stream, a
person accepts that for one start. Source: ADR-0067.
"""

from collections.abc import Collection, Iterable, Iterator
from dataclasses import dataclass

from laminar_core.driver.recovery.acceptance import Acceptance, AcceptanceKind, find_acceptance
from laminar_core.driver.recovery.changed_tables import changed_tables
from laminar_core.driver.recovery.inserting import through
from laminar_core.driver.recovery.rechaining import vertices_of
from laminar_core.driver.recovery.source_changes import SourceChanges
from laminar_core.operators.base import JsonObject
from laminar_core.plan.plan import Plan
from laminar_core.records.manifest import CheckpointManifest

_AGGREGATES = "aggregates"
_AGGREGATIONS = ("running-aggregate", "window-aggregate", "session-aggregate")


@dataclass(frozen=True, slots=True)
class Evolution:
    """The operators that came, went and changed, and the checkpoint without those that are gone."""

    fitted: CheckpointManifest
    new: tuple[str, ...] = ()
    """Operators and sinks that begin without state."""
    dropped: tuple[str, ...] = ()
    """Operators that the pipeline lacks and whose state is given up."""
    lines: tuple[str, ...] = ()
    """One for each change, for people and for the audit log."""
    problems: tuple[tuple[str, str], ...] = ()
    """Each an operator, and the reason why the job cannot continue with it."""
    used: tuple[Acceptance, ...] = ()
    accepted: tuple[str, ...] = ()


def evolution(
    manifest: CheckpointManifest,
    plan: Plan,
    changes: SourceChanges,
    accepted: Collection[Acceptance] = (),
    committed: Collection[str] = (),
) -> Evolution:
    """Compare the operators; the sources are compared already, and chains are as in the plan.

    ``manifest``: the one that ``changes`` fitted. ``committed``: sinks whose output of this
    checkpoint is known to be committed.
    """
    return _Comparison(manifest, plan, changes, accepted, committed).result()


class _Comparison:
    def __init__(
        self,
        manifest: CheckpointManifest,
        plan: Plan,
        changes: SourceChanges,
        accepted: Collection[Acceptance],
        committed: Collection[str],
    ) -> None:
        self._manifest = manifest
        self._plan = plan
        self._changes = changes
        self._accepted = accepted
        self._committed = committed
        self._now = plan.descriptions()
        self._where = f"checkpoint {manifest.checkpoint_id}"
        self._vertices = vertices_of(manifest)
        self._told = {operator_id for operator_id, _ in changes.problems}

    def result(self) -> Evolution:
        new = self._now.keys() - self._manifest.parallelism.keys()
        begun = tuple(sorted(new - self._changes.new_operators - self._told))
        lost = dict(self._lost())
        used = {
            name: by
            for name in lost
            if (by := find_acceptance(self._accepted, AcceptanceKind.STATE_DROP, name))
        }
        pending = {name for name in used if self._is_pending(name)}
        dropped = tuple(name for name in used if name not in pending)
        lines = [f"{name}: new, it gets what comes after {self._where}" for name in begun]
        lines += [
            f"{edge.downstream}: its rows come through {edge.upstream} now"
            for edge in through(self._manifest)
            if edge.upstream in begun
        ]
        lines += [f"{name}: removed, its {lost[name]} are dropped" for name in dropped]
        tables = changed_tables(self._manifest, self._now, self._accepted)
        return Evolution(
            self._without(dropped),
            begun,
            dropped,
            (*lines, *self._other_aggregates()),
            (*self._refused(lost, dropped, pending), *self._elsewhere(), *tables.problems),
            (*used.values(), *tables.used),
            (
                *(f"{used[name]}: {lost[name]} are dropped" for name in dropped),
                *tables.accepted,
            ),
        )

    def _lost(self) -> Iterator[tuple[str, str]]:
        """Yield operators that the pipeline lacks, with what the checkpoint has of them."""
        flowing: dict[str, int] = {}
        for entry in self._manifest.inflight_data:
            vertex = entry.edge.downstream
            flowing[vertex] = flowing.get(vertex, 0) + entry.row_count
        gone = self._manifest.parallelism.keys() - self._now.keys() - self._told
        for operator_id in sorted(gone):
            entries = [e for e in self._manifest.subtasks if e.operator_id == operator_id]
            flows = operator_id in flowing and operator_id not in self._changes.gone
            kept = any(e.segments or e.properties for e in entries)
            if flows or kept or self._is_pending(operator_id):
                rows = sum(entry.row_count for entry in entries)
                yield (
                    operator_id,
                    f"{rows:,} rows of state"
                    + (f" and {flowing[operator_id]:,} rows in flight to it" if flows else ""),
                )

    def _is_pending(self, sink: str) -> bool:
        """Whether output waits for its commit, for all that is known."""
        entries = (e for e in self._manifest.subtasks if e.operator_id == sink)
        return sink not in self._committed and any(e.committables for e in entries)

    def _refused(
        self, lost: Iterable[str], dropped: Collection[str], pending: Collection[str]
    ) -> Iterator[tuple[str, str]]:
        for name in lost:
            if name in pending or (name not in dropped and self._is_pending(name)):
                problem = f"{self._where} has output of {name} that may not be committed, and the "
                problem += f"pipeline lacks {name}: start the job with it once more, and stop it"
                yield name, problem
            elif name not in dropped:
                problem = f"{self._where} has state of {name}, which the pipeline lacks: give it "
                problem += f"up with --accept state-drop:{name} and a --reason, run the pipeline "
                problem += "as it was, or start a new job under another name"
                yield name, problem

    def _elsewhere(self) -> Iterator[tuple[str, str]]:
        """Yield operators with state that other rows flow into, though they are what they were.

        A sink may take other rows: what it keeps is only how far it has come.
        """
        sinks = {node.operator_id for node in self._plan.sinks()}
        vertex_now = {o: v.vertex_id for v in self._plan.vertices for o in v.operator_ids()}
        kept = {e.operator_id for e in self._manifest.subtasks if e.segments or e.properties}
        kept -= sinks
        for vertex, members in self._vertices.items():
            for operator_id in members:
                now = vertex_now.get(operator_id, vertex)
                if operator_id in kept and vertex not in (now, operator_id):
                    problem = f"{operator_id} followed {vertex} in {self._where}, and now {now}: "
                    problem += "its state is of other rows; run the pipeline as it was, or give it "
                    problem += "another name"
                    yield operator_id, problem

    def _other_aggregates(self) -> Iterator[str]:
        before = self._manifest.operators_description
        for operator_id, now in self._now.items():
            if operator_id in before and only_aggregates_differ(before[operator_id], now):
                gone, new = (
                    sorted(_names(a) - _names(b))
                    for a, b in ((before[operator_id], now), (now, before[operator_id]))
                )
                yield f"{operator_id}: other aggregates" + (
                    (f", without {', '.join(gone)}" if gone else "")
                    + (f", with {', '.join(new)}" if new else "")
                )

    def _without(self, dropped: Collection[str]) -> CheckpointManifest:
        manifest = self._manifest
        if not dropped:
            return manifest
        return manifest.model_copy(
            update={
                "parallelism": {o: n for o, n in manifest.parallelism.items() if o not in dropped},
                "subtasks": tuple(e for e in manifest.subtasks if e.operator_id not in dropped),
                "inflight_data": tuple(
                    e for e in manifest.inflight_data if e.edge.downstream not in dropped
                ),
                "alignment": tuple(e for e in manifest.alignment if e.vertex_id not in dropped),
            }
        )


# --- aggregates ---------------------------------------------------------------------------------


def only_aggregates_differ(before: JsonObject, now: JsonObject) -> bool:
    """Return whether the same groups are aggregated, and no code of the user is another.

    The columns of the state then decide, see ``stored_columns``.
    """
    if before == now or now.get("kind") not in _AGGREGATIONS:
        return False
    rest = [{k: v for k, v in d.items() if k != _AGGREGATES} for d in (before, now)]
    if rest[0] != rest[1]:
        return False
    kept = {_state_of(a): _meaning(a) for a in _aggregates(before)}
    return all(kept.get(_state_of(a), _meaning(a)) == _meaning(a) for a in _aggregates(now))


def _aggregates(description: JsonObject) -> Iterator[JsonObject]:
    found = description.get(_AGGREGATES)
    for one in found if isinstance(found, list) else ():
        assert isinstance(one, dict), one
        yield one


def _names(description: JsonObject) -> set[str]:
    return {str(one.get("name")) for one in _aggregates(description)}


def _state_of(aggregate: JsonObject) -> str:
    said = {k: aggregate.get(k) for k in ("column", "more", "state")}
    return str(sorted(said.items())) if "state" in aggregate else f"{aggregate['function']} {said}"


def _meaning(aggregate: JsonObject) -> tuple[object, object]:
    return aggregate.get("code"), aggregate.get("version")
