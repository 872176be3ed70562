import pytest

from laminar_core.objectstore.memory import MemoryObjectStore
from laminar_core.objectstore.opening import open_object_store
from tests.objectstore.object_store_contract import ObjectStoreContract


@pytest.fixture
def objects():
    return MemoryObjectStore()


class TestMemoryObjectStore(ObjectStoreContract):
    def test_a_named_one_is_found_by_its_uri(self):
        made = MemoryObjectStore.named("found")
        open_object_store(made.uri).put("a", b"1")
        assert made.get("a") == b"1"

    def test_naming_again_starts_empty(self):
        MemoryObjectStore.named("again").put("a", b"1")
        assert MemoryObjectStore.named("again").list("") == []

    def test_what_was_given_can_be_changed_afterwards(self, objects):
        data = bytearray(b"1")
        objects.put("a", memoryview(data))
        data[0] = 0
        assert objects.get("a") == b"1"
