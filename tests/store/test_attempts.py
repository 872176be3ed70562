import pytest

from laminar_core.protocol.types import CheckpointId
from tests.store.stores import (
    commit,
    ids,
    open_job,
    outcome,
    trigger,
)


@pytest.fixture
def store():
    return open_job()


class TestIds:
    def test_the_highest_id_counts_whatever_ever_had_one(self, store):
        assert store.attempts.highest_id() is None
        store.attempts.record_trigger(trigger(3, 1))
        assert store.attempts.highest_id() == 3
        store.attempts.record_outcome(outcome(5))
        assert store.attempts.highest_id() == 5
        commit(store, 12, 1)
        assert store.attempts.highest_id() == 12

    def test_committed_ids_are_numbers_in_order(self, store):
        for checkpoint_id in (10, 9, 2):
            commit(store, checkpoint_id, 1)
        assert store.attempts.committed_ids() == ids(2, 9, 10)

    def test_the_first_record_of_a_commit_stands(self, store):
        commit(store, 1, 1)
        commit(store, 1, 2)
        record = store.attempts.read_commit(CheckpointId(1))
        assert record is not None
        assert record.generation == 1

    def test_the_first_word_on_an_outcome_stands(self, store):
        store.attempts.record_outcome(outcome(2, "expired"))
        store.attempts.record_outcome(outcome(2, "aborted"))
        store.attempts.record_outcome(outcome(1))
        assert [(r.checkpoint_id, r.outcome) for r in store.attempts.history()] == [
            (1, "declined"),
            (2, "expired"),
        ]


class TestTrigger:
    def test_an_id_belongs_to_the_generation_that_reserved_it_first(self, store):
        assert store.attempts.record_trigger(trigger(1, 1))
        assert store.attempts.record_trigger(trigger(1, 1))
        assert not store.attempts.record_trigger(trigger(1, 2))
