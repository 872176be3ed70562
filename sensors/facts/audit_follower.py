"""Follow a job's audit log: the records written since the last look, oldest first."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from laminar_core.errors import CorruptCheckpointError
from laminar_core.records.audit import AuditRecord, parse_head
from laminar_core.store.audit_log import AuditLog
from laminar_core.store.checkpoint_store import CheckpointStore
from laminar_core.store.records import bytes_in


@dataclass(frozen=True, slots=True)
class Audited:
    """One record, with the record that announced the act if this one reports its outcome."""

    record: AuditRecord
    intent: AuditRecord | None = None

    @property
    def sha256(self) -> str:
        """The digest of the record."""
        return self.record.reference().sha256

    @property
    def said(self) -> dict[str, object]:
        """The announced facts, updated by the outcome."""
        announced = {} if self.intent is None else (self.intent.after or {})
        return {**announced, **(self.record.after or {})}


class AuditFollower:
    """Reads on from a number. What cannot be read is left to the check of the chain."""

    def __init__(self, store: CheckpointStore) -> None:
        # It never writes, so it needs no clock.
        self._log = AuditLog(store.objects, store.paths, now_ms=lambda: 0)

    def after(self, number: int, limit: int) -> Iterator[tuple[int, Audited | None]]:
        """Yield up to ``limit`` records after ``number``, with their numbers; None if unreadable.

        Raises:
            StorageUnavailable: the store did not answer.
        """
        for each in self._numbers_after(number)[:limit]:
            record = self._read(each)
            if record is None or record.intent is None:
                yield each, None if record is None else Audited(record)
            else:
                yield each, Audited(record, self._read(record.intent))

    def newest(self) -> int:
        """Return the number of the newest record; 0: there is none.

        Raises:
            StorageUnavailable: the store did not answer.
        """
        return self._head() or max(self._log.numbers(), default=0)

    def _numbers_after(self, number: int) -> Sequence[int]:
        """By the head, which is one request; a listing only if there is none that can be read."""
        if newest := self._head():
            return range(number + 1, newest + 1)
        return [each for each in self._log.numbers() if each > number]

    def _head(self) -> int:
        """Return the number that the head has; 0: it is missing or damaged."""
        data = bytes_in(self._log.objects, self._log.paths.audit_head)
        try:
            return 0 if data is None else parse_head(data).number
        except CorruptCheckpointError:
            return 0

    def _read(self, number: int) -> AuditRecord | None:
        try:
            return self._log.read(number)
        except CorruptCheckpointError:
            return None
