import pytest

from laminar_core.errors import CorruptCheckpointError, ErrorCode, StorageUnavailable
from laminar_core.objectstore.memory import MemoryObjectStore
from laminar_core.records.manifest import Heartbeat
from laminar_core.store.records import create_and_read_back, create_or_confirm, read_record
from laminar_core.testing.faulty_store import Effect, Fault, FaultyStore


class TestCreateOrConfirm:
    def test_the_first_writer_has_it_and_another_one_has_not(self):
        objects = MemoryObjectStore()
        assert create_or_confirm(objects, "a", b"mine")
        assert not create_or_confirm(objects, "a", b"theirs")
        assert objects.get("a") == b"mine"

    def test_writing_the_same_again_is_fine(self):
        objects = MemoryObjectStore()
        assert create_or_confirm(objects, "a", b"mine")
        assert create_or_confirm(objects, "a", memoryview(b"mine"))

    def test_bytes_are_compared_whatever_the_buffer_calls_them(self):
        objects, signed = MemoryObjectStore(), memoryview(b"\xff").cast("b")
        assert create_or_confirm(objects, "a", signed)
        assert create_or_confirm(objects, "a", signed)

    @pytest.mark.parametrize("effect", [Effect.LOSE_ANSWER, Effect.DENY, Effect.FAIL])
    def test_a_lost_answer_is_resolved(self, effect):
        objects = FaultyStore(MemoryObjectStore(), Fault("put_if_absent", effect))
        assert create_or_confirm(objects, "a", b"mine")
        assert objects.get("a") == b"mine"

    def test_a_lost_answer_does_not_turn_a_loser_into_the_winner(self):
        inner = MemoryObjectStore()
        inner.put("a", b"theirs")
        objects = FaultyStore(inner, Fault("put_if_absent", Effect.LOSE_ANSWER))
        assert not create_or_confirm(objects, "a", b"mine")

    def test_a_store_that_fails_twice_is_reported(self):
        objects = FaultyStore(MemoryObjectStore(), Fault("put_if_absent", Effect.FAIL, last=2))
        with pytest.raises(StorageUnavailable):
            create_or_confirm(objects, "a", b"mine")

    def test_a_torn_write_is_somebody_elses_object(self):
        objects = FaultyStore(MemoryObjectStore(), Fault("put_if_absent", Effect.TEAR))
        assert not create_or_confirm(objects, "a", b"mine")


class TestCreateAndReadBack:
    def test_what_is_there_as_it_was_written_is_fine(self):
        objects = MemoryObjectStore()
        create_and_read_back(objects, "a", b"mine")
        create_and_read_back(objects, "a", memoryview(b"mine"))

    def test_something_else_is_left_alone(self):
        objects = MemoryObjectStore()
        objects.put("a", b"theirs")
        with pytest.raises(CorruptCheckpointError, match="holds something else") as caught:
            create_and_read_back(objects, "a", b"mine")
        assert caught.value.code is ErrorCode.OBJECT_EXISTS
        assert objects.get("a") == b"theirs"

    def test_a_store_that_forgets_is_noticed(self):
        class Forgetful(MemoryObjectStore):
            def get(self, key: str, size_max: int = 100) -> bytes | None:
                found = super().get(key, size_max)
                return found and found[:-1]

        with pytest.raises(CorruptCheckpointError, match="use other storage") as caught:
            create_and_read_back(Forgetful(), "a", b"mine")
        assert caught.value.code is ErrorCode.DIGEST_DIFFERS


class TestReadRecord:
    def test_an_absent_record_is_none(self):
        assert read_record(MemoryObjectStore(), "a", Heartbeat) is None

    def test_a_damaged_one_is_named(self):
        objects = MemoryObjectStore()
        objects.put("job/a", b"{")
        with pytest.raises(CorruptCheckpointError, match="memory:///job/a") as caught:
            read_record(objects, "job/a", Heartbeat)
        assert caught.value.code is ErrorCode.MANIFEST_UNREADABLE

    def test_it_comes_back(self):
        objects, beat = MemoryObjectStore(), Heartbeat(sequence=1, at_ms=2)
        objects.put("a", beat.to_bytes())
        assert read_record(objects, "a", Heartbeat) == beat
