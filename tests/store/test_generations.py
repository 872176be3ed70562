import pytest

from laminar_core.errors import (
    CorruptCheckpointError,
    FencedError,
    ProtocolError,
)
from laminar_core.objectstore.memory import MemoryObjectStore
from laminar_core.protocol.recovery import Base
from laminar_core.protocol.types import CheckpointId, Generation
from laminar_core.records.manifest import Heartbeat
from laminar_core.records.partial_reset import PartialReset
from laminar_core.store.owner import this_process
from tests.store.stores import (
    claim,
    claim_as,
    claimant,
    gone,
    never,
    open_job,
)

CLAIM = "generations/0000000001.json"


@pytest.fixture
def store():
    return open_job()


class TestBases:
    def test_a_generation_that_never_started_is_kept_from_starting(self, store):
        slow = claim_as(store, gone(this_process()))
        claim(store)
        with pytest.raises(FencedError):
            store.generations.record_base(slow, CheckpointId(3))
        assert store.generations.bases() == (Base(Generation(2), None),)

    def test_a_base_that_is_there_is_not_closed(self, store):
        claim(store, base=3)
        claim(store, base=5)
        assert store.generations.bases() == (
            Base(Generation(1), CheckpointId(3)),
            Base(Generation(2), CheckpointId(5)),
        )

    def test_recording_the_same_base_again_is_fine_and_another_one_a_bug(self, store):
        generation = claim(store, base=3)
        store.generations.record_base(generation, CheckpointId(3))
        with pytest.raises(ProtocolError):
            store.generations.record_base(generation, CheckpointId(4))

    def test_a_base_that_cannot_be_read_stops_everything(self, store):
        generation = claim(store, base=3)
        store.objects.put(store.paths.base(generation), b"torn")
        store.objects.put(store.paths.base_copy(generation), b"torn")
        with pytest.raises(CorruptCheckpointError, match=r"0000000001\.base\.json"):
            store.generations.bases()


class TestResets:
    """A part that was reset is reset for all checkpoints from before."""

    def test_they_are_those_of_later_generations(self, store):
        parts = [PartialReset(operators=(name,)) for name in ("sales", "visits")]
        for part in parts:
            generation = store.claims.claim(claimant(), wait_ms=never, take_over=True)
            store.generations.record_base(generation, CheckpointId(3), reset=part)
        claim(store, base=3)
        first, second, third = map(Generation, (1, 2, 3))
        assert store.generations.resets_after(Generation(0)) == [
            (first, parts[0]),
            (second, parts[1]),
        ]
        assert store.generations.resets_after(first) == [(second, parts[1])]
        assert store.generations.resets_after(third) == []
        assert [base.has_reset for base in store.generations.bases()] == [True, True, False]


class TestGenerations:
    def test_all_that_is_recorded_is_shown_oldest_first(self, store):
        first = claim(store)
        store.generations.beat(first, Heartbeat(sequence=1, at_ms=5, progress={"rows": 7}))
        store.generations.end(first, "failed", "a worker died")
        claim(store, base=4)
        old, new = store.generations.summaries()
        assert old.heartbeat is not None
        assert old.heartbeat.progress == {"rows": 7}
        assert old.end is not None
        assert (old.end.outcome, old.end.reason) == ("failed", "a worker died")
        assert new.base is not None
        assert (new.base.base_checkpoint_id, new.heartbeat, new.end) == (4, None, None)
        assert old.problems == new.problems == ()

    def test_what_cannot_be_read_is_a_problem_and_hides_nothing_else(self, store):
        generation = claim(store, base=4)
        store.objects.put(store.paths.claim(generation), b"torn")
        (summary,) = store.generations.summaries()
        assert summary.claim is None
        assert summary.base is not None
        assert len(summary.problems) == 1

    def test_foreign_files_are_ignored(self, store):
        claim(store)
        store.objects.put("payments/generations/notes.json", b"")
        store.objects.put("payments/generations/1.json", b"")
        assert len(store.generations.summaries()) == 1

    def test_jobs_in_one_store_do_not_see_each_other(self):
        objects = MemoryObjectStore()
        store = open_job(objects)
        claim(store)
        other = type(store)(objects, "payments-2")
        assert other.claims.newest() is None

    def test_the_first_word_on_how_it_ended_stands(self, store):
        generation = claim(store)
        store.generations.end(generation, "finished", "")
        store.generations.end(generation, "failed", "late")
        (summary,) = store.generations.summaries()
        assert summary.end is not None
        assert summary.end.outcome == "finished"
