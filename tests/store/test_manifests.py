import pytest

from laminar_core.errors import (
    ConfigurationError,
    CorruptCheckpointError,
    ErrorCode,
    FencedError,
    ProtocolError,
    StorageUnavailable,
)
from laminar_core.objectstore.memory import MemoryObjectStore
from laminar_core.protocol.types import CheckpointId
from laminar_core.testing.faulty_store import Effect, Fault, FaultyStore
from tests.store.stores import (
    claim,
    complete,
    damage,
    ids,
    open_job,
    write,
)


@pytest.fixture
def store():
    return open_job()


class TestPublish:
    def test_a_published_checkpoint_is_completed_and_whole(self, store):
        written = complete(store, 1, claim(store))
        assert store.manifests.ids() == ids(1)
        assert store.manifests.read(CheckpointId(1)) == written
        assert store.verify(CheckpointId(1)).problem is None

    def test_without_a_manifest_nothing_is_completed(self, store):
        write(store, 1, claim(store))
        assert store.attempts.ids() == ids(1)
        assert store.manifests.ids() == []
        with pytest.raises(ConfigurationError, match="no completed checkpoint 1") as caught:
            store.manifests.read(CheckpointId(1))
        assert caught.value.code is ErrorCode.NO_SUCH_CHECKPOINT

    def test_a_zombie_publishes_nothing(self, store):
        written = write(store, 1, claim(store))
        claim(store)
        with pytest.raises(FencedError):
            store.manifests.publish(written)
        assert store.manifests.ids() == []

    def test_a_zombie_that_was_overtaken_while_publishing_may_not_commit(self):
        """The claim comes between the first check and the create: only the second check sees it."""
        inner = MemoryObjectStore()
        store = open_job(inner)
        written = write(store, 1, claim(store))

        class Overtaken(FaultyStore):
            def put_if_absent(self, key, data):
                claim(open_job(inner))
                return super().put_if_absent(key, data)

        with pytest.raises(FencedError):
            open_job(Overtaken(inner)).manifests.publish(written)
        assert store.manifests.ids() == ids(1)

    @pytest.mark.parametrize("effect", [Effect.LOSE_ANSWER, Effect.DENY, Effect.FAIL])
    def test_a_lost_answer_is_resolved(self, effect):
        fault = Fault("put_if_absent", effect, "manifest.json")
        store = open_job(FaultyStore(MemoryObjectStore(), fault))
        complete(store, 1, claim(store))
        assert store.manifests.ids() == ids(1)

    def test_publishing_the_same_again_is_fine(self, store):
        written = complete(store, 1, claim(store))
        store.manifests.publish(written)

    def test_another_manifest_under_the_same_id_is_a_bug(self, store):
        written = complete(store, 1, claim(store))
        with pytest.raises(ProtocolError):
            store.manifests.publish(written.model_copy(update={"code_version": "other"}))

    def test_a_store_that_does_not_answer_leaves_it_open(self):
        fault = Fault("put_if_absent", Effect.LOSE_ANSWER, "manifest.json", last=2)
        store = open_job(FaultyStore(MemoryObjectStore(), fault))
        written = write(store, 1, claim(store))
        with pytest.raises(StorageUnavailable):
            store.manifests.publish(written)
        store.manifests.publish(written)


class TestReading:
    @pytest.mark.parametrize("how", ["torn", "longer"])
    def test_a_damaged_manifest_is_named(self, store, how):
        complete(store, 1, claim(store))
        key = store.paths.manifest(CheckpointId(1))
        damage(store, key, how)
        with pytest.raises(CorruptCheckpointError, match=key) as caught:
            store.manifests.read(CheckpointId(1))
        assert caught.value.code is ErrorCode.MANIFEST_UNREADABLE

    def test_the_manifest_of_another_checkpoint_in_its_place_is_found(self, store):
        generation = claim(store)
        complete(store, 1, generation)
        complete(store, 2, generation)
        data = store.objects.get(store.paths.manifest(CheckpointId(1)))
        store.objects.put(store.paths.manifest(CheckpointId(2)), data)
        with pytest.raises(CorruptCheckpointError, match="manifest of checkpoint 1"):
            store.manifests.read(CheckpointId(2))
