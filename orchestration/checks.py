"""The checks of the streams, the job that runs them, and its schedule.

``sensors.judgements`` judges the facts; the observer uses the same functions.
"""

# Dagster's decorators and functions are only partly typed.
# pyright: reportUnknownMemberType=false

import warnings
from collections.abc import Callable
from dataclasses import dataclass, replace

import dagster as dg
from pydantic import Field

from laminar_core.errors import LaminarError
from laminar_core.host.clock import Clock, SystemClock
from laminar_core.orchestration.acts import ActForm, CheckpointNumber, in_one_line
from laminar_core.orchestration.group import Group
from laminar_core.orchestration.housekeeping.chores import Chore, chore_job
from laminar_core.orchestration.housekeeping.schedules import schedules_of
from laminar_core.orchestration.launching.standby import standby_now
from laminar_core.orchestration.spec import StreamSpec
from laminar_core.protocol.types import CheckpointId
from laminar_core.resources.checkpoints import CheckpointStoreResource
from laminar_core.resources.names import (
    ACT_TAG,
    StreamCheck,
    check_key,
    checkpoint_key,
    checkpoint_of,
    checkpoint_partitions,
)
from laminar_core.sensors.facts.audit_memory import recall, verify_with
from laminar_core.sensors.facts.health_facts import driver_life, failing_attempts
from laminar_core.sensors.facts.job_facts import (
    completed_newest_first,
    job_life,
    source_needs,
    uncommitted,
)
from laminar_core.sensors.facts.lost_files import lost_files, read_marks
from laminar_core.sensors.facts.source_facts import headrooms, read_sources
from laminar_core.sensors.health import judge_attempts, judge_running
from laminar_core.sensors.judgements import (
    Verdict,
    both,
    judge_audit_chain,
    judge_freshness,
    judge_headroom,
    judge_lost_files,
    judge_restorable,
    judge_source_retention,
    judge_transactions,
)
from laminar_core.sensors.observer.check_events import (
    ALIGNMENT_CHECK,
    CHAIN_CHECK,
    FILES_CHECK,
    INFLIGHT_CHECK,
    check_result,
    judge_checkpoint,
)
from laminar_core.sensors.observer.checkpoint_reports import (
    INTEGRITY_CHECK,
    check_integrity,
    integrity_evaluation,
)
from laminar_core.sensors.observer.health_reports import ATTEMPTS_CHECK, RUNNING_CHECK
from laminar_core.sensors.policy import AlertPolicy
from laminar_core.sensors.standby.sensor import STANDBY
from laminar_core.store.audit_key import find_key
from laminar_core.store.audit_log import AuditLog
from laminar_core.store.checkpoint_store import CheckpointStore
from laminar_core.store.drills import newest_drill

_RUNTIME_S_MAX = str(6 * 3600)


@dataclass(frozen=True, slots=True)
class Case:
    """The facts for a judgement; the time is in milliseconds since 1970."""

    store: CheckpointStore
    instance: dg.DagsterInstance
    now_ms: int
    policy: AlertPolicy
    group: str
    """The prefix of jobs."""


Judge = Callable[[Case], Verdict]


@dataclass(frozen=True, slots=True)
class Check:
    """A check that is about a stream as a whole, or about its newest checkpoint."""

    name: StreamCheck
    judge: Judge
    description: str


def _of_newest(name: StreamCheck) -> Judge:
    def judge(case: Case) -> Verdict:
        newest = next(completed_newest_first(case.store), None)
        if newest is None:
            return Verdict(passed=True, description="no checkpoint has completed yet")
        verdict = judge_checkpoint(case.store, newest, case.policy)[name]
        shown = {**verdict.figures, "checkpoint_id": newest.manifest.checkpoint_id}
        return replace(verdict, figures=shown)

    return judge


def _files_present(case: Case) -> Verdict:
    found = lost_files(case.store, read_marks(case.store))
    return judge_lost_files(found, case.now_ms, case.policy)


def _restorable(case: Case) -> Verdict:
    unreadable: list[str] = []
    newest = newest_drill(case.store, unreadable)
    return judge_restorable(newest, case.now_ms, case.policy, unreadable)


def _freshness(case: Case) -> Verdict:
    return judge_freshness(job_life(case.store), case.now_ms, case.policy)


def _running(case: Case) -> Verdict:
    driver = driver_life(case.store, job_life(case.store), case.now_ms, case.policy)
    return judge_running(driver, case.policy, case.group)


def _attempts(case: Case) -> Verdict:
    return judge_attempts(failing_attempts(case.store, case.store.attempts.highest_id()))


def _audit_chain(case: Case) -> Verdict:
    """Also against what the last run of the audit job has remembered outside of the store."""
    log = AuditLog(case.store.objects, case.store.paths, lambda: case.now_ms)
    memory = recall(case.instance, case.store.job)
    return judge_audit_chain(verify_with(memory, log, find_key()))


def _source_retention(case: Case) -> Verdict:
    found = headrooms(read_sources(case.store), case.now_ms)
    by_source = judge_headroom(found, case.policy)
    if found and case.policy.source_keeps is None:
        return by_source
    by_policy = judge_source_retention(source_needs(case.store), case.now_ms, case.policy)
    return both(by_policy, by_source) if found else by_policy


def _transactions(case: Case) -> Verdict:
    return judge_transactions(*uncommitted(case.store), case.now_ms, case.policy)


