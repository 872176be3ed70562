import pytest

from laminar_core.errors import ConfigurationError, StorageUnavailable
from laminar_core.objectstore.memory import MemoryObjectStore
from laminar_core.protocol.types import CheckpointId
from laminar_core.records.actor import Actor
from laminar_core.retention.facts import RetentionPolicy
from laminar_core.store.audit_log import AuditLog
from laminar_core.store.checkpoint_store import CheckpointStore
from laminar_core.store.pins import Pins, pin_checkpoint, unpin_checkpoint
from laminar_core.testing.faulty_store import Effect, Fault, FaultyStore
from tests.retention.retention_jobs import JOB, START_MS, StoredJob, pin_of, run
from tests.store.stores import claim, complete, damage, open_job

ANN = Actor("ann", reason="to compare", run_id="run-7")
ONE, KEY = CheckpointId(1), "payments/pins/0000000001-keep.json"


@pytest.fixture
def job() -> StoredJob:
    job = StoredJob()
    job.start()
    job.complete()
    job.complete()
    return job


@pytest.fixture
def pins(job) -> Pins:
    return Pins(job.store)


def test_a_pin_is_found_again_and_taken_away(pins) -> None:
    pins.pin(pin_of(1))
    pins.pin(pin_of(1))  # The same once more.
    pins.pin(pin_of(1, "other", START_MS + 5))
    assert [(p.checkpoint_id, p.name) for p in pins.list()] == [(1, "keep"), (1, "other")]
    assert pins.find(ONE, "keep") == pin_of(1)
    assert [p.expires_at_ms for p in pins.by_checkpoint()[ONE]] == [None, START_MS + 5]
    pins.unpin(ONE, "keep")
    pins.unpin(ONE, "keep")
    assert [p.name for p in pins.list()] == ["other"]


def test_a_name_is_used_once_for_a_checkpoint(pins) -> None:
    pins.pin(pin_of(1))
    with pytest.raises(ConfigurationError, match="already has a pin named keep"):
        pins.pin(pin_of(1, until_ms=7))
    pins.pin(pin_of(2))
    assert pins.find(ONE, "keep").expires_at_ms is None


def test_what_is_not_there_cannot_be_pinned_or_unpinned(job, pins) -> None:
    job.attempt(ended=True)
    for missing in (3, 9):
        with pytest.raises(ConfigurationError, match=f"no completed checkpoint {missing} to pin"):
            pins.pin(pin_of(missing))
    with pytest.raises(ConfigurationError, match="has no pin named keep"):
        pins.find(ONE, "keep")
    assert pins.list() == []


def test_what_retention_deletes_cannot_be_pinned(job, pins) -> None:
    faulty = FaultyStore(job.store.objects, Fault("delete", Effect.FAIL, "manifest"))
    with pytest.raises(StorageUnavailable):
        run(job, RetentionPolicy(keep_last=1), faulty)
    with pytest.raises(ConfigurationError, match="checkpoint 1 of job payments is being deleted"):
        pins.pin(pin_of(1))
    assert pins.list() == []


def test_a_pin_that_cannot_be_read_still_holds(job, pins) -> None:
    pins.pin(pin_of(1))
    damage(job.store, KEY, "torn")
    (found,) = pins.list()
    assert found.record is None
    assert KEY in found.problem
    assert run(job, RetentionPolicy(keep_last=1)) is None
    assert pins.find(ONE, "keep") is None
    pins.unpin(ONE, "keep")
    assert run(job, RetentionPolicy(keep_last=1)).deleted_checkpoints == 1


def test_a_hold_ends(job, pins) -> None:
    pins.pin(pin_of(1, until_ms=job.clock_ms + 1))
    assert run(job, RetentionPolicy(keep_last=1)) is None
    job.clock_ms += 1
    assert run(job, RetentionPolicy(keep_last=1)).deleted_checkpoints == 1


def test_a_damaged_checkpoint_can_be_pinned(job, pins) -> None:
    damage(job.store, job.store.paths.manifest(ONE), "torn")
    pins.pin(pin_of(1))
    assert len(pins.list()) == 1


def test_other_objects_in_the_folder_are_no_pins(job) -> None:
    job.store.objects.put("payments/pins/notes.txt", b"")
    assert Pins(CheckpointStore(job.store.objects, JOB)).list() == []


def test_a_hold_lasts_as_long_as_what_is_done_under_it(pins) -> None:
    ann = Actor("ann", reason="to read it")

    def read_it() -> None:
        with pins.held(ONE, "reading", ann, START_MS, 5):
            (held,) = pins.list()
            assert held.record is not None
            assert (held.record.actor, held.record.expires_at_ms) == ("ann", START_MS + 5)
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        read_it()
    assert pins.list() == []


