"""Results of comparing a pipeline with a checkpoint: its operators, sources and sinks."""

from collections.abc import Container, Iterable, Iterator, Sequence
from dataclasses import dataclass

from laminar_core.driver.recovery.acceptance import Acceptance
from laminar_core.driver.recovery.compatibility import Mismatch
from laminar_core.driver.recovery.report import OperatorReport, SourceReport
from laminar_core.driver.recovery.sinks import SinkVerdict
from laminar_core.driver.recovery.source_changes import SourceChanges
from laminar_core.driver.recovery.sources import ExaminedSources
from laminar_core.errors import LaminarError
from laminar_core.plan.plan import Plan
from laminar_core.records.manifest import CheckpointManifest


@dataclass(frozen=True, slots=True)
class ExaminedOperators:
    """All operators, compared with the checkpoint."""

    reports: tuple[OperatorReport, ...] = ()
    problems: tuple[LaminarError, ...] = ()
    fitted: CheckpointManifest | None = None
    lines: tuple[str, ...] = ()
    used: tuple[Acceptance, ...] = ()
    accepted: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Compared:
    """Everything that was compared with the checkpoint."""

    manifest: CheckpointManifest | None
    changes: SourceChanges | None
    operators: ExaminedOperators
    sources: ExaminedSources
    sinks: Sequence[SinkVerdict]

    @property
    def problems(self) -> Iterator[LaminarError]:
        """Yield all problems, in the order of PROTOCOL section 11."""
        yield from self.operators.problems
        yield from self.sources.problems
        for sink in self.sinks:
            yield from sink.problems

    @property
    def used_before_a_checkpoint(self) -> list[Acceptance]:
        """Return the acceptances that are needed again until a checkpoint has completed."""
        dropped = () if self.changes is None else self.changes.used
        return [*dropped, *self.operators.used, *self.sources.used]

    @property
    def used(self) -> list[Acceptance]:
        """Return the acceptances that are needed."""
        return [*self.used_before_a_checkpoint, *(a for sink in self.sinks for a in sink.used)]

    def accepted(self) -> Iterator[str]:
        """Yield one line for each."""
        yield from () if self.changes is None else self.changes.accepted
        yield from self.operators.accepted
        yield from self.sources.accepted
        for sink in self.sinks:
            yield from sink.accepted


def operator_reports(
    manifest: CheckpointManifest,
    plan: Plan,
    found: Iterable[Mismatch],
    carried: Container[str],
    dropped: Container[str],
    reset_ids: Container[str],
) -> Iterator[OperatorReport]:
    """Yield reports on the pipeline's operators, then on those only in the checkpoint."""
    problems = {operator_id: str(m.error) for m in found for operator_id in m.operator_ids}
    ids = list(plan.descriptions())
    for operator_id in [*ids, *(o for o in manifest.parallelism if o not in ids)]:
        entries = [entry for entry in manifest.subtasks if entry.operator_id == operator_id]
        kept = any(e.segments or e.properties or e.committables for e in entries)
        problem = problems.get(operator_id)
        if operator_id in reset_ids:
            status = "reset"
        elif operator_id not in manifest.parallelism:
            status = "new"
        elif problem is not None:
            status = "unmapped"
        elif operator_id in carried:
            status = "carried"
        elif operator_id in dropped:
            status = "dropped"
        else:
            status = "restored" if kept else "empty"
        yield OperatorReport(
            operator_id,
            status,
            sum(entry.row_count for entry in entries),
            sum(entry.size_bytes for entry in entries),
            problem,
        )


def took_part(
    sources: Iterable[SourceReport], manifest: CheckpointManifest | None
) -> Iterator[SourceReport]:
    """Yield the sources whose rows the last run counted up to the checkpoint."""
    for source in sources:
        if manifest is None or (
            source.status != "back" and (source.operator_id not in manifest.carried)
        ):
            yield source