CHECKS = (
    Check(
        "restorable",
        _restorable,
        "The last restore drill passed, and is not older than drill_age_max.",
    ),
    Check(
        "freshness",
        _freshness,
        "A job that is meant to run has completed a checkpoint within checkpoint_age_max.",
    ),
    Check(
        ALIGNMENT_CHECK,
        _of_newest(ALIGNMENT_CHECK),
        "Barriers do not wait for each other longer than alignment_act (p99 of the window).",
    ),
    Check(
        INFLIGHT_CHECK,
        _of_newest(INFLIGHT_CHECK),
        "Rows in flight are not too large a part of the newest checkpoint.",
    ),
    Check(
        CHAIN_CHECK,
        _of_newest(CHAIN_CHECK),
        "A restore of the newest checkpoint does not merge too many segments.",
    ),
    Check(
        FILES_CHECK,
        _files_present,
        "No file of a completed checkpoint is known to be lost; a running job looks for losses, "
        "and repairs them with its next checkpoint.",
    ),
    Check(
        "audit_chain",
        _audit_chain,
        "Nothing in the audit log was changed, removed or inserted.",
    ),
    Check(
        "source_retention",
        _source_retention,
        "The source still has, for longer than source_margin, what a restore of the newest "
        "checkpoint reads (by source_keeps), or of the oldest one (if the source knows it).",
    ),
    Check(
        "sink_transactions",
        _transactions,
        "The output of completed checkpoints becomes visible within commit_age_max, and does not "
        "expire before that (transaction_margin).",
    ),
    Check(
        RUNNING_CHECK,
        _running,
        "A driver runs the stream. One line says in what state it is, and which job to start next.",
    ),
    Check(
        ATTEMPTS_CHECK,
        _attempts,
        "The newest attempt at a checkpoint has completed; else how many failed, and the reason.",
    ),
)


def check_definitions(group: Group, clock: Clock | None = None) -> dg.Definitions:
    """Return all checks, ``laminar_checks`` and its schedule, and ``laminar_verify``."""
    timer = clock or SystemClock()
    checks = [_check(group.name, spec, check, timer) for spec in group for check in CHECKS]
    job = dg.define_asset_job(
        group.job_name("checks"),
        selection=dg.AssetSelection.checks(*checks),
        description="Judge the streams by what is in their store; reads no state.",
        executor_def=dg.in_process_executor,
        tags={ACT_TAG: "checks", "dagster/max_retries": "0", "dagster/max_runtime": _RUNTIME_S_MAX},
    )
    return dg.Definitions(
        asset_checks=[*map(_integrity_check, group), *checks],
        jobs=[job, build_verify_job(group, timer)],
        # Time alone can turn a check red.
        schedules=schedules_of(group, ["checks"], [check.name for check in CHECKS]),
    )


def _check(group: str, spec: StreamSpec, check: Check, clock: Clock) -> dg.AssetChecksDefinition:
    shows_standby = spec.standby and check.name == RUNNING_CHECK

    @dg.asset_check(
        asset=check_key(spec.name, check.name).asset_key,
        name=check.name,
        description=check.description,
        required_resource_keys={
            "laminar_checkpoints",
            *(["laminar_launcher"] if shows_standby else []),
        },
    )
    def judge(context: dg.AssetCheckExecutionContext) -> dg.AssetCheckResult:
        checkpoints: CheckpointStoreResource = context.resources.laminar_checkpoints
        try:
            store = checkpoints.open(spec.name)
            case = Case(store, context.instance, clock.now_ms(), spec.alerts, group)
            verdict = check.judge(case)
            if shows_standby:
                told = standby_now(context.resources.laminar_launcher, store)
                verdict = replace(verdict, figures={**verdict.figures, STANDBY: told})
            return check_result(verdict)
        except LaminarError as error:  # What keeps it from being judged is the verdict.
            severity = dg.AssetCheckSeverity.WARN
            return dg.AssetCheckResult(passed=False, severity=severity, description=str(error))

    return judge


def _integrity_check(spec: StreamSpec) -> dg.AssetChecksDefinition:
    with warnings.catch_warnings():
        # Partitioned checks are a preview; the check itself is a plain function of the store.
        warnings.filterwarnings("ignore", message=".*partitions_def on an AssetCheckSpec")

        @dg.asset_check(
            asset=checkpoint_key(spec.name),
            name=INTEGRITY_CHECK,
            partitions_def=checkpoint_partitions(spec.name),
            blocking=True,
            description="Every part that the manifest names is there and has its digest.",
        )
        def manifest_integrity(
            context: dg.AssetCheckExecutionContext, laminar_checkpoints: CheckpointStoreResource
        ) -> dg.AssetCheckResult:
            with in_one_line():
                checkpoint_id = checkpoint_of(context.partition_key)
                return check_integrity(laminar_checkpoints.open(spec.name), checkpoint_id)

    return manifest_integrity


class VerifyForm(ActForm):
    """The checkpoint to read."""

    checkpoint_id: CheckpointNumber = Field(description="Of a completed checkpoint, as in 42.")


def build_verify_job(group: Group, clock: Clock) -> dg.JobDefinition:
    """Return the job that verifies a checkpoint chosen by a user."""
    return chore_job(
        group,
        "verify",
        VerifyForm,
        _verify,
        clock,
        description="Read a checkpoint whole and compare it with its manifest.",
    )


def _verify(chore: Chore, form: VerifyForm) -> None:
    evaluation = integrity_evaluation(chore.store, CheckpointId(form.checkpoint_id))
    chore.context.log_event(evaluation)  # pyright: ignore[reportArgumentType] - Dagster takes evaluations too
    if not evaluation.passed:
        raise dg.Failure(evaluation.description, evaluation.metadata, allow_retries=False)
    chore.context.log.info(evaluation.description)
