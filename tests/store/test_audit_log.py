"""An act is in the log once, or it did not happen, whoever else appends and whatever fails.

Method: every call that an append makes to the store is the place where it crashes, where the store
fails or loses its answer, and where somebody else appends meanwhile; then the log is verified.
"""

import multiprocessing
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from functools import partial
from itertools import product

import pytest

from laminar_core.errors import CorruptCheckpointError, ErrorCode, StorageUnavailable
from laminar_core.objectstore.local import LocalObjectStore
from laminar_core.objectstore.memory import MemoryObjectStore
from laminar_core.objectstore.opening import ObjectStore
from laminar_core.records.actor import Actor
from laminar_core.records.audit import START, AuditReport, Finding, Link, head_at, parse_head
from laminar_core.records.paths import JobPaths
from laminar_core.store.audit_log import CODE_VERSION, AuditLog
from laminar_core.testing.faulty_store import Effect, Fault, FaultyStore
from laminar_core.testing.observed_store import ObservedStore, StoreCall

PATHS = JobPaths("payments")
CALLS = 6
"""Calls of one append to a log that has records, without another writer."""
FIRST_CALLS = 8
"""Calls of the first append: it finds no head, and looks for records and for their anchors."""

FOREIGN_HEAD = head_at(Link(77, "0" * 64), "another-job").to_bytes()


class ProcessDied(BaseException):
    """Nothing catches it."""


def open_log(objects: ObjectStore, key: bytes | None = None) -> AuditLog:
    return AuditLog(objects, PATHS, lambda: 1_700_000_000_000, key=key)


def append(log: AuditLog, reason: str = "") -> int:
    return log.append(action="start", actor=Actor("ann", reason=reason)).number


def with_records(count: int) -> MemoryObjectStore:
    objects = MemoryObjectStore()
    log = open_log(objects)
    for number in range(count):
        append(log, f"before {number}")
    return objects


def reasons(objects: ObjectStore) -> list[str]:
    return [record.reason for record in open_log(objects).records()]


def head_number(objects: ObjectStore) -> int:
    data = objects.get(PATHS.audit_head)
    assert data is not None
    return parse_head(data).number


def at_call(number: int, moment: str, act: Callable[[], object]) -> Callable[[StoreCall], None]:
    """Do ``act`` before or after call ``number`` of a store that tells of its calls."""
    calls = 0

    def observe(call: StoreCall) -> None:
        nonlocal calls
        calls += call.moment == "before"
        if calls == number and call.moment == moment:
            act()

    return observe


def die() -> None:
    raise ProcessDied


class TestAppend:
    def test_records_have_numbers_in_order_and_say_what_was_said(self):
        objects = MemoryObjectStore()
        log = open_log(objects)
        first = log.append(
            action="start", actor=Actor("ann", reason="moved"), before={"a": 1}, after={"b": [2]}
        )
        second = log.append(action="end", actor=Actor("bob", run_id="run-7"))
        assert (first.number, second.number) == (1, 2)
        assert first.previous_sha256 is None
        assert (first.before, first.after, first.run_id) == ({"a": 1}, {"b": [2]}, None)
        assert (second.actor, second.run_id, second.outcome) == ("bob", "run-7", "intended")
        assert (first.job, first.code_version, first.at_ms) == (
            "payments",
            CODE_VERSION,
            1_700_000_000_000,
        )
        assert list(open_log(objects).records()) == [first, second]
        assert log.read(2) == second
        assert log.read(3) is None

    def test_the_outcome_of_an_act_names_the_act(self):
        log = open_log(MemoryObjectStore())
        intended = log.append(action="retention", actor=Actor("ann", reason="weekly", run_id="r"))
        outcome = log.conclude(intended, "failed", reason="the disk is full", after={"deleted": 3})
        assert (outcome.outcome, outcome.intent, outcome.number) == ("failed", 1, 2)
        assert (outcome.action, outcome.actor, outcome.run_id) == ("retention", "ann", "r")
        assert (outcome.reason, outcome.after) == ("the disk is full", {"deleted": 3})

    def test_what_an_append_costs_does_not_depend_on_the_length_of_the_log(self):
        objects = FaultyStore(with_records(30))
        append(open_log(objects))
        verbs = [verb for verb, _ in objects.calls]
        assert verbs == ["get", "get", "put_if_absent", "get", "put", "get"]
        assert len(verbs) == CALLS

    def test_a_key_signs_records_and_head(self):
        objects = MemoryObjectStore()
        append(open_log(objects, key=b"k"))
        assert open_log(objects).verify(key=b"k").findings == ()
        assert open_log(objects).verify(key=b"j").findings != ()

    def test_a_head_that_is_behind_is_overtaken(self):
        objects = with_records(2)
        old_head = objects.get(PATHS.audit_head)
        append(open_log(objects))
        assert old_head is not None
        objects.put(PATHS.audit_head, old_head)
        assert append(open_log(objects)) == 4
        assert head_number(objects) == 4
        assert open_log(objects).verify().findings == ()


