"""The number of workers of the newest start is in the audit log."""

from pathlib import Path

from laminar_core.records.actor import Actor, ActorKind
from laminar_core.sensors.facts.last_start import last_workers
from laminar_core.store.audit_log import AuditLog
from tests.sensors.streams import Job, stored_job

ANN = Actor("ann", ActorKind.PERSON)


def note(job: Job, action: str, workers: int) -> None:
    log = AuditLog(job.store.objects, job.store.paths, job.clock.now_ms)
    log.append(action=action, actor=ANN, after={"parallelism": workers})


def test_the_newest_start_counts(tmp_path: Path) -> None:
    job = stored_job(tmp_path)
    assert last_workers(job.store) is None
    note(job, "start-fresh", 2)
    note(job, "restore", 3)
    note(job, "pin", 9)
    assert last_workers(job.store) == 3
