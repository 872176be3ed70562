"""Compare the pipeline with the checkpoint before anything is started.

State is matched by operator id. An operator without state in the checkpoint may change freely; one
with state must have the same description as then, because the description defines the meaning of
rows and offsets. The inputs of every operator, and their partitioning, must be unchanged, because
event time is stored per input channel. Sources may come and go (``source_changes``), and operators
as well, as far as the result is certain (``evolution``). The number of workers may differ, unless
some state cannot be redistributed. Source: PROTOCOL sections 9, 10 and 11.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

from laminar_core.driver.recovery.evolution import (
    Evolution,
    evolution,
    only_aggregates_differ,
)
from laminar_core.driver.recovery.inserting import arranged, through
from laminar_core.driver.recovery.source_changes import SourceChanges, source_changes
from laminar_core.errors import ErrorCode, IncompatibleStateError
from laminar_core.operators.base import JsonObject, redistribution_of
from laminar_core.operators.mapping import difference
from laminar_core.plan.plan import INPUTS_KEY, Plan
from laminar_core.records.channel_entries import EdgeRef
from laminar_core.records.manifest import CheckpointManifest, fingerprint_of


@dataclass(frozen=True, slots=True)
class Mismatch:
    """A reason why the pipeline cannot continue from the checkpoint, with its operators."""

    error: IncompatibleStateError
    operator_ids: frozenset[str] = frozenset()


def mismatches(
    manifest: CheckpointManifest,
    plan: Plan,
    parallelism: int,
    changes: SourceChanges | None = None,
    evolved: Evolution | None = None,
) -> Iterator[Mismatch]:
    """Yield all mismatches, the gravest first; none if the pipeline can continue from it.

    ``changes``, ``evolved``: sources and operators that came and went, if the caller has compared
    them already.
    """
    changes = changes or source_changes(arranged(manifest, plan), plan)
    evolved = evolved or evolution(changes.fitted, plan, changes)
    manifest = evolved.fitted
    yield from _caught(_check_parallelism, manifest, plan, parallelism)
    for operator_id, problem in (*changes.problems, *evolved.problems):
        yield Mismatch(_refused_change(problem), frozenset({operator_id}))
    yield from _changed_operators(manifest, plan)
    yield from _caught(_check_edges, manifest, plan, changes.gone)


def _changed_operators(manifest: CheckpointManifest, plan: Plan) -> Iterator[Mismatch]:
    """Yield the operators that are in both and do not continue each other."""
    kept = kept_state(manifest)
    for operator_id, now in plan.descriptions().items():
        if operator_id not in manifest.parallelism:
            continue
        before = manifest.operators_description[operator_id]
        if operator_id not in kept:
            before, now = _inputs(before), _inputs(now)  # noqa: PLW2901 - the rest may differ
        is_same = fingerprint_of(before) == fingerprint_of(now)
        if not is_same and not only_aggregates_differ(before, now):
            where, differs = f"checkpoint {manifest.checkpoint_id}", difference(before, now)
            problem = _changed(f"{operator_id} is not what it was in {where}: {differs}")
            yield Mismatch(problem, frozenset({operator_id}))


def kept_state(manifest: CheckpointManifest) -> set[str]:
    """Return the operators with state."""
    return {
        entry.operator_id
        for entry in manifest.subtasks
        if entry.segments or entry.properties or entry.committables
    }


def _caught(check: Callable[..., None], *arguments: object) -> Iterator[Mismatch]:
    try:
        check(*arguments)
    except IncompatibleStateError as error:
        yield Mismatch(error)


def _check_edges(manifest: CheckpointManifest, plan: Plan, gone: Sequence[str]) -> None:
    """Refuse in-flight rows on a removed edge: they would be lost silently (PROTOCOL 10)."""
    for entry in manifest.inflight_data:
        if (source := entry.edge.upstream) in gone:
            raise _refused_change(
                f"checkpoint {manifest.checkpoint_id} has rows in flight behind source {source}, "
                "which the pipeline lacks: start it with this source, let it stop with an aligned "
                f"checkpoint (`laminar mode aligned`, then `laminar stop`), and remove {source} "
                "then"
            )
    there = {(e.upstream, e.downstream, plan.input_index(e)) for e in plan.edges}
    for entry in manifest.inflight_data:
        edge = entry.edge
        if (edge.upstream, edge.downstream, edge.input_index) not in there:
            if between := _now_between(manifest, edge):
                raise _refused_change(
                    f"checkpoint {manifest.checkpoint_id} has rows in flight from {edge.upstream} "
                    f"to {edge.downstream}, and {between} is between them now: these rows would "
                    "pass it by. Start the pipeline as it was, let it stop with an aligned "
                    f"checkpoint (`laminar mode aligned`, then `laminar stop`), and add {between} "
                    "then"
                )
            raise _changed(
                f"checkpoint {manifest.checkpoint_id} has rows in flight from {edge.upstream} to "
                f"{edge.downstream}, which the pipeline does not connect in this way"
            )


def _now_between(manifest: CheckpointManifest, edge: EdgeRef) -> str | None:
    """Return the operator that was added behind the sender of these rows; None if there is none."""
    place = edge.downstream, edge.input_index
    senders = (e.upstream for e in through(manifest) if (e.downstream, e.input_index) == place)
    return next((sender for sender in senders if sender != edge.upstream), None)


def _check_parallelism(manifest: CheckpointManifest, plan: Plan, parallelism: int) -> None:
    where, before = f"checkpoint {manifest.checkpoint_id}", manifest.workers
    if manifest.max_parallelism != plan.max_parallelism:
        raise _refused(
            f"{where} has {manifest.max_parallelism} key groups, the pipeline "
            f"{plan.max_parallelism}: set max_parallelism to {manifest.max_parallelism}"
        )
    if before == parallelism:
        return
    if parallelism > plan.max_parallelism:
        raise _refused(
            f"{where} has {plan.max_parallelism} key groups, so at most as many workers can "
            f"continue it, not {parallelism}"
        )
    if reason := _why_not_rescaled(manifest, plan):
        raise _refused(
            f"{where} was taken with {before} workers and cannot be continued with {parallelism}, "
            f"because {reason}: run with {before} workers"
        )


def _why_not_rescaled(manifest: CheckpointManifest, plan: Plan) -> str | None:
    """Return why the number of workers cannot change, or None (PROTOCOL section 10)."""
    if loops := sorted(set(plan.loops().values())):
        return f"rows in loop {loops[0]} stay with their worker"
    kept = {s.operator_id for s in manifest.subtasks if s.segments or s.properties}
    for operator in (operator for vertex in plan.vertices for operator in vertex.operators):
        if operator.operator_id in kept and redistribution_of(operator) is None:
            return (
                f"{operator.operator_id} does not declare how its state is redistributed "
                "(attribute redistribution)"
            )
    edges = {(e.upstream, e.downstream, plan.input_index(e)): e for e in plan.edges}
    for entry in manifest.inflight_data:
        edge = edges.get((entry.edge.upstream, entry.edge.downstream, entry.edge.input_index))
        if edge is not None and not edge.may_overtake:
            return (
                f"there are rows in flight from {edge.upstream} to {edge.downstream}, which are "
                f"{edge.partitioning}"
            )
    return None


def _refused(what: str) -> IncompatibleStateError:
    return IncompatibleStateError(ErrorCode.UNSUPPORTED_PARALLELISM, what)


def _changed(what: str) -> IncompatibleStateError:
    return IncompatibleStateError(
        ErrorCode.OPERATORS_CHANGED,
        f"{what}; run the pipeline as it was, or start a new job under another name",
    )


def _refused_change(what: str) -> IncompatibleStateError:
    return IncompatibleStateError(ErrorCode.OPERATORS_CHANGED, what)


def _inputs(description: JsonObject) -> JsonObject:
    return {INPUTS_KEY: description.get(INPUTS_KEY)}
