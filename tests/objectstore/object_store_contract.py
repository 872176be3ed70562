"""The contract of an object store, run for each implementation by a subclass with ``objects``."""

import hashlib
import threading
from concurrent.futures import ThreadPoolExecutor

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from laminar_core.errors import ConfigurationError, CorruptCheckpointError, ErrorCode
from laminar_core.objectstore.opening import ObjectStore, probe
from tests.sampling import drawn

KEYS = st.sampled_from(["a", "b/c", "b/d/e", "b.json", "b-1/x"])
STEPS = st.lists(
    st.tuples(st.sampled_from(["put", "put_if_absent", "delete"]), KEYS, st.binary(max_size=3)),
    max_size=12,
)


class ObjectStoreContract:
    def test_an_object_is_read_back_as_it_was_written(self, objects: ObjectStore):
        objects.put("job/a", b"\x00bytes")
        assert objects.get("job/a") == b"\x00bytes"
        assert objects.size("job/a") == 6

    def test_what_is_not_there_is_none_and_not_an_error(self, objects: ObjectStore):
        assert objects.get("job/a") is None
        assert objects.size("job/a") is None
        assert objects.list("job/") == []
        assert objects.children("job/") == []
        objects.delete("job/a")

    def test_a_folder_is_no_object(self, objects: ObjectStore):
        objects.put("job/a/b", b"1")
        assert objects.get("job/a") is None
        assert objects.size("job/a") is None
        assert objects.get("job/a/b/c") is None
        objects.delete("job/a")
        assert objects.get("job/a/b") == b"1"

    @pytest.mark.parametrize("read", ["get", "sha256"])
    def test_nothing_is_read_that_is_longer_than_its_reader_expects(self, objects, read):
        objects.put("job/a", b"12345")
        assert getattr(objects, read)("job/a", 5) is not None
        with pytest.raises(CorruptCheckpointError, match="has 5 bytes, and 4 at most") as caught:
            getattr(objects, read)("job/a", 4)
        assert caught.value.code is ErrorCode.OBJECT_TOO_LARGE
        assert "job/a" in str(caught.value)

    def test_a_digest_is_that_of_the_whole_object(self, objects: ObjectStore):
        data = bytes(3 << 20) + b"end"
        objects.put("job/a", data)
        assert objects.sha256("job/a", len(data)) == hashlib.sha256(data).hexdigest()
        assert objects.sha256("job/b", 1) is None

    @pytest.mark.parametrize(("start", "stop"), [(0, 5), (0, 1), (2, 4), (4, 5)])
    def test_a_range_of_an_object_is_read(self, objects: ObjectStore, start, stop):
        objects.put("job/a", b"12345")
        assert objects.get_range("job/a", start, stop, 5) == b"12345"[start:stop]
        assert objects.get_range("job/b", start, stop, 5) is None

    @pytest.mark.parametrize("data", [b"", b"12", b"1234", b"123456"])
    def test_a_range_is_only_read_of_an_object_of_the_length_that_its_reader_knows(
        self, objects: ObjectStore, data
    ):
        objects.put("job/a", data)
        with pytest.raises(
            CorruptCheckpointError, match=f"{len(data)} bytes instead of 5"
        ) as caught:
            objects.get_range("job/a", 3, 5, 5)
        assert caught.value.code is ErrorCode.LENGTH_DIFFERS
        assert "job/a" in str(caught.value)

    def test_put_replaces(self, objects: ObjectStore):
        objects.put("a", b"long value")
        objects.put("a", b"x")
        assert objects.get("a") == b"x"

    def test_put_if_absent_leaves_what_is_there(self, objects: ObjectStore):
        assert objects.put_if_absent("a", b"first")
        assert not objects.put_if_absent("a", b"second")
        assert objects.get("a") == b"first"

    def test_a_deleted_object_can_be_created_again(self, objects: ObjectStore):
        assert objects.put_if_absent("job/deep/a", b"1")
        objects.delete("job/deep/a")
        objects.delete("job/deep/a")
        assert objects.list("") == []
        assert objects.put_if_absent("job/deep/a", b"2")

    def test_any_buffer_can_be_written(self, objects: ObjectStore):
        objects.put("a", memoryview(bytearray(b"view")))
        assert objects.put_if_absent("b", memoryview(b"view"))
        assert objects.get("a") == objects.get("b") == b"view"

    def test_list_is_sorted_by_key_and_limited_to_the_folder(self, objects: ObjectStore):
        for key in ("job/b/2", "job/b/1", "job/b.json", "job/a", "job-2/a", "z"):
            objects.put(key, b"")
        assert objects.list("job/") == ["job/a", "job/b.json", "job/b/1", "job/b/2"]
        assert objects.list("job/b/") == ["job/b/1", "job/b/2"]
        assert len(objects.list("")) == 6

    def test_sizes_are_those_of_what_is_listed(self, objects: ObjectStore):
        for key, length in {"job/b/2": 0, "job/b.json": 5, "job-2/a": 7}.items():
            objects.put(key, b"x" * length)
        assert objects.sizes("job/") == {"job/b.json": 5, "job/b/2": 0}
        assert objects.sizes("none/") == {}

    def test_to_create_the_place_again_changes_nothing(self, objects: ObjectStore):
        objects.put("a", b"1")
        objects.create()
        assert objects.list("") == ["a"]

    def test_children_names_objects_and_folders_of_one_level(self, objects: ObjectStore):
        for key in ("job/b/2", "job/b/x/1", "job/a", "job-2/a"):
            objects.put(key, b"")
        assert objects.children("job/") == ["a", "b/"]
        assert objects.children("") == ["job-2/", "job/"]

    @pytest.mark.parametrize(
        "key",
        ["", "/a", "a/", "a//b", "../a", "a/../b", ".", ".hidden", "a/.tmp", "a b", "a\0", "é"],
    )
    def test_a_key_outside_the_root_or_not_portable_is_refused(self, objects: ObjectStore, key):
        for attempt in (
            lambda: objects.get(key),
            lambda: objects.put(key, b""),
            lambda: objects.put_if_absent(key, b""),
            lambda: objects.delete(key),
            lambda: objects.size(key),
        ):
            with pytest.raises(ConfigurationError, match="is not an object name"):
                attempt()

    @pytest.mark.parametrize("folder", ["job", "/", "../", "a//"])
    def test_a_folder_outside_the_root_or_half_named_is_refused(self, objects, folder):
        for attempt in (objects.list, objects.sizes, objects.children):
            with pytest.raises(ConfigurationError):
                attempt(folder)

    def test_of_many_racers_one_creates_and_readers_see_it_whole(self, objects: ObjectStore):
        racers, rounds = 8, 10
        start = threading.Barrier(racers)

        def race(racer: int) -> list[bool]:
            won = []
            for number in range(rounds):
                start.wait()
                won.append(objects.put_if_absent(f"job/r{number}", b"%d" % racer * 5_000))
                assert objects.get(f"job/r{number}")[1:] == objects.get(f"job/r{number}")[:-1]
            return won

        with ThreadPoolExecutor(racers) as pool:
            results = list(pool.map(race, range(racers)))
        for number in range(rounds):
            winners = [racer for racer in range(racers) if results[racer][number]]
            assert len(winners) == 1
            assert objects.get(f"job/r{number}") == b"%d" % winners[0] * 5_000

    def test_threads_may_write_and_delete_in_one_folder(self, objects: ObjectStore):
        def work(worker: int) -> None:
            for number in range(20):
                objects.put(f"job/shared/{worker}-{number}", b"x")
                objects.delete(f"job/shared/{worker}-{number}")
            objects.put(f"job/shared/{worker}", b"kept")

        with ThreadPoolExecutor(4) as pool:
            list(pool.map(work, range(4)))
        assert objects.list("") == [f"job/shared/{worker}" for worker in range(4)]

    def test_the_probe_accepts_it_and_leaves_nothing(self, objects: ObjectStore):
        probe(objects)
        assert objects.list("") == []

    @settings(
        max_examples=drawn(40),
        deadline=None,
        suppress_health_check=[
            HealthCheck.function_scoped_fixture,  # The test empties the store itself.
            HealthCheck.differing_executors,  # One subclass per implementation.
        ],
    )
    @given(STEPS)
    def test_it_behaves_like_a_dictionary(self, objects: ObjectStore, steps):
        for key in objects.list(""):
            objects.delete(key)
        model: dict[str, bytes] = {}
        for verb, key, data in steps:
            if verb == "put":
                objects.put(key, data)
                model[key] = data
            elif verb == "put_if_absent":
                assert objects.put_if_absent(key, data) == (key not in model)
                model.setdefault(key, data)
            else:
                objects.delete(key)
                model.pop(key, None)
        assert objects.list("") == sorted(model)
        assert {key: objects.get(key) for key in model} == model
