"""Which checkpoint an attempt starts from, without reading any as long as nothing is damaged."""

from collections.abc import Iterator, Mapping
from pathlib import Path

import dagster as dg
import pytest

from laminar_core.codec.digest import sha256_hex
from laminar_core.protocol.recovery import Refuse
from laminar_core.protocol.types import CheckpointId
from laminar_core.resources.names import partition_of
from laminar_core.sensors.facts.integrity_records import (
    FoundDamage,
    damage_on_record,
    found_whole_in,
)
from laminar_core.sensors.recovery.candidates import choose_by_sizes
from laminar_core.store.checkpoint_store import CheckpointStore, Choice
from laminar_core.testing.faulty_store import Effect, Fault, FaultyStore
from tests.sensors.recoveries import read_whole
from tests.sensors.streams import STREAM, stored_job
from tests.store.stores import claim, complete, damage, open_job


@pytest.fixture
def store() -> CheckpointStore:
    """Three completed checkpoints."""
    store = open_job()
    generation = claim(store)
    for checkpoint_id in (1, 2, 3):
        complete(store, checkpoint_id, generation)
    return store


@pytest.fixture
def instance() -> Iterator[dg.DagsterInstance]:
    with dg.DagsterInstance.ephemeral() as instance:
        yield instance


def state_of(store: CheckpointStore, checkpoint_id: int) -> str:
    return store.manifests.read(CheckpointId(checkpoint_id)).subtasks[0].segments[0].path


def harm(store: CheckpointStore, checkpoint_id: int, how: str = "rotten") -> None:
    damage(store, store.paths.absolute(state_of(store, checkpoint_id)), how)


def digest(store: CheckpointStore, checkpoint_id: int) -> str:
    return sha256_hex(store.objects.get(store.paths.manifest(CheckpointId(checkpoint_id))) or b"")


def chosen(choice: Choice) -> int | None:
    return None if choice.manifest is None else choice.manifest.checkpoint_id


def read(store: CheckpointStore, on_record: Mapping[str, FoundDamage]) -> tuple[int | None, str]:
    """Return the choice, and the checkpoints whose state was read for it."""
    watched = FaultyStore(store.objects)
    choice = choose_by_sizes(CheckpointStore(watched, store.job), on_record)
    keys = [key for verb, key in watched.calls if verb == "get" and key.endswith(".seg")]
    ids = {n for n in (1, 2, 3) if any(f"/{n:010}/" in key for key in keys)}
    return chosen(choice), " ".join(map(str, sorted(ids)))


@pytest.mark.parametrize("how", ["missing", "torn", "longer"])
def test_lengths_are_enough_to_pass_over_what_is_not_all_there(store, how) -> None:
    harm(store, 3, how)
    assert read(store, {}) == (2, "")


def test_what_is_on_record_is_passed_over_and_what_is_older_is_read(store, instance) -> None:
    """Goal: where something rots, a second attempt does not end at the next rotten one."""
    for checkpoint_id in (3, 2):
        harm(store, checkpoint_id)
    assert read(store, {}) == (3, "")
    read_whole(instance, store, 3)
    assert read(store, damage_on_record(instance, STREAM)) == (1, "1 2")


def test_a_file_that_was_found_damaged_is_not_read_for_an_older_checkpoint(store) -> None:
    """Goal: checkpoints share files, so one bit may harm many; that costs one attempt."""
    shared = state_of(store, 2)
    found = FoundDamage("its sha256 differs", frozenset({shared}), "a run")
    assert read(store, {digest(store, 3): found}) == (1, "1")


def test_where_nothing_is_whole_it_says_who_found_that_and_what_helps(store) -> None:
    found = FoundDamage("its sha256 differs", frozenset(), "0123456789")
    on_record = {digest(store, checkpoint_id): found for checkpoint_id in (1, 2, 3)}
    decision = choose_by_sizes(store, on_record).decision
    assert isinstance(decision, Refuse)
    said = "its sha256 differs (found by run 01234567; once it is repaired, laminar_verify says so)"
    assert said in decision.reason


def test_what_was_mended_and_verified_counts_again(store, instance) -> None:
    key = store.paths.absolute(state_of(store, 3))
    whole = store.objects.get(key)
    harm(store, 3)
    read_whole(instance, store, 3)
    assert digest(store, 3) in damage_on_record(instance, STREAM)
    store.objects.put(key, whole)
    read_whole(instance, store, 3)
    assert damage_on_record(instance, STREAM) == {}


def test_a_store_that_did_not_answer_is_no_damage(store, instance) -> None:
    down = FaultyStore(store.objects, Fault("get", Effect.FAIL, ".seg", last=9))
    assert not read_whole(instance, CheckpointStore(down, store.job), 3).passed
    assert damage_on_record(instance, STREAM) == {}


def test_another_checkpoint_of_the_same_number_is_not_meant(
    store: CheckpointStore, instance: dg.DagsterInstance, tmp_path: Path
) -> None:
    """Goal: a store that was begun anew."""
    harm(store, 1)
    read_whole(instance, store, 1)
    anew = stored_job(tmp_path)
    anew.claim()
    anew.complete()
    assert read(anew.store, damage_on_record(instance, STREAM)) == (1, "")


class TestFoundWhole:
    def test_a_run_knows_what_it_has_read_itself(self, store, instance) -> None:
        read_whole(instance, store, 3, "mine")
        assert found_whole_in(instance, STREAM, "mine", partition_of(3)) == digest(store, 3)

    @pytest.mark.parametrize(("run_id", "checkpoint_id"), [("another", 3), ("mine", 2)])
    def test_nothing_else_counts(self, store, instance, run_id, checkpoint_id) -> None:
        read_whole(instance, store, 3, "mine")
        assert found_whole_in(instance, STREAM, run_id, partition_of(checkpoint_id)) is None
        assert found_whole_in(instance, "slippage", "mine", partition_of(3)) is None

    def test_what_it_found_damaged_is_not_whole(self, store, instance) -> None:
        read_whole(instance, store, 3, "mine")
        harm(store, 3)
        read_whole(instance, store, 3, "mine")
        assert found_whole_in(instance, STREAM, "mine", partition_of(3)) is None
