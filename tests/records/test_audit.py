"""A log in which anything was changed, removed, moved or put in is told from one as it was written.

Goal: what an attacker or a disk can do to the stored bytes is found, and where. Method: chains
written by the pure step, harmed in every way that one object can be, and at random.
"""

from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from laminar_core.errors import CorruptCheckpointError, ErrorCode
from laminar_core.records.actor import ActorKind
from laminar_core.records.audit import (
    START,
    Anchor,
    AuditEntry,
    AuditReport,
    Link,
    follow,
    head_at,
    parse_audit_record,
    parse_head,
    verify_chain,
)
from laminar_core.records.manifest import Owner

JOB = "payments"
KEY = b"a key that only the drivers know"
Stored = dict[int, bytes]


def entry(number: int, job: str = JOB) -> AuditEntry:
    return AuditEntry(
        job=job,
        action="start",
        actor="ann",
        actor_kind=ActorKind.PERSON,
        reason=f"reason {number}",
        after={"generation": number},
        code_version="laminar 0.1.0",
        at_ms=1_700_000_000_000 + number,
        writer=Owner(
            host_id="h", boot_id="b", pid=7, pid_start_time=1, claim_number=number, user="u"
        ),
    )


def chain(
    length: int, key: bytes | None = None, link: Link = START, offset: int = 0, job: str = JOB
) -> tuple[Stored, bytes]:
    """``length`` records after ``link`` by number, and the head."""
    stored: Stored = {}
    for number in range(link.number + 1, link.number + 1 + length):
        stored[number] = follow(link, entry(number + offset, job), key=key).to_bytes()
        link = Link.to(number, stored[number])
    return stored, head_at(link, job, key=key).to_bytes()


def verify(stored: Stored, head: bytes | None, key: bytes | None = None) -> AuditReport:
    return verify_chain(JOB, sorted(stored.items()), head, key=key)


def problems(stored: Stored, head: bytes | None, key: bytes | None = None) -> list[str]:
    return [finding.problem for finding in verify(stored, head, key).findings]


@pytest.mark.parametrize("key", [None, KEY])
@pytest.mark.parametrize("length", [1, 2, 5])
def test_a_log_as_it_was_written_has_no_findings(length, key):
    stored, head = chain(length, key)
    assert verify(stored, head, key).findings == ()
    assert verify(stored, head, key).newest == Link.to(length, stored[length])


def test_an_empty_log_is_whole():
    assert verify({}, None) == AuditReport(0, START, ())


def test_a_record_is_read_back_as_it_was_written():
    record = follow(START, entry(1), key=KEY)
    assert parse_audit_record(record.to_bytes()) == record
    assert record.is_signed_with(KEY)
    assert not record.is_signed_with(b"another")


