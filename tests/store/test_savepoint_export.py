"""A checkpoint that is being copied is held, and no longer than that."""

from dataclasses import replace

import pytest

from laminar_core.errors import ConfigurationError, IncompatibleStateError, StorageUnavailable
from laminar_core.objectstore.local import LocalObjectStore
from laminar_core.objectstore.memory import MemoryObjectStore
from laminar_core.protocol.types import CheckpointId
from laminar_core.records.actor import Actor
from laminar_core.store import savepoint_export
from laminar_core.store.audit_log import AuditLog
from laminar_core.store.checkpoint_store import CheckpointStore
from laminar_core.store.pins import Pins
from laminar_core.store.savepoint_export import HOLD_MS, export_as, export_savepoint
from laminar_core.store.savepoints import read_savepoint
from laminar_core.testing.faulty_store import Effect, Fault, FaultyStore
from tests.store.stores import claim, complete, open_job

ANN = Actor("ann", reason="a test")
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

    uri = export_savepoint(store, ONE, str(tmp_path / "s"), ANN, 1_000, look)
    assert read_savepoint(LocalObjectStore(uri)).verify().problem is None
    (record,) = {hold.record for hold in holds if hold.record is not None}
    assert (record.checkpoint_id, record.actor, record.expires_at_ms) == (1, "ann", 1_000 + HOLD_MS)
    assert Pins(store).list() == []


def test_a_copy_that_fails_holds_nothing(tmp_path):
    store = completed(Fault("get", Effect.FAIL, "state_", 1, 100))
    with pytest.raises(StorageUnavailable):
        export_savepoint(store, ONE, str(tmp_path / "s"), ANN, 1_000)
    assert Pins(store).list() == []


def test_a_copy_that_was_killed_keeps_no_other_one_waiting(tmp_path, monkeypatch):
    store, place = completed(), str(tmp_path / "s")
    with monkeypatch.context() as killed:
        killed.setattr(Pins, "unpin", lambda *_: None)
        killed.setattr(savepoint_export, "write_savepoint", lambda *_: None)
        export_savepoint(store, ONE, place, ANN, 1_000)
    uri = export_savepoint(store, ONE, place, replace(ANN, name="bob"), 1_001)
    assert read_savepoint(LocalObjectStore(uri)).verify().problem is None
    (left,) = Pins(store).list()
    assert left.record is not None
    assert left.record.expires_at_ms == 1_000 + HOLD_MS


def test_what_never_completed_is_not_copied(tmp_path):
    with pytest.raises(ConfigurationError, match="no completed checkpoint 7"):
        export_savepoint(completed(), CheckpointId(7), str(tmp_path / "s"), ANN, 1_000)
    assert not (tmp_path / "s").exists()


@pytest.mark.parametrize(
    "folder",
    ["payments/checkpoints/0000000010", "payments/mine", "other/s", "payments", "new/audit"],
)
def test_a_savepoint_is_not_put_among_the_files_of_a_job(tmp_path, folder):
    store = open_job(LocalObjectStore(tmp_path))
    complete(store, 1, claim(store))
    claim(CheckpointStore(store.objects, "other"))
    before = store.objects.list("")
    with pytest.raises(ConfigurationError, match="is in the folder of job"):
        export_by_ann(store, str(tmp_path / folder))
    with pytest.raises(ConfigurationError, match="is in the folder of job"):
        export_savepoint(store, ONE, str(tmp_path / folder), ANN, 1_000)
    assert store.objects.list("") == before


@pytest.mark.parametrize("folder", ["savepoints/audit-1", "a.b/checkpoints", "new/old"])
def test_a_savepoint_may_be_in_a_folder_of_the_store_that_belongs_to_no_job(tmp_path, folder):
    store = open_job(LocalObjectStore(tmp_path))
    complete(store, 1, claim(store))
    uri = export_by_ann(store, str(tmp_path / folder))
    assert read_savepoint(LocalObjectStore(uri)).record.actor == "ann"


def export_by_ann(store: CheckpointStore, target: str) -> str:
    times = iter(range(2_000, 9_000))
    return export_as(store, ONE, target, replace(ANN, run_id="run-7"), times.__next__)


def audited(store: CheckpointStore) -> list[tuple[str, str, str | None, int]]:
    records = AuditLog(store.objects, store.paths, lambda: 0).records()
    return [(r.action, r.outcome, r.run_id, r.at_ms) for r in records]


def test_who_makes_one_is_in_the_audit_log(tmp_path):
    store = completed()
    uri = export_by_ann(store, str(tmp_path / "s"))
    assert read_savepoint(LocalObjectStore(uri)).record.actor == "ann"
    assert audited(store) == [
        ("export", "intended", "run-7", 2_000),
        ("export", "done", "run-7", 2_001),
    ]


def test_a_failure_is_in_it_too(tmp_path):
    store = completed(Fault("get", Effect.FAIL, "state_", 1, 100))
    with pytest.raises(StorageUnavailable):
        export_by_ann(store, str(tmp_path / "s"))
    assert [outcome for _, outcome, *_ in audited(store)] == ["intended", "failed"]


def test_behind_what_the_job_went_back_nothing_is_copied(tmp_path):
    store = completed()
    claim(store)  # It started anew, and not from checkpoint 1.
    with pytest.raises(IncompatibleStateError, match="was restored to an older checkpoint than 1"):
        export_by_ann(store, str(tmp_path / "s"))
    assert audited(store) == []
