"""A base survives whatever happens to one object, and is never two things to two readers."""

import pytest

from laminar_core.errors import CorruptCheckpointError, FencedError
from laminar_core.protocol.recovery_facts import Base
from laminar_core.protocol.types import CheckpointId, Generation
from laminar_core.records.manifest import GenerationBase
from laminar_core.store.bases import create_base, read_base
from laminar_core.testing.disk import SimulatedDisk
from tests.store.stores import DAMAGE, claim, claimant, complete, damage, never, open_job
from verification.crash_points import crash_at, crash_points

ONE = Generation(1)


def base(generation: int, checkpoint_id: int | None = 3, **more: int) -> GenerationBase:
    return GenerationBase(generation=generation, base_checkpoint_id=checkpoint_id, **more)


@pytest.fixture
def store():
    return open_job(SimulatedDisk())


@pytest.mark.parametrize("how", DAMAGE)
@pytest.mark.parametrize("which", ["base", "base_copy"])
def test_one_of_the_two_is_enough(store, which, how):
    claim(store, base=3)
    damage(store, getattr(store.paths, which)(ONE), how)
    assert store.generations.read_base(ONE) == base(1)
    assert store.generations.bases() == (Base(ONE, CheckpointId(3)),)
    second = claim(store, base=7)  # Nobody takes it for one that never started.
    assert store.generations.bases() == (Base(ONE, CheckpointId(3)), Base(second, CheckpointId(7)))


def test_every_flipped_bit_is_noticed(store):
    """Another digit would be another checkpoint, and nobody would know."""
    claim(store, base=3)
    key = store.paths.base(ONE)
    whole = store.objects.get(key)
    for bit in range(8 * len(whole)):
        data = bytearray(whole)
        data[bit // 8] ^= 1 << bit % 8
        store.objects.put(key, bytes(data))
        assert store.generations.read_base(ONE) == base(1)


def test_both_damaged_is_an_error_and_not_a_start(store):
    claim(store, base=3)
    for key in (store.paths.base(ONE), store.paths.base_copy(ONE)):
        damage(store, key, "torn")
    with pytest.raises(CorruptCheckpointError, match=r"0000000001\.base\.json"):
        store.generations.bases()


def test_a_base_of_another_generation_is_none(store):
    claim(store, base=3)
    claim(store, base=5)
    key = store.paths.base(Generation(2))
    store.objects.put(key, store.objects.get(store.paths.base(ONE)))
    assert store.generations.read_base(Generation(2)) == base(2, 5)
    store.objects.delete(store.paths.base_copy(Generation(2)))
    with pytest.raises(CorruptCheckpointError, match="is the base of generation 1"):
        store.generations.read_base(Generation(2))


def test_what_lies_in_the_place_of_a_base_does_not_keep_a_generation_from_starting(store):
    """A copy of a neighbour, for one; nobody has claimed that generation before."""
    claim(store, base=3)
    bogus = store.paths.base(Generation(2))
    store.objects.put(bogus, store.objects.get(store.paths.base(ONE)))
    assert store.generations.bases() == (Base(ONE, CheckpointId(3)),)
    generation = claim(store, base=5)
    assert generation == 3  # Its number may have been used, for all that anybody knows.
    assert store.generations.bases()[-1] == Base(generation, CheckpointId(5))


def test_a_generation_whose_claim_is_lost_keeps_its_number_and_its_base(store):
    claim(store, base=None)
    complete(store, 1, 1)
    second = claim(store, base=1)
    store.objects.delete(store.paths.claim(second))
    assert store.generations.bases() == (Base(ONE, None), Base(second, CheckpointId(1)))
    assert claim(store, base=1) == 3


class TestCreating:
    def test_the_first_one_stands(self, store):
        objects, paths = store.objects, store.paths
        assert create_base(objects, paths, base(1))
        assert create_base(objects, paths, base(1))  # Asked again after a lost answer.
        assert not create_base(objects, paths, base(1, None, closed_by=2))
        assert read_base(objects, paths, ONE) == base(1)

    def test_in_place_of_what_is_no_base_the_copy_decides_for_everybody(self, store):
        objects, paths = store.objects, store.paths
        objects.put(paths.base(ONE), b"rot")
        assert create_base(objects, paths, base(1, None, closed_by=2))
        assert not create_base(objects, paths, base(1))
        assert read_base(objects, paths, ONE).closed_by == 2

    def test_a_closed_generation_cannot_start_though_the_first_record_is_lost(self, store):
        generation = store.claims.claim(claimant(), wait_ms=never)
        claim(store, base=None)
        store.objects.put(store.paths.base(generation), b"rot")
        with pytest.raises(FencedError):
            store.generations.record_base(generation, CheckpointId(3))

    def test_a_writer_that_dies_leaves_nothing_or_what_the_next_one_completes(self, store):
        def act(objects):
            create_base(objects, store.paths, base(1))

        for point in crash_points(act, SimulatedDisk()):
            left = open_job(SimulatedDisk())
            left.claims.claim(claimant(), wait_ms=never)
            crash_at(point, act, left.objects)
            claim(left, base=None)
            keys = [left.paths.base(ONE), left.paths.base_copy(ONE)]
            assert left.objects.get(keys[0]) == left.objects.get(keys[1])
            assert left.generations.read_base(ONE).closed_by in (None, 2)
