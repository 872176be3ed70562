import os
from concurrent.futures import ThreadPoolExecutor

import pytest

from laminar_core.errors import (
    CheckpointDeclined,
    ConfigurationError,
    CorruptCheckpointError,
    ErrorCode,
    StorageUnavailable,
)
from laminar_core.objectstore.local import LocalObjectStore
from laminar_core.objectstore.memory import MemoryObjectStore
from laminar_core.protocol.types import CheckpointId
from laminar_core.store.checkpoint_store import CheckpointStore
from laminar_core.testing.faulty_store import Effect, Fault, FaultyStore
from tests.records.manifests import rows
from tests.store.stores import (
    DAMAGE,
    claim,
    commit,
    complete,
    damage,
    open_job,
    outcome,
    trigger,
    write,
)


@pytest.fixture
def store():
    return open_job()


class TestOpen:
    def test_two_that_open_the_same_see_the_same(self, tmp_path):
        generation = claim(CheckpointStore.open(str(tmp_path), "payments"))
        CheckpointStore.open(f"file://{tmp_path}", "payments").claims.check_owner(generation)

    @pytest.mark.parametrize(("uri", "job"), [("s3://", "payments"), ("/tmp", "pay/ments")])
    def test_a_bad_uri_or_name_is_refused(self, uri, job):
        with pytest.raises(ConfigurationError):
            CheckpointStore.open(uri, job)


class TestWriting:
    def test_state_comes_back_as_it_was(self, store):
        ref = store.parts.write_state(CheckpointId(1), "window", 0, rows(1, 2))
        assert ref.path == "checkpoints/0000000001/operators/window/state_0.seg"
        assert store.parts.read_state(ref).equals(rows(1, 2))

    def test_writing_the_same_state_again_changes_nothing(self, store):
        first = store.parts.write_state(CheckpointId(1), "window", 0, rows(1))
        assert store.parts.write_state(CheckpointId(1), "window", 0, rows(1)) == first

    def test_other_state_under_the_same_name_costs_the_checkpoint_and_not_the_file(self, store):
        ref = store.parts.write_state(CheckpointId(1), "window", 0, rows(1))
        with pytest.raises(CheckpointDeclined) as caught:
            store.parts.write_state(CheckpointId(1), "window", 0, rows(2))
        assert caught.value.code is ErrorCode.OBJECT_EXISTS
        assert store.parts.read_state(ref).equals(rows(1))

    def test_a_torn_write_costs_the_checkpoint(self):
        fault = Fault("put_if_absent", Effect.TEAR, ".seg")
        with pytest.raises(CheckpointDeclined):
            write(open_job(FaultyStore(MemoryObjectStore(), fault)), 1, 1)

    def test_a_full_store_says_so(self):
        fault = Fault("put_if_absent", Effect.FAIL, ".seg", last=2, code=ErrorCode.STORE_FULL)
        with pytest.raises(StorageUnavailable) as caught:
            write(open_job(FaultyStore(MemoryObjectStore(), fault)), 1, 1)
        assert caught.value.code is ErrorCode.STORE_FULL

    def test_a_lost_answer_does_not_matter(self):
        fault = Fault("put_if_absent", Effect.LOSE_ANSWER, ".seg", last=1)
        store = open_job(FaultyStore(MemoryObjectStore(), fault))
        complete(store, 1, claim(store))
        assert store.verify(CheckpointId(1)).problem is None

    def test_many_threads_write_one_checkpoint(self, tmp_path):
        store = open_job(LocalObjectStore(tmp_path))

        def write_one(number: int):
            return store.parts.write_state(CheckpointId(1), f"op{number % 5}", number, rows(number))

        with ThreadPoolExecutor(8) as pool:
            refs = list(pool.map(write_one, range(40)))
        for number, ref in enumerate(refs):
            assert store.parts.read_state(ref).equals(rows(number))


class TestReading:
    @pytest.mark.parametrize("how", DAMAGE)
    def test_damaged_state_is_not_read(self, store, how):
        ref = complete(store, 1, claim(store)).files()[0]
        damage(store, store.paths.absolute(ref.path), how)
        with pytest.raises(CorruptCheckpointError):
            store.parts.read_state(ref)

    def test_state_that_was_written_wrong_is_not_read(self, store):
        ref = store.parts.write_state(CheckpointId(1), "window", 0, rows(1))
        store.objects.put("payments/other", b"no arrow")
        odd = ref.model_copy(
            update={
                "path": "other",
                "size_bytes": 8,
                "sha256": "ba31ba7cde37c9a36cf7ab2bd79ee8fe4cab3d1a9cb2de2d12ea4ee6b5a5bfc1",
            }
        )
        with pytest.raises(CorruptCheckpointError):
            store.parts.read_state(odd)

    def test_a_job_can_be_copied_to_another_root(self, store):
        complete(store, 1, claim(store))
        copy = MemoryObjectStore()
        for key in store.objects.list(""):
            copy.put(key, store.objects.get(key))
        assert open_job(copy).verify(CheckpointId(1)).problem is None


class TestVerify:
    def test_a_torn_manifest_is_a_report_too(self, store):
        complete(store, 1, claim(store))
        damage(store, store.paths.manifest(CheckpointId(1)), "torn")
        report = store.verify(CheckpointId(1))
        assert report.problem is not None
        assert [part.path for part in report.parts] == ["checkpoints/0000000001/manifest.json"]

    def test_a_checkpoint_that_is_not_there_is_a_wrong_request(self, store):
        with pytest.raises(ConfigurationError):
            store.verify(CheckpointId(1))


class TestSummaries:
    def test_every_checkpoint_that_left_a_trace_has_a_line(self, store):
        generation = claim(store)
        complete(store, 1, generation)
        commit(store, 1, generation)
        store.attempts.record_trigger(trigger(2, generation))
        store.attempts.record_outcome(outcome(2))
        store.attempts.record_trigger(trigger(3, generation))
        assert [(s.checkpoint_id, s.outcome, s.committed) for s in store.list_summaries()] == [
            (1, "completed", True),
            (2, "declined", False),
            (3, "pending", False),
        ]

    def test_orphans_and_damage_are_marked(self, store):
        generation = claim(store)
        for checkpoint_id in (1, 2, 3):
            complete(store, checkpoint_id, generation)
        claim(store, base=2)
        damage(store, store.paths.manifest(CheckpointId(1)), "torn")
        summaries = store.list_summaries()
        assert [s.orphan for s in summaries] == [False, False, True]
        assert [s.problem is None for s in summaries] == [False, True, True]


def test_a_checkpoint_costs_the_syncs_that_are_documented(tmp_path, monkeypatch):
    """Method: two workers with three operators each, in processes of their own; docs/formats.md."""
    synced: list[int] = []
    real = os.fsync
    monkeypatch.setattr(os, "fsync", lambda fd: (synced.append(fd), real(fd))[1])
    driver, *workers = (open_job(LocalObjectStore(tmp_path)) for _ in range(3))
    generation = claim(driver)
    costs: list[int] = []
    for checkpoint_id in (1, 2):  # In the second one, the folders above are known.
        driver.attempts.record_trigger(trigger(checkpoint_id, generation))
        costs.append(len(synced))
        synced.clear()
        for index, worker in enumerate(workers):
            for operator in ("source", "window", "sink"):
                worker.parts.write_state(CheckpointId(checkpoint_id), operator, index, rows(1))
            costs.append(len(synced))
            synced.clear()
    assert costs[3:] == [3, 11, 11]
