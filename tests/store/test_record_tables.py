"""Records are rows: one each, with the fields that they have."""

import json
from datetime import UTC, datetime

import pytest

from laminar_core.errors import ConfigurationError, CorruptCheckpointError
from laminar_core.protocol.types import CheckpointId
from laminar_core.store import record_tables
from laminar_core.store.checkpoint_store import CheckpointStore
from laminar_core.store.record_tables import audit_table, history_table, manifest_table
from tests.store.checkpoints_to_read import AT_MS, write_job
from tests.store.stores import damage
from tests.store.test_tables import rows_of

AT = datetime.fromtimestamp(AT_MS / 1000, UTC)


@pytest.fixture(scope="module")
def store(tmp_path_factory) -> CheckpointStore:
    return write_job(tmp_path_factory.mktemp("checkpoints"))


def test_completed_checkpoints(store):
    rows = rows_of(manifest_table(store)).to_pylist()
    assert [row["checkpoint_id"] for row in rows] == [1, 2, 4, 5]
    assert [row["mode"] for row in rows] == ["aligned", "aligned", "aligned", "switched"]
    second = rows[1]
    assert (second["kind"], second["triggered_at"], second["generation"]) == ("periodic", AT, 1)
    assert json.loads(second["operators"])["totals"]["keys"] == ["merchant"]
    totals = next(part for part in second["subtasks"] if part["operator_id"] == "totals")
    assert json.loads(totals["properties"])["late_row_count"] == 4
    entry = store.manifests.read(CheckpointId(2)).subtasks[1]
    assert (totals["row_count"], totals["size_bytes"]) == (entry.row_count, entry.size_bytes)
    assert rows[3]["inflight_rows"] > 0


def test_one_checkpoint(store):
    rows = rows_of(manifest_table(store, CheckpointId(4)))
    assert rows.column("checkpoint_id").to_pylist() == [4]


def test_attempts(store):
    first, second = rows_of(history_table(store)).to_pylist()
    assert (first["checkpoint_id"], first["outcome"], first["triggered_at"]) == (1, "completed", AT)
    assert (second["checkpoint_id"], second["outcome"]) == (3, "expired")
    assert second["duration_ms"] == 1000.0


def test_acts(store):
    claimed, restored = rows_of(audit_table(store)).to_pylist()
    assert (claimed["number"], claimed["at"], claimed["actor"]) == (1, AT, "ann")
    assert json.loads(claimed["after"]) == {"generation": 1}
    assert (claimed["before"], claimed["run_id"], claimed["is_signed"]) == (None, None, False)
    assert (restored["run_id"], restored["outcome"]) == ("run-7", "intended")
    assert len(restored["previous_sha256"]) == 64
    assert restored["pid"] > 0


def test_a_part_says_which_records_it_is_of_whatever_comes_later(store, monkeypatch):
    monkeypatch.setattr(record_tables, "RECORDS_AT_ONCE", 3)
    table = manifest_table(store)
    assert table.parts() == [(1, 2, 4), (5,)]
    (rows,) = table.read((2, 4))
    assert rows.column("checkpoint_id").to_pylist() == [2, 4]


def test_a_record_that_is_gone_meanwhile_is_no_row(store):
    (rows,) = history_table(store).read((1, 2))
    assert rows.column("checkpoint_id").to_pylist() == [1]
    (rows,) = manifest_table(store).read((1, 3, 4))
    assert rows.column("checkpoint_id").to_pylist() == [1, 4]
    (rows,) = audit_table(store).read((9,))
    assert rows.num_rows == 0


def test_a_checkpoint_that_was_chosen_has_to_be_there(store):
    with pytest.raises(ConfigurationError, match="no completed checkpoint 3"):
        rows_of(manifest_table(store, CheckpointId(3)))


def test_damage_is_named(tmp_path):
    store = write_job(tmp_path)
    damage(store, store.paths.audit_record(1), "rotten")
    with pytest.raises(CorruptCheckpointError, match="audit/0000000001"):
        rows_of(audit_table(store))
    damage(store, store.paths.manifest(CheckpointId(2)), "rotten")
    with pytest.raises(CorruptCheckpointError, match="checkpoints/0000000002/manifest"):
        rows_of(manifest_table(store))
