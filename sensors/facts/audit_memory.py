"""What a verification of the audit log knows from the one before it.

A log that is sound in itself may have been cut off or written anew since. So a verification
remembers the newest record in what it tells Dagster of ``[stream, audit]``, outside of the store.
"""

import hashlib
from dataclasses import dataclass, replace

import dagster as dg

from laminar_core.records.audit import START, AuditReport, Finding, Link
from laminar_core.resources.names import asset_key
from laminar_core.store.audit_log import AuditLog
from laminar_core.store.records import bytes_in


@dataclass(frozen=True, slots=True)
class AuditMemory:
    """Kept outside of the store, where who writes the store cannot change it."""

    newest: Link = START
    """The newest record of the last verification that found nothing; ``START``: there was none."""

    accepted: int = 0
    """What is wrong with records up to this one somebody has looked into."""

    def accepting(self, number: int) -> "AuditMemory":
        """Look no longer at what is wrong up to ``number``, nor compare with a record there."""
        newest = START if self.newest.number <= number else self.newest
        return AuditMemory(newest, max(self.accepted, number))

    def after(self, report: AuditReport) -> "AuditMemory":
        """What to compare the next time with: while something is wrong, what was right before."""
        return self if report.findings else replace(self, newest=report.newest)


def with_memory(report: AuditReport, memory: AuditMemory, stored_sha256: str | None) -> AuditReport:
    """What is wrong with the log, also compared with what was there the last time.

    ``stored_sha256`` is the digest of the record ``memory.newest.number`` as it is now.
    """
    found = [
        finding
        for finding in report.findings
        if finding.number is None or finding.number > memory.accepted
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
    """What the last verification remembered; nothing if there was none."""
    records = instance.fetch_materializations(asset_key(stream, "audit"), limit=1).records
    event = records[0].asset_materialization if records else None
    if event is None:
        return AuditMemory()
    told = {name: value.value for name, value in event.metadata.items()}
    number, sha256 = told.get("newest_record"), told.get("newest_sha256")
    accepted = told.get("accepted_up_to")
    newest = START
    if isinstance(number, int) and isinstance(sha256, str) and sha256:
        newest = Link(number, sha256)
    return AuditMemory(
        newest=newest,
        accepted=accepted if isinstance(accepted, int) else 0,
    )
