"""Find out where the sources of a job continue, and whether they can.

On a fresh start, the first step of each discovery finds the splits. Otherwise they come from the
checkpoint, and each source looks for gaps behind its positions.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import pyarrow as pa

from laminar_core.connectors.base import Found, Gap, LeavesOut
from laminar_core.driver.discovery import Discovering, after, checked, found_so_far
from laminar_core.driver.recovery.acceptance import Acceptance
from laminar_core.driver.recovery.gaps import judge_gaps, mended
from laminar_core.driver.recovery.partial_reset import PartReset
from laminar_core.driver.recovery.report import SourceReport, SourceStatus, source_report
from laminar_core.driver.recovery.source_changes import SourceChanges
from laminar_core.driver.recovery.stated_positions import started_at
from laminar_core.errors import ConfigurationError, LaminarError
from laminar_core.plan.plan import Plan, SourceNode
from laminar_core.protocol.split_book import FoundSoFar
from laminar_core.records.manifest import CheckpointManifest
from laminar_core.store.checkpoint_store import CheckpointStore
from laminar_core.store.source_positions import positions_of


@dataclass(slots=True)
class ExaminedSources:
    """The sources of a start."""

    splits: dict[str, pa.Table] = field(default_factory=dict[str, pa.Table])
    """Per source: all splits of all subtasks. A source with a problem may be missing."""
    discovering: dict[str, Discovering] = field(default_factory=dict[str, Discovering])
    """Per source: its discovery and what it has found so far."""
    reports: list[SourceReport] = field(default_factory=list[SourceReport])
    problems: list[LaminarError] = field(default_factory=list[LaminarError])
    used: list[Acceptance] = field(default_factory=list[Acceptance])
    """The acceptances that were needed."""
    accepted: list[str] = field(default_factory=list[str])
    """One line for each gap that is accepted."""


def examine_sources(
    plan: Plan,
    store: CheckpointStore,
    manifest: CheckpointManifest | None,
    accepted: Sequence[Acceptance],
    changes: SourceChanges | None = None,
    part: PartReset | None = None,
) -> ExaminedSources:
    """Look at every source; changes nothing.

    ``changes``: the sources that came and went since the checkpoint ``manifest``. ``part``: what
    begins anew, and from where its sources are read.

    Raises:
        CorruptCheckpointError: the positions cannot be read.
        StorageUnavailable: the store, or a source, did not answer.
    """
    examined = ExaminedSources()
    for node in plan.sources():
        is_new = changes is not None and node.operator_id in changes.new
        position = None if part is None else part.positions.get(node.operator_id)
        _examine(examined, node, store, None if is_new else manifest, accepted, position)
    if changes is not None and manifest is not None:
        examined.reports = [
            replace(report, status=_status(report.operator_id, changes))
            for report in examined.reports
        ]
        for source in changes.gone:
            report = source_report(source, positions_of(source, store, manifest), None)
            examined.reports.append(replace(report, status="gone"))
    return examined


def _status(source: str, changes: SourceChanges) -> SourceStatus:
    if source in changes.new:
        return "new"
    return "back" if source in changes.back else "continues"


def _examine(
    examined: ExaminedSources,
    node: SourceNode,
    store: CheckpointStore,
    manifest: CheckpointManifest | None,
    accepted: Sequence[Acceptance],
    position: str | None,
) -> None:
    problem: ConfigurationError | None = None
    splits: pa.Table | None = None
    gaps: tuple[Gap, ...] = ()
    try:
        splits, found = _found(node, store, manifest, position)
        if manifest is not None:
            gaps = tuple(node.source.gaps(splits))
        verdict = judge_gaps(node.operator_id, gaps, accepted)
        problem = verdict.problem
        if verdict.used is not None:
            splits = mended(node.source, splits, gaps, verdict.used)
            found = _behind(node, found, gaps)
            examined.used.append(verdict.used)
            examined.accepted += verdict.accepted
        examined.discovering[node.operator_id] = Discovering.of(node, found)
    except ConfigurationError as error:
        problem = error
    if problem is not None:
        examined.problems.append(problem)
    if splits is not None:
        examined.splits[node.operator_id] = splits
    examined.reports.append(source_report(node.operator_id, splits, problem, gaps))


def _behind(node: SourceNode, found: FoundSoFar, gaps: Sequence[Gap]) -> FoundSoFar:
    """Return what a discovery has found, for a job that continues behind these gaps."""
    if not isinstance(node.source, LeavesOut):
        return found
    state: Any = found.state  # JSON
    return replace(found, state=node.source.leave_out(dict(state), gaps))


def _found(
    node: SourceNode,
    store: CheckpointStore,
    manifest: CheckpointManifest | None,
    position: str | None,
) -> tuple[pa.Table, FoundSoFar]:
    """Return the splits to continue with, and what was found up to then."""
    if manifest is None:
        found = _first_step(node, position)
        return found.splits, after(found)
    splits = positions_of(node.operator_id, store, manifest)
    if splits is None:  # A checkpoint without a split of it: only the columns are needed.
        splits = _first_step(node).splits.slice(0, 0)
    return splits, found_so_far(manifest.discovery.get(node.operator_id), splits)


def _first_step(node: SourceNode, position: str | None = None) -> Found:
    """Return what the source's discovery finds on a fresh start.

    Raises:
        ConfigurationError: the table lacks a column that Laminar needs, or the source cannot begin
            at ``position``.
    """
    found = started_at(node, position).discovery().step({})
    return checked(node.operator_id, type(node.source).__name__, found, next_split_id=0)
