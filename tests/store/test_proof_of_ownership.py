"""That no newer claim is there proves nothing, unless one's own is."""

from contextlib import suppress

import pytest

from laminar_core.errors import (
    ConfigurationError,
    ErrorCode,
    FencedError,
    StorageUnavailable,
)
from laminar_core.host.clock import ManualClock
from laminar_core.objectstore.memory import MemoryObjectStore
from laminar_core.protocol.types import CheckpointKind, Generation
from laminar_core.records.manifest import HistoryRecord
from laminar_core.store.checkpoint_store import CheckpointStore
from laminar_core.store.owner import this_process
from laminar_core.testing.disk import SimulatedDisk
from laminar_core.testing.faulty_store import Effect, Fault, FaultyStore
from tests.records.manifests import manifest
from tests.store.stores import (
    claim,
    claim_as,
    claimant,
    elsewhere,
    gone,
    never,
    open_job,
    trigger,
)

CLAIM = "generations/0000000001.json"


def is_away(disk: SimulatedDisk) -> bool:
    return disk._away is not None


class Vanishing(FaultyStore):
    """A disk that goes away just before something is created under this name.

    It is back once something was created under the name ``back_after``.
    """

    def __init__(self, disk: SimulatedDisk, key: str, back_after: str | None = None) -> None:
        super().__init__(disk)
        self._disk = disk
        self._key = key
        self._back_after = back_after

    def put_if_absent(self, key, data):
        if key.endswith(self._key) and not is_away(self._disk) and self._key:
            self._key = ""
            self._disk.unmount()
        created = super().put_if_absent(key, data)
        if self._back_after is not None and key.endswith(self._back_after):
            self._disk.mount()
        return created


