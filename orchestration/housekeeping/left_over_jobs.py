"""The job for left-over files of attempts that did not complete.

It uses the functions of retention to delete files whose quarantine is over, and no checkpoint.
Retention does the same beside its other work, according to the stream's policy.
"""

from collections.abc import Iterator
from dataclasses import replace
from typing import Any, Literal

import dagster as dg
from pydantic import Field

from laminar_core.host.clock import Clock
from laminar_core.orchestration.acts import ActForm
from laminar_core.orchestration.group import Group
from laminar_core.orchestration.housekeeping.chores import Chore, chore_job
from laminar_core.orchestration.housekeeping.report_tables import Row, table_of
from laminar_core.orchestration.housekeeping.retention_jobs import (
    ROWS_SHOWN,
    RetentionRun,
    file_row,
)
from laminar_core.resources.drivers.launcher import DriverLauncher
from laminar_core.resources.names import LAUNCHER_KEY
from laminar_core.retention.config import RetentionConfig
from laminar_core.retention.decision import left_overs_policy, without_checkpoints
from laminar_core.retention.facts import (
    FileVerdict,
    Incomplete,
    RetentionFacts,
    RetentionPlan,
    Unreadable,
)
from laminar_core.retention.run import Retention
from laminar_core.units import DurationText


class LeftOverForm(ActForm):
    """Whether to report or delete left-over files."""

    mode: Literal["report", "delete"] = Field(
        default="report",
        description="report: only report. delete: put new left-over files into quarantine, and "
        "delete those that have been there long enough.",
    )
    quarantine: DurationText | None = Field(
        default=None,
        description="Time in quarantine, such as 1 day  [default: the stream's policy].",
    )


def build_left_over_job(group: Group, clock: Clock) -> dg.JobDefinition:
    """Return ``laminar_orphans``."""
    return chore_job(
        group,
        "orphans",
        LeftOverForm,
        look_after_left_overs,
        clock,
        description="Find left-over files of a stream, and delete them after quarantine.",
        resources=frozenset({LAUNCHER_KEY}),
    )


def look_after_left_overs(chore: Chore, form: LeftOverForm) -> None:
    """Report unreferenced files; delete them if requested and their quarantine is over.

    Raises:
        LaminarError: as ``Retention``, except for an outdated plan.
    """
    changes: dict[str, Any] = {"left_overs": "delete"}
    if form.quarantine is not None:
        changes["quarantine"] = form.quarantine
    policy = RetentionConfig(**(chore.spec.retention.model_dump() | changes))
    runner = Retention(
        chore.store, left_overs_policy(policy.policy()), chore.clock.now_ms, audit=chore.audit
    )
    planned = runner.plan()
    planned = replace(planned, plan=without_checkpoints(planned.plan))
    metadata = left_over_metadata(planned.facts, planned.plan)
    if form.mode == "delete":
        metadata |= _bound_logs(chore)
    run = RetentionRun(chore, runner, policy, form.reason, metadata)
    run.report_plan(planned, "dry run")
    if form.mode == "delete":
        run.carry_out(planned)


def _bound_logs(chore: Chore) -> dict[str, Any]:
    """Old logs of detached drivers on this machine go, and long ones are cut."""
    launcher = getattr(chore.context.resources, LAUNCHER_KEY)
    assert isinstance(launcher, DriverLauncher)
    return {"deleted_logs": len(launcher.bound_logs(chore.spec.name))}


def left_over_metadata(facts: RetentionFacts, plan: RetentionPlan) -> dict[str, Any]:
    """Return unreferenced files, and problems that need a person."""
    attempts = [c for c in facts.checkpoints if isinstance(c, Incomplete)]
    unreadable = [c for c in facts.checkpoints if isinstance(c, Unreadable)]
    left = list(_left(facts, plan))
    pins = [pin for each in facts.pins.values() for pin in each if pin.expires_at_ms is not None]
    metadata: dict[str, Any] = {
        "incomplete_attempts": len(attempts),
        "left_over_files": len(left),
        "left_over_bytes": sum(file.size_bytes for file in left),
        "files_in_quarantine": len(facts.quarantined),
        "files_of_unknown_name": sum(file.kind == "unknown" for file in facts.files),
        "unreadable_manifests": len(unreadable),
        "holds_that_ended": sum((pin.expires_at_ms or 0) <= facts.now_ms for pin in pins),
    }
    if attempts:
        metadata["attempts"] = table_of(
            [_attempt_row(facts, attempt) for attempt in attempts[-ROWS_SHOWN:]]
        )
    if left:
        metadata["files"] = table_of(
            [file_row(f.path, f.action, f.size_bytes, f.reason) for f in left[:ROWS_SHOWN]]
        )
    return metadata


def _left(facts: RetentionFacts, plan: RetentionPlan) -> Iterator[FileVerdict]:
    """Yield files that no checkpoint names, whatever their verdict."""
    for file in plan.files:
        if file.action != "keep" or file.path in facts.quarantined:
            yield file


def _attempt_row(facts: RetentionFacts, attempt: Incomplete) -> Row:
    files = [file for file in facts.files if file.checkpoint_id == attempt.checkpoint_id]
    return {
        "checkpoint": attempt.checkpoint_id,
        "generation": attempt.generation or 0,
        "files": len(files),
        "bytes": sum(file.size_bytes for file in files),
    }
