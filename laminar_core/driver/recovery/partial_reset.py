"""Start a part of the pipeline without state, and continue the rest from the checkpoint; pure.

State belongs to positions and to output. So what is reset with an operator is all that hangs
together with it: the sources above it, all that these feed, the sources above that, and so on. Of
each of these sources a person states where it is read from, and the output of all of these sinks is
withdrawn. Whatever does not hang together with it goes on as if nothing were.

The decision is in the base of the generation, because output is withdrawn after that: a driver that
dies before its first checkpoint has a successor that comes to the same checkpoint.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, field, replace

from laminar_core.driver.recovery.inserting import arranged
from laminar_core.driver.recovery.rechaining import vertices_of
from laminar_core.driver.recovery.start_texts import BEGINNING, Rename, ResetFrom
from laminar_core.errors import ConfigurationError, ErrorCode, IncompatibleStateError
from laminar_core.plan.plan import Plan
from laminar_core.records.manifest import CheckpointManifest
from laminar_core.records.partial_reset import PartialReset


@dataclass(frozen=True, slots=True)
class PartReset:
    """A part that begins anew. The rest continues from the checkpoint."""

    checkpoint_id: int
    operators: tuple[str, ...]
    """All of the part: sources, operators, sinks."""
    sources: tuple[str, ...]
    sinks: tuple[str, ...]
    named: tuple[str, ...] = ()
    """The operators that the user named now."""
    generations: tuple[int, ...] = ()
    """Earlier generations that decided this, or a part of it."""
    decided: tuple[str, ...] = ()
    """The operators that earlier generations have reset."""
    positions: Mapping[str, str] = field(default_factory=dict[str, str])
    """Where sources are read from, other than from their beginning."""

    def lines(self) -> list[str]:
        """Return a report with one line per fact."""
        rest = [o for o in self.operators if o not in {*self.sources, *self.sinks, *self.named}]
        many = "s" if len(self.generations) > 1 else ""
        by = f"as generation{many} {' and '.join(map(str, self.generations))} decided"
        why = f"to reset {', '.join(self.named)}" if self.named else by
        lines = [f"a part begins anew {why}; the rest continues from {self.checkpoint_id}"]
        if rest:
            lines.append(f"reset as well, because they hang together: {', '.join(rest)}")
        places = ((one, self.positions.get(one, f"its {BEGINNING}")) for one in self.sources)
        lines += [f"{source}: read again from {place}" for source, place in places]
        return lines + [f"{sink}: all of its output is withdrawn" for sink in self.sinks]

    def record(self) -> PartialReset:
        """Return what the base of the generation says."""
        return PartialReset(operators=self.operators, positions=dict(self.positions))


def part_to_reset(
    manifest: CheckpointManifest | None,
    plan: Plan,
    operators: Sequence[str],
    reset_from: Sequence[ResetFrom],
    renames: Iterable[object] = (),
) -> PartReset | None:
    """Return the part that hangs together with these operators; None if all of it begins anew.

    ``manifest``: with the names of the pipeline. ``reset_from``: the user says that these sources
    are read again, and from where.

    Raises:
        ConfigurationError: there is no such operator, or a source is missing, has two positions or
            is of another part, or has a position and everything is reset (INVALID_OPTION).
        IncompatibleStateError: output of a sink that is gone cannot be withdrawn, or it is unknown
            what a source fed that is gone (OPERATORS_CHANGED).
    """
    if manifest is None or not reset_from:
        require_no_position(reset_from)
        return None
    known = {*plan.operator_ids(), *manifest.parallelism}
    sources = [one.source for one in reset_from]
    if unknown := sorted({*operators, *sources} - known):
        raise _invalid(
            f"there is no operator {', '.join(unknown)} to reset; there are: "
            f"{', '.join(sorted(known))}"
        )
    part = hanging_together(manifest, plan, operators)
    _require_sources(plan, part, operators, sources)
    if set(plan.operator_ids()) <= part:
        require_no_position(reset_from)
        return None
    _require_sinks(manifest, plan, part)
    _require_known_sources(manifest, plan, operators)
    before = {one.before for one in renames if isinstance(one, Rename) and one.now in part}
    found = _part(manifest, plan, part | before, named=tuple(operators))
    positions = {s: position for s, position in reset_from if position != BEGINNING}
    return replace(found, positions=positions)


def require_no_position(reset_from: Iterable[ResetFrom]) -> None:
    """Refuse a stated position where everything begins anew, each source by its own options.

    Raises:
        ConfigurationError: there is one (INVALID_OPTION).
    """
    for source, position in reset_from:
        if position != BEGINNING:
            raise _invalid(
                f"{source} cannot be read from {position} here, because everything is reset, and"
                f" each source begins where its own options say: say {ResetFrom(source)}, and give"
                " the source another start in the pipeline"
            )


def decided_before(
    manifest: CheckpointManifest, plan: Plan, decided: Sequence[tuple[int, PartialReset]]
) -> PartReset | None:
    """Return what generations after the checkpoint's have decided; None if it was nothing."""
    if not decided:
        return None
    operators = {operator_id for _, reset in decided for operator_id in reset.operators}
    generations = tuple(generation for generation, _ in decided)
    positions: dict[str, str] = {}
    for _, reset in decided:
        positions = _without(positions, reset.operators) | reset.positions
    found = _part(manifest, plan, operators, generations=generations)
    return replace(found, decided=found.operators, positions=positions)


def together(first: PartReset | None, second: PartReset | None) -> PartReset | None:
    """Return both of them as one; the first one says from where its sources are read."""
    if first is None or second is None:
        return first or second
    return PartReset(
        first.checkpoint_id,
        tuple(sorted({*first.operators, *second.operators})),
        tuple(sorted({*first.sources, *second.sources})),
        tuple(sorted({*first.sinks, *second.sinks})),
        first.named or second.named,
        first.generations or second.generations,
        first.decided or second.decided,
        _without(second.positions, first.operators) | dict(first.positions),
    )


