"""The audit log of a job: records that each name the digest of their predecessor.

The chain makes the log verifiably append-only: a record that is changed, removed, moved or inserted
breaks it at that place. The *head* is written after each record and names the newest one, so a
truncated tail differs from one that never existed. A key, if there is one, signs both, so that a
forger without the key cannot write another chain.

Everything here is a pure function of bytes; ``store.audit_log`` reads and writes them.

Invariants, checked by ``tests/records/test_audit.py`` and ``tests/store/test_audit_log.py``:
    A1  a record names its own number, and the digest of the record with the number before
    A2  the head is no newer than the newest record, and of the same bytes as the record it names
    A3  record *n* > 1 is written only after a head was
    A4  no act has two records, no matter which answers of the store were lost
    A5  an object of the job that names a record was written after that record was durable
"""

import hashlib
import hmac
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Annotated, Literal, Self, TypeVar

from pydantic import Field

from laminar_core.errors import CorruptCheckpointError, ErrorCode
from laminar_core.records.actor import Actor, ActorKind, Attributed, kind_by_name
from laminar_core.records.audit_ref import AuditRef
from laminar_core.records.manifest import Owner, parse_record
from laminar_core.records.record import (
    JsonObject,
    Many,
    Positive,
    Prose,
    Record,
    Sha256,
    TimeMs,
)
from laminar_core.records.seal import seal, unseal

Action = Annotated[str, Field(pattern=r"^[a-z][a-z0-9-]{0,63}$")]
Outcome = Literal["intended", "done", "failed"]
FindingKind = Literal[
    "missing",
    "changed",
    "misplaced",
    "repeated",
    "unreadable",
    "unsigned",
    "head",
    "stray",
    "anchor",
]
S = TypeVar("S", bound="_Signed")


@dataclass(frozen=True, slots=True)
class Link:
    """A place in the chain: a record's number, and the SHA-256 of its bytes."""

    number: int
    sha256: str | None

    @classmethod
    def to(cls, number: int, data: bytes) -> Self:
        """Return the link to the record with this number and these bytes."""
        return cls(number, _sha256(data))


START = Link(0, None)
"""The place before the first record."""


class AuditEntry(Attributed):
    """One act, before it has its place in the log.

    ``intended`` stands in the log before the act takes effect. An act that can also fail gets a
    second record with the outcome, which names the first one.
    """

    format_version: Literal[1, 2] = 2
    job: str
    action: Action
    actor: str = Field(description="Who wants it: a person, or what acts for one.")
    actor_kind: ActorKind = Field(default_factory=kind_by_name)
    reason: Prose
    outcome: Outcome = "intended"
    intent: Positive | None = Field(default=None, description="Whose outcome this is.")
    before: JsonObject | None = None
    after: JsonObject | None = None
    run_id: str | None = Field(default=None, description="Of the orchestrator's run, if any.")
    code_version: str
    at_ms: TimeMs
    writer: Owner = Field(description="The process; with its number no two acts are the same.")

    @property
    def by(self) -> Actor:
        """Return who acted, and why."""
        return Actor(self.actor, self.actor_kind, self.reason, self.run_id)


class _Signed(Record):
    """A record that ends in its own digest, and is signed if there is a key."""

    format_version: Literal[1] = 1
    signature: Sha256 | None = Field(default=None, description="HMAC-SHA256 of the rest.")

    def to_bytes(self) -> bytes:
        """JSON in UTF-8; see ``seal``."""
        return seal(super().to_bytes())

    def signed(self, key: bytes | None) -> Self:
        """Return a copy signed with ``key``; unsigned if there is none."""
        unsigned = self.model_copy(update={"signature": None})
        if key is None:
            return unsigned
        signature = hmac.new(key, unsigned.to_bytes(), hashlib.sha256).hexdigest()
        return self.model_copy(update={"signature": signature})

    def is_signed_with(self, key: bytes) -> bool:
        """Whether the signature is there, and ``key`` made it."""
        wanted = self.signed(key).signature
        assert wanted is not None
        return self.signature is not None and hmac.compare_digest(self.signature, wanted)


class AuditRecord(_Signed, AuditEntry):
    """One act in its place. Create-only: the store decides who writes a number."""

    format_version: Literal[1, 2] = 2  # pyright: ignore[reportIncompatibleVariableOverride] - the head stays at 1
    number: Positive
    previous_sha256: Sha256 | None = Field(description="Of the record before; None: the first.")
    head_lost: bool = Field(
        default=False,
        description="No head could be read here: records before this one may have been cut off.",
    )

    def reference(self) -> AuditRef:
        """Return the reference by which other objects of the job name this record.

        A record that is named elsewhere cannot be changed or removed unnoticed.
        """
        return AuditRef(number=self.number, sha256=_sha256(self.to_bytes()))


