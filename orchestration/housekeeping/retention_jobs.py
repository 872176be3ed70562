"""The job that deletes checkpoints outside the stream's policy."""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Literal

import dagster as dg
from dagster._core.definitions.definition_config_schema import DefinitionConfigSchema
from pydantic import Field

from laminar_core.errors import ConfigurationError, CorruptCheckpointError, ErrorCode
from laminar_core.host.clock import Clock
from laminar_core.orchestration.acts import ActForm
from laminar_core.orchestration.group import Group
from laminar_core.orchestration.housekeeping.chores import Chore, chore_job
from laminar_core.orchestration.housekeeping.policy_form import with_policy_fields
from laminar_core.orchestration.housekeeping.report_tables import Row, table_of
from laminar_core.records.retention import RetentionResult
from laminar_core.resources.locked_database import until_unlocked
from laminar_core.resources.names import (
    RETENTION_PLAN_TAG,
    checkpoint_of,
    checkpoint_partitions,
    partition_of,
)
from laminar_core.retention.config import RetentionConfig
from laminar_core.retention.facts import RetentionPlan
from laminar_core.retention.run import Planned, Retention
from laminar_core.sensors.facts.attempts import NEVER_COMPLETED
from laminar_core.store.checkpoint_store import CheckpointStore

FAILED_KEPT = 100
"""Number of newest partitions without a checkpoint among which failed attempts stay."""

ROWS_SHOWN = 200
"""Number of newest rows in a table of a report."""


class RetentionForm(ActForm):
    """Options of a run of retention."""

    mode: Literal["report", "delete"] = Field(
        default="report",
        description="report: only report what would be deleted, and why. delete: delete it.",
    )
    verify: Literal["sizes", "bytes"] = Field(
        default="sizes",
        description="How to check checkpoints: by the lengths of files, or by all bytes.",
    )
    policy: dict[str, Any] = Field(
        default={},
        description="What is different from the stream's policy, as keep_last: 5.",
    )

    @classmethod
    def to_config_schema(cls) -> DefinitionConfigSchema:
        """Return the schema of the form; each field of a policy is a field of it."""
        return with_policy_fields(super().to_config_schema())


def build_retention_job(group: Group, clock: Clock) -> dg.JobDefinition:
    """Return ``laminar_retention``."""
    return chore_job(
        group,
        "retention",
        RetentionForm,
        apply_retention,
        clock,
        description="Delete the checkpoints of a stream that its policy does not keep.",
    )


def apply_retention(chore: Chore, form: RetentionForm) -> None:
    """Finish what an earlier run began, plan, and carry the plan out.

    Raises:
        LaminarError: the policy is none, or as ``Retention`` does, but for a stale plan.
    """
    policy = chore.spec.retention.model_copy(
        update=RetentionConfig(**form.policy).model_dump(exclude_unset=True)
    )
    runner = Retention(
        chore.store, policy.policy(), chore.clock.now_ms, verify=form.verify, audit=chore.audit
    )
    run = RetentionRun(chore, runner, policy, form.reason)
    if form.mode == "report":
        run.log_unfinished()
        run.report_plan(runner.plan(indexed=True), "dry run")
        return
    run.finish_earlier()
    run.carry_out(runner.plan())
    drop_partitions(chore)


@dataclass(frozen=True, slots=True)
class RetentionRun:
    """Retention in one Dagster run, and what it reports on ``[stream, retention]``."""

    chore: Chore
    runner: Retention
    policy: RetentionConfig
    reason: str
    metadata: Mapping[str, Any] = field(default_factory=dict[str, Any])
    """Metadata reported with each plan."""

    def log_unfinished(self) -> None:
        """Log the plans of earlier runs that are decided but not finished."""
        for number in self.runner.log.unfinished():
            self.chore.context.log.warning(
                "plan %s is decided and not finished: the next run that is not dry does that",
                number,
            )

    def finish_earlier(self) -> None:
        """Carry out what earlier runs decided and did not finish.

        Raises:
            LaminarError: as ``Retention.finish_earlier``.
        """
        for result in self.runner.finish_earlier(run_id=self.chore.actor.run_id):
            self._report(result, "an earlier plan was finished", {})

    def carry_out(self, planned: Planned) -> None:
        """Do what is planned. A plan that does not hold any more is left to the next run.

        Raises:
            LaminarError: as ``Retention.apply``.
        """
        policy = self.policy.model_dump(mode="json")
        try:
            result = self.runner.apply(planned, self.chore.actor.because(self.reason), policy)
        except ConfigurationError as error:
            if error.code is not ErrorCode.RETENTION_PLAN_STALE:
                raise
            self.report_plan(planned, f"nothing was deleted: {error}")
            return
        if result is None:
            self.report_plan(planned, planned.plan.blocked or "nothing to do")
        else:
            self._report(result, "done", self._metadata(planned))

    def report_plan(self, planned: Planned, outcome: str) -> None:
        """Show a plan that was not carried out."""
        self.chore.observe("retention", {"outcome": outcome, **self._metadata(planned)})
        self.chore.context.log.info(outcome)

    def _metadata(self, planned: Planned) -> dict[str, Any]:
        return {**plan_metadata(planned.plan, self.policy), **self.metadata}

    def _report(self, result: RetentionResult, outcome: str, metadata: Mapping[str, Any]) -> None:
        record = self.runner.log.read_plan(result.number)
        deleted = () if record is None else tuple(c.checkpoint_id for c in record.checkpoints)
        self.chore.materialize(
            "retention",
            {**metadata, **result_metadata(result, outcome, deleted)},
            {RETENTION_PLAN_TAG: str(result.number)},
        )
        self.chore.context.log.info(
            "plan %s: %s, %s checkpoints and %s files deleted, %s bytes",
            *(result.number, outcome, result.deleted_checkpoints, result.deleted_files),
            result.deleted_bytes,
        )