class TestOthersAppendMeanwhile:
    @pytest.mark.parametrize("count", [0, 1, 3])
    @pytest.mark.parametrize("moment", ["before", "after"])
    def test_at_any_moment_nothing_is_lost_and_the_head_is_the_newest(self, count, moment):
        """Three writers: one appends inside another's append, inside another's."""
        for outer, inner in product(range(1, 12), repeat=2):
            objects = with_records(count)
            third = open_log(objects)
            second = open_log(
                ObservedStore(objects, "2", at_call(inner, moment, partial(append, third)))
            )
            first = open_log(
                ObservedStore(objects, "1", at_call(outer, moment, partial(append, second)))
            )
            append(first)
            report = open_log(objects).verify()
            assert report.findings == ()
            assert report.record_count - count in (1, 2, 3)
            assert report.record_count == head_number(objects)

    @pytest.mark.parametrize("moment", ["before", "after"])
    def test_at_any_moment_and_the_first_one_dies(self, moment):
        for outer, death in product(range(1, 8), range(1, 8)):
            objects = with_records(0)
            answered: list[int] = []

            log = open_log(objects)

            def other(log=log, answered=answered) -> None:
                answered.append(append(log, "other"))

            dying = ObservedStore(objects, "1", at_call(death, moment, die))
            with suppress(ProcessDied):
                append(open_log(ObservedStore(dying, "1", at_call(outer, moment, other))), "dies")
            append(open_log(objects), "later")
            assert open_log(objects).verify().findings == ()
            assert reasons(objects).count("dies") <= 1
            assert reasons(objects).count("other") == len(answered)
            assert reasons(objects).count("later") == 1

    def test_of_threads_on_a_directory_none_is_lost(self, tmp_path):
        start = threading.Barrier(4)

        def work(number: int) -> None:
            log = open_log(LocalObjectStore(tmp_path))
            start.wait()
            for step in range(8):
                append(log, f"{number}.{step}")

        with ThreadPoolExecutor(4) as pool:
            list(pool.map(work, range(4)))
        objects = LocalObjectStore(tmp_path)
        assert open_log(objects).verify().findings == ()
        assert sorted(reasons(objects)) == [f"{n}.{s}" for n in range(4) for s in range(8)]
        assert head_number(objects) == 32

    def test_of_threads_that_share_one_log_none_is_lost(self):
        objects = MemoryObjectStore()
        log = open_log(objects)
        with ThreadPoolExecutor(8) as pool:
            numbers = list(pool.map(lambda n: append(log, f"{n}"), range(64)))
        assert sorted(numbers) == list(range(1, 65))
        assert open_log(objects).verify().findings == ()

    def test_of_processes_on_a_directory_none_is_lost(self, tmp_path):
        context = multiprocessing.get_context("fork")
        processes = [
            context.Process(target=append_often, args=(str(tmp_path), str(number)))
            for number in range(3)
        ]
        for process in processes:
            process.start()
        for process in processes:
            process.join()
        assert [process.exitcode for process in processes] == [0, 0, 0]
        objects = LocalObjectStore(tmp_path)
        assert open_log(objects).verify().findings == ()
        assert sorted(reasons(objects)) == [f"{n}.{s}" for n in range(3) for s in range(10)]