def test_nothing_is_done_under_a_hold_that_was_refused(pins) -> None:
    ann = Actor("ann", reason="to read it")
    with (
        pytest.raises(ConfigurationError, match="99"),
        pins.held(CheckpointId(99), "r", ann, START_MS, 5),
    ):
        raise AssertionError("it never completed")


def test_an_interrupt_while_it_is_written_leaves_no_hold(job) -> None:
    class Interrupted(MemoryObjectStore):
        def put_if_absent(self, key: str, data: bytes | memoryview) -> bool:
            super().put_if_absent(key, data)
            raise KeyboardInterrupt

    left = Interrupted()
    left._objects = dict(job.store.objects._objects)
    pins = Pins(CheckpointStore(left, JOB))
    ann = Actor("ann", reason="to read it")
    with pytest.raises(KeyboardInterrupt), pins.held(ONE, "reading", ann, START_MS, 5):
        raise AssertionError("it was interrupted before")
    assert pins.list() == []


# --- on somebody's behalf -------------------------------------------------------------------------


@pytest.fixture
def store() -> CheckpointStore:
    store = open_job()
    complete(store, 1, claim(store))
    return store


def audited(store: CheckpointStore) -> list[tuple[str, str, str, str | None]]:
    records = AuditLog(store.objects, store.paths, lambda: 0).records()
    return [(r.action, r.outcome, r.actor, r.run_id) for r in records]


def test_a_pin_stays_until_it_is_taken_away(store):
    pinned = pin_checkpoint(store, ONE, "keep", ANN, 1_000)
    assert (pinned.reason, pinned.expires_at_ms) == ("to compare", None)
    assert Pins(store).find(ONE, "keep") == pinned
    assert unpin_checkpoint(store, ONE, "keep", ANN, 1_000).record == pinned
    assert Pins(store).list() == []
    assert audited(store) == [
        ("pin", "intended", "ann", "run-7"),
        ("pin", "done", "ann", "run-7"),
        ("unpin", "intended", "ann", "run-7"),
    ]


def test_a_hold_that_somebody_asks_for_ends(store):
    assert pin_checkpoint(store, ONE, "keep", ANN, 1_000, hold_ms=5).expires_at_ms == 1_005


def test_a_pin_that_is_asked_for_again_stays_as_it_was(store):
    first = pin_checkpoint(store, ONE, "keep", ANN, 1_000)
    assert pin_checkpoint(store, ONE, "keep", ANN, 2_000) == first
    assert Pins(store).find(ONE, "keep") == first


def test_a_hold_that_is_asked_for_again_begins_anew(store):
    pin_checkpoint(store, ONE, "keep", ANN, 1_000, hold_ms=500)
    later = pin_checkpoint(store, ONE, "keep", ANN, 1_200, hold_ms=500)
    assert later.expires_at_ms == 1_700
    assert pin_checkpoint(store, ONE, "keep", ANN, 1_100, hold_ms=500) == later
    assert Pins(store).find(ONE, "keep") == later


def test_a_hold_that_has_ended_gives_way_to_any_pin_and_another_does_not(store):
    pin_checkpoint(store, ONE, "keep", ANN, 1_000, hold_ms=500)
    bob = Actor("bob", reason="mine")
    with pytest.raises(ConfigurationError, match="already has a pin named keep"):
        pin_checkpoint(store, ONE, "keep", bob, 1_499)
    pinned = pin_checkpoint(store, ONE, "keep", bob, 1_500)
    assert Pins(store).find(ONE, "keep") == pinned
    with pytest.raises(ConfigurationError, match="already has a pin named keep"):
        pin_checkpoint(store, ONE, "keep", ANN, 9_000, hold_ms=500)


def test_what_cannot_be_pinned_is_in_the_log_as_failed(store):
    with pytest.raises(ConfigurationError, match="no completed checkpoint 7"):
        pin_checkpoint(store, CheckpointId(7), "keep", ANN, 1_000)
    assert [outcome for _, outcome, *_ in audited(store)] == ["intended", "failed"]


def test_a_bad_name_and_a_missing_pin_are_refused_before_anything_is_written(store):
    with pytest.raises(ConfigurationError, match="names no pin"):
        pin_checkpoint(store, ONE, "a/b", ANN, 1_000)
    with pytest.raises(ConfigurationError, match="has no pin named keep"):
        unpin_checkpoint(store, ONE, "keep", ANN, 1_000)
    assert audited(store) == []


def test_a_pin_that_cannot_be_read_is_taken_away_all_the_same(store):
    pin_checkpoint(store, ONE, "keep", ANN, 1_000)
    damage(store, "payments/pins/0000000001-keep.json", "torn")
    assert unpin_checkpoint(store, ONE, "keep", ANN, 1_000).record is None
    assert Pins(store).list() == []
