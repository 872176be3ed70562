"""A checkpoint that is being copied is held, and no longer than that."""

import pytest

from laminar_core.checkpoint.types import CheckpointId
from laminar_core.errors import ConfigurationError, StorageUnavailable
from laminar_core.storage.checkpoint_store import CheckpointStore
from laminar_core.storage.local import LocalObjectStore
from laminar_core.storage.memory import MemoryObjectStore
from laminar_core.storage.pins import Pins
from laminar_core.storage.savepoint_export import HOLD_MS, export_savepoint
from laminar_core.storage.savepoints import Author, read_savepoint
from laminar_core.testing.faulty_store import Effect, Fault, FaultyStore
from tests.storage.stores import claim, complete, open_job

ANN = Author("ann", "a test", 1_000)
ONE = CheckpointId(1)


def completed(*faults: Fault) -> CheckpointStore:
    store = open_job(FaultyStore(MemoryObjectStore(), *faults))
    complete(store, 1, claim(store))
    return store


def test_it_is_held_while_it_is_copied_and_not_afterwards(tmp_path):
    store, holds = completed(), []

    def look() -> bool:
        holds.extend(Pins(store).list())
        return False

    uri = export_savepoint(store, ONE, str(tmp_path / "s"), ANN, look)
    assert read_savepoint(LocalObjectStore(uri)).verify().problem is None
    (record,) = {hold.record for hold in holds if hold.record is not None}
    assert (record.checkpoint_id, record.actor, record.expires_at_ms) == (1, "ann", 1_000 + HOLD_MS)
    assert Pins(store).list() == []


def test_a_copy_that_fails_holds_nothing(tmp_path):
    store = completed(Fault("get", Effect.FAIL, "state_", 1, 100))
    with pytest.raises(StorageUnavailable):
        export_savepoint(store, ONE, str(tmp_path / "s"), ANN)
    assert Pins(store).list() == []


def test_what_never_completed_is_not_copied(tmp_path):
    with pytest.raises(ConfigurationError, match="no completed checkpoint 7"):
        export_savepoint(completed(), CheckpointId(7), str(tmp_path / "s"), ANN)
    assert not (tmp_path / "s").exists()
