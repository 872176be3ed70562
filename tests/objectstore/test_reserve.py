"""A deletion is written down also on a full disk, and never begins before that."""

import zlib

import pytest

from laminar_core.errors import ErrorCode, StorageUnavailable
from laminar_core.objectstore.local import LocalObjectStore
from laminar_core.objectstore.reserve import SLICE_BYTES, SLICES, BackedStore, keep_reserve
from laminar_core.records.retention_paths import RetentionPaths
from laminar_core.retention.facts import RetentionPolicy
from laminar_core.retention.run import Retention
from laminar_core.store.audit_log import AuditLog
from tests.objectstore.full_disks import BLOCK_BYTES, SmallDisk, fill, mounted
from tests.retention.retention_jobs import ME, StoredJob

PATHS = RetentionPaths(StoredJob().store.paths)
RESERVE_BYTES = SLICES * SLICE_BYTES
LAST = RetentionPolicy(keep_last=1)


def reserve_of(objects) -> list[str]:
    return objects.list(f"{PATHS.retention}reserve/")


def old_job(objects, checkpoints: int = 4) -> StoredJob:
    job = StoredJob(objects)
    job.start()
    for _ in range(checkpoints):
        job.complete()
    return job


def retention_of(job: StoredJob) -> Retention:
    audit = AuditLog(job.store.objects, job.store.paths, lambda: job.clock_ms)
    return Retention(job.store, LAST, lambda: job.clock_ms, audit=audit, readers=1)


def apply(job: StoredJob):
    retention = retention_of(job)
    retention.finish_earlier()
    return retention.apply(retention.plan(), ME, {})


def test_on_a_full_disk_retention_gives_the_reserve_back_and_deletes():
    disk = SmallDisk(64 << 20)
    job = old_job(disk)
    keep_reserve(disk, PATHS)
    disk.fill()
    result = apply(job)
    assert result.deleted_checkpoints == 3
    assert job.store.manifests.ids() == [4]


def test_without_a_reserve_it_fails_before_anything_is_deleted():
    disk = SmallDisk(64 << 20)
    job = old_job(disk)
    disk.fill()
    before = {key: disk.get(key) for key in disk.list("")}
    with pytest.raises(StorageUnavailable) as caught:
        apply(job)
    assert caught.value.code is ErrorCode.STORE_FULL
    assert {key: disk.get(key) for key in disk.list("")} == before


def test_audit_record_plan_and_decision_are_there_before_the_first_deletion():
    """On the full disk the same order holds: each deletion finds all three."""
    seen: list[tuple[bool, bool, bool]] = []

    class Watched(SmallDisk):
        def delete(self, key: str) -> None:
            if "/reserve/" not in key:
                acts = [r.action for r in AuditLog(self, job.store.paths, lambda: 1).records()]
                seen.append(
                    (
                        "retention-apply" in acts,
                        self.size(PATHS.plan(1)) is not None,
                        self.size(PATHS.decision(1)) is not None,
                    )
                )
            super().delete(key)

    disk = Watched(64 << 20)
    job = old_job(disk)
    keep_reserve(disk, PATHS)
    disk.fill()
    apply(job)
    assert seen
    assert set(seen) == {(True, True, True)}


def test_the_reserve_is_restored_once_there_is_space():
    disk = SmallDisk(64 << 20)
    job = old_job(disk)
    keep_reserve(disk, PATHS)
    assert len(reserve_of(disk)) == SLICES
    disk.fill()
    apply(job)
    after_release = len(reserve_of(disk))
    assert after_release < SLICES, "checkpoints of some bytes give nothing back"
    disk.size_bytes += RESERVE_BYTES
    assert apply(job) is None, "nothing to delete, so nothing is written"
    assert len(reserve_of(disk)) == after_release
    job.complete()
    apply(job)
    assert len(reserve_of(disk)) == SLICES


def test_a_driver_that_takes_what_was_given_back_costs_another_slice():
    disk = SmallDisk(64 << 20)
    keep_reserve(disk, PATHS)
    disk.fill()
    real, taken = disk._need, []

    def need(data):
        if disk.free_bytes and len(taken) < 3:
            taken.append(disk.free_bytes)
            disk.fill()
        real(data)

    disk._need = need
    assert BackedStore(disk, PATHS).put_if_absent("payments/a", b"x")
    assert taken == [SLICE_BYTES] * 3
    assert len(reserve_of(disk)) == SLICES - 4


def test_other_trouble_of_the_store_leaves_the_reserve_alone():
    disk = SmallDisk(64 << 20)
    keep_reserve(disk, PATHS)

    def broken(_data):
        raise StorageUnavailable(ErrorCode.STORE_IO, "no answer")

    disk._need = broken
    with pytest.raises(StorageUnavailable, match="no answer"):
        BackedStore(disk, PATHS).put("payments/a", b"x")
    assert len(reserve_of(disk)) == SLICES


def test_keeping_a_reserve_on_a_full_disk_is_no_error():
    disk = SmallDisk(2 * SLICE_BYTES + BLOCK_BYTES)
    keep_reserve(disk, PATHS)
    assert len(reserve_of(disk)) == 2
    keep_reserve(disk, PATHS)


def test_a_reserve_does_not_shrink_when_it_is_compressed():
    disk = SmallDisk(64 << 20)
    keep_reserve(disk, PATHS)
    data = b"".join(disk.get(key) for key in reserve_of(disk))
    assert len(zlib.compress(data)) > 0.99 * RESERVE_BYTES


def test_on_a_real_full_file_system_too(tmp_path):
    with mounted(tmp_path / "disk") as place:
        objects = LocalObjectStore(place / "store")
        job = old_job(objects)
        keep_reserve(objects, PATHS)
        fill(place)
        with pytest.raises(StorageUnavailable) as caught:
            objects.put("payments/a", bytes(BLOCK_BYTES))
        assert caught.value.code is ErrorCode.STORE_FULL
        assert apply(job).deleted_checkpoints == 3
        assert job.store.manifests.ids() == [4]
        assert not list(place.rglob(".*")), "no unfinished write is left"