class AuditHead(_Signed):
    """The newest record, when this was written; overwritten."""

    job: str
    number: Positive
    record_sha256: Sha256 = Field(description="Of the record's bytes.")


@dataclass(frozen=True, slots=True)
class Anchor:
    """A record that another object of the job names: it was in the log when that was written."""

    holder: str
    """The object, as a message names it: ``the claim of generation 3``."""
    ref: AuditRef


@dataclass(frozen=True, slots=True)
class Finding:
    """Something about the log that no Laminar wrote."""

    kind: FindingKind
    number: int | None
    """The number of the record concerned; None if the finding is about no single record."""
    problem: str


@dataclass(frozen=True, slots=True)
class AuditReport:
    """Result of verifying the log. ``newest`` can be noted elsewhere and compared later."""

    record_count: int
    newest: Link
    findings: Many[Finding]


def follow(
    link: Link, entry: AuditEntry, *, key: bytes | None = None, head_lost: bool = False
) -> AuditRecord:
    """Return ``entry`` as the record right after ``link``."""
    record = AuditRecord(
        **dict(entry),
        number=link.number + 1,
        previous_sha256=link.sha256,
        head_lost=head_lost,
    )
    return record.signed(key)


def head_at(link: Link, job: str, *, key: bytes | None = None) -> AuditHead:
    """Return the head that names ``link`` as the newest record."""
    assert link.sha256 is not None, "an empty log has no head"
    return AuditHead(job=job, number=link.number, record_sha256=link.sha256).signed(key)


def parse_audit_record(data: bytes) -> AuditRecord:
    """Read one record.

    Raises:
        CorruptCheckpointError: not the bytes that were written.
    """
    return _parse(AuditRecord, data)


def parse_head(data: bytes) -> AuditHead:
    """Read the head.

    Raises:
        CorruptCheckpointError: not the bytes that were written.
    """
    return _parse(AuditHead, data)


def verify_chain(
    job: str,
    objects: Iterable[tuple[int, bytes]],
    head: bytes | None,
    *,
    anchors: Iterable[Anchor] = (),
    key: bytes | None = None,
) -> AuditReport:
    """Find everything that is not as it was written.

    ``objects`` are the numbers that the records are stored under, ascending, with their bytes;
    ``head`` and ``anchors``, which name records, were read before they were listed. With ``key``
    every record since the first signed one must be signed, and one at least.
    """
    seen = [_look_at(number, data, key) for number, data in objects]
    findings: list[Finding] = [
        *_gaps(seen),
        *_records(job, seen),
        *_links(seen),
        *_repetitions(seen),
        *([] if key is None else _signatures(seen)),
        *_head(job, seen, head, key),
        *_anchors(seen, head, tuple(anchors)),
    ]
    newest = Link(seen[-1].number, seen[-1].sha256) if seen else START
    ordered = sorted(findings, key=lambda finding: finding.number or 0)
    return AuditReport(len(seen), newest, tuple(ordered))


@dataclass(frozen=True, slots=True)
class _Seen:
    """One stored record as read: parsed, or with the problem that prevented it."""

    number: int
    sha256: str
    record: AuditRecord | None
    problem: str
    is_signed: bool
    """Determined only if there is a key."""


def _look_at(number: int, data: bytes, key: bytes | None) -> _Seen:
    try:
        record = parse_audit_record(data)
    except CorruptCheckpointError as error:
        return _Seen(number, _sha256(data), None, str(error), is_signed=False)
    is_signed = key is not None and record.is_signed_with(key)
    return _Seen(number, _sha256(data), record, "", is_signed)


def _gaps(seen: Sequence[_Seen]) -> Iterator[Finding]:
    expected = 1
    for one in seen:
        if one.number > expected:
            yield Finding("missing", expected, f"{_numbers(expected, one.number - 1)} missing")
        expected = one.number + 1


def _records(job: str, seen: Sequence[_Seen]) -> Iterator[Finding]:
    for one in seen:
        number, record = one.number, one.record
        if record is None:
            yield Finding("unreadable", number, f"record {number}: {one.problem}")
            continue
        if record.number != number:
            said = f"record {number} was written as number {record.number}"
            yield Finding("misplaced", number, f"{said}: records were swapped or moved")
        if record.job != job:
            yield Finding("misplaced", number, f"record {number} is of job {record.job}")
        if record.head_lost:
            problem = "head.json was lost before it: records ahead of it may have been cut off"
            yield Finding("head", number, f"record {number} says that {problem}")


