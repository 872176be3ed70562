"""Files of a checkpoint: what was in flight and state come back, left-overs go, nothing else."""

import os
from hashlib import sha256

import pyarrow as pa
import pytest

from laminar_core.errors import (
    CheckpointDeclined,
    CorruptCheckpointError,
    ErrorCode,
    IncompatibleStateError,
    ProtocolError,
    StorageUnavailable,
)
from laminar_core.objectstore.local import LocalObjectStore
from laminar_core.objectstore.memory import MemoryObjectStore
from laminar_core.protocol.recovery import RestoreFrom
from laminar_core.protocol.types import CheckpointId, CheckpointKind
from laminar_core.records.manifest import HistoryRecord
from laminar_core.records.retention import DeletionMarker
from laminar_core.store import inflight_files
from laminar_core.testing.faulty_store import Effect, Fault, FaultyStore
from tests.codec.inflight_files import ELEMENTS, SCHEMA
from tests.store.stores import (
    DAMAGE,
    capture,
    claim,
    claimant,
    complete,
    damage,
    never,
    open_job,
    read_back,
    with_inflight,
    write,
)

ID = CheckpointId(2)
INFLIGHT = "checkpoints/0000000002/operators/"


@pytest.fixture
def store():
    """Checkpoint 1 is complete, 2 was given up when most of its parts were there."""
    store = open_job()
    generation = claim(store)
    complete(store, 1, generation)
    write(store, 2, generation)
    capture(store, direction="input")
    capture(store, direction="output")
    return store


@pytest.fixture
def empty():
    return open_job()


def left_over(store) -> list[str]:
    return store.objects.list("payments/checkpoints/0000000002/")


class TestInflight:
    @pytest.mark.parametrize(
        ("direction", "name"), [("input", "inflight_0.buf"), ("output", "inflight_0_1.buf")]
    )
    def test_elements_come_back_from_either_end_of_a_channel(self, empty, direction, name):
        entry = capture(empty, direction=direction)
        assert entry.path == f"{INFLIGHT}{name}"
        assert read_back(empty, entry) == ELEMENTS
        assert read_back(empty, entry, SCHEMA) == ELEMENTS

    def test_the_reference_is_that_of_the_bytes(self, empty):
        entry = capture(empty)
        data = empty.objects.get(f"payments/{entry.path}")
        assert (entry.size_bytes, entry.sha256) == (len(data), sha256(data).hexdigest())

    def test_writing_the_same_again_changes_nothing(self, empty):
        assert capture(empty) == capture(empty)

    def test_other_elements_under_the_same_name_cost_the_checkpoint_and_not_the_file(self, empty):
        entry = capture(empty)
        with pytest.raises(CheckpointDeclined) as caught:
            capture(empty, elements=ELEMENTS[:-1])
        assert caught.value.code is ErrorCode.OBJECT_EXISTS
        assert read_back(empty, entry) == ELEMENTS

    def test_a_file_costs_the_syncs_that_are_documented(self, tmp_path, monkeypatch):
        """docs/formats.md: 2 for each, because state came before."""
        store = open_job(LocalObjectStore(tmp_path))
        write(store, 2, claim(store))
        synced: list[int] = []
        real = os.fsync
        monkeypatch.setattr(os, "fsync", lambda fd: (synced.append(fd), real(fd))[1])
        costs: list[int] = []
        for subtask, direction in ((0, "input"), (0, "output"), (1, "input")):
            capture(store, direction=direction, subtask_index=subtask)
            costs.append(len(synced))
            synced.clear()
        assert costs == [2, 2, 2]

    def test_a_lost_answer_does_not_matter(self):
        fault = Fault("put_if_absent", Effect.LOSE_ANSWER, ".buf")
        store = open_job(FaultyStore(MemoryObjectStore(), fault))
        assert read_back(store, capture(store)) == ELEMENTS

    def test_a_torn_write_costs_the_checkpoint(self):
        fault = Fault("put_if_absent", Effect.TEAR, ".buf")
        with pytest.raises(CheckpointDeclined):
            capture(open_job(FaultyStore(MemoryObjectStore(), fault)))

    @pytest.mark.parametrize(
        ("how", "code"),
        [
            ("missing", ErrorCode.OBJECT_MISSING),
            ("torn", ErrorCode.LENGTH_DIFFERS),
            ("longer", ErrorCode.LENGTH_DIFFERS),
            ("rotten", ErrorCode.DIGEST_DIFFERS),
        ],
    )
    def test_what_is_not_what_was_written_is_not_decoded(self, empty, monkeypatch, how, code):
        entry = capture(empty)
        damage(empty, f"payments/{entry.path}", how)
        monkeypatch.setattr(inflight_files, "decode", lambda *_: pytest.fail("decoded"))
        with pytest.raises(CorruptCheckpointError) as caught:
            read_back(empty, entry)
        assert caught.value.code is code

    @pytest.mark.parametrize("changes", [{"input_id": 4}, {"event_count": 5}, {"row_count": 9}])
    def test_what_is_not_what_the_manifest_says_is_named(self, empty, changes):
        (name,) = changes
        entry = capture(empty, **changes)
        with pytest.raises(CorruptCheckpointError, match=rf"_0\.buf, .*its {name} is") as caught:
            read_back(empty, entry)
        assert caught.value.code is ErrorCode.INFLIGHT_UNREADABLE

    def test_an_edge_that_carries_other_rows_now_is_refused(self, empty):
        with pytest.raises(IncompatibleStateError, match=r"_0\.buf, .*restore a savepoint"):
            read_back(empty, capture(empty), pa.schema([("x", pa.int8())]))

    @pytest.mark.parametrize("how", DAMAGE)
    def test_a_checkpoint_with_a_damaged_inflight_file_is_not_whole(self, empty, how):
        generation = claim(empty)
        complete(empty, 1, generation)
        entry = capture(empty)
        written = write(empty, 2, generation)
        empty.manifests.publish(with_inflight(written, entry))
        assert empty.verify(ID).problem is None
        empty.claims.claim(claimant(), wait_ms=never, take_over=True)
        assert empty.choose_checkpoint().decision == RestoreFrom(ID)
        damage(empty, f"payments/{entry.path}", how)
        report = empty.verify(ID)
        assert [part.path for part in report.parts if part.problem] == [entry.path]
        choice = empty.choose_checkpoint()
        assert isinstance(choice.decision, RestoreFrom)
        assert choice.decision.checkpoint_id == 1
        assert entry.path in choice.decision.rejected[0].reason