def append_often(root: str, name: str) -> None:
    log = open_log(LocalObjectStore(root))
    for step in range(10):
        append(log, f"{name}.{step}")


class TestCrash:
    @pytest.mark.parametrize("count", [0, 1, 2])
    @pytest.mark.parametrize("moment", ["before", "after"])
    def test_at_every_call_the_log_stays_whole_and_goes_on(self, count, moment):
        deaths = 0
        for call in range(1, FIRST_CALLS + 2):
            objects = with_records(count)
            dying = open_log(ObservedStore(objects, "1", at_call(call, moment, die)))
            try:
                append(dying, "dies")
            except ProcessDied:
                deaths += 1
            assert open_log(objects).verify().findings == ()
            append(open_log(objects), "next")
            append(open_log(objects), "and next")
            report = open_log(objects).verify()
            assert report.findings == ()
            assert reasons(objects).count("dies") == report.record_count - count - 2
        assert deaths == (FIRST_CALLS if count == 0 else CALLS)

    def test_two_first_writers_that_die_before_their_heads_leave_a_whole_log(self):
        """Or a second record would be there without a head, as if somebody had removed it (A3)."""
        objects = MemoryObjectStore()

        def die_at_the_head_of(number: int) -> Callable[[StoreCall], None]:
            def observe(call: StoreCall) -> None:
                written = objects.get(PATHS.audit_record(number)) is not None
                if call.key == PATHS.audit_head and call.verb == "put" and written:
                    raise ProcessDied

            return observe

        def the_other_one() -> None:
            with suppress(ProcessDied):
                append(open_log(ObservedStore(objects, "1", die_at_the_head_of(1))))

        late = ObservedStore(objects, "2", die_at_the_head_of(2))
        second = ObservedStore(late, "2", at_call(3, "before", the_other_one))
        with pytest.raises(ProcessDied):
            append(open_log(second))
        assert open_log(objects).numbers() == [1, 2]
        assert open_log(objects).verify().findings == ()

    def test_again_and_again_the_head_says_how_far_it_was(self):
        """Deaths right after the create leave the head behind, and nobody's record is lost."""
        objects = with_records(1)
        for number in range(3):
            dying = open_log(ObservedStore(objects, "1", at_call(3, "before", die)))
            with pytest.raises(ProcessDied):
                append(dying, f"{number}")
        append(open_log(objects), "last")
        assert open_log(objects).verify().findings == ()
        assert reasons(objects)[-1] == "last"