class TestWhatIsFound:
    def test_an_edit_that_gives_itself_a_new_digest(self):
        stored, head = chain(5)
        honest = parse_audit_record(stored[3])
        stored[3] = honest.model_copy(update={"actor": "bob"}).to_bytes()
        assert problems(stored, head) == [
            "record 4 does not follow record 3: one of them was changed"
        ]

    def test_an_edit_of_the_newest_record(self):
        stored, head = chain(3)
        stored[3] = parse_audit_record(stored[3]).model_copy(update={"actor": "bob"}).to_bytes()
        assert problems(stored, head) == [
            "record 3 is not the one that head.json names: it was changed"
        ]

    def test_a_record_in_the_middle_that_is_gone(self):
        stored, head = chain(5)
        del stored[2], stored[3]
        assert problems(stored, head) == ["records 2 to 3 are missing"]

    def test_the_beginning_that_is_gone(self):
        stored, head = chain(3)
        del stored[1]
        assert problems(stored, head) == ["record 1 is missing"]

    def test_a_beginning_that_is_gone_and_hidden_by_new_numbers(self):
        stored, _ = chain(3)
        moved = {
            n - 1: parse_audit_record(stored[n]).model_copy(update={"number": n - 1}).to_bytes()
            for n in (2, 3)
        }
        head = head_at(Link.to(2, moved[2]), JOB).to_bytes()
        assert problems(moved, head) == [
            "record 1 follows another one: the beginning is missing",
            "record 2 does not follow record 1: one of them was changed",
        ]

    def test_a_tail_that_was_cut_off(self):
        stored, head = chain(5)
        del stored[4], stored[5]
        assert problems(stored, head) == ["records 4 to 5 are cut off: head.json names 5"]

    def test_a_whole_log_that_is_gone_except_for_its_head(self):
        assert problems({}, chain(2)[1]) == ["records 1 to 2 are cut off: head.json names 2"]

    def test_two_records_that_changed_places(self):
        stored, head = chain(5)
        stored[2], stored[3] = stored[3], stored[2]
        assert problems(stored, head) == [
            "record 2 was written as number 3: records were swapped or moved",
            "record 2 follows record 3: the chain forks, or records were moved",
            "record 3 was written as number 2: records were swapped or moved",
            "record 3 follows record 1: the chain forks, or records were moved",
            "record 4 follows record 2: the chain forks, or records were moved",
        ]

    def test_a_fork(self):
        stored, _ = chain(4)
        fork, head = chain(2, link=Link.to(2, stored[2]), offset=100)
        assert problems({**stored, 3: fork[3]}, None) == [
            "head.json is missing: whether records were cut off cannot be known",
            "record 4 does not follow record 3: one of them was changed",
        ]
        late = follow(Link(4, parse_audit_record(stored[3]).previous_sha256), entry(9)).to_bytes()
        assert problems({**stored, 5: late}, head) == [
            "record 4 is not the one that head.json names: it was changed",
            "record 5 follows record 2: the chain forks, or records were moved",
        ]

    def test_a_second_chain_behind_the_first(self):
        stored, head = chain(2)
        second, _ = chain(1, link=Link(2, None), offset=10)
        assert problems(stored | second, head) == ["record 3 starts a chain of its own"]

    def test_an_act_that_stands_there_twice(self):
        stored, _ = chain(2)
        again = follow(Link.to(2, stored[2]), entry(1))
        stored[3] = again.to_bytes()
        head = head_at(Link.to(3, stored[3]), JOB).to_bytes()
        assert problems(stored, head) == ["record 3 is of the same act as record 1"]

    def test_the_log_of_another_job(self):
        stored, head = chain(1, job="other")
        assert problems(stored, head) == [
            "head.json is of job other",
            "record 1 is of job other",
        ]

    def test_rot(self):
        stored, head = chain(3)
        stored[2] = stored[2].replace(b"reason 2", b"reason 3")
        assert problems(stored, head) == [
            "record 2: it is not what was written: its own digest differs"
        ]
        assert problems(chain(2)[0], head[:-9]) == [
            "head.json: it is not what was written: its own digest is missing"
        ]

    def test_a_head_that_is_gone(self):
        assert problems(chain(2)[0], None) == [
            "head.json is missing: whether records were cut off cannot be known"
        ]

    def test_a_head_that_was_lost_before_a_record(self):
        stored, _ = chain(2)
        stored[3] = follow(Link.to(2, stored[2]), entry(3), head_lost=True).to_bytes()
        head = head_at(Link.to(3, stored[3]), JOB).to_bytes()
        (problem,) = problems(stored, head)
        assert problem.startswith("record 3 says that head.json was lost before it: records ahead")


def anchor(record: bytes, holder: str = "the claim of generation 7") -> Anchor:
    return Anchor(holder, parse_audit_record(record).reference())


class TestAnchors:
    """They are elsewhere in the store, and a job does not run without them."""

    def check(self, stored: Stored, head: bytes | None, *anchors: Anchor) -> list[str]:
        found = verify_chain(JOB, sorted(stored.items()), head, anchors=anchors).findings
        return [finding.problem for finding in found]

    def test_what_they_name_is_there(self):
        stored, head = chain(3)
        assert self.check(stored, head, anchor(stored[1]), anchor(stored[3])) == []

    def test_a_whole_log_that_is_gone(self):
        stored, _ = chain(3)
        assert self.check({}, None, anchor(stored[2])) == [
            "records 1 to 2 are cut off: the claim of generation 7 names record 2"
        ]

    def test_a_tail_that_is_gone_with_the_head_that_belonged_to_it(self):
        stored, _ = chain(4)
        shorter, head = chain(2)
        assert self.check(shorter, head, anchor(stored[3])) == [
            "record 3 is cut off: the claim of generation 7 names record 3"
        ]

    def test_of_many_that_name_what_is_cut_off_the_newest_is_reported(self):
        stored, _ = chain(4)
        shorter, head = chain(2)
        anchors = [anchor(stored[3]), anchor(stored[4], "the manifest of checkpoint 9")]
        assert self.check(shorter, head, *anchors) == [
            "records 3 to 4 are cut off: the manifest of checkpoint 9 names record 4"
        ]

    def test_a_log_that_was_written_anew(self):
        stored, _ = chain(3)
        other, head = chain(3, offset=50)
        anchors = [anchor(stored[2]), anchor(stored[2], "the manifest of checkpoint 9")]
        assert self.check(other, head, *anchors) == [
            "record 2 is not the one that the claim of generation 7 names: it was changed"
        ]

    def test_what_is_missing_already_is_said_once(self):
        stored, head = chain(4)
        anchors = [anchor(stored[2]), anchor(stored[4])]
        del stored[2], stored[4]
        assert self.check(stored, head, *anchors) == [
            "record 2 is missing",
            "record 4 is cut off: head.json names 4",
        ]
        assert self.check(stored, b"rot", *anchors)[-1] == (
            "record 4 is cut off: the claim of generation 7 names record 4"
        )


