"""The audit log of a job in its store: append-only, shared by many writers, checked by ``verify``.

An append costs six calls: read the head twice, create the record, read it back, overwrite the head,
and look for a newer record. It needs no listing, however long the log is. Only if there is no head
does it list records and read the anchors in other objects of the job (``audit_anchors``).

An append never fills a gap: it continues after the newest record that any object still names, so
that removed records stay missing visibly. It does not refuse, because a file that was deleted must
not keep a job from recovering.

Concurrent writers race for a number; the loser reads the winner's record and follows it. A slower
writer may overwrite the head with an older one, so each writer looks for a newer record afterwards
and puts that one into the head: the last writer of the head always sees the newest record.
"""

from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from functools import partial

from laminar_core._version import __version__
from laminar_core.errors import CorruptCheckpointError, ErrorCode, StorageUnavailable
from laminar_core.objectstore.opening import ObjectStore, address
from laminar_core.records.actor import Actor
from laminar_core.records.audit import (
    START,
    AuditEntry,
    AuditRecord,
    AuditReport,
    Finding,
    Link,
    Outcome,
    follow,
    head_at,
    parse_audit_record,
    parse_head,
    verify_chain,
)
from laminar_core.records.audit_ref import AuditRef
from laminar_core.records.manifest import Owner
from laminar_core.records.paths import JobPaths, number_in
from laminar_core.records.record import JsonObject
from laminar_core.store.audit_anchors import read_anchors
from laminar_core.store.audit_key import find_key
from laminar_core.store.owner import this_process
from laminar_core.store.records import bytes_in, create_or_confirm

_READERS = 8
CODE_VERSION = f"laminar {__version__}"