class TestLostAnswers:
    @pytest.mark.parametrize("count", [0, 2])
    @pytest.mark.parametrize("effect", [Effect.LOSE_ANSWER, Effect.DENY, Effect.FAIL])
    def test_one_lost_answer_of_a_create_gives_one_record(self, count, effect):
        objects = with_records(count)
        store = FaultyStore(objects, Fault("put_if_absent", effect))
        assert append(open_log(store), "once") == count + 1
        assert reasons(objects).count("once") == 1
        assert open_log(objects).verify().findings == ()

    @pytest.mark.parametrize("verb", ["get", "put", "put_if_absent", "children"])
    @pytest.mark.parametrize("effect", [Effect.LOSE_ANSWER, Effect.FAIL])
    @pytest.mark.parametrize("first", [1, 2])
    def test_an_act_that_is_tried_again_has_one_record(self, verb, effect, first):
        """Also if others went on meanwhile, and the head is far beyond the first try."""
        objects = MemoryObjectStore()
        store = FaultyStore(objects, Fault(verb, effect, "audit", first, first + 1))
        log = open_log(store)
        entry = log.entry(action="start", actor=Actor("ann", reason="once"))
        for _ in range(4):
            try:
                log.write(entry)
            except StorageUnavailable:
                append(open_log(objects), "other")
            else:
                break
        assert reasons(objects).count("once") == 1
        assert open_log(objects).verify().findings == ()
        append(open_log(objects), "later")
        assert open_log(objects).verify().findings == ()

    def test_an_entry_that_was_written_is_not_written_again(self):
        objects = MemoryObjectStore()
        log = open_log(objects)
        entry = log.entry(action="start", actor=Actor("ann", reason="once"))
        first = log.write(entry)
        append(log, "other")
        assert log.write(entry) == first
        assert reasons(objects) == ["once", "other"]
        assert head_number(objects) == 2

    def test_two_acts_that_look_alike_are_two(self):
        objects = MemoryObjectStore()
        log = open_log(objects)
        assert [append(log, "same"), append(log, "same")] == [1, 2]

    def test_a_store_that_is_down_keeps_the_act_from_happening(self):
        store = FaultyStore(MemoryObjectStore(), Fault("put_if_absent", Effect.FAIL, last=99))
        with pytest.raises(StorageUnavailable):
            append(open_log(store))


class TestDamage:
    def test_what_was_cut_off_stays_visible_after_the_next_append(self):
        objects = with_records(3)
        objects.delete(PATHS.audit_record(3))
        assert append(open_log(objects)) == 4
        (finding,) = open_log(objects).verify().findings
        assert finding == Finding("missing", 3, "record 3 is missing")

    @pytest.mark.parametrize("count", [1, 3])
    @pytest.mark.parametrize("head", [b"{}", FOREIGN_HEAD])
    def test_a_damaged_head_keeps_nobody_from_working_and_is_never_forgotten(self, count, head):
        objects = with_records(count)
        objects.put(PATHS.audit_head, head)
        assert append(open_log(objects)) == count + 1
        append(open_log(objects))
        (finding,) = open_log(objects).verify().findings
        assert (finding.kind, finding.number) == ("head", count + 1)

    def test_a_head_that_is_gone_is_never_forgotten(self):
        objects = with_records(3)
        objects.delete(PATHS.audit_head)
        assert append(open_log(objects)) == 4
        append(open_log(objects))
        (finding,) = open_log(objects).verify().findings
        assert (finding.kind, finding.number) == ("head", 4)

    def test_a_log_that_is_gone_except_for_a_damaged_head_is_not_a_new_one(self):
        objects = MemoryObjectStore()
        objects.put(PATHS.audit_head, b"")
        append(open_log(objects))
        (finding,) = open_log(objects).verify().findings
        assert (finding.kind, finding.number) == ("head", 1)

    def test_a_store_that_overwrites_is_found_out(self):
        objects = with_records(2)
        stale = FaultyStore(objects, Fault("put_if_absent", Effect.OVERWRITE))
        head = objects.get(PATHS.audit_head)
        append(open_log(objects))
        assert head is not None
        objects.put(PATHS.audit_head, head)
        append(open_log(objects))
        objects.put(PATHS.audit_head, head)
        append(open_log(stale))  # Overwrites record 3, which record 4 follows.
        problems = [finding.problem for finding in open_log(objects).verify().findings]
        assert problems == ["record 4 does not follow record 3: one of them was changed"]

    def test_an_unreadable_record_has_a_place_and_is_left_out_of_a_listing(self):
        objects = with_records(3)
        objects.put(PATHS.audit_record(2), b"rot")
        assert [record.number for record in open_log(objects).records()] == [1, 3]
        with pytest.raises(CorruptCheckpointError) as caught:
            open_log(objects).read(2)
        assert caught.value.code is ErrorCode.AUDIT_UNREADABLE
        assert "memory:///payments/audit/0000000002.json: it is not what" in str(caught.value)

    def test_what_does_not_belong_there_is_named(self):
        objects = with_records(1)
        objects.put(f"{PATHS.audit}note.txt", b"")
        report = open_log(objects).verify()
        assert report.findings == (Finding("stray", None, "note.txt is not part of the log"),)

    def test_an_empty_log_is_whole(self):
        assert open_log(MemoryObjectStore()).verify() == AuditReport(0, START, ())


