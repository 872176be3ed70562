"""A savepoint as Dagster shows it."""

from pathlib import Path

from laminar_core.protocol.types import CheckpointId
from laminar_core.records.actor import Actor
from laminar_core.sensors.observer.savepoint_reports import savepoint_materialization
from laminar_core.store.savepoint_export import export_savepoint
from tests.store.stores import claim, complete, open_job


def test_what_is_in_it_and_where_it_comes_from(tmp_path: Path) -> None:
    store = open_job()
    complete(store, 1, claim(store))
    ann = Actor("ann", reason="to move")
    uri = export_savepoint(store, CheckpointId(1), str(tmp_path / "s"), ann, 1_700_000_000_000)
    made = savepoint_materialization("payments", uri)
    facts = {name: value.value for name, value in made.metadata.items() if name != "operators"}
    assert made.asset_key.path == ["payments", "savepoint"]
    assert made.tags == {"dagster/data_version": facts["savepoint_sha256"]}
    told = ("savepoint", "checkpoint_id", "of_job", "of_generation", "made_by", "reason")
    assert [facts[name] for name in told] == [uri, 1, "payments", 1, "ann", "to move"]
    assert facts["size_bytes"] > 0
    rows = {r.data["operator"]: r.data["rows"] for r in made.metadata["operators"].records}
    assert rows == {"window": 4, "sink": 0}
    assert facts["state_rows"] == 4


def test_one_that_is_out_of_reach_is_reported_with_its_place_and_why(tmp_path: Path) -> None:
    made = savepoint_materialization("payments", str(tmp_path / "s"))
    assert made.metadata["savepoint"].value == str(tmp_path / "s")
    assert "there is nothing at" in made.metadata["not_readable_from_here"].value
    assert not made.tags
