"""The memory of one verification of the audit log for the next.

A log that is consistent in itself may have been truncated or rewritten since. So a verification
remembers the newest record in its materialisation of ``[stream, audit]``, outside of the store.
"""

import hashlib
from dataclasses import dataclass, replace

import dagster as dg

from laminar_core.records.audit import START, AuditReport, Finding, Link
from laminar_core.resources.names import asset_key
from laminar_core.store.audit_log import AuditLog
from laminar_core.store.records import bytes_in

_REPORTS_SEARCHED = 20
"""Newest events that are searched for one of Laminar: anybody may report a materialisation."""


@dataclass(frozen=True, slots=True)
class AuditMemory:
    """Kept outside of the store, where who writes the store cannot change it."""

    newest: Link = START
    """The newest record of the last verification that found nothing; ``START``: there was none."""

    accepted: int = 0
    """Findings up to this record were investigated and accepted."""

    def accepting(self, number: int) -> "AuditMemory":
        """Return a memory that ignores findings up to ``number``, and records there."""
        newest = START if self.newest.number <= number else self.newest
        return AuditMemory(newest, max(self.accepted, number))

    def within(self, report: AuditReport) -> "AuditMemory":
        """Return a memory that accepts no record that was still to come: earlier versions could."""
        known = report.newest if self.newest == START else self.newest
        return replace(self, accepted=min(self.accepted, known.number))

    def after(self, report: AuditReport) -> "AuditMemory":
        """Return the memory for the next time.

        While there are findings, it stays at the last good state.
        """
        memory = self.within(report)
        return memory if report.findings else replace(memory, newest=report.newest)


def with_memory(report: AuditReport, memory: AuditMemory, stored_sha256: str | None) -> AuditReport:
    """Return the findings, including the comparison with the last verification.

    ``stored_sha256`` is the current digest of the record ``memory.newest.number``.
    """
    accepted = memory.within(report).accepted
    found = [
        finding
        for finding in report.findings
        if finding.number is None or finding.number > accepted
    ]
    newest = memory.newest
    if newest.sha256 is not None and stored_sha256 is None:
        problem = f"record {newest.number} was there when the log was last verified: it was cut off"
        found.insert(0, Finding("missing", newest.number, problem))
    elif newest.sha256 is not None and stored_sha256 != newest.sha256:
        problem = (
            f"record {newest.number} is not the one that was there when the log was last "
            "verified: it was written anew"
        )
        found.insert(0, Finding("changed", newest.number, problem))
    return AuditReport(report.record_count, report.newest, tuple(found))


def verify_with(memory: AuditMemory, log: AuditLog, key: bytes | None) -> AuditReport:
    """Verify the log, also against what was there the last time.

    Raises:
        StorageUnavailable: the store did not answer.
    """
    number = memory.newest.number
    data = bytes_in(log.objects, log.paths.audit_record(number)) if number else None
    sha256 = None if data is None else hashlib.sha256(data).hexdigest()
    return with_memory(log.verify(key=key), memory, sha256)


def recall(instance: dg.DagsterInstance, stream: str) -> AuditMemory:
    """Return the memory of the last verification; empty if there was none."""
    key = asset_key(stream, "audit")
    records = instance.fetch_materializations(key, limit=_REPORTS_SEARCHED).records
    events = (record.asset_materialization for record in records)
    memories = (_memory_in(event) for event in events if event is not None)
    return next((memory for memory in memories if memory is not None), AuditMemory())


def _memory_in(event: dg.AssetMaterialization) -> AuditMemory | None:
    told = {name: value.value for name, value in event.metadata.items()}
    number, sha256 = told.get("newest_record"), told.get("newest_sha256")
    accepted = told.get("accepted_up_to")
    if not isinstance(number, int) or not isinstance(sha256, str):
        return None
    return AuditMemory(
        newest=Link(number, sha256) if sha256 else START,
        accepted=accepted if isinstance(accepted, int) else 0,
    )