def _links(seen: Sequence[_Seen]) -> Iterator[Finding]:
    """Compare the digest in each record with the record before it.

    A missing or unreadable predecessor has a finding of its own already.
    """
    places = {one.sha256: one.number for one in seen}
    stored = {one.number: one for one in seen}
    for number, record in ((one.number, one.record) for one in seen):
        if record is None:
            continue
        previous = record.previous_sha256
        before = stored.get(number - 1)
        if previous is None:
            problem = "starts a chain of its own" if number > 1 else ""
        elif number == 1:
            problem = "follows another one: the beginning is missing"
        elif before is None or before.record is None or before.sha256 == previous:
            problem = ""
        elif (place := places.get(previous)) is not None:
            problem = f"follows record {place}: the chain forks, or records were moved"
        else:
            problem = f"does not follow record {number - 1}: one of them was changed"
        if problem:
            yield Finding("changed", number, f"record {number} {problem}")


def _repetitions(seen: Sequence[_Seen]) -> Iterator[Finding]:
    first: dict[Owner, int] = {}
    for one in seen:
        if one.record is None:
            continue
        earlier = first.setdefault(one.record.writer, one.number)
        if earlier != one.number:
            problem = f"record {one.number} is of the same act as record {earlier}"
            yield Finding("repeated", one.number, problem)


def _signatures(seen: Sequence[_Seen]) -> Iterator[Finding]:
    """Yield records without a valid signature.

    Records before the first signed one are bound by the digest that it contains.
    """
    first = next((one.number for one in seen if one.is_signed), None)
    if first is None:
        if seen:
            yield Finding("unsigned", None, "no record is signed with this key")
        return
    for one in seen:
        has_signature = one.record is not None and one.record.signature is not None
        if not one.is_signed and (one.number > first or has_signature):
            problem = f"record {one.number} is not signed with this key"
            yield Finding("unsigned", one.number, problem)


def _head(
    job: str, seen: Sequence[_Seen], data: bytes | None, key: bytes | None
) -> Iterator[Finding]:
    if data is None:
        if len(seen) > 1:  # The first may be there without, after a crash (A3).
            problem = "head.json is missing: whether records were cut off cannot be known"
            yield Finding("head", None, problem)
        return
    try:
        head = parse_head(data)
    except CorruptCheckpointError as error:
        yield Finding("head", None, f"head.json: {error}")
        return
    newest = seen[-1].number if seen else 0
    digest = next((one.sha256 for one in seen if one.number == head.number), None)
    if head.number > newest:
        cut = _numbers(newest + 1, head.number)
        yield Finding("missing", newest + 1, f"{cut} cut off: head.json names {head.number}")
    elif digest is not None and digest != head.record_sha256:
        problem = f"record {head.number} is not the one that head.json names: it was changed"
        yield Finding("changed", head.number, problem)
    if head.job != job:
        yield Finding("head", None, f"head.json is of job {head.job}")
    if key is not None and any(one.is_signed for one in seen) and not head.is_signed_with(key):
        yield Finding("unsigned", None, "head.json is not signed with this key")


def _anchors(
    seen: Sequence[_Seen], head: bytes | None, anchors: Sequence[Anchor]
) -> Iterator[Finding]:
    """Compare with what other objects name: a log that lost its end, or was written anew."""
    digests = {one.number: one.sha256 for one in seen}
    known = max(seen[-1].number if seen else 0, 0 if head is None else _number_in(head))
    newest = max(anchors, key=lambda anchor: anchor.ref.number, default=None)
    if newest is not None and newest.ref.number > known:
        cut = _numbers(known + 1, newest.ref.number)
        problem = f"{cut} cut off: {newest.holder} names record {newest.ref.number}"
        yield Finding("missing", known + 1, problem)
    told: set[int] = set()
    for anchor in anchors:
        number, sha256 = anchor.ref.number, anchor.ref.sha256
        if number not in told and digests.get(number, sha256) != sha256:
            told.add(number)
            problem = f"record {number} is not the one that {anchor.holder} names"
            yield Finding("changed", number, f"{problem}: it was changed")


def _number_in(head: bytes) -> int:
    """Return the number in the head, or 0 if it is unreadable, which has a finding already."""
    try:
        return parse_head(head).number
    except CorruptCheckpointError:
        return 0


def _numbers(first: int, last: int) -> str:
    return f"record {first} is" if first == last else f"records {first} to {last} are"


def _parse(record_type: type[S], data: bytes) -> S:
    try:
        plain = unseal(data)
    except CorruptCheckpointError as error:
        raise _unreadable("it is not what was written: its own digest differs") from error
    if plain == data:
        raise _unreadable("it is not what was written: its own digest is missing")
    try:
        return parse_record(record_type, plain)
    except CorruptCheckpointError as error:
        raise _unreadable(str(error)) from error


def _unreadable(problem: str) -> CorruptCheckpointError:
    return CorruptCheckpointError(ErrorCode.AUDIT_UNREADABLE, problem)


def _sha256(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()
