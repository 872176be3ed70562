"""The job that verifies a stream's audit log, also against the last verification.

A log that is consistent in itself may have been truncated or rewritten since. So each verification
remembers the newest record in its materialisation of ``[stream, audit]``, outside of the store.
"""

from collections.abc import Sequence
from typing import Annotated, Any

import dagster as dg
from pydantic import Field

from laminar_core.host.clock import Clock
from laminar_core.orchestration.acts import ActForm
from laminar_core.orchestration.group import Group
from laminar_core.orchestration.housekeeping.chores import Chore, chore_job
from laminar_core.orchestration.housekeeping.report_tables import Row, table_of
from laminar_core.records.audit import AuditReport
from laminar_core.sensors.facts.audit_memory import AuditMemory, recall, verify_with
from laminar_core.sensors.judgements import judge_audit_chain
from laminar_core.store.audit_key import find_key
from laminar_core.store.audit_log import AuditLog

FINDINGS_SHOWN = 100


class AuditForm(ActForm):
    """The findings to accept."""

    accept_up_to: Annotated[int, Field(ge=0)] = Field(
        default=0,
        description="Accept findings up to this record, because they were investigated: they do "
        "not count any more. 0: as in the last verification. The log itself stays as it is.",
    )


def build_audit_job(group: Group, clock: Clock) -> dg.JobDefinition:
    """Return ``laminar_audit``."""
    return chore_job(
        group,
        "audit",
        AuditForm,
        verify_audit,
        clock,
        description="Verify that the audit log of a stream was not changed.",
    )


def verify_audit(chore: Chore, form: AuditForm) -> None:
    """Verify the log, report it on ``[stream, audit]``, and judge it.

    Raises:
        dagster.Failure: it is not as it was written, or there is no record up to which to accept.
        StorageUnavailable: the store did not answer.
    """
    log, key = chore.audit, find_key()
    memory = recall(chore.context.instance, chore.spec.name)
    report = verify_with(memory, log, key)
    memory = memory.within(report)
    if form.accept_up_to > memory.accepted:
        _accept(chore, log, form, memory, report)
        memory = memory.accepting(form.accept_up_to)
        report = verify_with(memory, log, key)
    remembered = memory.after(report)
    chore.materialize("audit", audit_metadata(report, remembered, is_signed=key is not None))
    verdict = judge_audit_chain(report)
    chore.evaluate("audit_chain", verdict)
    chore.context.log.info(verdict.description)
    if not verdict.passed:
        raise dg.Failure(verdict.description, allow_retries=False)


def audit_metadata(report: AuditReport, memory: AuditMemory, *, is_signed: bool) -> dict[str, Any]:
    """Return the findings, and the memory for the next verification."""
    metadata: dict[str, Any] = {
        "records": report.record_count,
        "findings": len(report.findings),
        "signatures_checked": is_signed,
        "newest_record": memory.newest.number,
        "newest_sha256": memory.newest.sha256 or "",
        "accepted_up_to": memory.accepted,
    }
    if report.findings:
        metadata["found"] = table_of(_rows(report))
    return metadata


def _rows(report: AuditReport) -> Sequence[Row]:
    return [
        {"record": found.number or 0, "kind": found.kind, "problem": found.problem}
        for found in report.findings[:FINDINGS_SHOWN]
    ]


def _accept(
    chore: Chore, log: AuditLog, form: AuditForm, memory: AuditMemory, report: AuditReport
) -> None:
    """Write the acceptance down; nobody has investigated records that are still to come."""
    found = (finding.number or 0 for finding in report.findings)
    newest = max(report.newest.number, memory.newest.number, *found)
    if form.accept_up_to > newest:
        raise dg.Failure(
            f"accept_up_to: there is no record {form.accept_up_to}: the newest that is known is "
            f"{newest}",
            allow_retries=False,
        )
    log.append(
        action="audit-accept",
        actor=chore.actor.because(form.reason),
        before={"accepted_up_to": memory.accepted},
        after={"accepted_up_to": form.accept_up_to},
    )