class TestDiscard:
    def test_the_trigger_stays_and_the_files_go(self, store):
        others = set(store.objects.list("")) - set(left_over(store))
        assert store.parts.discard(ID) == 4
        assert left_over(store) == [store.paths.trigger(ID)]
        assert set(store.objects.list("")) - set(left_over(store)) == others
        assert store.verify(CheckpointId(1)).problem is None

    def test_the_id_stays_taken(self, store):
        store.parts.discard(ID)
        assert store.attempts.highest_id() == 2
        assert store.attempts.ids() == [1, 2]

    def test_a_second_call_finds_nothing_more(self, store):
        store.parts.discard(ID)
        assert store.parts.discard(ID) == 0
        assert store.parts.discard(CheckpointId(99)) == 0

    @pytest.mark.parametrize("how", [None, "torn", "rotten"])
    def test_a_checkpoint_with_a_manifest_keeps_everything(self, store, how):
        """Also if nobody can read the manifest: somebody may put it back."""
        if how:
            damage(store, store.paths.manifest(CheckpointId(1)), how)
        before = store.objects.list("")
        with pytest.raises(ProtocolError, match="has a manifest"):
            store.parts.discard(CheckpointId(1))
        assert store.objects.list("") == before

    @pytest.mark.parametrize("left", ["deletion", "outcome", "both"])
    def test_of_one_that_retention_deleted_later_checkpoints_may_name_files(self, store, left):
        """Goal: whatever its records say of its end, and after a crash between any two of them."""
        paths, first = store.paths, CheckpointId(1)
        if left != "outcome":
            marker = DeletionMarker(checkpoint_id=1, plan=1, actor="ann", reason="too old")
            store.objects.put(paths.deletion(first), marker.to_bytes())
        if left != "deletion":
            store.attempts.record_outcome(
                HistoryRecord(
                    checkpoint_id=1,
                    generation=1,
                    kind=CheckpointKind.STOP,
                    outcome="completed",
                    reason="",
                    triggered_at_ms=1,
                    ended_at_ms=2,
                    duration_ms=1,
                )
            )
        store.objects.delete(paths.manifest(first))
        before = store.objects.list("")
        with pytest.raises(ProtocolError, match="or had one"):
            store.parts.discard(first)
        assert store.objects.list("") == before

    @pytest.mark.parametrize(
        "name",
        [
            "operators/window/state_0.arrow.bak",
            "operators/window/notes.txt",
            "operators/window/0/inflight_x.buf",
            "operators/window/0/inflight_1/2.buf",
            "operators/inflight_x.buf",
            "operators/outflight_1.buf",
            "operators/state_0.arrow",
            "elsewhere/window/state_0.arrow",
        ],
    )
    def test_what_laminar_never_wrote_stays(self, store, name):
        key = f"payments/checkpoints/0000000002/{name}"
        store.objects.put(key, b"mine")
        store.parts.discard(ID)
        assert store.objects.get(key) == b"mine"

    def test_folders_that_became_empty_go_too(self, tmp_path):
        store = open_job(LocalObjectStore(tmp_path))
        write(store, 2, claim(store))
        store.parts.discard(ID)
        folder = tmp_path / "payments" / "checkpoints" / "0000000002"
        assert [path.name for path in folder.iterdir()] == ["trigger.json"]


def count_of_calls() -> int:
    faulty = FaultyStore(MemoryObjectStore())
    write(open_job(faulty), 2, 1)
    before = len(faulty.calls)
    open_job(faulty).parts.discard(ID)
    return len(faulty.calls) - before


class Dying(FaultyStore):
    """Answers so many calls, then no more: before or after it did what was asked."""

    def __init__(self, inner, calls_left: int, *, done: bool) -> None:
        super().__init__(inner)
        self.calls_left = calls_left
        self.done = done

    def _fault(self, verb, key):
        self.calls_left -= 1
        if self.calls_left >= 0:
            return super()._fault(verb, key)
        return Fault(verb, Effect.LOSE_ANSWER if self.done else Effect.FAIL)


@pytest.mark.parametrize("done", [False, True], ids=["before", "after"])
@pytest.mark.parametrize("calls", range(count_of_calls()))
def test_killed_at_any_call_the_next_attempt_finishes(calls, done):
    inner = MemoryObjectStore()
    store = open_job(inner)
    generation = claim(store)
    complete(store, 1, generation)
    write(store, 2, generation)
    with pytest.raises(StorageUnavailable):
        open_job(Dying(inner, calls, done=done)).parts.discard(ID)
    assert store.paths.trigger(ID) in left_over(store)
    store.parts.discard(ID)
    assert left_over(store) == [store.paths.trigger(ID)]
    assert store.verify(CheckpointId(1)).problem is None
