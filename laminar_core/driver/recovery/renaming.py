"""Operators that have another name than in the checkpoint, as a person says; pure.

A name is the identity of state, so nothing guesses it: two operators can have equal descriptions. A
pair that was applied already, because the checkpoint has the new name, is no mistake: the option
may stay where it is, until the next checkpoint and after it.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from laminar_core.driver.recovery.column_names import (
    applied_to_descriptions,
    names_of,
    with_column_names,
)
from laminar_core.driver.recovery.start_texts import ColumnRename, Rename
from laminar_core.operators.base import JsonObject
from laminar_core.plan.plan import INPUTS_KEY, Plan
from laminar_core.records.channel_entries import EdgeRef
from laminar_core.records.manifest import CheckpointManifest, fingerprint_of

_PARTS = ("", "-combine")
"""Ends of the names of one aggregation: of itself, and of its part before the exchange."""


@dataclass(frozen=True, slots=True)
class Renamed:
    """The checkpoint with the names of the pipeline."""

    manifest: CheckpointManifest
    lines: tuple[str, ...] = ()
    problems: tuple[str, ...] = ()
    columns: frozenset[ColumnRename] = frozenset()
    """Renames of columns that a description names."""


def renamed(
    manifest: CheckpointManifest, plan: Plan, renames: Sequence[Rename | ColumnRename]
) -> Renamed:
    """Return the checkpoint with other names; unchanged if one of them does not fit."""
    found = _with_operators(manifest, plan, [one for one in renames if isinstance(one, Rename)])
    columns = columns_of(renames)
    if found.problems or not columns:
        return found
    after = with_column_names(found.manifest, plan, names_of(columns))
    applied = applied_to_descriptions(found.manifest, plan, columns)
    return replace(found, manifest=after, columns=applied)


def columns_of(renames: Iterable[Rename | ColumnRename]) -> list[ColumnRename]:
    """Return those that are of columns."""
    return [one for one in renames if isinstance(one, ColumnRename)]


def _with_operators(manifest: CheckpointManifest, plan: Plan, renames: Sequence[Rename]) -> Renamed:
    there = manifest.parallelism.keys()
    due = [one for one in renames if one.before in there or one.now not in there]
    problems = tuple(_problems(manifest, plan, due))
    if problems or not due:
        return Renamed(manifest, problems=problems)
    names = {
        one.before + part: one.now + part
        for one in due
        for part in _PARTS
        if one.before + part in there
    }
    lines = tuple(f"{one.now}: was called {one.before}" for one in due)
    return Renamed(_with_names(manifest, names), lines)


def _problems(manifest: CheckpointManifest, plan: Plan, renames: Sequence[Rename]) -> Iterator[str]:
    there, now = manifest.parallelism.keys(), set(plan.operator_ids())
    sinks = {node.operator_id for node in plan.sinks()}
    for one in renames:
        said = f"{one.before} cannot be renamed to {one.now}"
        if one.before not in there:
            yield f"{said}: checkpoint {manifest.checkpoint_id} has neither"
        elif one.now in there:
            yield f"{said}: checkpoint {manifest.checkpoint_id} has both"
        elif one.now not in now:
            yield f"{said}: the pipeline has no {one.now}"
        elif one.before in now:
            yield f"{said}: the pipeline has both"
        elif one.now in sinks:
            yield f"{said}: a sink knows its output by its name, so it keeps it"
        elif any(other is not one and other.now == one.now for other in renames):
            yield f"{said}: another one is to have this name, too"


def _with_names(manifest: CheckpointManifest, names: Mapping[str, str]) -> CheckpointManifest:
    def name(before: str) -> str:
        return names.get(before, before)

    def edge(ref: EdgeRef) -> dict[str, object]:
        return {"upstream": name(ref.upstream), "downstream": name(ref.downstream)}

    described = {
        name(o): _described(manifest, o, d, names)
        for o, d in manifest.operators_description.items()
    }
    return manifest.model_copy(
        update={
            "parallelism": {name(o): n for o, n in manifest.parallelism.items()},
            "operators_description": described,
            "fingerprint": {o: fingerprint_of(d) for o, d in described.items()},
            "edges": tuple(e.model_copy(update=edge(e)) for e in manifest.edges),
            "subtasks": tuple(
                e.model_copy(update={"operator_id": name(e.operator_id)}) for e in manifest.subtasks
            ),
            "alignment": tuple(
                e.model_copy(update={"vertex_id": name(e.vertex_id)}) for e in manifest.alignment
            ),
            "inflight_data": tuple(
                e.model_copy(
                    update={
                        "operator_id": name(e.operator_id),
                        "edge": e.edge.model_copy(update=edge(e.edge)),
                    }
                )
                for e in manifest.inflight_data
            ),
            "discovery": {name(o): d for o, d in manifest.discovery.items()},
            "carried": {
                name(o): c.model_copy(update={"source": name(c.source)})
                for o, c in manifest.carried.items()
            },
        }
    )


def _described(
    manifest: CheckpointManifest,
    operator_id: str,
    description: JsonObject,
    names: Mapping[str, str],
) -> JsonObject:
    """Return the description with the new names of those that its rows come from."""
    inputs = description.get(INPUTS_KEY)
    edges = sorted(
        (e for e in manifest.edges if e.downstream == operator_id), key=lambda e: e.input_index
    )
    if not isinstance(inputs, list) or len(inputs) != len(edges):
        return description
    said = [
        str(text).replace(edge.upstream, names.get(edge.upstream, edge.upstream), 1)
        for text, edge in zip(inputs, edges, strict=True)
    ]
    return {**description, INPUTS_KEY: list(said)}