class AuditLog:
    """The audit log of one job. Safe to use from several threads and processes."""

    def __init__(
        self,
        objects: ObjectStore,
        paths: JobPaths,
        now_ms: Callable[[], int],
        *,
        identify: Callable[[], Owner] = this_process,
        key: bytes | None = None,
    ) -> None:
        """Open the log; ``now_ms`` is a wall clock.

        Records are signed with ``key``, or with the key of ``audit_key``.
        """
        self.objects = objects
        self.paths = paths
        self._now_ms = now_ms
        self._identify = identify
        self._key = key or find_key()
        # Where an entry went, or tried to when the store did not answer: a second try starts there.
        self._places: dict[Owner, tuple[Link, bool]] = {}
        # The entries whose places were forgotten: their records have numbers after these, if any.
        self._forgotten: dict[Owner, int] = {}
        # The newest record that this object has seen: a head that goes back behind it is no news.
        self._seen = START

    def through(self, objects: ObjectStore) -> "AuditLog":
        """Return the same log, written through another handle of its store."""
        return AuditLog(objects, self.paths, self._now_ms, identify=self._identify, key=self._key)

    # --- writing --------------------------------------------------------------------------------

    def append(
        self,
        *,
        action: str,
        actor: Actor,
        before: JsonObject | None = None,
        after: JsonObject | None = None,
    ) -> AuditRecord:
        """Write down what is about to be done; do it only after this has returned.

        Raises:
            StorageUnavailable: the store did not answer, and the record may be there: the act must
                not happen. To try the same act again, ``write`` the same ``entry`` again.
        """
        return self.write_once(self.entry(action=action, actor=actor, before=before, after=after))

    def conclude(
        self,
        intended: AuditRecord,
        outcome: Outcome,
        *,
        reason: str,
        after: JsonObject | None = None,
    ) -> AuditRecord:
        """Write down how an act that ``append`` announced has ended.

        Raises:
            StorageUnavailable: as in ``append``; the outcome then is what the store shows.
        """
        by = intended.by.because(reason)
        entry = self.entry(action=intended.action, actor=by, after=after)
        return self.write_once(
            entry.model_copy(update={"outcome": outcome, "intent": intended.number})
        )

    def entry(
        self,
        *,
        action: str,
        actor: Actor,
        before: JsonObject | None = None,
        after: JsonObject | None = None,
    ) -> AuditEntry:
        """Describe an act of this process and this moment; nothing is written yet."""
        return AuditEntry(
            job=self.paths.job,
            action=action,
            actor=actor.name,
            actor_kind=actor.kind,
            reason=actor.reason,
            before=before,
            after=after,
            run_id=actor.run_id,
            code_version=CODE_VERSION,
            at_ms=self._now_ms(),
            writer=self._identify(),
        )

    def write(self, entry: AuditEntry) -> AuditRecord:
        """Append ``entry``; repeating the call with the same entry adds no second record.

        Raises:
            StorageUnavailable: as in ``append``.
        """
        if (record := self._written_before(entry)) is not None:
            return record
        link, head_lost = self._places.get(entry.writer) or self._newest()
        while True:
            self._places[entry.writer] = link, head_lost
            record = follow(link, entry, key=self._key, head_lost=head_lost)
            data = record.to_bytes()
            if create_or_confirm(self.objects, self.paths.audit_record(record.number), data):
                break
            link = self._walk(link)  # Maybe from one store into another.
            if not self._holds(link):
                self.forget()
                link, head_lost = self._newest()
                continue
            if self.objects.size(self.paths.audit_head) is None:
                self._put_head(link)
        written = Link.to(record.number, data)
        self._confirm(written)
        self._advance_head(self._see(written))
        return record

    def write_once(self, entry: AuditEntry) -> AuditRecord:
        """Append an entry that is used once, so no retry has to recognise it.

        Raises:
            StorageUnavailable: as in ``append``.
        """
        try:
            return self.write(entry)
        finally:
            self._places.pop(entry.writer, None)
            self._forgotten.pop(entry.writer, None)

    def forget(self) -> None:
        """Forget what this object has seen, because another store was in the job's place.

        An entry that is written again afterwards is looked for first.
        """
        for writer, (link, _) in self._places.items():
            self._forgotten[writer] = min(link.number, self._forgotten.get(writer, link.number))
        self._places.clear()
        self._seen = START

    def _written_before(self, entry: AuditEntry) -> AuditRecord | None:
        """Return the entry's record if it is here, although its place was forgotten."""
        if entry.writer not in self._forgotten:
            return None
        for number in self.numbers():
            if number > self._forgotten[entry.writer]:
                with suppress(CorruptCheckpointError):
                    record = self.read(number)
                    if record is not None and record.writer == entry.writer:
                        return record
        return None

    def _confirm(self, written: Link) -> None:
        """Make sure that the record is in this store, before the act that it announces.

        A process that was suspended while it wrote may have written to another store, which was in
        the place of the job's meanwhile.
        """
        if not self._holds(written):
            self.forget()
            key = self.paths.audit_record(written.number)
            raise StorageUnavailable(
                ErrorCode.STORE_REPLACED,
                f"{address(self.objects, key)} was just written and is not there: another store "
                "was in its place meanwhile",
            )

    # --- reading --------------------------------------------------------------------------------

    def numbers(self) -> list[int]:
        """Return the numbers of all records, ascending."""
        return _numbers(self.objects.children(self.paths.audit))

    def newest(self) -> AuditRef | None:
        """Return the newest record, for another object of the job to name; None if there is none.

        Check the claim afterwards, and then call ``keep``: another store may have taken the place
        of the job's.

        Raises:
            StorageUnavailable: the store did not answer.
        """
        head, _ = self._read_head()
        link = max(self._seen, head or START, key=_number_of)
        return None if link.sha256 is None else AuditRef(number=link.number, sha256=link.sha256)

    def keep(self, newest: AuditRef | None) -> None:
        """Name nothing older from now on; ``newest`` was read in the job's store."""
        if newest is not None:
            self._see(Link(newest.number, newest.sha256))

    def read(self, number: int) -> AuditRecord | None:
        """Return one record; None if there is none.

        Raises:
            CorruptCheckpointError: it is not what was written.
        """
        key = self.paths.audit_record(number)
        try:
            data = self.objects.get(key)
            if data is None:
                return None
            return parse_audit_record(data)
        except CorruptCheckpointError as error:
            where = address(self.objects, key)
            raise CorruptCheckpointError(error.code, f"{where}: {error}") from error

    def records(self) -> Iterator[AuditRecord]:
        """Yield all readable records, oldest first; ``verify`` reports the others."""
        for _, data in self._stored(self.numbers()):
            try:
                yield parse_audit_record(data)
            except CorruptCheckpointError:
                continue

    def verify(self, *, key: bytes | None = None) -> AuditReport:
        """Read everything and find what is not as it was written; nothing is changed."""
        head = bytes_in(self.objects, self.paths.audit_head)  # First: records only become more.
        anchors = read_anchors(self.objects, self.paths)
        names = self.objects.children(self.paths.audit)
        stored = self._stored(_numbers(names))
        report = verify_chain(self.paths.job, stored, head, anchors=anchors.found, key=key)
        strays = tuple(
            Finding("stray", None, f"{name} is not part of the log")
            for name in names
            if number_in(name) is None and f"{self.paths.audit}{name}" != self.paths.audit_head
        )
        findings = (*report.findings, *anchors.problems, *strays)
        return AuditReport(report.record_count, report.newest, findings)

    # --- the head -------------------------------------------------------------------------------

    def _newest(self) -> tuple[Link, bool]:
        """Where to go on, and whether the head is lost.

        A record that the head, or anything else, names and that is not there is no reason to fill
        its place: the gap shows what happened.
        """
        head, is_damaged = self._confirmed_head()
        if head is not None:
            return self._see(head), False
        link = max(self._newest_listed(), self._newest_named(), self._seen, key=_number_of)
        if link.number > 1 and not is_damaged:
            # A second record comes after a head: one was written meanwhile, or it is lost.
            head, _ = self._read_head()
            return (link, True) if head is None else (self._see(head), False)
        if link.number == 1:  # The crash of the first writer leaves a record without a head.
            self._put_head(link)
        return link, is_damaged

    def _newest_listed(self) -> Link:
        numbers = self.numbers()
        key = self.paths.audit_record(numbers[-1]) if numbers else None
        data = None if key is None else bytes_in(self.objects, key)
        return START if data is None else Link.to(numbers[-1], data)

    def _newest_named(self) -> Link:
        named = read_anchors(self.objects, self.paths).newest
        return START if named is None else Link(named.number, named.sha256)

    def _see(self, link: Link) -> Link:
        """The newest record that was ever seen here, ``link`` or a newer one."""
        self._seen = max(self._seen, link, key=_number_of)
        return self._seen

    def _confirmed_head(self) -> tuple[Link | None, bool]:
        """Read the head until two answers agree.

        One answer may be another store's, if this process was suspended meanwhile.
        """
        answer = self._read_head()
        while answer[0] is not None and answer != (again := self._read_head()):
            answer = again
        return answer

    def _read_head(self) -> tuple[Link | None, bool]:
        """Return the record that the head names, and whether there is a head that is unusable."""
        data = bytes_in(self.objects, self.paths.audit_head)
        if data is None:
            return None, False
        try:
            head = parse_head(data)
        except CorruptCheckpointError:
            return None, True
        if head.job != self.paths.job:
            return None, True
        return Link(head.number, head.record_sha256), False

    def _advance_head(self, link: Link) -> None:
        self._put_head(link)
        while (newer := self._walk(link)) != link and self._holds(newer):
            link = newer
            self._put_head(link)

    def _walk(self, link: Link) -> Link:
        """The newest record that can be reached from ``link`` without a gap."""
        while (data := bytes_in(self.objects, self._after(link))) is not None:
            link = Link.to(link.number + 1, data)
        return link

    def _holds(self, link: Link) -> bool:
        """Whether ``link`` is in this store; if not, it was written or read in another one."""
        if link == START:
            return True
        data = bytes_in(self.objects, self.paths.audit_record(link.number))
        return data is not None and Link.to(link.number, data) == link

    def _after(self, link: Link) -> str:
        return self.paths.audit_record(link.number + 1)

    def _put_head(self, link: Link) -> None:
        head = head_at(link, self.paths.job, key=self._key)
        self.objects.put(self.paths.audit_head, head.to_bytes())

    def _stored(self, numbers: list[int]) -> Iterator[tuple[int, bytes]]:
        with ThreadPoolExecutor(_READERS) as pool:
            keys = map(self.paths.audit_record, numbers)
            found = pool.map(partial(bytes_in, self.objects), keys)
            yield from (
                (n, data) for n, data in zip(numbers, found, strict=True) if data is not None
            )


def _number_of(link: Link) -> int:
    return link.number


def _numbers(names: list[str]) -> list[int]:
    return sorted(n for name in names if (n := number_in(name)) is not None)