class TestWhatACrashLeaves:
    """No finding, although the head is behind."""

    def test_a_head_that_is_behind(self):
        assert problems(chain(5)[0], chain(3)[1]) == []

    def test_the_first_record_without_a_head(self):
        assert problems(chain(1)[0], None) == []


class TestKey:
    def test_without_the_key_nobody_writes_another_chain(self):
        stored, head = chain(3)
        assert problems(stored, head, KEY) == ["no record is signed with this key"]
        stored, head = chain(3, b"another key")
        assert problems(stored, head, KEY) == ["no record is signed with this key"]

    def test_what_was_there_before_the_key_is_bound_by_the_first_signed_record(self):
        old, _ = chain(2)
        new, head = chain(2, KEY, Link.to(2, old[2]))
        assert problems(old | new, head, KEY) == []
        old[1] = parse_audit_record(old[1]).model_copy(update={"actor": "bob"}).to_bytes()
        assert problems(old | new, head, KEY) == [
            "record 2 does not follow record 1: one of them was changed"
        ]

    def test_a_record_that_somebody_put_behind_them(self):
        stored, _ = chain(2, KEY)
        forged, head = chain(1, None, Link.to(2, stored[2]))
        assert problems(stored | forged, head, KEY) == [
            "head.json is not signed with this key",
            "record 3 is not signed with this key",
        ]

    def test_a_signature_that_was_altered(self):
        stored, head = chain(2, KEY)
        record = parse_audit_record(stored[2])
        stored[2] = record.model_copy(update={"actor": "bob"}).to_bytes()
        assert "record 2 is not signed with this key" in problems(stored, head, KEY)

    def test_a_log_with_signatures_is_checked_without_the_key_as_well(self):
        stored, head = chain(3, KEY)
        assert problems(stored, head) == []


def remove(stored: Stored, draw: Callable) -> None:
    del stored[draw(st.sampled_from(sorted(stored)))]


def swap(stored: Stored, draw: Callable) -> None:
    one, other = draw(st.permutations(sorted(stored)))[:2]
    stored[one], stored[other] = stored[other], stored[one]


def copy(stored: Stored, draw: Callable) -> None:
    one, other = draw(st.permutations(sorted(stored)))[:2]
    stored[one] = stored[other]


def append_copy(stored: Stored, draw: Callable) -> None:
    stored[max(stored) + 1] = stored[draw(st.sampled_from(sorted(stored)))]


def shift(stored: Stored, draw: Callable) -> None:
    first = draw(st.sampled_from(sorted(stored)))
    for number in sorted(stored, reverse=True):
        if number >= first:
            stored[number + 1] = stored.pop(number)


def flip(stored: Stored, draw: Callable) -> None:
    number = draw(st.sampled_from(sorted(stored)))
    data = bytearray(stored[number])
    data[draw(st.integers(0, len(data) - 1))] ^= 1 << draw(st.integers(0, 7))
    stored[number] = bytes(data)


def rewrite(stored: Stored, draw: Callable) -> None:
    """An edit by somebody who knows the format."""
    number = draw(st.sampled_from(sorted(stored)))
    changes = draw(
        st.sampled_from(
            [{"actor": "bob"}, {"at_ms": 1}, {"after": None}, {"previous_sha256": None}]
        )
    )
    changed = parse_audit_record(stored[number]).model_copy(update=changes).to_bytes()
    if changed == stored[number]:  # The first record follows none already.
        changed = changed[:-1]
    stored[number] = changed


@given(
    st.integers(2, 7),
    st.sampled_from([remove, swap, copy, append_copy, shift, flip, rewrite]),
    st.booleans(),
    st.data(),
)
def test_no_harm_goes_unnoticed(length, harm, signed, data):
    key = KEY if signed else None
    stored, head = chain(length, key)
    harm(stored, data.draw)
    assert problems(stored, head, key)


@given(st.data())
def test_no_flipped_bit_in_the_head_gets_through(data):
    stored, head = chain(3)
    harmed = {0: head}
    flip(harmed, data.draw)
    assert problems(stored, harmed[0])
    with pytest.raises(CorruptCheckpointError) as caught:
        parse_head(harmed[0])
    assert caught.value.code is ErrorCode.AUDIT_UNREADABLE