def test_a_log_that_grows_while_it_is_verified_is_whole():
    """The head is read before the records, or it would name one that was not listed."""
    for call in range(1, 8):
        objects = with_records(2)
        observe = at_call(call, "after", partial(append, open_log(objects)))
        assert open_log(ObservedStore(objects, "v", observe)).verify().findings == ()


def forked(count: int) -> MemoryObjectStore:
    """An older copy of the job's store that somebody else went on in."""
    objects = with_records(2)
    log = open_log(objects)
    for number in range(count):
        append(log, f"elsewhere {number}")
    return objects


@pytest.mark.parametrize("forked_by", [0, 1, 3])
@pytest.mark.parametrize("is_contended", [False, True])
def test_a_writer_that_slept_in_a_call_which_another_store_answered(forked_by, is_contended):
    """In whichever call: it goes on in the right store, or says that the store was replaced."""
    replaced = set[ErrorCode | None]()
    for sleeps_in in range(1, CALLS + 6):
        disk, other, calls = with_records(3), forked(forked_by), 0

        def swap(call: StoreCall, disk=disk, other=other, sleeps_in=sleeps_in) -> None:
            nonlocal calls
            calls += call.moment == "before"
            if is_contended and calls == 3 and call.moment == "before":
                append(open_log(disk), "another writer")
            asleep = calls == sleeps_in and call.moment == "before"
            store.inner = other if asleep else disk  # noqa: B023 - called in this turn only

        store = ObservedStore(disk, "ann", swap)
        log = open_log(store)
        try:
            append(log, "slept")
            replaced.add(None)
        except StorageUnavailable as error:
            replaced.add(error.code)
            append(log, "slept")
        report = open_log(disk).verify()
        assert report.findings == (), sleeps_in
        # Appending anew makes a second record of an act whose first one was not found.
        assert reasons(disk).count("slept") in (1, 2), sleeps_in
    assert None in replaced
    assert replaced <= {None, ErrorCode.STORE_REPLACED}


def test_an_act_whose_record_went_into_another_store_must_not_happen():
    disk, other = with_records(1), MemoryObjectStore()

    def swap(call: StoreCall) -> None:
        is_swapped = call.verb == "put_if_absent" and call.moment == "before" and not other.list("")
        store.inner = other if is_swapped else disk

    store = ObservedStore(disk, "ann", swap)
    log = open_log(store)
    with pytest.raises(StorageUnavailable, match="is not there") as caught:
        append(log)
    assert caught.value.code is ErrorCode.STORE_REPLACED
    assert append(log) == 2
    assert open_log(disk).verify().findings == ()


def test_an_entry_whose_place_was_forgotten_is_written_once():
    """Its answer was lost, then another store was in the place for a while."""
    disk = with_records(2)
    log = open_log(disk)
    entry = log.entry(action="claim", actor=Actor("ann", reason="once"))
    assert log.write(entry).number == 3
    append(open_log(disk), "another writer")
    log.forget()
    assert log.write(entry).number == 3
    assert reasons(disk) == ["before 0", "before 1", "once", "another writer"]
    assert open_log(disk).verify().findings == ()


def test_a_log_goes_on_after_its_own_record_once_another_stores_is_forgotten():
    disk, entry_of = with_records(2), Actor("ann", reason="again")
    namesake = ObservedStore(with_records(5), "ann", lambda _: None)
    log = open_log(namesake)
    entry = log.entry(action="claim", actor=entry_of)
    assert log.write(entry).number == 6
    namesake.inner = disk
    log.forget()
    assert log.write(entry).number == 3
    assert open_log(disk).verify().findings == ()
