"""How a job was started last, from its audit log."""

from contextlib import suppress

from laminar_core.errors import CorruptCheckpointError
from laminar_core.store.audit_log import AuditLog
from laminar_core.store.checkpoint_store import CheckpointStore

_STARTS = {"restore", "start-fresh"}
_RECORDS_MAX = 200
"""Number of newest records that are searched for the way the job was started."""


def last_workers(store: CheckpointStore) -> int | None:
    """Return the number of workers of the newest started generation; None if unknown.

    Raises:
        StorageUnavailable: the store did not answer.
    """
    log = AuditLog(store.objects, store.paths, lambda: 0)
    for number in reversed(log.numbers()[-_RECORDS_MAX:]):
        with suppress(CorruptCheckpointError):
            record = log.read(number)
            if record is not None and record.action in _STARTS and record.after is not None:
                workers = record.after.get("parallelism")
                return workers if isinstance(workers, int) else None
    return None
