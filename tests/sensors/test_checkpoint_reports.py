"""Each completed checkpoint is reported once, however often and from wherever somebody asks."""

from collections.abc import Iterator

import dagster as dg
import pyarrow as pa
import pytest

from laminar_core.checkpoint.types import WATERMARK_END_US, CheckpointId
from laminar_core.state.arrow_codec import sha256_hex
from laminar_core.state.manifest import CheckpointManifest, fingerprint_of
from laminar_core.storage.checkpoint_store import CheckpointStore
from resources.names import checkpoint_key, checkpoint_partitions, partition_of, source_key
from sensors.checkpoint_reports import (
    integrity,
    report_new_checkpoints,
)
from tests.state.manifests import DESCRIPTIONS, manifest, subtask
from tests.storage.stores import JOB, claim, complete, damage, open_job, trigger, write

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


def publish(store: CheckpointStore, changes: CheckpointManifest) -> None:
    assert store.record_trigger(trigger(changes.checkpoint_id, changes.generation))
    store.publish(changes)


def test_a_checkpoint_is_reported_once(instance, store) -> None:
    complete(store, 1, 1)
    complete(store, 2, 1)
    assert report(instance, store) == [1, 2]
    assert report(instance, store) == []
    complete(store, 3, 1)
    assert report(instance, store) == [3]
    assert [m.partition for m in materializations(instance)] == list(map(partition_of, (1, 2, 3)))


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


def test_a_store_that_was_begun_anew_is_reported_anew(instance, store) -> None:
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


def test_the_report_names_the_manifest_and_the_pipeline(instance, store) -> None:
    written = complete(store, 7, 1)
    report(instance, store)
    (shown,) = materializations(instance)
    stored = store.objects.get(store.paths.manifest(CheckpointId(7)))
    assert stored is not None
    assert shown.tags["dagster/data_version"] == sha256_hex(stored)
    assert shown.tags["dagster/code_version"] == fingerprint_of(dict(written.fingerprint))[:12]
    assert shown.metadata["manifest"].value.endswith(
        "payments/checkpoints/0000000007/manifest.json"
    )


def test_numbers_are_plain_numbers_so_that_they_are_plotted(instance, store) -> None:
    complete(store, 7, 1)
    report(instance, store)
    (shown,) = materializations(instance)
    plotted = {name: shown.metadata[name].value for name in ("duration_ms", "size_bytes")}
    assert plotted["duration_ms"] == 40.5
    assert plotted["size_bytes"] > 0
    assert [type(value) for value in plotted.values()] == [float, int]
    assert shown.metadata["watermark"].value == 1.0
    assert [r.data["operator"] for r in shown.metadata["operators"].records] == ["window", "sink"]


def test_the_end_of_event_time_is_no_point_in_time(instance, store) -> None:
    (entry,) = manifest().alignment
    ended = entry.model_copy(update={"watermark_us": WATERMARK_END_US})
    plain = manifest(generation=1, alignment=(ended,), subtasks=_without_state())
    publish(store, plain)
    report(instance, store)
    (shown,) = materializations(instance)
    assert "watermark" not in shown.metadata


def test_the_source_is_observed_with_its_position(instance, store) -> None:
    publish(store, _with_source(store, next_row=[30, 12]))
    report(instance, store)
    (shown,) = materializations(instance)
    (record,) = instance.fetch_observations(source_key(JOB), limit=10).records
    assert shown.metadata["rows_read/window"].value == 42
    assert record.asset_observation.metadata["rows_read/window"].value == 42


def test_a_position_that_cannot_be_read_costs_only_itself(instance, store) -> None:
    written = _with_source(store, next_row=[30])
    publish(store, written)
    damage(store, store.paths.absolute(written.subtasks[0].segments[0].path), "rotten")
    assert report(instance, store) == [7]
    (shown,) = materializations(instance)
    assert not any(name.startswith("rows_read") for name in shown.metadata)


def test_a_whole_checkpoint_passes_the_integrity_check(store) -> None:
    complete(store, 1, 1)
    result = integrity(store.verify(CheckpointId(1)))
    assert result.passed
    assert result.metadata["parts"].value == 2


@pytest.mark.parametrize("how", ["missing", "torn", "rotten", "longer"])
def test_a_damaged_part_fails_the_integrity_check_by_name(store, how: str) -> None:
    written = complete(store, 1, 1)
    path = written.subtasks[1].segments[0].path
    damage(store, store.paths.absolute(path), how)
    result = integrity(store.verify(CheckpointId(1)))
    assert not result.passed
    assert list(result.metadata["damaged"].value) == [path]


def _without_state():
    return tuple(subtask(op, index) for op in ("window", "sink") for index in (0, 1))


def _with_source(store: CheckpointStore, next_row: list[int]) -> CheckpointManifest:
    """A manifest in which ``window`` is a source at these offsets."""
    splits = pa.table({"split_id": list(range(len(next_row))), "next_row": next_row})
    state = store.write_state(CheckpointId(7), "window", 0, splits)
    descriptions = {**DESCRIPTIONS, "window": {"connector": "parquet"}}
    first, *others = _without_state()
    return manifest(
        generation=1,
        operators_description=descriptions,
        fingerprint={op: fingerprint_of(text) for op, text in descriptions.items()},
        subtasks=(first.model_copy(update={"segments": (state,)}), *others),
    )
