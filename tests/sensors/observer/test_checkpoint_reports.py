"""Each completed checkpoint is reported once, however often and from wherever somebody asks."""

from collections.abc import Iterator

import dagster as dg
import pytest

from laminar_core.protocol.types import CheckpointId
from laminar_core.resources.names import checkpoint_key, checkpoint_partitions, partition_of
from laminar_core.sensors.observer.checkpoint_reports import (
    check_integrity,
    integrity_evaluation,
    report_new_checkpoints,
)
from laminar_core.store.checkpoint_store import CheckpointStore
from tests.store.stores import JOB, claim, complete, damage, open_job, write

KEY = checkpoint_key(JOB)


@pytest.fixture
def instance() -> Iterator[dg.DagsterInstance]:
    with dg.DagsterInstance.ephemeral() as instance:
        yield instance


@pytest.fixture
def store() -> CheckpointStore:
    store = open_job()
    claim(store)
    return store


def report(instance: dg.DagsterInstance, store: CheckpointStore, limit: int = 50) -> list[int]:
    emit = instance.report_runless_asset_event
    found = report_new_checkpoints(instance, store, emit, limit)
    return [each.manifest.checkpoint_id for each in found]


def materializations(instance: dg.DagsterInstance) -> list[dg.AssetMaterialization]:
    records = instance.fetch_materializations(KEY, limit=100, ascending=True).records
    return [record.asset_materialization for record in records]


def test_a_checkpoint_is_reported_once(instance, store) -> None:
    complete(store, 1, 1)
    complete(store, 2, 1)
    assert report(instance, store) == [1, 2]
    assert report(instance, store) == []
    complete(store, 3, 1)
    assert report(instance, store) == [3]
    assert [m.partition for m in materializations(instance)] == list(map(partition_of, (1, 2, 3)))


def test_an_event_of_a_partition_that_a_user_added_is_in_nobodys_way(instance, store) -> None:
    instance.report_runless_asset_event(dg.AssetMaterialization(KEY, partition="the good one"))
    complete(store, 1, 1)
    assert report(instance, store) == [1]


def test_an_empty_store_has_nothing_to_report(instance) -> None:
    assert report(instance, open_job()) == []


def test_a_partition_is_there_for_each_report(instance, store) -> None:
    complete(store, 4, 1)
    report(instance, store)
    partitions = instance.get_dynamic_partitions(checkpoint_partitions(JOB).name)
    assert partitions == ["0000000004"]


def test_a_report_that_failed_half_way_is_completed_by_the_next(instance, store) -> None:
    for checkpoint_id in (1, 2, 3):
        complete(store, checkpoint_id, 1)

    def emit_one(event: dg.AssetMaterialization) -> None:
        if materializations(instance):
            raise OSError("the database is gone")
        instance.report_runless_asset_event(event)

    with pytest.raises(OSError, match="gone"):
        report_new_checkpoints(instance, store, emit_one)
    assert report(instance, store) == [2, 3]


def test_many_are_reported_in_parts(instance, store) -> None:
    for checkpoint_id in range(1, 6):
        complete(store, checkpoint_id, 1)
    assert [report(instance, store, limit=2) for _ in range(4)] == [[1, 2], [3, 4], [5], []]


def test_only_completed_checkpoints_are_reported(instance, store) -> None:
    complete(store, 1, 1)
    write(store, 2, 1)  # It is still running, or was given up.
    complete(store, 3, 1)
    assert report(instance, store) == [1, 3]


def test_an_orphan_of_a_fenced_generation_is_not_reported(instance, store) -> None:
    complete(store, 1, 1)
    complete(store, 2, 1)
    claim(store, base=1)
    complete(store, 3, 2)
    assert report(instance, store) == [1, 3]


def test_a_damaged_manifest_does_not_hide_the_checkpoints_after_it(instance, store) -> None:
    for checkpoint_id in (1, 2, 3):
        complete(store, checkpoint_id, 1)
    damage(store, store.paths.manifest(CheckpointId(2)), "torn")
    assert report(instance, store) == [1, 3]


def test_a_store_that_was_begun_anew_is_reported_again(instance, store) -> None:
    """Goal: numbers alone do not tell two checkpoints apart."""
    for checkpoint_id in (1, 2):
        complete(store, checkpoint_id, 1)
    report(instance, store)
    anew = open_job()
    claim(anew)
    claim(anew)
    complete(anew, 1, 2)
    assert report(instance, anew) == [1]
    assert report(instance, anew) == []
    digests = [m.tags["dagster/data_version"] for m in materializations(instance)]
    assert len(set(digests)) == 3


def test_a_whole_checkpoint_passes_the_integrity_check(store) -> None:
    complete(store, 1, 1)
    result = check_integrity(store, 1)
    assert result.passed
    assert result.metadata["parts"].value == 2


@pytest.mark.parametrize("gone", ["a part", "the manifest"])
def test_a_checkpoint_that_retention_deletes_is_no_alert(store, gone: str) -> None:
    written = complete(store, 1, 1)
    store.objects.put(store.paths.deletion(CheckpointId(1)), b"{}")
    part = store.paths.absolute(written.subtasks[1].segments[0].path)
    damage(store, part if gone == "a part" else store.paths.manifest(CheckpointId(1)), "missing")
    told = integrity_evaluation(store, CheckpointId(1))
    assert (told.passed, told.severity) == (False, dg.AssetCheckSeverity.WARN)
    assert "retention" in (told.description or "")
    assert "manifest_sha256" not in told.metadata


@pytest.mark.parametrize("how", ["missing", "torn", "rotten", "longer"])
def test_a_damaged_part_fails_the_integrity_check_by_name(store, how: str) -> None:
    written = complete(store, 1, 1)
    path = written.subtasks[1].segments[0].path
    damage(store, store.paths.absolute(path), how)
    result = check_integrity(store, 1)
    assert not result.passed
    assert list(result.metadata["damaged"].value) == [path]