def drop_partitions(chore: Chore) -> None:
    """Delete the partitions of deleted checkpoints; their history in Dagster stays.

    This includes checkpoints deleted by the running job or by a command. A partition is created
    after its attempt ended, so a missing checkpoint is deleted, or it never completed. Of those
    that never completed, the newest stay. An id that this store has never seen belongs to another
    store, and stays.
    """
    partitions = checkpoint_partitions(chore.spec.name).name
    assert partitions is not None
    instance = chore.context.instance
    known = instance.get_dynamic_partitions(partitions)
    seen = {partition_of(number) for number in chore.store.attempts.ids()}
    stored = {partition_of(number) for number in chore.store.manifests.ids()}
    missing = sorted(set(known) & seen - stored)
    failed = [key for key in missing[-FAILED_KEPT:] if _has_failed(chore.store, key)]
    gone = sorted(set(missing) - set(failed))
    for partition in gone:
        until_unlocked(partial(instance.delete_dynamic_partition, partitions, partition))
    if gone:
        chore.context.log.info(
            "%s checkpoints are no longer partitions, from %s to %s", len(gone), gone[0], gone[-1]
        )


def _has_failed(store: CheckpointStore, partition: str) -> bool:
    try:
        ended = store.attempts.read_outcome(checkpoint_of(partition))
    except CorruptCheckpointError:
        return False
    return ended is not None and ended.outcome in NEVER_COMPLETED


def plan_metadata(plan: RetentionPlan, policy: RetentionConfig) -> dict[str, Any]:
    """Return what is deleted and kept, with reasons; numbers are plotted."""
    verdicts = plan.checkpoints[-ROWS_SHOWN:]
    freed = _freed(plan)
    rows = [
        {
            "checkpoint": v.checkpoint_id,
            "verdict": v.action,
            "bytes": v.size_bytes,
            "freed": freed.get(v.checkpoint_id, 0) if v.action == "delete" else 0,
            "why": "; ".join(v.reasons),
        }
        for v in verdicts
    ]
    metadata: dict[str, Any] = {
        "planned_checkpoints": len(plan.deleted_ids),
        "planned_files": len(plan.deleted_files),
        "planned_bytes": plan.deleted_bytes,
        "checkpoints_kept": sum(v.action == "keep" for v in plan.checkpoints),
        "policy": dg.MetadataValue.json(policy.model_dump(mode="json")),
    }
    if rows:
        metadata["plan"] = table_of(rows)
    if left_overs := list(_left_overs(plan)):
        metadata["files"] = table_of(left_overs[:ROWS_SHOWN])
    if plan.blocked is not None:
        metadata["blocked"] = plan.blocked
    return metadata


def result_metadata(
    result: RetentionResult, outcome: str, deleted: Iterable[int]
) -> dict[str, Any]:
    """Return the result of a plan."""
    return {
        "outcome": outcome,
        "plan_number": result.number,
        "deleted_checkpoints": result.deleted_checkpoints,
        "deleted_files": result.deleted_files,
        "deleted_bytes": result.deleted_bytes,
        "quarantined_files": result.quarantined_files,
        "deleted_ids": dg.MetadataValue.json(list(deleted)),
    }


def _left_overs(plan: RetentionPlan) -> Iterator[Row]:
    """Files that need a look, or go without a checkpoint."""
    gone = set(plan.deleted_ids)
    for file in plan.files:
        if file.action != "keep" and file.checkpoint_id not in gone:
            yield file_row(file.path, file.action, file.size_bytes, file.reason)


def file_row(path: str, verdict: str, size_bytes: int, why: str) -> Row:
    """Return one row of a table of files."""
    return {"file": path, "verdict": verdict, "bytes": size_bytes, "why": why}


def _freed(plan: RetentionPlan) -> dict[int, int]:
    freed: dict[int, int] = {}
    for file in plan.files:
        if file.action == "delete" and file.checkpoint_id is not None:
            freed[file.checkpoint_id] = freed.get(file.checkpoint_id, 0) + file.size_bytes
    return freed
