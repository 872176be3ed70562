import pytest

from laminar_core.errors import StorageUnavailable
from laminar_core.objectstore.counting_store import CountedObjectStore
from laminar_core.objectstore.memory import MemoryObjectStore
from laminar_core.objectstore.request_counts import RequestCounts
from laminar_core.testing.faulty_store import Effect, Fault, FaultyStore
from tests.objectstore.object_store_contract import ObjectStoreContract


@pytest.fixture
def objects():
    return CountedObjectStore(MemoryObjectStore())


class TestCountedObjectStore(ObjectStoreContract):
    pass


class TestCounting:
    def test_every_call_is_one_request(self, objects):
        objects.put("job/a", b"12345")
        assert not objects.put_if_absent("job/a", b"123")
        objects.get("job/a")
        objects.get("job/b")
        objects.list("")
        objects.children("")
        objects.size("job/a")
        objects.delete("job/a")
        assert objects.counts == RequestCounts(
            puts=2, gets=2, lists=2, heads=1, deletes=1, bytes_up=8, bytes_down=5
        )

    def test_bytes_are_counted_whatever_the_buffer_calls_them(self, objects):
        objects.put("a", memoryview(bytes(16)).cast("Q"))
        assert objects.counts.bytes_up == 16

    def test_a_call_that_fails_was_sent(self):
        objects = CountedObjectStore(
            FaultyStore(MemoryObjectStore(), Fault("put", Effect.FAIL), Fault("get", Effect.FAIL))
        )
        with pytest.raises(StorageUnavailable):
            objects.put("a", b"1")
        with pytest.raises(StorageUnavailable):
            objects.get("a")
        assert objects.counts == RequestCounts(puts=1, gets=1, bytes_up=1)