def hanging_together(
    manifest: CheckpointManifest, plan: Plan, operators: Iterable[str]
) -> frozenset[str]:
    """Return all that is connected with these operators, in the pipeline or in the checkpoint."""
    manifest = arranged(manifest, plan)
    neighbours: dict[str, set[str]] = {}
    for one, other in _links(manifest, plan):
        neighbours.setdefault(one, set()).add(other)
        neighbours.setdefault(other, set()).add(one)
    found, due = set[str](), list(operators)
    while due:
        operator_id = due.pop()
        if operator_id not in found:
            found.add(operator_id)
            due += neighbours.get(operator_id, ())
    return frozenset(found)


def without_part(manifest: CheckpointManifest, part: AbstractSet[str]) -> CheckpointManifest:
    """Return the checkpoint as if it had never had these operators."""

    def stays(operator_id: str) -> bool:
        return operator_id not in part

    carried = {o for o, c in manifest.carried.items() if not stays(c.source)}
    gone = part | carried
    return manifest.model_copy(
        update={
            "parallelism": {o: n for o, n in manifest.parallelism.items() if o not in gone},
            "operators_description": {
                o: d for o, d in manifest.operators_description.items() if o not in gone
            },
            "fingerprint": {o: f for o, f in manifest.fingerprint.items() if o not in gone},
            "subtasks": tuple(e for e in manifest.subtasks if e.operator_id not in gone),
            "edges": tuple(e for e in manifest.edges if stays(e.upstream) and stays(e.downstream)),
            "inflight_data": tuple(e for e in manifest.inflight_data if stays(e.edge.downstream)),
            "alignment": tuple(e for e in manifest.alignment if stays(e.vertex_id)),
            "discovery": {o: d for o, d in manifest.discovery.items() if o not in gone},
            "carried": {o: c for o, c in manifest.carried.items() if o not in gone},
        }
    )


def _links(manifest: CheckpointManifest, plan: Plan) -> Iterator[tuple[str, str]]:
    chains = [list(vertex.operator_ids()) for vertex in plan.vertices]
    chains += vertices_of(manifest).values()
    for first, *others in chains:
        yield from ((first, other) for other in others)
    yield from ((edge.upstream, edge.downstream) for edge in (*plan.edges, *manifest.edges))


def _part(
    manifest: CheckpointManifest,
    plan: Plan,
    part: AbstractSet[str],
    *,
    named: tuple[str, ...] = (),
    generations: tuple[int, ...] = (),
) -> PartReset:
    return PartReset(
        manifest.checkpoint_id,
        tuple(sorted(part)),
        tuple(node.operator_id for node in plan.sources() if node.operator_id in part),
        tuple(node.operator_id for node in plan.sinks() if node.operator_id in part),
        named,
        generations,
    )


def _without(positions: Mapping[str, str], operators: Iterable[str]) -> dict[str, str]:
    """Leave out what these operators had."""
    gone = {*operators}
    return {source: position for source, position in positions.items() if source not in gone}


# --- what is refused ----------------------------------------------------------------------------


def _require_sources(
    plan: Plan, part: AbstractSet[str], operators: Sequence[str], sources: Sequence[str]
) -> None:
    if len({*sources}) < len(sources):
        raise _invalid(f"--reset-from names a source twice: {', '.join(sources)}")
    needed = [node.operator_id for node in plan.sources() if node.operator_id in part]
    if missing := [source for source in needed if source not in sources]:
        say = " ".join(f"--reset-from {ResetFrom(source)}" for source in missing)
        raise _invalid(
            f"to reset {', '.join(operators)}, {', '.join(missing)} has to be read again, too, and "
            f"{', '.join(sorted(part))} begin anew, because they hang together: say {say}, or "
            "leave --reset-from out to reset everything"
        )
    if others := sorted(set(sources) - set(needed)):
        raise _invalid(
            f"{', '.join(others)} is no source of what is reset with {', '.join(operators)}: leave "
            f"--reset-from {ResetFrom(others[0])} out, or name an operator that it feeds, too"
        )


def _require_sinks(manifest: CheckpointManifest, plan: Plan, part: AbstractSet[str]) -> None:
    """Refuse a sink that the pipeline lacks: nobody could withdraw its output."""
    senders = {edge.upstream for edge in manifest.edges}
    ends = [members[-1] for v, members in vertices_of(manifest).items() if v not in senders]
    here = {node.operator_id for node in plan.sinks()}
    if gone := sorted({sink for sink in ends if sink in part} - here):
        raise _refused(
            f"{', '.join(gone)} has output of what is reset, and the pipeline lacks it, so it "
            "cannot be withdrawn: put it back for this start"
        )


def _require_known_sources(
    manifest: CheckpointManifest, plan: Plan, operators: Sequence[str]
) -> None:
    here = {node.operator_id for node in plan.sources()}
    if gone := sorted({carried.source for carried in manifest.carried.values()} - here):
        raise _refused(
            f"checkpoint {manifest.checkpoint_id} carries positions of {gone[0]}, which the "
            f"pipeline lacks, and nobody knows whether it fed what is reset with "
            f"{', '.join(operators)}: put {gone[0]} back, or first give its positions up with "
            f"--accept source-drop:{gone[0]} and a --reason"
        )


def _invalid(problem: str) -> ConfigurationError:
    return ConfigurationError(ErrorCode.INVALID_OPTION, problem)


def _refused(problem: str) -> IncompatibleStateError:
    return IncompatibleStateError(ErrorCode.OPERATORS_CHANGED, problem)
