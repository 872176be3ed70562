"""Files of a checkpoint: what was in flight and state come back, left-overs go, nothing else."""

import pytest

from laminar_core.checkpoint.types import CheckpointId
from laminar_core.errors import ProtocolError, StorageUnavailable
from laminar_core.storage.local import LocalObjectStore
from laminar_core.storage.memory import MemoryObjectStore
from laminar_core.testing.faulty_store import Effect, Fault, FaultyStore
from tests.storage.stores import claim, complete, damage, open_job, write

ID = CheckpointId(2)
INFLIGHT = "checkpoints/0000000002/operators/window/0/"


@pytest.fixture
def store():
    """Checkpoint 1 is complete, 2 was given up when most of its parts were there."""
    store = open_job()
    generation = claim(store)
    complete(store, 1, generation)
    write(store, 2, generation)
    store.objects.put(f"payments/{INFLIGHT}inflight_3.buf", b"in")
    store.objects.put(f"payments/{INFLIGHT}outflight_0.buf", b"out")
    return store


def left_over(store) -> list[str]:
    return store.objects.list("payments/checkpoints/0000000002/")


class TestDiscard:
    def test_the_trigger_stays_and_the_files_go(self, store):
        others = set(store.objects.list("")) - set(left_over(store))
        assert store.discard_parts(ID) == 4
        assert left_over(store) == [store.paths.trigger(ID)]
        assert set(store.objects.list("")) - set(left_over(store)) == others
        assert store.verify(CheckpointId(1)).problem is None

    def test_the_id_stays_taken(self, store):
        store.discard_parts(ID)
        assert store.highest_checkpoint_id() == 2
        assert store.attempted_ids() == [1, 2]

    def test_a_second_call_finds_nothing_more(self, store):
        store.discard_parts(ID)
        assert store.discard_parts(ID) == 0
        assert store.discard_parts(CheckpointId(99)) == 0

    @pytest.mark.parametrize("how", [None, "torn", "rotten"])
    def test_a_checkpoint_with_a_manifest_keeps_everything(self, store, how):
        """Also if nobody can read the manifest: somebody may put it back."""
        if how:
            damage(store, store.paths.manifest(CheckpointId(1)), how)
        before = store.objects.list("")
        with pytest.raises(ProtocolError, match="has a manifest"):
            store.discard_parts(CheckpointId(1))
        assert store.objects.list("") == before

    @pytest.mark.parametrize(
        "name",
        [
            "operators/window/state_0.arrow.bak",
            "operators/window/notes.txt",
            "operators/window/0/inflight_x.buf",
            "operators/window/0/inflight_1/2.buf",
            "operators/state_0.arrow",
            "elsewhere/window/state_0.arrow",
        ],
    )
    def test_what_laminar_never_wrote_stays(self, store, name):
        key = f"payments/checkpoints/0000000002/{name}"
        store.objects.put(key, b"mine")
        store.discard_parts(ID)
        assert store.objects.get(key) == b"mine"

    def test_folders_that_became_empty_go_too(self, tmp_path):
        store = open_job(LocalObjectStore(tmp_path))
        write(store, 2, claim(store))
        store.discard_parts(ID)
        folder = tmp_path / "payments" / "checkpoints" / "0000000002"
        assert [path.name for path in folder.iterdir()] == ["trigger.json"]


def count_of_calls() -> int:
    faulty = FaultyStore(MemoryObjectStore())
    write(open_job(faulty), 2, 1)
    before = len(faulty.calls)
    open_job(faulty).discard_parts(ID)
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
        open_job(Dying(inner, calls, done=done)).discard_parts(ID)
    assert store.paths.trigger(ID) in left_over(store)
    store.discard_parts(ID)
    assert left_over(store) == [store.paths.trigger(ID)]
    assert store.verify(CheckpointId(1)).problem is None
