"""Who decides about a plan; ``test_retention_races`` has the interleavings."""

import pytest

from laminar_core.errors import CorruptCheckpointError, StorageUnavailable
from laminar_core.objectstore.memory import MemoryObjectStore
from laminar_core.protocol.types import CheckpointId
from laminar_core.records.paths import JobPaths
from laminar_core.records.retention import RetentionResult
from laminar_core.store.retention_log import RetentionLog
from laminar_core.testing.faulty_store import Effect, Fault, FaultyStore
from tests.retention.retention_jobs import planned
from tests.store.stores import claim, claimant, open_job


def log_of(objects=None) -> RetentionLog:
    return RetentionLog(objects or MemoryObjectStore(), JobPaths("payments"))


def result(number: int) -> RetentionResult:
    return RetentionResult(
        number=number,
        finished_at_ms=1,
        deleted_checkpoints=0,
        deleted_files=0,
        deleted_bytes=0,
        quarantined_files=0,
    )


def test_a_number_is_taken_once() -> None:
    log = log_of()
    assert log.create_plan(planned(1, 5))
    assert log.create_plan(planned(1, 5))  # A lost answer: the same bytes are ours.
    assert not log.create_plan(planned(1, 6))
    assert log.read_plan(1) == planned(1, 5)
    assert log.read_plan(2) is None


@pytest.mark.parametrize(("first", "second"), [("apply", "abandon"), ("abandon", "apply")])
def test_the_first_word_stands(first: str, second: str) -> None:
    log = log_of()
    log.create_plan(planned(1, 5))
    assert log.decide(1, first, "a", "x", (5,)).verdict == first
    said = log.decide(1, second, "b", "y")
    assert (said.verdict, said.by, said.reason) == (first, "a", "x")
    assert log.being_deleted() == ({CheckpointId(5)} if first == "apply" else set())


def test_a_lost_answer_is_not_taken_for_somebody_elses_word() -> None:
    log = log_of(FaultyStore(MemoryObjectStore(), Fault("put_if_absent", Effect.LOSE_ANSWER)))
    assert log.decide(1, "apply", "a", "x").by == "a"


def test_what_is_decided_is_not_given_up() -> None:
    log = log_of()
    for number in (1, 2, 3):
        log.create_plan(planned(number, number))
    log.decide(2, "apply", "a", "x", (2,))
    assert log.abandon_undecided("generation 2", "it was claimed") == [1, 3]
    assert log.abandon_undecided("generation 2", "it was claimed") == []
    assert list(log.unfinished()) == [2]
    assert log.being_deleted() == {2}
    log.record_result(result(2))
    assert log.being_deleted() == set()
    assert log.read_result(2) == result(2)


def test_a_claim_gives_up_what_is_not_decided() -> None:
    store = open_job()
    log = RetentionLog(store.objects, store.paths)
    log.create_plan(planned(1, 5))
    generation = claim(store)
    assert log.decide(1, "apply", "me", "late").by == "generation 1"
    log.create_plan(planned(2, 5))
    store.claims.succeed(generation, claimant())
    assert log.decide(2, "apply", "me", "late").by == "generation 2"


def test_a_claim_that_cannot_give_up_plans_is_repeated() -> None:
    disk = MemoryObjectStore()
    log_of(disk).create_plan(planned(1, 5))
    faulty = FaultyStore(disk, Fault("put_if_absent", Effect.FAIL, "decision", last=2))
    store, me = open_job(faulty), claimant()
    with pytest.raises(StorageUnavailable):
        store.claims.claim(me, wait_ms=lambda _: None)
    assert store.claims.claim(me, wait_ms=lambda _: None) == 1
    assert log_of(disk).decide(1, "apply", "me", "late").verdict == "abandon"


def test_if_a_decision_cannot_be_read_what_it_is_about_is_left_alone() -> None:
    log = log_of()
    log.create_plan(planned(1, 5, 6))
    log.objects.put(log.paths.decision(1), b"torn")
    assert log.being_deleted() == {5, 6}
    with pytest.raises(CorruptCheckpointError, match="decision"):
        log.decide(1, "abandon", "me", "x")
    log.objects.put(log.paths.plan(1), b"torn")
    assert log.being_deleted() == set()  # Where a deletion has begun there are markers.


def test_other_objects_in_the_folder_are_no_plans() -> None:
    log = log_of()
    log.objects.put("payments/retention/notes.txt", b"")
    log.objects.put("payments/retention/quarantine/x.json", b"")
    assert log.steps() == {}