class TestProof:
    @pytest.fixture
    def disk(self) -> SimulatedDisk:
        return SimulatedDisk()

    @pytest.fixture
    def owned(self, disk) -> CheckpointStore:
        store = open_job(disk)
        claim(store)
        return store

    @pytest.mark.parametrize("check", ["check_owner", "check_claim"])
    def test_an_empty_directory_is_not_the_store(self, owned, disk, check):
        disk.unmount()
        with pytest.raises(StorageUnavailable, match="put it back") as caught:
            getattr(owned.claims, check)(Generation(1))
        assert caught.value.code is ErrorCode.STORE_GONE
        disk.mount()
        getattr(owned.claims, check)(Generation(1))

    @pytest.mark.parametrize("check", ["check_owner", "check_claim"])
    def test_nor_is_another_store_whose_generation_has_the_same_number(self, owned, disk, check):
        other = SimulatedDisk()
        claim(open_job(other))
        disk.unmount(instead=other)
        with pytest.raises(StorageUnavailable, match="does not have the claim") as caught:
            getattr(owned.claims, check)(Generation(1))
        assert caught.value.code is ErrorCode.STORE_REPLACED

    def test_nor_is_a_copy_that_was_made_before_the_claim(self, owned, disk):
        copy = disk.copy()
        claim(owned)
        disk.unmount(instead=copy)
        with pytest.raises(StorageUnavailable) as caught:
            owned.claims.check_owner(Generation(2))
        assert caught.value.code is ErrorCode.STORE_REPLACED

    def test_a_claim_that_is_damaged_proves_nothing(self, owned, disk):
        disk.put(owned.paths.claim(Generation(1)), b"rot")
        with pytest.raises(StorageUnavailable):
            owned.claims.check_owner(Generation(1))

    def test_nothing_is_reserved_recorded_or_succeeded_elsewhere(self, owned, disk):
        disk.unmount()
        outcome = HistoryRecord(
            checkpoint_id=1,
            generation=1,
            kind=CheckpointKind.MANUAL,
            outcome="aborted",
            reason="",
            triggered_at_ms=1,
            ended_at_ms=1,
            duration_ms=0,
        )
        published = manifest(generation=1, checkpoint_id=1, parent_checkpoint_id=None)
        for write in (
            lambda: owned.attempts.record_trigger(trigger(1, 1)),
            lambda: owned.manifests.publish(published),
            lambda: owned.attempts.record_outcome(outcome),
            lambda: owned.claims.succeed(Generation(1), claimant()),
        ):
            with pytest.raises(StorageUnavailable):
                write()
        assert disk.list("payments/checkpoints/") == []
        assert disk.list("payments/generations/") == []

    def test_a_store_that_goes_away_while_an_owner_is_watched_is_not_claimed(self, disk):
        store = open_job(disk)
        claim_as(store, elsewhere(1))
        with pytest.raises(StorageUnavailable, match="put it back") as caught:
            store.claims.claim(
                claimant(elsewhere(2)),
                wait_ms=lambda _: None if is_away(disk) else disk.unmount(),
                announce=lambda _: pytest.fail("announced in another store"),
            )
        assert caught.value.code is ErrorCode.STORE_GONE
        assert disk.list("") == []
        disk.mount()
        assert claim_as(store, elsewhere(2), ManualClock().wait_ms) == 2

    def test_nor_if_its_newest_claim_is_lost(self, disk):
        store = open_job(disk)
        claim(store)
        disk.delete(store.paths.claim(Generation(1)))
        assert claim_as(store, elsewhere(2), ManualClock().wait_ms) == 2
        disk.delete(store.paths.claim(Generation(2)))
        with pytest.raises(StorageUnavailable):
            claim_as(store, elsewhere(3), lambda _: None if is_away(disk) else disk.unmount())
        assert disk.list("") == []

    def test_a_claim_that_landed_in_another_store_gives_no_right_to_the_job(self, disk):
        """The store goes away between the last look and the claim."""
        store = open_job(Vanishing(disk, CLAIM.replace("1", "2")))
        claim_as(store, gone(this_process()))
        owner = this_process()
        with pytest.raises(StorageUnavailable):
            claim_as(store, owner)
        disk.mount()
        assert claim_as(store, owner) == 2

    def test_nor_does_one_that_succeeds_an_own_generation(self, disk):
        store, ours = open_job(Vanishing(disk, CLAIM.replace("1", "2"))), claimant()
        claim(store)
        with pytest.raises(StorageUnavailable):
            store.claims.succeed(Generation(1), ours)
        disk.mount()
        assert store.claims.succeed(Generation(1), ours) == 2

    def test_an_id_that_was_reserved_in_another_store_is_not_used(self, disk):
        store = open_job(Vanishing(disk, "trigger.json"))
        claim(store)
        with pytest.raises(StorageUnavailable):
            store.attempts.record_trigger(trigger(7, 1))
        disk.mount()
        assert disk.list("payments/checkpoints/") == []

    def test_a_base_that_was_written_to_another_store_starts_nothing(self, disk):
        store = open_job(Vanishing(disk, "0000000001.base.json"))
        claim_as(store, this_process())
        with pytest.raises(StorageUnavailable):
            store.generations.record_base(Generation(1), None)
        disk.mount()
        assert store.generations.read_base(Generation(1)) is None
        store.generations.record_base(Generation(1), None)
        assert store.generations.read_base(Generation(1)) is not None

    def test_nor_one_whose_writer_slept_until_the_store_was_back(self, disk):
        store = open_job(Vanishing(disk, "1.base.json", back_after="1.base.copy.json"))
        claim_as(store, this_process())
        with pytest.raises(StorageUnavailable, match="does not have the base"):
            store.generations.record_base(Generation(1), None)
        assert store.generations.read_base(Generation(1)) is None

    def test_who_slept_reserves_no_id(self, owned, disk):
        """Retention may have forgotten it, and then it would look as if nobody ever had it."""
        claim(open_job(disk))
        with pytest.raises(FencedError):
            owned.attempts.record_trigger(trigger(7, 1))
        assert disk.list("payments/checkpoints/") == []

    @pytest.mark.parametrize("effect", [Effect.FAIL, Effect.LOSE_ANSWER, Effect.DENY])
    def test_a_claim_whose_answer_was_lost_is_known_all_the_same(self, disk, effect):
        faulty = FaultyStore(disk, Fault("put_if_absent", effect, CLAIM, last=2))
        store, ours = open_job(faulty), claimant()
        for _ in range(3):
            with suppress(StorageUnavailable):
                store.claims.claim(ours, wait_ms=never)
                break
        disk.unmount()
        with pytest.raises(StorageUnavailable):
            store.claims.check_owner(Generation(1))

    @pytest.mark.usefixtures("owned")
    def test_who_did_not_claim_it_has_nothing_to_compare(self, disk):
        open_job(disk).claims.check_owner(Generation(1))

    def test_a_process_elsewhere_proves_that_it_sees_the_claim(self, owned, disk):
        elsewhere, proof = open_job(disk), owned.claims.own_sha256(Generation(1))
        elsewhere.claims.check_shared(Generation(1), proof, "far")
        for other in (SimulatedDisk(), MemoryObjectStore()):
            with pytest.raises(ConfigurationError, match="on host far is not") as caught:
                open_job(other).claims.check_shared(Generation(1), proof, "far")
            assert caught.value.code is ErrorCode.STORE_NOT_SHARED
